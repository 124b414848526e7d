/* `fsdp classify`: prints the labels and scores that a classification model assigns to texts, like
 * transformers' pipeline("text-classification"). */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/data/form_options.h"

enum {
    FSDP_CLASSIFY_BEST = 0, /* a value of top_k: only the best label, not in a list */
    FSDP_CLASSIFY_ALL = -1  /* a value of top_k: all labels */
};

typedef struct fsdp_classify_config {
    const char *model;        /* folder or hub name */
    const char *adapter;      /* folder of a LoRA adapter for the model; NULL: none */
    const char *tokenizer;    /* NULL: the model's tokenizer */
    const char *const *texts; /* [n_texts] */
    size_t n_texts;
    /* second text of texts[0]; NULL: none. If it is not NULL, n_texts must be 1. */
    const char *pair;
    /* file of texts: a text per line, or rows of JSON, CSV or Arrow; "-": standard input, with a
     * text per line or rows of JSON; NULL: none */
    const char *input;
    /* columns of the text and of the second text in rows; NULL: the columns that `fsdp train`
     * would choose */
    const char *text_column, *text_pair_column;
    fsdp_form_options form; /* only delimiter, csv_quotes and json_field are used */
    /* number of labels to print per text, FSDP_CLASSIFY_BEST or FSDP_CLASSIFY_ALL */
    int64_t top_k;
    int batch_size;         /* number of texts that each rank processes at a time */
    int64_t max_seq_length; /* texts are cut to this many tokens; 0: to the model's maximum */
    fsdp_dtype param_dtype;
    const char *device; /* as fsdp_rank_device_create() takes it */
    int threads_per_rank;
    const char *isa;
    /* output file: CSV if its name ends with .csv, otherwise JSON lines; NULL: print JSON lines */
    const char *output;
} fsdp_classify_config;

typedef void fsdp_classify_note_fn(const char *note);

/* Classify all texts. The texts are distributed over the ranks. For each text, in the order of the
 * input, rank 0 writes a JSON object, either to `out` or to the output file. The output file gets
 * its final name when all texts have been classified. An object has the keys of the text's row in
 * the input, or "text" and "text_pair", and then "label" and "score". If top_k is not
 * FSDP_CLASSIFY_BEST, it has "predictions" instead, a list of objects with the keys "label" and
 * "score", the best first. `note` gets messages for the user, on rank 0 only. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_classify_run(const fsdp_classify_config *config, fsdp_group *group,
                                              FILE *out, fsdp_classify_note_fn *note);
