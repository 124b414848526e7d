/* Compares the ROUGE of one or more sets of predictions with each other and with that of the best
 * constant sentence, and prints some of the texts. */
#pragma once
#include <stdio.h>

#include "src/evaluate/rouge.h"

typedef struct fsdp_rouge_predictions {
    const char *name;               /* "before training", or a model's folder */
    const char *const *predictions; /* [n], one for each reference */
} fsdp_rouge_predictions;

typedef struct fsdp_rouge_report_options {
    const char *const *candidates; /* candidates for the best constant sentence: the training
                                      summaries */
    size_t n_candidates;           /* 0: the constant sentence is left out */
    size_t examples;               /* number of texts to print with their references */
} fsdp_rouge_report_options;

/* The scores of the table's rows, for callers that also write them elsewhere. */
typedef struct fsdp_rouge_report_scores {
    /* [n_sets], provided by the caller to receive the sets' scores; NULL: not needed */
    fsdp_rouge *of_sets;
    fsdp_rouge constant; /* scores of the best constant sentence */
    size_t best;         /* index of the best constant sentence among the candidates */
} fsdp_rouge_report_scores;

/* Print to `file` a table of F-measures, with a row for each of `sets` [n_sets] and one for the
 * best constant sentence, and then some examples. `scores` may be NULL. Returns FSDP_ERR_INVALID if
 * there are no references. */
FSDP_MUST_CHECK fsdp_status fsdp_rouge_report(FILE *file, const char *const *references, size_t n,
                                              const fsdp_rouge_predictions *sets, size_t n_sets,
                                              const fsdp_rouge_report_options *options,
                                              fsdp_rouge_report_scores *scores);
