/* `fsdp compare`: compares the results of runs from their metrics files, and checks whether their
 * losses are equal. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_compare_losses {
    FSDP_LOSSES_SAME,   /* the losses have the same bits at every step that a run shares with the
                           first run */
    FSDP_LOSSES_DIFFER, /* a loss differs from that of the first run at one step or more */
    FSDP_LOSSES_APART,  /* a run has no step in common with the first run */
} fsdp_compare_losses;

/* Print to `out` a table of losses, time per step and host memory, a table of peak memory by
 * purpose and rank, and a comparison of each run's losses with those of the first run. Returns
 * FSDP_ERR_STATE if a file does not end in a summary line, because its run has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                                              fsdp_compare_losses *losses);
