/* Greedy generation: each step takes the most likely id, until the end of sequence or the longest
 * length. Ranks of a sharded model go in lockstep, each with sequences of its own. */
#pragma once
#include <fsdp/batch.h>
#include <fsdp/text.h>

#include "src/models/generation_config.h"
#include "src/train/model.h"

/* Zero means default. */
typedef struct fsdp_generate_options {
    int64_t max_new_tokens; /* 0: the config's max_new_tokens, else its max_length - 1 */
    const fsdp_generation_config *config; /* NULL: the model config's ids, 19 new tokens */
    bool reshard_each_step; /* gather units anew for every token: less memory, more time */
} fsdp_generate_options;

/* The model's generation_config.json, or what its config.json says; transformers' defaults. */
FSDP_MUST_CHECK fsdp_status fsdp_model_generation_config(const fsdp_model *model,
                                                         fsdp_generation_config *config);

/* New tokens at most: max_new_tokens if it is positive, else what config says. */
int64_t fsdp_generate_max_steps(int64_t max_new_tokens, const fsdp_generation_config *config);

/* Generate for each row of `batch` (its targets are not looked at).
 *
 * Collective where the model is sharded: every rank calls it, also with no rows; the number of
 * steps is that of the longest sequence of any rank.
 *
 * @param outputs [batch->rows] lists that are emptied and filled: decoder_start_token_id first,
 *                the end of sequence last, if it came. The caller's (fsdp_token_list_fini).
 * @return FSDP_ERR_NUMERIC if logits are NaN. */
FSDP_MUST_CHECK fsdp_status fsdp_generate_greedy(const fsdp_model *model, fsdp_device *device,
                                                 const fsdp_batch *batch,
                                                 const fsdp_generate_options *options,
                                                 fsdp_token_list *outputs);
