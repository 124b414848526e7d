/* Changes the scores of all ids before the next id is chosen. The settings are applied in the same
 * order as by transformers' logits processors: sequence_bias, encoder_repetition_penalty,
 * repetition_penalty, no_repeat_ngram_size, encoder_no_repeat_ngram_size, bad_words_ids,
 * min_length, min_new_tokens, forced_bos_token_id, forced_eos_token_id, remove_invalid_values,
 * exponential_decay_length_penalty, suppress_tokens and begin_suppress_tokens. */
#pragma once
#include <stdint.h>

#include <fsdp/text.h>

#include "src/models/generation_config.h"

bool fsdp_is_end_of_sequence(const fsdp_generation_config *config, int32_t id);

/* The ids that the encoder_* settings look at: the source of a seq2seq model, the prompt of any
 * other model. */
typedef struct fsdp_source_ids {
    const int32_t *ids; /* [n] */
    size_t n;
} fsdp_source_ids;

/* Change the scores [vocab] of the ids that may follow `ids`, in place. The score of a banned id
 * becomes -INFINITY. As in transformers, the scores are logits in greedy search and sampling, and
 * log-probabilities in beam search.
 *
 * @param ids           a prompt and the ids generated for it so far
 * @param prompt_length number of ids of the prompt
 * @param scratch       memory for ids->len and for source->n elements, whichever is more */
void fsdp_logits_process(const fsdp_generation_config *config, const fsdp_token_list *ids,
                         int64_t prompt_length, const fsdp_source_ids *source, float *scores,
                         int64_t vocab, float *scratch);
