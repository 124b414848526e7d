/* T5's span corruption of one piece of tokens: how long everything is, and the example it becomes.
 */
#pragma once
#include <fsdp/data.h>

/* All in tokens, but for `spans`. Inputs and targets are with </s>. */
typedef struct fsdp_span_lengths {
    int64_t piece, noise, spans, inputs, targets;
} fsdp_span_lengths;

/* As fsdp_span_corruption_lengths(); `noise` has no zeros for defaults any more. */
FSDP_MUST_CHECK fsdp_status fsdp_span_lengths_find(const fsdp_span_corruption *noise,
                                                   int64_t inputs_length, fsdp_span_lengths *out);
/* *noise, which may be NULL, with the defaults in place of zeros. */
fsdp_span_corruption fsdp_span_corruption_complete(const fsdp_span_corruption *noise);

/* `piece` [lengths->piece] with the spans that `key` draws; first_sentinel is that of the first
 * span, which is never at the beginning, the next ones count down. */
FSDP_MUST_CHECK fsdp_status fsdp_span_corrupt(const fsdp_span_lengths *lengths, uint64_t key,
                                              const int32_t *piece, int32_t first_sentinel,
                                              int32_t eos_id, fsdp_example *example);
