/* Private functions for Accelerate's checkpoint folders. They write and recognize whole folders,
 * and read and write the small files inside. */
#pragma once
#include <fsdp/accelerate.h>

/* Save as fsdp_accelerate_save_state() does, but into the existing directory `dir`. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_write(const fsdp_accelerate_state *state,
                                                  const char *dir, fsdp_group *group,
                                                  const fsdp_accelerate_options *options);
/* Return true if `dir` contains a model under one of Accelerate's names. The model may have a
 * format that this library cannot read. */
bool fsdp_accelerate_is_folder(const char *dir);

/* Write random_states_<rank>.pkl. It contains the states that the random generators of Python,
 * NumPy and torch have after set_seed(seed). */
FSDP_MUST_CHECK fsdp_status fsdp_random_states_write(const char *dir, int rank, uint64_t seed);

/* Write scheduler.bin for an optimizer with n_groups parameter groups. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scheduler_write(
    const fsdp_accelerate_scheduler *scheduler, int n_groups, const char *path);
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scheduler_read(const char *path,
                                                           fsdp_accelerate_scheduler *scheduler);

/* Write scaler.pt. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scaler_write(const fsdp_grad_scaler *scaler,
                                                         const char *path);
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_scaler_read(const char *path, fsdp_grad_scaler *scaler);
