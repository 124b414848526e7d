/* `fsdp classify`: the labels that a classifier gives to texts, as transformers'
 * pipeline("text-classification") does. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/data/form_options.h"

enum {
    FSDP_CLASSIFY_BEST = 0, /* top_k: the best label only, not in a list */
    FSDP_CLASSIFY_ALL = -1  /* top_k: all labels */
};

typedef struct fsdp_classify_config {
    const char *model;        /* folder or hub name */
    const char *tokenizer;    /* NULL: the model's */
    const char *const *texts; /* [n_texts] */
    size_t n_texts;
    const char *pair; /* the second text of the only entry of `texts`; NULL: none */
    /* File of texts: a text per line, or rows of JSON, CSV or Arrow; "-": standard input, a text
     * per line; NULL: none. */
    const char *input;
    const char *text_column,
        *text_pair_column;  /* columns of rows; NULL: those that training would use */
    fsdp_form_options form; /* only delimiter, csv_quotes and json_field are used */
    int64_t top_k;          /* number of labels of each text, or FSDP_CLASSIFY_... */
    int batch_size;         /* texts per rank at a time */
    int64_t max_seq_length; /* tokens to which texts are cut; 0: as many as the model takes */
    fsdp_dtype param_dtype;
    const char *device; /* as fsdp_rank_device_create() takes it */
    int threads_per_rank;
    const char *isa;
    const char *output; /* JSON lines or, if the name ends with .csv, CSV; NULL: print JSON lines */
} fsdp_classify_config;

typedef void fsdp_classify_note_fn(const char *note);

/* Classify all texts. The texts are distributed over the ranks. Rank 0 prints a JSON object for
 * each text to `out`, in their order, or writes the output file, which appears when all texts are
 * classified. An object has the keys of the input's row, or "text" and "text_pair", and then
 * "label" and "score" or, if top_k is not FSDP_CLASSIFY_BEST, "predictions", a list of objects with
 * these two keys, the best first. `note` gets messages for the user, on rank 0 only. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_classify_run(const fsdp_classify_config *config, fsdp_group *group,
                                              FILE *out, fsdp_classify_note_fn *note);
