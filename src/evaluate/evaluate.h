/* `fsdp evaluate`: what models are worth on rows that they were not trained on: loss and perplexity
 * over the label tokens; of seq2seq models ROUGE of generated texts against the references, beside
 * the best constant sentence; of classifiers accuracy and F1.
 *
 * Note [Evaluating on several ranks]. Rows go through in blocks of batch_size consecutive ones;
 * block m is rank m % world_size's. A block is computed the same way wherever it is, and the
 * blocks' sums are added in their order, so that the figures do not depend on the number of ranks.
 */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/models/generation_config.h"
#include "src/evaluate/rouge.h"

typedef struct fsdp_evaluate_config {
    fsdp_option_list models;   /* folders or hub names, at least one */
    bool untrained;            /* first the first model's shape with random weights of the seed */
    bool from_config;          /* all of them with random weights */
    int64_t seed;              /* of random weights and of sampling */
    const char *tokenizer;     /* NULL: each model's own */
    const char *data;          /* never NULL */
    const char *baseline_data; /* rows whose targets are tried as the constant sentence, or NULL */
    const char *task_prefix;   /* NULL: that of `fsdp train` */
    const char *text_column, *target_column; /* as `fsdp train` has them, or NULL */
    bool wikihow_cleaning;                   /* the same */
    int64_t max_samples;                     /* 0: all rows */
    int max_source_length, max_target_length;
    bool cut_sources, cut_targets; /* rows of ids too, since the length was given; not options */
    /* Which options are asked for (fsdp_options_says), so that they are refused where they change
     * nothing. Not an option. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length, seed,
            generate;
    } says;
    int64_t max_seq_length; /* other tasks than seq2seq; 0: what the model takes */
    int batch_size;
    bool generate; /* seq2seq: texts and ROUGE, not the loss alone */
    /* Over the models' generation_config.json; without a length, max_target_length. */
    fsdp_generation_settings generation;
    fsdp_dtype param_dtype;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;      /* NULL: the best */
    int examples;         /* texts shown beside their references */
    bool json;
    const char *predictions; /* file for the last model's texts, one a line; NULL: none */
    const char *prompts;     /* the same for the sources: what `fsdp generate --input` reads */
} fsdp_evaluate_config;

/* Evaluate, and print tables or one JSON line to `out` on rank 0. Collective; a failure on one rank
 * is a failure on all (fsdp_group_abort by the caller). */
FSDP_MUST_CHECK fsdp_status fsdp_evaluate_run(const fsdp_evaluate_config *config, fsdp_group *group,
                                              FILE *out);
