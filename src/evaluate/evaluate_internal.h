/* Declarations that evaluate.c shares with evaluate_report.c. */
#pragma once
#include <fsdp/batch.h>

#include "src/evaluate/evaluate.h"
#include "src/train/measures.h"

/* One text for each row of a data set; owned. */
typedef struct fsdp_text_rows {
    char **items; /* [n]; NULL: the text of this row is not known */
    size_t n;
} fsdp_text_rows;

/* The results of one model. */
typedef struct fsdp_evaluation {
    char *name;             /* as in --model; owned */
    double loss;            /* mean over the label tokens */
    fsdp_measures measures; /* only for classifiers */
    int64_t labels, rows;
    double loss_s, generate_s;
    /* generated texts; on rank 0 for all rows, elsewhere for the rows of this rank; empty if the
     * run generates no texts */
    fsdp_text_rows texts;
} fsdp_evaluation;

typedef struct fsdp_evaluations {
    const fsdp_evaluate_config *config;
    fsdp_evaluation *items; /* [n] */
    size_t n;
    fsdp_task task;                 /* the same for all models */
    fsdp_problem_type problem_type; /* only for classifiers; the same for all models */
    bool have_texts;                /* `references` is filled, so each model generates texts */
    /* why the texts of the data cannot be read, if have_texts is false */
    char no_texts[256];
    fsdp_text_rows references; /* targets of all rows; only rank 0 uses them */
    fsdp_text_rows candidates; /* rank 0: targets of --baseline-data; empty elsewhere */
    fsdp_text_rows prompts;    /* rank 0: sources of all rows, for --prompts; empty elsewhere */
} fsdp_evaluations;

/* Print tables or one JSON line to `out`, then write the files --prompts and --predictions. */
FSDP_MUST_CHECK fsdp_status fsdp_evaluations_report(const fsdp_evaluations *e, FILE *out);
