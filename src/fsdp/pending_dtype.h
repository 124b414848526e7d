/* In which dtype each parameter of a group is stored.
 *
 * Note [Frozen parameters]. What trains is stored in master_dtype. A frozen parameter has neither
 * gradient nor moments, so its master is no more than its value: it is stored in the dtype that it
 * was loaded in, if that takes no more memory, each rank its own rows; where that is param_dtype,
 * operations read it where it is stored. requires_grad may change between steps. The dtype is then
 * pending until the group's next forward, or the next load, applies it. Unfreezing widens. Freezing
 * narrows only what comes back equal in every bit, on all ranks: a value that was trained stays as
 * it is. */
#pragma once
#include "src/fsdp/param.h"

/* The dtype that p is to be stored in, by its master_dtype, requires_grad and the file it is loaded
 * from. */
fsdp_dtype fsdp_param_pending_dtype(const fsdp_param *p);
/* Has p changed since its storage was chosen, so that it is to be stored in another way? */
bool fsdp_param_is_pending(const fsdp_param *p);
/* Pending dtypes [n], but for parameters whose values would not come back equal on some rank.
 * Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_params_choose_dtypes(const fsdp_param_context *c,
                                                      const fsdp_param *params, size_t n,
                                                      fsdp_dtype *dtypes);
