/* `fsdp generate`: runs a model on prompts and reports the results. */
#pragma once
#include <fsdp/comm.h>
#include <fsdp/tensor.h>

#include "src/models/generation_config.h"

/* The configuration of a run. A member that is zero means its default. Texts need a tokenizer; ids
 * do not. */
typedef struct fsdp_generate_config {
    const char *model;        /* folder or hub name */
    const char *tokenizer;    /* spiece.model or a folder; NULL: the model's tokenizer */
    const char *const *texts; /* [n_texts] */
    size_t n_texts;
    const char *input;       /* file with one text per line; NULL: none */
    const char *input_ids;   /* file of JSON or JSON lines with ids; NULL: none */
    const char *task_prefix; /* put before every text; NULL: none */
    /* maximum number of ids of a prompt; 0: no limit. Valid if max_source_length_given */
    int max_source_length;
    /* if false, texts for a seq2seq model are limited to 512 ids; other prompts have no limit */
    bool max_source_length_given;
    fsdp_generation_settings generation; /* settings that override the model's
                                            generation_config.json */
    int64_t num_return_sequences;        /* 0: from generation_config.json */
    uint64_t seed;                       /* for sampling */
    bool asks_for_seed;     /* the user gave a seed; this is an error without sampling */
    int batch_size;         /* prompts per rank in a round; default 8 */
    fsdp_dtype param_dtype; /* dtype of computation */
    bool reshard_each_step;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;
} fsdp_generate_config;

/* One generated sequence. Pointers are valid only during the call of the report function. */
typedef struct fsdp_generate_result {
    /* index of the prompt; index of the sequence among the prompt's num_return_sequences */
    size_t index, sequence;
    const char *prompt;             /* NULL if ids were given */
    const int32_t *input_ids, *ids; /* ids of prompt and output: see fsdp_generated */
    size_t n_input_ids, n_ids;
    size_t prompt_length; /* number of ids before the new ones */
    bool has_score;       /* beam search was used */
    double score;         /* valid if has_score is true: see fsdp_generated */
    const char *text;     /* the new ids as text without special tokens; NULL without a tokenizer */
} fsdp_generate_result;

/* Called on rank 0 only, in the order of prompts. With beams, the best sequence of a prompt is
 * reported first. */
typedef void fsdp_generate_report_fn(const fsdp_generate_result *result, void *arg);
/* Called on rank 0 only, with a message for the user that is not an error. */
typedef void fsdp_generate_note_fn(const char *note, void *arg);

/* Generate for all prompts, which are distributed over the ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_run(const fsdp_generate_config *config, fsdp_group *group,
                                              fsdp_generate_report_fn *report,
                                              fsdp_generate_note_fn *note, void *arg);
