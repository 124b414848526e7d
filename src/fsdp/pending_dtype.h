/* Chooses the dtype in which each parameter of a group is stored.
 *
 * Note [Frozen parameters]. A parameter that trains is stored in master_dtype. A frozen parameter
 * does not need master_dtype, because it has neither a gradient nor moments, and no optimizer
 * updates it. It is stored in the dtype in which it was loaded. If that dtype needs more memory
 * than master_dtype, it is stored in master_dtype instead. If a parameter is stored in param_dtype,
 * operations read it where it is stored.
 *
 * requires_grad may change between steps. If this changes the dtype, the new dtype is pending until
 * the group's next forward or the next load applies it. Unfreezing converts a parameter to
 * master_dtype. Freezing converts it to the dtype in which it was loaded, but only if this
 * preserves its values exactly on all ranks. So trained values are not rounded. */
#pragma once
#include "src/fsdp/param.h"

/* Return the dtype in which p should be stored. It depends on master_dtype, on requires_grad and on
 * the dtype in which p was loaded. */
fsdp_dtype fsdp_param_pending_dtype(const fsdp_param *p);
/* Return true if the storage or the dtype of p must change, because requires_grad has changed or
 * because new values are about to be loaded. */
bool fsdp_param_is_pending(const fsdp_param *p);
/* Set dtypes [n] to the pending dtypes of the parameters. A parameter keeps its current dtype if
 * the conversion would change a value on any rank. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_params_choose_dtypes(const fsdp_param_context *c,
                                                      const fsdp_param *params, size_t n,
                                                      fsdp_dtype *dtypes);
