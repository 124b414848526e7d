/* Generation, as transformers' generate() does it: greedy search, beam search or sampling, with a
 * cache of keys and values, for every model that has a decoder (fsdp_decoder). Ranks of a sharded
 * model go in lockstep, each with prompts of its own. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/pretrained/model.h"

/* Zero means default. */
typedef struct fsdp_generate_options {
    const fsdp_generation_config *config; /* NULL: transformers' defaults and the model's ids */
    bool reshard_each_step; /* gather units anew for every token: less memory, more time */
    uint64_t seed;          /* of sampling, */
    int64_t first_row;      /* and where in the whole input the batch begins */
} fsdp_generate_options;

/* One sequence. */
typedef struct fsdp_generated {
    /* T5: decoder_start_token_id first; a causal model: the prompt first. Then the new ids, with
     * the end of sequence last, if it came. */
    fsdp_token_list ids;
    size_t prompt_length; /* of those ids, which are not new */
    double score; /* beam search: sum of log-probabilities / new ids ^ length_penalty; else 0 */
} fsdp_generated;

void fsdp_generated_free(fsdp_generated *outputs, size_t n); /* accepts NULL */

/* The model's generation_config.json or, without one, what its config.json says; transformers'
 * defaults. As there, a generation_config.json without an eos_token_id means that nothing ends
 * before its greatest length. */
FSDP_MUST_CHECK fsdp_status fsdp_model_generation_config(const fsdp_model *model,
                                                         fsdp_generation_config *config);

#define FSDP_GENERATES_WITHOUT_EOS                                                                 \
    "generation_config.json names no eos_token_id: texts go on to their greatest length"

/* The first setting that is asked for, as a flag: "--num-beams"; "" if there is none. */
typedef struct fsdp_setting_flag {
    char text[40];
} fsdp_setting_flag;
fsdp_setting_flag fsdp_generation_settings_first(const fsdp_generation_settings *settings);
/* FSDP_ERR_INVALID naming the flag if a setting that is asked for changes nothing in `config`, in
 * which the settings are: of beams without beams, of sampling without it, two lengths. */
FSDP_MUST_CHECK fsdp_status fsdp_generation_settings_check(const fsdp_generation_settings *settings,
                                                           const fsdp_generation_config *config);

/* Say which keys of the model's generation_config.json change the result and are not handled, and
 * whether the one that ends a text is missing. */
void fsdp_generate_warn(const fsdp_generation_config *config);

/* Does the model generate, and with these settings? No rows are looked at, so that all ranks say
 * the same. FSDP_ERR_UNSUPPORTED, FSDP_ERR_INVALID. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_check(const fsdp_model *model,
                                                const fsdp_generation_config *config);

/* New ids at most after a prompt of `prompt_length` ids (of T5: 1, the start): what config says,
 * within the model's positions; below 1: there is no room for any. */
int64_t fsdp_generate_max_new(const fsdp_model *model, const fsdp_generation_config *config,
                              int64_t prompt_length);

/* Generate for each row of `batch`, whose labels and targets are not looked at.
 *
 * Collective where the model is sharded: every rank calls it, also with no rows; the number of
 * steps is that of the longest sequence of any rank.
 *
 * @param outputs out: [batch->rows * num_return_sequences], those of a row together, with beams
 *                best first; the caller's (fsdp_generated_free)
 * @return FSDP_ERR_UNSUPPORTED for a model that does not generate; FSDP_ERR_INVALID, naming the
 *         row, for a prompt that is empty or leaves no room for new ids; FSDP_ERR_NUMERIC if logits
 *         are NaN */
FSDP_MUST_CHECK fsdp_status fsdp_generate(const fsdp_model *model, fsdp_device *device,
                                          const fsdp_batch *batch,
                                          const fsdp_generate_options *options,
                                          fsdp_generated **outputs);
