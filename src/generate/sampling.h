/* Chooses the next id from the scores of all ids: the most likely id, or a random one according to
 * temperature, top_h, top_k, top_p, min_p, typical_p, epsilon_cutoff and eta_cutoff. Random numbers
 * are a function of seed, row and step. So a result depends neither on the number of ranks nor on
 * the batch. */
#pragma once
#include <stdint.h>

#include "src/generate/top_k.h"
#include "src/models/generation_config.h"

/* What a random number depends on. `row` is the index of the sequence among all sequences of the
 * input. */
typedef struct fsdp_draw {
    uint64_t seed, row, step;
} fsdp_draw;

/* Return the first id with the largest score, as torch.argmax does. */
int32_t fsdp_argmax(const float *scores, int64_t vocab);

/* Apply the sampling settings of `config` (temperature, top_k, top_p and so on) as transformers'
 * warpers do. Set `left` to the ids that remain: the most likely one comes first, and ids with
 * equal scores are in ascending order.
 *
 * @param left out: [vocab]
 * @return number of candidates in `left`; 0 if all scores are -INFINITY or one is INFINITY */
int64_t fsdp_sampling_warp(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                           fsdp_candidate *left);

/* Draw one of the candidates that fsdp_sampling_warp() returns. The softmax of their scores gives
 * their probabilities.
 *
 * @param scratch [vocab]
 * @return the id; -1 if there is no candidate */
int32_t fsdp_sample(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                    const fsdp_draw *draw, fsdp_candidate *scratch);
