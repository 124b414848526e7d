/* Changes the scores of the next id before one is chosen, as transformers' logits processors do and
 * in their order: repetition_penalty, no_repeat_ngram_size, then min_length and min_new_tokens. */
#pragma once
#include <stdint.h>

#include <fsdp/text.h>

#include "src/models/generation_config.h"

bool fsdp_is_end_of_sequence(const fsdp_generation_config *config, int32_t id);

/* Process the scores [vocab] of what follows `ids` in place; banned ids get -INFINITY. As in
 * transformers, greedy search and sampling pass logits, beam search passes log-probabilities.
 *
 * @param ids           a prompt and the ids generated for it so far
 * @param prompt_length ids of the prompt
 * @param scratch       [ids->len] */
void fsdp_logits_process(const fsdp_generation_config *config, const fsdp_token_list *ids,
                         int64_t prompt_length, float *scores, int64_t vocab, float *scratch);
