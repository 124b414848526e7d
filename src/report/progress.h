/* Formats the text of a progress bar (fsdp/progress.h). Numbers look like those of
 * tqdm.format_meter. */
#pragma once
#include <fsdp/progress.h>

/* The state of a bar at one moment. */
typedef struct fsdp_progress_meter {
    const char *description, *postfix; /* text before and after the bar; NULL or "": none */
    /* Numbers of steps. The total is unknown if `total` is 0 or less than `done`. */
    int64_t done, total;
    double elapsed_s;
    double rate; /* steps per second; 0: show the mean, done / elapsed_s */
    fsdp_progress_color color;
    /* Width of the terminal in columns. 0: the width is unknown, so the bar has 10 columns. < 0:
     * the line has no bar. */
    int columns;
    bool utf8;
} fsdp_progress_meter;

/* Erase the bar from the terminal. Call this before other output is printed. The next update draws
 * the bar again. Accepts NULL. */
void fsdp_progress_clear(fsdp_progress *progress);
/* Write the line for `meter` to line [bytes]. If meter->columns is more than 0, the line is
 * truncated to that width. */
void fsdp_progress_format(const fsdp_progress_meter *meter, char *line, size_t bytes);
