/**
 * @file
 * A profiler for training steps, like torch.profiler: a trace of a few steps for chrome://tracing
 * and https://ui.perfetto.dev, and time by category.
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

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_profile fsdp_profile;

/** The window is the range of steps that is profiled. Zero means default. */
typedef struct fsdp_profile_options {
    const char *path;   /**< trace file, which rank 0 writes after the last step of the window. It
                             appears complete or not at all. NULL: no file. Rank 0's value is used.
                             Copied. */
    int64_t first_step; /**< first step of the window, counted from 0 */
    int64_t n_steps;    /**< number of steps in the window; 0: 3 */
    size_t max_events;  /**< each rank keeps this many of its newest events for the file, 96 bytes
                             each; 0: 65536. The times by category include all events. */
} fsdp_profile_options;

/** Time of one category. Categories do not overlap. The last row is the whole step, and the other
 * rows add up to it. */
typedef struct fsdp_profile_row {
    const char *name; /**< "matmul", "attention", "other operations", "optimizer",
                           "sharding itself", "waiting for peers", "data", "unexplained rest",
                           "step"; static */
    double ms;        /**< per step, mean over ranks */
    double share;     /**< fraction of the step, 0 to 1 */
    double cpu_ms;    /**< CPU time of the rank's own thread in ms; other processes do not affect
                           it */
    double cpu_share; /**< cpu_ms as a fraction of the step, 0 to 1 */
} fsdp_profile_row;

/**
 * Create a profiler. Collective over `group`.
 * @param group   borrowed; NULL: this rank alone
 * @param options NULL: all defaults, which compute sums and write no file
 * @param profile out: owned by the caller, ended by fsdp_profile_destroy()
 * @return FSDP_ERR_IO on all ranks if rank 0 cannot write `path`; FSDP_ERR_INVALID for a negative
 *         step; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_create(fsdp_group *group,
                                                         const fsdp_profile_options *options,
                                                         fsdp_profile **profile);
/** Accepts NULL. Call it on the thread that ran the steps. */
FSDP_API void fsdp_profile_destroy(fsdp_profile *profile);

/**
 * Begin a step on the calling thread, which must be the same for all steps. If `profile` is NULL,
 * this has no effect. If a step of the window was begun but not ended, it counts as failed, and the
 * window restarts with the new step.
 * @return FSDP_ERR_STATE if this thread is in a step of another profile; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_begin(fsdp_profile *profile);
/**
 * End a step. Do not call this for a step that failed. The call that ends the window is collective:
 * it computes the times by category and writes the file. If `profile` is NULL, this has no effect.
 * @return FSDP_ERR_IO on all ranks if rank 0 could not write the file.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_end(fsdp_profile *profile);

/** Get the time by category: [*n] rows, which are the same on all ranks. *n is 0 before the window
 * has ended. Borrowed. */
FSDP_API const fsdp_profile_row *fsdp_profile_rows(const fsdp_profile *profile, size_t *n);
/** Print the rows as a table, followed by the most expensive operations by name on this rank.
 * Prints nothing before the window has ended. FSDP_ERR_IO if writing to `out` fails. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_print(const fsdp_profile *profile, FILE *out);

#ifdef __cplusplus
}
#endif
