/**
 * @file
 * A profiler for training steps, like torch.profiler. It makes a trace of a few steps, for
 * chrome://tracing and https://ui.perfetto.dev, and adds up the time of these steps by category.
 *
 *     fsdp_profile_options options = {.path = "trace.json", .first_step = 3, .n_steps = 3};
 *     FSDP_TRY(fsdp_profile_create(group, &options, &profile));
 *     for (...) {
 *         FSDP_TRY(fsdp_profile_step_begin(profile));
 *         ... forward, backward, fsdp_optimizer_step ...
 *         FSDP_TRY(fsdp_profile_step_end(profile));
 *     }
 *     FSDP_TRY(fsdp_profile_print(profile, stdout));
 *     fsdp_profile_destroy(profile);
 */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_profile fsdp_profile;

/** Selects the steps that are profiled, which are called the window. Zero means default. */
typedef struct fsdp_profile_options {
    const char *path;    /**< trace file, which rank 0 writes after the last step of the window. It
                              appears complete or not at all. NULL: no file. Copied. Other ranks
                              ignore this field. */
    fsdp_device *device; /**< the device of the model, which must exist as long as the profiler. If
                            it runs kernels later than they are started, as a card does, the times
                            of the device are measured, too. NULL: only times of the host */
    int64_t first_step;  /**< first step of the window; the first call of fsdp_profile_step_begin()
                              begins step 0 */
    int64_t n_steps;     /**< number of steps in the window; 0 means 3 */
    size_t max_events; /**< number of events (104 bytes each) that each rank keeps for the file; 0:
                            65536. If there are more events, only the newest ones are kept. The
                            times by category include all events. */
} fsdp_profile_options;

/** Time of one category. Categories do not overlap. The last row is the whole step: the sum of all
 * other rows. */
typedef struct fsdp_profile_row {
    const char *name;    /**< "matmul", "attention", "other operations", "optimizer",
                              "sharding itself", "waiting for peers", "data", "unexplained rest",
                              "step"; static */
    double ms;           /**< wall-clock time of the category in one step, in ms, as the mean over
                              steps and ranks */
    double share;        /**< ms as a fraction of the step's ms, 0 to 1 */
    double cpu_ms;       /**< like ms, but CPU time of the thread that runs the steps instead of
                              wall-clock time; other processes do not affect CPU time */
    double cpu_share;    /**< cpu_ms as a fraction of the step's cpu_ms, 0 to 1 */
    double device_ms;    /**< like ms, but on the device. A part of a step lasts from the end of the
                              kernels that were started earlier to the end of its own kernels. This
                              includes the time in which the device waited for the host. 0 if the
                              device has no time of its own */
    double device_share; /**< device_ms as a fraction of the step's device_ms, 0 to 1 */
} fsdp_profile_row;

/**
 * Create a profiler. Collective over `group`.
 * @param group   borrowed; NULL: this rank alone
 * @param options NULL: all defaults: times by category, but no file
 * @param profile out: owned by the caller, destroyed with fsdp_profile_destroy()
 * @return FSDP_ERR_IO on all ranks if rank 0 cannot write `path`; FSDP_ERR_INVALID for a negative
 *         step; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_create(fsdp_group *group,
                                                         const fsdp_profile_options *options,
                                                         fsdp_profile **profile);
/** Accepts NULL. Call it on the thread that ran the steps. */
FSDP_API void fsdp_profile_destroy(fsdp_profile *profile);

/**
 * Begin a step on the calling thread. All steps must run on the same thread. A previous step that
 * was not ended counts as failed. If the failed step was in the window, the window restarts with
 * the new step. If `profile` is NULL, the function has no effect.
 * @return FSDP_ERR_STATE if the calling thread is in a step of another profiler; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_begin(fsdp_profile *profile);
/**
 * End a step. Do not call this function for a step that failed. The call for the last step of the
 * window is collective. This call computes the times by category and writes the file. If `profile`
 * is NULL, the function has no effect.
 * @return FSDP_ERR_IO on all ranks if rank 0 could not write the file.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_end(fsdp_profile *profile);

/** Get the time by category: [*n] rows, which are the same on all ranks. *n is 0 before the window
 * has ended. The profiler owns the rows. */
FSDP_API const fsdp_profile_row *fsdp_profile_rows(const fsdp_profile *profile, size_t *n);
/** Print the rows as a table, followed by the most expensive operations by name on this rank.
 * Before the window has ended, print nothing. Return FSDP_ERR_IO if writing to `out` fails. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_print(const fsdp_profile *profile, FILE *out);

#ifdef __cplusplus
}
#endif
