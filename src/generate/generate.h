/* Generates like transformers' generate(): greedy search, beam search or sampling, with a cache of
 * keys and values, for every model that has a decoder (fsdp_decoder). Ranks of a sharded model run
 * in lockstep, each with its own prompts. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/pretrained/model.h"

/* Options; {0} means defaults. */
typedef struct fsdp_generate_options {
    /* NULL: transformers' defaults, with the special ids of the model */
    const fsdp_generation_config *config;
    bool reshard_each_step; /* gather units again in every step, which takes less memory and more
                               time */
    uint64_t seed;          /* for sampling */
    int64_t first_row;      /* index of the batch's first row in the whole input, for sampling */
} fsdp_generate_options;

/* One generated sequence. */
typedef struct fsdp_generated {
    /* First the prompt of a causal model, or decoder_start_token_id for T5. Then the new ids, which
     * end with the end of sequence if it was generated. */
    fsdp_token_list ids;
    size_t prompt_length; /* number of ids before the new ones */
    double score; /* beam search: sum of log-probabilities / new ids ^ length_penalty; else 0 */
} fsdp_generated;

void fsdp_generated_free(fsdp_generated *outputs, size_t n); /* accepts NULL */

/* Read the model's generation_config.json or, if there is none, the settings in its config.json.
 * Missing keys get transformers' defaults. As in transformers, a generation_config.json without an
 * eos_token_id means that every text reaches its maximum length. */
FSDP_MUST_CHECK fsdp_status fsdp_model_generation_config(const fsdp_model *model,
                                                         fsdp_generation_config *config);

#define FSDP_GENERATES_WITHOUT_EOS                                                                 \
    "generation_config.json has no eos_token_id: texts continue to their maximum length"

/* A flag such as "--num-beams". fsdp_generation_settings_first() returns the flag of the first
 * setting that the user asked for, or "" if there is none. */
typedef struct fsdp_setting_flag {
    char text[40];
} fsdp_setting_flag;
fsdp_setting_flag fsdp_generation_settings_first(const fsdp_generation_settings *settings);
/* Check that each setting that the user asked for has an effect in `config`, to which the settings
 * have been applied. Returns FSDP_ERR_INVALID, with a message that names the flag, for an option of
 * beam search if num_beams is 1, for an option of sampling if do_sample is false, and for a length
 * that is given in two ways. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_settings_check(const fsdp_generation_settings *settings,
                                                           const fsdp_generation_config *config);

/* Warn about keys of the model's generation_config.json that would change the result but are not
 * supported, and about a missing end of sequence. */
void fsdp_generate_warn(const fsdp_generation_config *config);

/* Check that the model can generate with these settings. The result does not depend on prompts, so
 * it is the same on all ranks. Returns FSDP_ERR_UNSUPPORTED or FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_check(const fsdp_model *model,
                                                const fsdp_generation_config *config);

/* Return the limit of new ids after a prompt of `prompt_length` ids (for T5 this is 1, the start
 * token). The result is below 1 if there is no room for new ids. */
int64_t fsdp_generate_max_new(const fsdp_model *model, const fsdp_generation_config *config,
                              int64_t prompt_length);

/* Generate sequences for each row of `batch`, whose labels and targets are not used.
 *
 * Collective if the model is sharded: every rank must call it, even without rows. All ranks run as
 * many steps as the longest sequence on any rank needs.
 *
 * @param outputs out: [batch->rows * num_return_sequences], grouped by row, best first with beams;
 * owned by the caller (fsdp_generated_free)
 * @return FSDP_ERR_UNSUPPORTED for a model that does not generate; FSDP_ERR_INVALID for a prompt
 * that is empty or leaves no room for new ids, with a message that names the row; FSDP_ERR_NUMERIC
 * if logits are NaN */
FSDP_MUST_CHECK fsdp_status fsdp_generate(const fsdp_model *model, fsdp_device *device,
                                          const fsdp_batch *batch,
                                          const fsdp_generate_options *options,
                                          fsdp_generated **outputs);
