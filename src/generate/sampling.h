/* Chooses one id from the scores of all: the most likely one, or a random one by temperature,
 * top_k, top_p and min_p. Random numbers are a function of seed, row and step, so a result depends
 * neither on the number of ranks nor on the batch. */
#pragma once
#include <stdint.h>

#include "src/models/generation_config.h"
#include "src/generate/top_k.h"

/* Identifies a random number: step `step` of row `row` of the whole input. */
typedef struct fsdp_draw {
    uint64_t seed, row, step;
} fsdp_draw;

/* The first of the largest scores, as torch.argmax. */
int32_t fsdp_argmax(const float *scores, int64_t vocab);

/* The candidates that remain after transformers' warpers, most likely first; equal ones by
 * ascending id.
 *
 * @param left [vocab]
 * @return number of candidates: at least one, or 0 if all scores are -INFINITY or one is INFINITY
 */
int64_t fsdp_sampling_warp(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                           fsdp_candidate *left);

/* Draw an id with the probabilities softmax(scores that fsdp_sampling_warp() keeps).
 *
 * @param scratch [vocab]
 * @return -1 if all scores are -INFINITY */
int32_t fsdp_sample(const fsdp_generation_config *config, const float *scores, int64_t vocab,
                    const fsdp_draw *draw, fsdp_candidate *scratch);
