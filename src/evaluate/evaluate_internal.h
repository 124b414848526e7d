/* Declarations that evaluate.c shares with evaluate_report.c. */
#pragma once
#include <fsdp/batch.h>

#include "src/evaluate/evaluate.h"

/* The texts of rows; owned. */
typedef struct fsdp_text_rows {
    char **items; /* [n], NULL: no text */
    size_t n;
} fsdp_text_rows;

/* The results of one model. */
typedef struct fsdp_evaluation {
    char name[160];
    double loss;         /* mean over the label tokens */
    double accuracy, f1; /* accuracy and F1 of a classifier */
    int64_t labels, rows;
    double loss_s, generate_s;
    /* generated texts: on rank 0 those of all ranks; empty if none were generated */
    fsdp_text_rows texts;
} fsdp_evaluation;

typedef struct fsdp_evaluations {
    const fsdp_evaluate_config *config;
    fsdp_evaluation *items; /* [n] */
    size_t n;
    fsdp_task task;            /* the same for all models */
    bool have_texts;           /* the data has references */
    char no_texts[256];        /* why have_texts is false */
    fsdp_text_rows references; /* rank 0: the references of all rows */
    fsdp_text_rows candidates; /* rank 0: targets of --baseline-data */
    fsdp_text_rows prompts;    /* rank 0: the sources of all rows, for --prompts */
} fsdp_evaluations;

/* Print tables or one JSON line to `out`, then write the files of texts. */
FSDP_MUST_CHECK fsdp_status fsdp_evaluations_report(const fsdp_evaluations *e, FILE *out);
