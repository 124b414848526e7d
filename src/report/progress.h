/* The text of a progress bar (fsdp/progress.h). Numbers have the format of tqdm.format_meter. */
#pragma once
#include <fsdp/progress.h>

/* The state of a bar at one moment. */
typedef struct fsdp_progress_meter {
    const char *description, *postfix; /* NULL or "": none */
    int64_t done, total;               /* the total is unknown if it is 0 or less than done */
    double elapsed_s;
    double rate; /* steps per second; 0: use the mean, done / elapsed_s */
    fsdp_progress_colour colour;
    int columns; /* columns of the terminal; 0: unknown, so the bar has 10 columns; < 0: no bar */
    bool utf8;
} fsdp_progress_meter;

/* Erase the bar before other output. The next update draws the bar again. Accepts NULL. */
void fsdp_progress_clear(fsdp_progress *progress);
/* Write the line for `meter` into `line` [bytes], and cut it to meter->columns. */
void fsdp_progress_format(const fsdp_progress_meter *meter, char *line, size_t bytes);
