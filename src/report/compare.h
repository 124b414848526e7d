/* Compares training runs by their metrics files: their results, and whether their losses are
 * equal. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_compare_losses {
    /* All runs have the same losses, bit for bit, at the steps that they share with the first
     * run. */
    FSDP_LOSSES_SAME,
    /* At one step or more, a run has another loss than the first run. */
    FSDP_LOSSES_DIFFER,
    /* A run has no step in common with the first run, and no losses differ. */
    FSDP_LOSSES_APART,
} fsdp_compare_losses;

/* Print two tables and the result of a comparison to `out`. One table has losses, time per step and
 * host memory. The other has the peak memory by purpose and rank. The comparison is between the
 * losses of each run and those of the first run, and *losses is set to its result. Returns
 * FSDP_ERR_STATE if a file has no summary line, because its run has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                                              fsdp_compare_losses *losses);
