/* T5's span corruption of one piece of tokens: its lengths, and the resulting example. */
#pragma once
#include <fsdp/data.h>

/* In tokens, except for `spans`. Inputs and targets include </s>. */
typedef struct fsdp_span_lengths {
    int64_t piece, noise, spans, inputs, targets;
} fsdp_span_lengths;

/* Like fsdp_span_corruption_lengths(), but `noise` must have its defaults filled in. */
FSDP_MUST_CHECK fsdp_status fsdp_span_lengths_find(const fsdp_span_corruption *noise,
                                                   int64_t inputs_length, fsdp_span_lengths *out);
/* Returns *noise, which may be NULL, with zeros replaced by defaults. */
fsdp_span_corruption fsdp_span_corruption_complete(const fsdp_span_corruption *noise);

/* Replace the spans of `piece` [lengths->piece] that `key` draws. `first_sentinel` is the sentinel
 * of the first span, which is never at the beginning; those of later spans count down. */
FSDP_MUST_CHECK fsdp_status fsdp_span_corrupt(const fsdp_span_lengths *lengths, uint64_t key,
                                              const int32_t *piece, int32_t first_sentinel,
                                              int32_t eos_id, fsdp_example *example);
