/**
 * @file
 * Where the time of a training step goes, as torch.profiler: a trace of a few steps for
 * chrome://tracing and https://ui.perfetto.dev, and time by category.
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

/** Zero means default. */
typedef struct fsdp_profile_options {
    const char *path; /**< file that rank 0 writes when the last step of the window has ended, whole
                           or not at all; NULL: none. Rank 0's counts. Copied */
    int64_t first_step; /**< of the window; steps are counted from 0 */
    int64_t n_steps;    /**< of the window; 0: 3 */
    size_t max_events;  /**< that a rank keeps for the file (96 bytes each), the newest; 0: 65536.
                             Sums count all */
} fsdp_profile_options;

/** Time of one category. A piece of time belongs to one category, so all rows but the last add up
 * to the last, which is the step. */
typedef struct fsdp_profile_row {
    const char *name; /**< "matmul", "attention", "other operations", "optimizer",
                           "sharding itself", "waiting for peers", "data", "unexplained rest",
                           "step"; static */
    double ms;        /**< per step, mean over ranks */
    double share;     /**< of the step, 0 to 1 */
    double cpu_ms;    /**< the same of processor time of the rank's own thread, */
    double cpu_share; /**< which other processes do not lengthen */
} fsdp_profile_row;

/**
 * Collective over `group`.
 * @param group   borrowed; NULL: this rank alone
 * @param options NULL: all defaults, which is sums without a file
 * @param profile out: owned by the caller, ended by fsdp_profile_destroy()
 * @return on all ranks FSDP_ERR_IO if rank 0 cannot write `path`; FSDP_ERR_INVALID for a negative
 *         step; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_create(fsdp_group *group,
                                                         const fsdp_profile_options *options,
                                                         fsdp_profile **profile);
/** Accepts NULL. On the thread that ran the steps. */
FSDP_API void fsdp_profile_destroy(fsdp_profile *profile);

/**
 * A step begins on the calling thread, which is the same for all of them. NULL: no effect. If the
 * last one was in the window and has not ended, it failed, and the window begins anew with this
 * one.
 * @return FSDP_ERR_STATE if this thread is in a step of another profile; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_begin(fsdp_profile *profile);
/**
 * It ends. After the last step of the window collective: sums and file. NULL: no effect. Not called
 * for a step that failed.
 * @return on all ranks FSDP_ERR_IO if rank 0 could not write the file.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_step_end(fsdp_profile *profile);

/** The same on all ranks; *n 0 before the window has ended. Borrowed. */
FSDP_API const fsdp_profile_row *fsdp_profile_rows(const fsdp_profile *profile, size_t *n);
/** Those rows as a table, and what is most expensive by name on this rank. Nothing before the
 * window has ended. FSDP_ERR_IO if `out` does not take it. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_profile_print(const fsdp_profile *profile, FILE *out);

#ifdef __cplusplus
}
#endif
