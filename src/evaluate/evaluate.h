/* `fsdp evaluate`: evaluates models on rows that they were not trained on. Reports loss and
 * perplexity over the label tokens; for seq2seq models also ROUGE of generated texts against the
 * references, compared with the best constant sentence; for classifiers accuracy and F1.
 *
 * Note [Evaluating on several ranks]. Rows are processed in blocks of batch_size consecutive ones,
 * and block m belongs to rank m % world_size. A block is computed the same way on any rank, and the
 * sums of blocks are added in block order, so the figures do not depend on the number of ranks. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/models/generation_config.h"
#include "src/evaluate/rouge.h"

typedef struct fsdp_evaluate_config {
    fsdp_option_list models; /* folders or hub names, at least one */
    bool untrained;   /* first evaluate the first model's shape with random weights from the seed */
    bool from_config; /* all models with random weights */
    int64_t seed;     /* for random weights and sampling */
    const char *tokenizer; /* NULL: each model's own */
    const char *data;      /* file or folder; never NULL */
    /* rows whose targets are candidates for the constant sentence; NULL: none */
    const char *baseline_data;
    const char *task_prefix;                 /* NULL: the default of `fsdp train` */
    const char *text_column, *target_column; /* as in `fsdp train`; NULL: not given */
    bool wikihow_cleaning;                   /* as in `fsdp train` */
    int64_t max_samples;                     /* 0: all rows */
    int max_source_length, max_target_length;
    /* also cut rows of token ids, because the length was given; not options */
    bool cut_sources, cut_targets;
    /* Options that the user asked for (fsdp_options_says), so that they are refused where they
     * change nothing. Not an option. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length, seed,
            generate;
    } says;
    int64_t max_seq_length; /* tasks other than seq2seq; 0: the model's limit */
    int batch_size;
    bool generate; /* seq2seq: generate texts and compute ROUGE in addition to the loss */
    /* Overrides the models' generation_config.json; if no length is given, max_target_length
     * applies. */
    fsdp_generation_settings generation;
    fsdp_dtype param_dtype;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;      /* NULL: the best */
    int examples;         /* number of texts printed with their references */
    bool json;
    const char *predictions; /* file for the last model's texts, one a line; NULL: none */
    /* file for the sources, as `fsdp generate --input` reads them; NULL: none */
    const char *prompts;
} fsdp_evaluate_config;

/* Evaluate, and print tables or one JSON line to `out` on rank 0. Collective; a failure on one rank
 * is a failure on all (fsdp_group_abort by the caller). */
FSDP_MUST_CHECK fsdp_status fsdp_evaluate_run(const fsdp_evaluate_config *config, fsdp_group *group,
                                              FILE *out);
