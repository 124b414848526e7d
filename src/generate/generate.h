/* Generates sequences like transformers' generate(): by greedy search, beam search or sampling,
 * with a cache of keys and values. Every model that has a decoder (fsdp_decoder) can generate. If
 * the model is sharded, each rank has its own prompts, and all ranks run the same number of
 * steps. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/pretrained/model.h"

/* A callback for greedy search and sampling. It is called for each new id, as soon as the id is
 * chosen. `row` is the row of the batch, and `sequence` is the index among the outputs of this row.
 * If the callback fails, generation ends with the callback's status. */
typedef fsdp_status fsdp_generate_id_fn(void *arg, int32_t row, int32_t sequence, int32_t id);

/* Options; {0} means defaults. */
typedef struct fsdp_generate_options {
    /* NULL: transformers' defaults, with the special token ids of the model */
    const fsdp_generation_config *config;
    /* true: gather and free each unit in every step, which takes less memory and more time */
    bool reshard_each_step;
    uint64_t seed; /* for sampling */
    /* index of the batch's first row among all rows of the input; for sampling and error
     * messages */
    int64_t first_row;
    /* used only for stop_strings; NULL is allowed if there are none */
    const fsdp_tokenizer *tokenizer;
    fsdp_generate_id_fn *on_id; /* NULL: not called */
    void *arg;                  /* argument of on_id */
} fsdp_generate_options;

/* One generated sequence. */
typedef struct fsdp_generated {
    /* First come the ids that generation continued: the prompt of a causal model, or T5's start
     * token. Then come the new ids, including the end of sequence if it was generated. */
    fsdp_token_list ids;
    size_t prompt_length; /* number of ids before the new ones */
    /* beam search: (sum of log-probabilities) / (number of new ids) ^ length_penalty; else 0 */
    double score;
} fsdp_generated;

void fsdp_generated_free(fsdp_generated *outputs, size_t n); /* accepts NULL */

/* Read the model's generation_config.json or, if there is none, the settings in its config.json.
 * Missing keys get transformers' defaults. As in transformers, if there is a generation_config.json
 * without an eos_token_id, no id ends a sequence, so every sequence gets its maximum length. */
FSDP_MUST_CHECK fsdp_status fsdp_model_generation_config(const fsdp_model *model,
                                                         fsdp_generation_config *config);

#define FSDP_GENERATES_WITHOUT_EOS                                                                 \
    "generation_config.json has no eos_token_id: texts continue to their maximum length"

/* A command line flag such as "--num-beams", or "" for none. */
typedef struct fsdp_setting_flag {
    char text[40];
} fsdp_setting_flag;
/* Return the command line flag of the first setting that the user gave, or "" if the user gave no
 * setting. */
fsdp_setting_flag fsdp_generation_settings_first(const fsdp_generation_settings *settings);
/* Check that each setting that the user gave has an effect. `config` is the result of applying
 * `settings` to the model's configuration. Returns FSDP_ERR_INVALID in these cases:
 *
 * - The user gave an option of beam search, but num_beams is 1.
 * - The user gave an option of sampling, but do_sample is false.
 * - The user gave both --max-length and --max-new-tokens, or both --min-length and
 *   --min-new-tokens.
 *
 * An option whose value changes nothing, such as a length penalty of 1, is always allowed. The
 * message names the option. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_settings_check(const fsdp_generation_settings *settings,
                                                           const fsdp_generation_config *config);

/* Warn if the model's generation_config.json has keys that this library does not support and that
 * would change the result. Also warn if it has no end-of-sequence id. */
void fsdp_generate_warn(const fsdp_generation_config *config);

/* Check that the model can generate with these settings. Returns FSDP_ERR_UNSUPPORTED or
 * FSDP_ERR_INVALID if the model cannot. The result is the same on all ranks, because it does not
 * depend on prompts. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_check(const fsdp_model *model,
                                                const fsdp_generation_config *config);

/* Return the maximum number of new ids after a prompt of `prompt_length` ids. For T5, the prompt is
 * the decoder's start token, and prompt_length is 1. If the prompt is so long that no new id is
 * possible, the result is below 1. */
int64_t fsdp_generate_max_new(const fsdp_model *model, const fsdp_generation_config *config,
                              int64_t prompt_length);

/* Generate sequences for each row of `batch`. The labels and targets of the batch are not used.
 *
 * Collective if the model is sharded: every rank must call it, even without rows. All ranks run the
 * same number of steps: the number that the longest sequence on any rank needs.
 *
 * @param outputs out: [batch->rows * num_return_sequences], grouped by row; owned by the caller
 *                (fsdp_generated_free). In beam search, the best sequence of a row comes first.
 * @return FSDP_ERR_UNSUPPORTED if the model cannot generate; FSDP_ERR_INVALID if a prompt is empty
 * or so long that no new id is possible, with a message that names the row; FSDP_ERR_NUMERIC if
 * logits are NaN or too large */
FSDP_MUST_CHECK fsdp_status fsdp_generate(const fsdp_model *model, fsdp_device *device,
                                          const fsdp_batch *batch,
                                          const fsdp_generate_options *options,
                                          fsdp_generated **outputs);
