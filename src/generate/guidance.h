/* Classifier-free guidance (Sanchez et al. 2023, "Stay on topic with Classifier-Free Guidance",
 * equation 7), as transformers' guidance_scale computes it.
 *
 * Each sequence has an unconditional sequence, which lacks the prompt. It begins with the negative
 * prompt or, if there is none, with the last id of the prompt. Each new id is appended to both. If
 * s are the log-probabilities of the next id, and u those of the unconditional sequence, the id is
 * chosen by the scores u + guidance_scale * (s - u). In beam search, each beam has an unconditional
 * sequence with the ids of this beam. (The unconditional sequences of transformers do not follow
 * the order of its beams.) */
#pragma once
#include <fsdp/batch.h>

#include "src/models/generation_config.h"
#include "src/pretrained/model.h"

typedef struct fsdp_guidance fsdp_guidance;

/* Return true if the settings ask for guidance. */
bool fsdp_guidance_is_on(const fsdp_generation_config *config);
/* Check that the model can generate with the guidance that the settings ask for, if any. Return
 * FSDP_ERR_UNSUPPORTED for a seq2seq model, and FSDP_ERR_INVALID if the negative prompt is longer
 * than the model's number of positions. */
FSDP_MUST_CHECK fsdp_status fsdp_guidance_check(const fsdp_model *model,
                                                const fsdp_generation_config *config);
/* Create the unconditional sequences for the rows of `batch`. There are at most `most_rows`
 * sequences in a step. `config` is borrowed. */
FSDP_MUST_CHECK fsdp_status fsdp_guidance_create(const fsdp_model *model,
                                                 const fsdp_generation_config *config,
                                                 const fsdp_batch *batch, size_t most_rows,
                                                 fsdp_guidance **out);
void fsdp_guidance_destroy(fsdp_guidance *guidance); /* accepts NULL */
/* Compute the log-probabilities of the next id of each unconditional sequence. `ids` are the ids
 * that were chosen last, one for each sequence; NULL in the first step. Collective if the model is
 * sharded. */
FSDP_MUST_CHECK fsdp_status fsdp_guidance_step(fsdp_guidance *guidance, fsdp_device *device,
                                               const int32_t *ids);
/* Replace the logits [vocab] of sequence `row` by the scores of the ids. */
FSDP_MUST_CHECK fsdp_status fsdp_guidance_apply(const fsdp_guidance *guidance, int32_t row,
                                                float *logits);
/* Replace the sequences by n new ones, as fsdp_decoder.select() does. */
void fsdp_guidance_select(fsdp_guidance *guidance, fsdp_scope *s, const int32_t *rows, int32_t n);
