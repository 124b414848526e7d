/* `fsdp generate`: a model, prompts, and what the model says to each. */
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
    const char *input;                   /* file of texts, one a line; NULL: none */
    const char *input_ids;               /* JSON or JSON lines of ids; NULL: none */
    const char *task_prefix;             /* before every text; NULL: none */
    int max_source_length;               /* ids of a prompt; 0: all. If given, */
    bool max_source_length_given;        /* else 512 of a seq2seq model's texts, all of others */
    fsdp_generation_settings generation; /* over the model's generation_config.json */
    int64_t num_return_sequences;        /* 0: likewise */
    uint64_t seed;                       /* of sampling, */
    bool asks_for_seed;                  /* which is an error without */
    int batch_size;                      /* prompts per rank at a time; default 8 */
    fsdp_dtype param_dtype;              /* of compute */
    bool reshard_each_step;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;
} fsdp_generate_config;

/* One prompt's result; borrowed during the report. */
typedef struct fsdp_generate_result {
    size_t index, sequence;         /* of the prompt; 0 .. num_return_sequences - 1 of it */
    const char *prompt;             /* NULL if ids were given */
    const int32_t *input_ids, *ids; /* ids: see fsdp_generated */
    size_t n_input_ids, n_ids;
    size_t prompt_length; /* of ids, which are not new */
    bool has_score;       /* there were beams: */
    double score;         /* see fsdp_generated */
    const char *text;     /* of the new ids without special tokens; NULL without a tokenizer */
} fsdp_generate_result;

/* Called on rank 0 alone, in the order of prompts and, of each, with beams best first. */
typedef void fsdp_generate_report_fn(const fsdp_generate_result *result, void *arg);
/* Something the user should know and that is no error; rank 0 alone. */
typedef void fsdp_generate_note_fn(const char *note, void *arg);

/* Collective: prompts are shared out over the ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_run(const fsdp_generate_config *config, fsdp_group *group,
                                              fsdp_generate_report_fn *report,
                                              fsdp_generate_note_fn *note, void *arg);
