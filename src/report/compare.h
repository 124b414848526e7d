/* `fsdp compare`: what runs came to, beside each other, from their metrics files; and whether their
 * losses are the same. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_compare_losses {
    FSDP_LOSSES_SAME,   /* in every bit, at every step that all runs have */
    FSDP_LOSSES_DIFFER, /* at one at least */
    FSDP_LOSSES_APART,  /* the runs have no step in common */
} fsdp_compare_losses;

/* Print to `out` a table of losses, time per step and host memory, one of peak memory by purpose
 * and rank, and how the losses compare (with two runs or more). Every file must end in a summary
 * line: FSDP_ERR_STATE if the run has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                                              fsdp_compare_losses *losses);
