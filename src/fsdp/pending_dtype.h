/* The dtype that each parameter of a group is stored in.
 *
 * Note [Frozen parameters]. A parameter that trains is stored in master_dtype. A frozen parameter
 * has neither a gradient nor moments, and no optimizer updates it, so it does not need
 * master_dtype. It is stored in the dtype in which it was loaded, unless that dtype needs more
 * memory than master_dtype. If the stored dtype is param_dtype, operations read the parameter where
 * it is stored. requires_grad may change between steps. The new dtype is then pending until the
 * group's next forward or the next load applies it. Unfreezing widens a parameter. Freezing narrows
 * a parameter only if the conversion preserves its values on all ranks exactly, so trained values
 * are not rounded. */
#pragma once
#include "src/fsdp/param.h"

/* Return the dtype in which p should be stored. It depends on master_dtype, on requires_grad and on
 * the dtype in which p was loaded. */
fsdp_dtype fsdp_param_pending_dtype(const fsdp_param *p);
/* Has p changed since its storage was chosen, so that it needs another storage or dtype? */
bool fsdp_param_is_pending(const fsdp_param *p);
/* Set dtypes [n] to the pending dtypes of the parameters. A parameter keeps its current dtype if
 * the conversion would change a value on any rank. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_params_choose_dtypes(const fsdp_param_context *c,
                                                      const fsdp_param *params, size_t n,
                                                      fsdp_dtype *dtypes);
