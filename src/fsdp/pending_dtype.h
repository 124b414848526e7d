/* The dtype that each parameter of a group is stored in.
 *
 * Note [Frozen parameters]. A parameter that trains is stored in master_dtype. A frozen parameter
 * has neither gradient nor moments, and its master weights serve only as its value. So it is stored
 * in the dtype that it was loaded in, unless this takes more memory than master_dtype. Each rank
 * stores its own rows. If this dtype is param_dtype, operations read the parameter where it is
 * stored. requires_grad may change between steps. The new dtype is then pending until the group's
 * next forward or the next load applies it. Unfreezing widens a parameter. Freezing narrows it only
 * if all its values on all ranks survive the conversion bit for bit, so trained values are not
 * rounded. */
#pragma once
#include "src/fsdp/param.h"

/* The dtype that p should have, by master_dtype, requires_grad and the dtype it is loaded in. */
fsdp_dtype fsdp_param_pending_dtype(const fsdp_param *p);
/* Has p changed since its storage was chosen, so that it needs another storage or dtype? */
bool fsdp_param_is_pending(const fsdp_param *p);
/* dtypes [n] = the pending dtypes. A parameter keeps its dtype if its values would not survive the
 * conversion on some rank. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_params_choose_dtypes(const fsdp_param_context *c,
                                                      const fsdp_param *params, size_t n,
                                                      fsdp_dtype *dtypes);
