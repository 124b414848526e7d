/* The text of a progress bar (fsdp/progress.h), with numbers formatted as by tqdm.format_meter. */
#pragma once
#include <fsdp/progress.h>

/* The state of a bar at one moment. */
typedef struct fsdp_progress_meter {
    const char *description, *postfix; /* NULL or "": none */
    int64_t done, total;               /* total 0 or less than done: unknown */
    double elapsed_s;
    double rate; /* steps per second; 0: the mean, done / elapsed_s */
    fsdp_progress_colour colour;
    int columns; /* of the terminal; 0: a bar of 10 columns, < 0: no bar */
    bool utf8;
} fsdp_progress_meter;

/* Erase the bar for other output; the next update draws it again. Accepts NULL. */
void fsdp_progress_clear(fsdp_progress *progress);
/* Write the line for `meter` into `line` [bytes], cut to its columns. */
void fsdp_progress_format(const fsdp_progress_meter *meter, char *line, size_t bytes);
