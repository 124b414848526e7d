/* Compares training runs by what they reported: their results, and whether their losses are
 * equal. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef enum fsdp_compare_losses {
    /* Each run has at least one step in common with the first run. At all common steps, the losses
     * of the two runs are the same, bit for bit. */
    FSDP_LOSSES_SAME,
    /* The loss of at least one run differs from the loss of the first run at the same step. */
    FSDP_LOSSES_DIFFER,
    /* At least one run has no step in common with the first run, so its losses could not be
     * compared. The losses of the other runs are the same as those of the first run at all common
     * steps. */
    FSDP_LOSSES_APART,
} fsdp_compare_losses;

/* Compare the losses of each run with those of the first run, and set *losses to the result. Print
 * the result and two tables to `out`. One table has the losses, the time per step and the host
 * memory of each run; what a run did not report is "-". The other table has the peak memory by
 * purpose and rank of runs with a file of metrics. `paths` [n] are the runs, as fsdp_run_find()
 * takes them. Event files have losses in float32. If only one of two runs has event files, the
 * losses of the other run are rounded to float32 before the comparison. Returns FSDP_ERR_STATE if a
 * file of metrics has no summary line, because its run has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                                              fsdp_compare_losses *losses);
