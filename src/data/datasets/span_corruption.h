/* T5's span corruption. An example is made from a piece: a run of consecutive tokens of fixed
 * length. */
#pragma once
#include <fsdp/data.h>

/* `spans` is the number of spans. All other members are lengths in tokens. `inputs` and `targets`
 * include </s>. */
typedef struct fsdp_span_lengths {
    int64_t piece, noise, spans, inputs, targets;
} fsdp_span_lengths;

/* Like fsdp_span_corruption_lengths(), but with the result in a struct. The caller must set both
 * members of *noise, because this function does not replace a 0 by a default. */
FSDP_MUST_CHECK fsdp_status fsdp_span_lengths_find(const fsdp_span_corruption *noise,
                                                   int64_t inputs_length, fsdp_span_lengths *out);
/* Return a copy of *noise in which zeros are replaced by defaults. `noise` may be NULL. */
fsdp_span_corruption fsdp_span_corruption_complete(const fsdp_span_corruption *noise);

/* Make an example from `piece` [lengths->piece]. `key` alone determines which spans of the piece
 * are replaced. The first token of the piece is never replaced. The first span is replaced by the
 * id `first_sentinel`, the second span by the id first_sentinel - 1, and so on. */
FSDP_MUST_CHECK fsdp_status fsdp_span_corrupt(const fsdp_span_lengths *lengths, uint64_t key,
                                              const int32_t *piece, int32_t first_sentinel,
                                              int32_t eos_id, fsdp_example *example);
