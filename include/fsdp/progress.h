/**
 * @file
 * Progress bars like tqdm's.
 *
 * On a terminal, a bar looks like this:
 *
 *     r0 Training Epoch:  45%|████▌     | 90/200 [00:12<00:15,  7.21it/s, loss=2.345]
 *
 * If the stream is not a terminal (e.g. a log file or a pipe), a plain line is printed from time to
 * time, without carriage returns. A bar must be used by one thread only.
 */
#pragma once
#include <stdio.h>
#include <stdint.h>
#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fsdp_progress_color {
    FSDP_PROGRESS_PLAIN,
    FSDP_PROGRESS_BLUE,  /**< color of the tutorials' training bar */
    FSDP_PROGRESS_GREEN, /**< color of the tutorials' validation bar */
} fsdp_progress_color;

typedef enum fsdp_progress_style {
    FSDP_PROGRESS_AUTO,  /**< BAR on a terminal, otherwise LINES */
    FSDP_PROGRESS_BAR,   /**< one line, redrawn at most 10 times a second */
    FSDP_PROGRESS_LINES, /**< print a line each time that a tenth of the steps has been done since
                              the last line. But there are at least 3 s and at most about 30 s
                              between two lines */
    FSDP_PROGRESS_OFF,   /**< print nothing; for ranks other than 0 */
} fsdp_progress_style;

/** Zero means default. */
typedef struct fsdp_progress_options {
    FILE *file;              /**< borrowed; NULL: stderr */
    const char *description; /**< copied; NULL: none */
    int64_t total;           /**< number of steps of the whole bar; 0: unknown */
    fsdp_progress_color color;
    fsdp_progress_style style;
    int64_t line_steps; /**< LINES: print a line every `line_steps` steps; 0: as described at
                             FSDP_PROGRESS_LINES */
} fsdp_progress_options;

typedef struct fsdp_progress fsdp_progress;

/**
 * Create a bar. In style BAR, draw it empty.
 * @param progress out: owned by the caller, destroyed with fsdp_progress_destroy()
 * @return FSDP_ERR_NOMEM
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_progress_create(const fsdp_progress_options *options,
                                                          fsdp_progress **progress);
/** Draw the last state, end the line and free the bar. Accepts NULL. */
FSDP_API void fsdp_progress_destroy(fsdp_progress *progress);
/** Advance the bar by `steps`. `postfix` is the format of a text that is shown at the end of the
 * bar, e.g. "loss=%.3f". If `postfix` is NULL, the text of the last call stays. Has no effect if
 * `progress` is NULL. */
FSDP_API FSDP_PRINTF(3, 4) void fsdp_progress_update(fsdp_progress *progress, int64_t steps,
                                                     const char *postfix, ...);
/** Print a line above the bar, like tqdm.write(). A newline is added. `progress` must not be
 * NULL. */
FSDP_API FSDP_PRINTF(2, 3) void fsdp_progress_print(fsdp_progress *progress, const char *format,
                                                    ...);

#ifdef __cplusplus
}
#endif
