/* Generation like transformers' generate(): greedy search, beam search or sampling with a cache of
 * keys and values, for every model that has a decoder (fsdp_decoder). Ranks of a sharded model run
 * in lockstep, each with its own prompts. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/pretrained/model.h"

/* Zero means default. */
typedef struct fsdp_generate_options {
    /* NULL: transformers' defaults and the model's special ids */
    const fsdp_generation_config *config;
    bool reshard_each_step; /* gather units again for every token: less memory, more time */
    uint64_t seed;          /* for sampling */
    int64_t first_row;      /* index of the batch's first row in the whole input; for sampling */
} fsdp_generate_options;

/* One generated sequence. */
typedef struct fsdp_generated {
    /* T5: decoder_start_token_id first; a causal model: the prompt first. Then the new ids, ending
     * with the end of sequence if it was generated. */
    fsdp_token_list ids;
    size_t prompt_length; /* number of ids before the new ones */
    double score; /* beam search: sum of log-probabilities / new ids ^ length_penalty; else 0 */
} fsdp_generated;

void fsdp_generated_free(fsdp_generated *outputs, size_t n); /* accepts NULL */

/* The model's generation_config.json or, if there is none, the settings in its config.json, with
 * transformers' defaults. As in transformers, a generation_config.json without an eos_token_id
 * means that every text reaches its maximum length. */
FSDP_MUST_CHECK fsdp_status fsdp_model_generation_config(const fsdp_model *model,
                                                         fsdp_generation_config *config);

#define FSDP_GENERATES_WITHOUT_EOS                                                                 \
    "generation_config.json has no eos_token_id: texts continue to their maximum length"

/* The flag of the first setting that was given, such as "--num-beams"; "" if none was. */
typedef struct fsdp_setting_flag {
    char text[40];
} fsdp_setting_flag;
fsdp_setting_flag fsdp_generation_settings_first(const fsdp_generation_settings *settings);
/* FSDP_ERR_INVALID, naming the flag, if a given setting changes nothing in `config`, which includes
 * the settings: an option of beam search without beams, of sampling without sampling, or two
 * lengths. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_settings_check(const fsdp_generation_settings *settings,
                                                           const fsdp_generation_config *config);

/* Warn about keys of the model's generation_config.json that would change the result but are not
 * supported, and about a missing end of sequence. */
void fsdp_generate_warn(const fsdp_generation_config *config);

/* Can the model generate with these settings? Does not depend on rows, so all ranks agree.
 * FSDP_ERR_UNSUPPORTED, FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_check(const fsdp_model *model,
                                                const fsdp_generation_config *config);

/* The limit of new ids after a prompt of `prompt_length` ids (T5: 1, the start), from config and
 * the model's positions; below 1 if there is no room. */
int64_t fsdp_generate_max_new(const fsdp_model *model, const fsdp_generation_config *config,
                              int64_t prompt_length);

/* Generate for each row of `batch`. Its labels and targets are not used.
 *
 * Collective if the model is sharded: every rank calls it, even without rows. The number of steps
 * is that of the longest sequence on any rank.
 *
 * @param outputs out: [batch->rows * num_return_sequences], grouped by row, best first with beams;
 * owned by the caller (fsdp_generated_free)
 * @return FSDP_ERR_UNSUPPORTED for a model that does not generate; FSDP_ERR_INVALID, naming the
 * row, for a prompt that is empty or leaves no room for new ids; FSDP_ERR_NUMERIC if logits are NaN
 */
FSDP_MUST_CHECK fsdp_status fsdp_generate(const fsdp_model *model, fsdp_device *device,
                                          const fsdp_batch *batch,
                                          const fsdp_generate_options *options,
                                          fsdp_generated **outputs);
