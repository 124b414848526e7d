/* `fsdp evaluate`: evaluates models on rows that they were not trained on. It reports the loss over
 * the label tokens, and the perplexity. For seq2seq models it also reports the ROUGE of generated
 * texts against the references, and the ROUGE of the best constant sentence
 * (fsdp_rouge_best_constant()). For classifiers it reports accuracy and F1 instead of the
 * perplexity.
 *
 * Note [Evaluating on several ranks]. Rows are processed in blocks of batch_size consecutive rows.
 * Rank m % world_size processes block m. The results of a block do not depend on which rank
 * processes it, and the sums of blocks are added in the order of blocks. So the figures do not
 * depend on the number of ranks. */
#pragma once
#include <stdio.h>

#include <fsdp/comm.h>
#include <fsdp/options.h>

#include "src/data/chat_options.h"
#include "src/data/form_options.h"
#include "src/report/rouge.h"
#include "src/pretrained/quantize_flags.h"
#include "src/models/generation_config.h"

typedef struct fsdp_evaluate_config {
    fsdp_option_list models; /* folders or hub names, at least one */
    const char *adapter;     /* folder of a LoRA adapter for the only model; NULL: none */
    fsdp_quantize_flags quantize;
    /* true: first evaluate a model that has the shape of the first model and random weights, and
     * then evaluate `models` */
    bool untrained;
    bool from_config;       /* do not load weights: all models get random weights */
    int64_t seed;           /* for random weights, sampling and masking */
    double mlm_probability; /* share of the tokens that a masked language model predicts */
    const char *tokenizer;  /* NULL: each model's own tokenizer */
    const char *data;       /* file or folder; never NULL */
    /* Data set whose target texts are the candidates for the best constant sentence: the candidate
     * that scores best if it is the prediction for every row. NULL: no such sentence is
     * reported. */
    const char *baseline_data;
    /* put before each source text; NULL: the prefix in each model's config.json or, if there is
     * none, the default prefix of `fsdp train` */
    const char *task_prefix;
    /* columns of the source and target texts, as in `fsdp train`; NULL: not given */
    const char *text_column, *target_column;
    fsdp_chat_row_options chat; /* as in `fsdp train` */
    fsdp_form_options form;     /* as in `fsdp train` */
    bool wikihow_cleaning;      /* as in `fsdp train` */
    int64_t max_samples;        /* maximum number of rows; 0: all */
    int max_source_length, max_target_length;
    /* Not options. cut_sources is true if the user gave --max-source-length, and cut_targets is
     * true if the user gave --max-target-length. If the user gave a length, texts and rows of token
     * ids are both cut to this length. If not, texts are cut to the default length, and rows of
     * token ids are not cut. */
    bool cut_sources, cut_targets;
    /* Not options. A member is true if the user gave the option of the same name
     * (fsdp_options_asked_for()). An option that is given but would have no effect is an error. */
    struct {
        bool task_prefix, text_column, target_column, max_source_length, max_target_length, seed,
            generate, mlm_probability;
    } asked_for;
    int64_t max_seq_length; /* for tasks other than seq2seq; 0: the limit of the model */
    int batch_size;
    bool generate; /* for seq2seq models: also generate texts and compute their ROUGE */
    /* Settings that override the generation_config.json of the models. If the user gave neither
     * --max-new-tokens nor --max-length, at most max_target_length new tokens are generated. */
    fsdp_generation_settings generation;
    fsdp_dtype param_dtype;
    const char *device;   /* name of the device, for fsdp_rank_device_create(); NULL: the default
                             device */
    int threads_per_rank; /* 0: the number that fsdp_default_threads() computes */
    const char *isa;      /* NULL: the best instruction set */
    int examples;         /* number of rows whose texts are printed */
    bool json;
    /* output file for the texts that the last model generates, one per line; NULL: none */
    const char *predictions;
    /* output file for the sources, one per line, as `fsdp generate --input` reads them; NULL:
     * none */
    const char *prompts;
} fsdp_evaluate_config;

/* Evaluate the models. Rank 0 prints tables or one JSON line to `out` and writes the output files.
 * Collective. If one rank fails, the caller must call fsdp_group_abort(), so that the other ranks
 * also fail. */
FSDP_MUST_CHECK fsdp_status fsdp_evaluate_run(const fsdp_evaluate_config *config, fsdp_group *group,
                                              FILE *out);
