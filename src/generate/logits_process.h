/* What is done to the scores of the next id before one is chosen: transformers' logits processors,
 * in its order: repetition_penalty, no_repeat_ngram_size, then min_length and min_new_tokens. */
#pragma once
#include <stdint.h>

#include <fsdp/text.h>

#include "src/models/generation_config.h"

bool fsdp_is_end_of_sequence(const fsdp_generation_config *config, int32_t id);

/* Scores [vocab] of what follows `ids`, in place: banned ids get -INFINITY. Greedy search and
 * sampling hand logits over, beam search log-probabilities, as transformers does.
 *
 * @param ids           a prompt and what was generated of it so far
 * @param prompt_length ids of the prompt
 * @param scratch       [ids->len] */
void fsdp_logits_process(const fsdp_generation_config *config, const fsdp_token_list *ids,
                         int64_t prompt_length, float *scores, int64_t vocab, float *scratch);
