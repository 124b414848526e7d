/* `fsdp compare`: compares the results of runs from their metrics files, and checks whether their
 * losses are equal. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_compare_losses {
    FSDP_LOSSES_SAME,   /* the losses have the same bits at every step that all runs have */
    FSDP_LOSSES_DIFFER, /* the losses differ at one step or more */
    FSDP_LOSSES_APART,  /* the runs have no step in common */
} fsdp_compare_losses;

/* Print to `out` a table of losses, time per step and host memory, a table of peak memory by
 * purpose and rank, and, if there are two runs or more, how their losses compare. Every file must
 * end in a summary line: FSDP_ERR_STATE if a run has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                                              fsdp_compare_losses *losses);
