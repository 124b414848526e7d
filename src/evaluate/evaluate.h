/* `fsdp evaluate`: evaluates models on rows that they were not trained on. It reports the loss over
 * the label tokens, and the perplexity. For seq2seq models it also reports the ROUGE of generated
 * texts against the references, and the ROUGE of the best constant sentence. For classifiers it
 * reports accuracy and F1 instead of the perplexity.
 *
 * Note [Evaluating on several ranks]. Rows are processed in blocks of batch_size consecutive rows.
 * Rank m % world_size processes block m. The results of a block do not depend on which rank
 * processes it, and the sums of blocks are added in the order of blocks. So the figures do not
 * depend on the number of ranks. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/evaluate/rouge.h"
#include "src/models/generation_config.h"

typedef struct fsdp_evaluate_config {
    fsdp_option_list models; /* folders or hub names, at least one */
    bool untrained;   /* first evaluate a model that has the shape of the first model and random
                         weights */
    bool from_config; /* evaluate all models with random weights */
    int64_t seed;     /* for random weights and sampling */
    const char *tokenizer; /* NULL: each model's own tokenizer */
    const char *data;      /* file or folder; never NULL */
    /* rows whose targets are candidates for the best constant sentence; NULL: no best constant
     * sentence */
    const char *baseline_data;
    const char *task_prefix;                 /* NULL: the default of `fsdp train` */
    const char *text_column, *target_column; /* as in `fsdp train`; NULL: not given */
    bool wikihow_cleaning;                   /* as in `fsdp train` */
    int64_t max_samples;                     /* 0: all rows */
    int max_source_length, max_target_length;
    /* Not options. True if the user gave the length. Rows of token ids are then cut to it, too. */
    bool cut_sources, cut_targets;
    /* Options that the user asked for (fsdp_options_asked_for()). They are refused where they would
     * have no effect. This is not an option. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length, seed,
            generate;
    } asked_for;
    int64_t max_seq_length; /* for tasks other than seq2seq; 0: the model's limit */
    int batch_size;
    bool generate; /* for seq2seq: also generate texts and compute their ROUGE */
    /* Settings that override the models' generation_config.json. If no length is given,
     * max_target_length is the limit of new tokens. */
    fsdp_generation_settings generation;
    fsdp_dtype param_dtype;
    int threads_per_rank; /* 0: cores / ranks */
    const char *isa;      /* NULL: the best instruction set */
    int examples;         /* number of texts printed with their references */
    bool json;
    const char *predictions; /* file for the last model's texts, one per line; NULL: none */
    /* file to write the sources to, as input for `fsdp generate --input`; NULL: none */
    const char *prompts;
} fsdp_evaluate_config;

/* Evaluate the models, and print tables or one JSON line to `out` on rank 0. Collective. If one
 * rank fails, the caller must call fsdp_group_abort(), so that the other ranks fail, too. */
FSDP_MUST_CHECK fsdp_status fsdp_evaluate_run(const fsdp_evaluate_config *config, fsdp_group *group,
                                              FILE *out);
