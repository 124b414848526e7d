/* The progress bar of `fsdp checkpoint`: items of a checkpoint, on stderr if that is a terminal. */
#pragma once
#include <fsdp/progress.h>

/* Zero but for its description is one that has not begun. */
typedef struct fsdp_checkpoint_bar {
    const char *description;
    fsdp_progress *progress; /* NULL until the first step */
    size_t done;             /* items that it shows */
} fsdp_checkpoint_bar;

/* `done` of `total` items; an fsdp_source_progress_fn, whose context is an fsdp_checkpoint_bar. The
 * first call draws the bar. */
void fsdp_checkpoint_bar_step(void *bar, size_t done, size_t total);
/* Before other output: the next step draws the bar again. */
void fsdp_checkpoint_bar_clear(fsdp_checkpoint_bar *bar);
/* Leaves the bar's last state on its line, and the bar as one that has not begun. */
void fsdp_checkpoint_bar_end(fsdp_checkpoint_bar *bar);
