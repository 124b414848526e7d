/* Prints a table that compares sets of predictions by their ROUGE scores. The table may also have a
 * row for the best constant sentence. Some of the predictions are printed after the table. */
#pragma once
#include <stdio.h>

#include "src/report/rouge.h"

typedef struct fsdp_rouge_predictions {
    const char *name; /* name of the row in the table: "before training", or a model's folder */
    const char *const *predictions; /* [n], one for each reference */
} fsdp_rouge_predictions;

typedef struct fsdp_rouge_report_options {
    /* candidates for the best constant sentence (fsdp_rouge_best_constant()), usually the training
     * summaries */
    const char *const *candidates;
    size_t n_candidates; /* 0: no row for the best constant sentence */
    size_t examples;     /* number of references to print with their predictions */
} fsdp_rouge_report_options;

/* The scores that the table shows, for callers that also need them for other outputs. */
typedef struct fsdp_rouge_report_scores {
    /* [n_sets]: memory that the caller provides for the scores of each set of predictions; NULL:
     * not needed */
    fsdp_rouge *of_sets;
    fsdp_rouge constant; /* scores of the best constant sentence */
    size_t best;         /* index of the best constant sentence in `candidates` */
} fsdp_rouge_report_scores;

/* Print a table of F-measures to `file`. Each of `sets` [n_sets] has a row. If there are
 * candidates, the best constant sentence has a row, too: the candidate that scores best when it is
 * the prediction for every reference. Then print some references with their predictions. `scores`
 * may be NULL. Returns FSDP_ERR_INVALID if there are no references. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_report(FILE *file, const char *const *references, size_t n,
                                              const fsdp_rouge_predictions *sets, size_t n_sets,
                                              const fsdp_rouge_report_options *options,
                                              fsdp_rouge_report_scores *scores);
