/* The progress bar of `fsdp checkpoint`. It counts items of a checkpoint and is drawn on stderr if
 * that is a terminal. */
#pragma once
#include <fsdp/progress.h>

/* A bar that has not begun is zero except for its description. */
typedef struct fsdp_checkpoint_bar {
    const char *description;
    fsdp_progress *progress; /* NULL until the first step */
    size_t done;             /* items shown as done */
} fsdp_checkpoint_bar;

/* Show `done` of `total` items. An fsdp_source_progress_fn whose context is an fsdp_checkpoint_bar.
 * The first call draws the bar. */
void fsdp_checkpoint_bar_step(void *bar, size_t done, size_t total);
/* Call before other output. The next step draws the bar again. */
void fsdp_checkpoint_bar_clear(fsdp_checkpoint_bar *bar);
/* Leave the bar's last state on its line. The bar can then begin again. */
void fsdp_checkpoint_bar_end(fsdp_checkpoint_bar *bar);
