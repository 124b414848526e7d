/* `fsdp generate`: runs a model on prompts and reports the results. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/models/generation_config.h"

/* Zero means default. Texts need a tokenizer, ids do not. */
typedef struct fsdp_generate_config {
    const char *model;        /* folder or hub name */
    const char *tokenizer;    /* spiece.model or a folder; NULL: the model's */
    const char *const *texts; /* [n_texts] */
    size_t n_texts;
    const char *input;       /* file with one text a line; NULL: none */
    const char *input_ids;   /* file of JSON or JSON lines with ids; NULL: none */
    const char *task_prefix; /* put before every text; NULL: none */
    int max_source_length;   /* ids of a prompt, if max_source_length_given; 0: no limit */
    /* if false: 512 for a seq2seq model's texts, no limit for others */
    bool max_source_length_given;
    fsdp_generation_settings generation; /* override the model's generation_config.json */
    int64_t num_return_sequences;        /* 0: from generation_config.json */
    uint64_t seed;                       /* for sampling */
    bool asks_for_seed;     /* the user gave a seed, which is an error without sampling */
    int batch_size;         /* prompts per rank at a time; default 8 */
    fsdp_dtype param_dtype; /* dtype of computation */
    bool reshard_each_step;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;
} fsdp_generate_config;

/* One prompt's result; borrowed during the report. */
typedef struct fsdp_generate_result {
    /* index of the prompt; of the sequence, 0 .. num_return_sequences - 1 */
    size_t index, sequence;
    const char *prompt;             /* NULL if ids were given */
    const int32_t *input_ids, *ids; /* ids of prompt and output: see fsdp_generated */
    size_t n_input_ids, n_ids;
    size_t prompt_length; /* number of ids before the new ones */
    bool has_score;       /* beam search was used */
    double score;         /* if has_score: see fsdp_generated */
    const char *text;     /* the new ids as text without special tokens; NULL without a tokenizer */
} fsdp_generate_result;

/* Called on rank 0 only, in the order of prompts; with beams the best sequence of a prompt comes
 * first. */
typedef void fsdp_generate_report_fn(const fsdp_generate_result *result, void *arg);
/* Reports something that the user should know but that is not an error; rank 0 only. */
typedef void fsdp_generate_note_fn(const char *note, void *arg);

/* Collective: the prompts are distributed over the ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_run(const fsdp_generate_config *config, fsdp_group *group,
                                              fsdp_generate_report_fn *report,
                                              fsdp_generate_note_fn *note, void *arg);
