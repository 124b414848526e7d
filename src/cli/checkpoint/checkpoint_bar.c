/* See checkpoint_bar.h. */
#include "src/cli/checkpoint/checkpoint_bar.h"

#include "src/report/progress.h"
#include "src/report/terminal.h"

/* Create the bar. If there is no memory for it, set bar->progress to NULL; the subcommand then runs
 * without a bar. */
static void begin_bar(fsdp_checkpoint_bar *bar, size_t total)
{
    const fsdp_progress_options options = {.description = bar->description,
                                           .total = (int64_t)total,
                                           .style = fsdp_terminal_is(stderr) ? FSDP_PROGRESS_BAR
                                                                             : FSDP_PROGRESS_OFF};
    if (fsdp_progress_create(&options, &bar->progress) != FSDP_OK)
        bar->progress = NULL;
}

void fsdp_checkpoint_bar_step(void *context, size_t done, size_t total)
{
    fsdp_checkpoint_bar *bar = context;
    if (!bar->progress)
        begin_bar(bar, total);
    fsdp_progress_update(bar->progress, (int64_t)done - (int64_t)bar->done, NULL);
    bar->done = done;
}

void fsdp_checkpoint_bar_clear(fsdp_checkpoint_bar *bar)
{
    fsdp_progress_clear(bar->progress);
}

void fsdp_checkpoint_bar_end(fsdp_checkpoint_bar *bar)
{
    fsdp_progress_destroy(bar->progress);
    bar->progress = NULL;
    bar->done = 0;
}
