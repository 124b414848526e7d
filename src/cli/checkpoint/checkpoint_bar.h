/* The progress bar of `fsdp checkpoint`. It counts items of a checkpoint and is drawn on stderr if
 * stderr is a terminal. */
#pragma once
#include <fsdp/progress.h>

/* The caller sets `description`, and sets the other fields to zero. */
typedef struct fsdp_checkpoint_bar {
    const char *description;
    fsdp_progress *progress; /* NULL until the first call of fsdp_checkpoint_bar_step() */
    size_t done;             /* number of items that the bar shows as done */
} fsdp_checkpoint_bar;

/* An fsdp_source_progress_fn that shows that `done` of `total` items are done. `bar` is an
 * fsdp_checkpoint_bar. The first call creates the bar. */
void fsdp_checkpoint_bar_step(void *bar, size_t done, size_t total);
/* Erase the bar from the terminal. Call this before other output is printed. The next step draws
 * the bar again. */
void fsdp_checkpoint_bar_clear(fsdp_checkpoint_bar *bar);
/* End the bar and leave its last state on the terminal. The next step begins a new bar. */
void fsdp_checkpoint_bar_end(fsdp_checkpoint_bar *bar);
