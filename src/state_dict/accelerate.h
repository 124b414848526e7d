/* Inside of Accelerate's folders. */
#pragma once
#include <fsdp/accelerate.h>

/* fsdp_accelerate_save_state() into the existing directory `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_write(const fsdp_accelerate_state *state,
                                                  const char *dir, fsdp_group *group,
                                                  const fsdp_accelerate_options *options);
/* Does `dir` hold a first model as Accelerate names it, even if it cannot be read here? */
bool fsdp_accelerate_is_folder(const char *dir);

/* random_states_<rank>.pkl: generators as set_seed(seed) leaves them. */
FSDP_MUST_CHECK fsdp_status fsdp_random_states_write(const char *dir, int rank, uint64_t seed);

/* scheduler.bin, of an optimizer with n_groups parameter groups. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scheduler_write(
    const fsdp_accelerate_scheduler *scheduler, int n_groups, const char *path);
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scheduler_read(const char *path,
                                                           fsdp_accelerate_scheduler *scheduler);

/* scaler.pt. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scaler_write(const fsdp_grad_scaler *scaler,
                                                         const char *path);
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scaler_read(const char *path, fsdp_grad_scaler *scaler);
