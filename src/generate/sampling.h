/* Chooses an id from the scores of all ids: the most likely one, or a random one according to
 * temperature, top_k, top_p and min_p. Random numbers are a function of seed, row and step, so a
 * result depends neither on the number of ranks nor on the batch. */
#pragma once
#include <stdint.h>

#include "src/generate/top_k.h"
#include "src/models/generation_config.h"

/* What a random number depends on. `row` is the index of the sequence among those of the whole
 * input. */
typedef struct fsdp_draw {
    uint64_t seed, row, step;
} fsdp_draw;

/* Return the first id with the largest score, like torch.argmax. */
int32_t fsdp_argmax(const float *scores, int64_t vocab);

/* Get the candidates that transformers' warpers keep, beginning with the most likely one.
 * Candidates with equal scores are in ascending order of ids.
 *
 * @param left [vocab]
 * @return number of candidates; 0 if all scores are -INFINITY or one is INFINITY */
int64_t fsdp_sampling_warp(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                           fsdp_candidate *left);

/* Draw an id. Its probability is the softmax of the scores that fsdp_sampling_warp() keeps.
 *
 * @param scratch [vocab]
 * @return -1 if fsdp_sampling_warp() keeps no candidate */
int32_t fsdp_sample(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                    const fsdp_draw *draw, fsdp_candidate *scratch);
