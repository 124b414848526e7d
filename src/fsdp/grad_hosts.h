/* Adds up gradients inside a host, and adds the sums of all hosts: Note [Sums of a host] in
 * grad_terms.h. */
#pragma once
#include "src/fsdp/grad_parts.h"

/* Return a slice that contains a whole tensor of `numel` elements, as at most `n` adjacent pieces.
 * The last piece may be shorter than the others. */
fsdp_slice fsdp_grad_pieces(int64_t numel, int n);
/* Set [*begin, *end) to the elements of piece `i` of fsdp_grad_pieces(numel, n). */
void fsdp_grad_piece(int64_t numel, int n, int i, int64_t *begin, int64_t *end);
/* Return how many bytes a rank sends to other hosts, on average over all ranks, so that the ranks
 * there can sum `numel` elements of each part. */
uint64_t fsdp_grad_hosts_bytes(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                               int64_t numel);
/* Call this in the REWRITE phase. For each term of this host, add up the source's slice over the
 * parts of the term, and store the sum. Declare with fsdp_buffer_wrote() that rank `reader` (or
 * every rank: FSDP_ALL_READERS) reads the sum. No other rank may call this for the same elements.
 */
FSDP_MUST_CHECK fsdp_status fsdp_grad_hosts_add_up(const fsdp_grad_buffer *b,
                                                   const fsdp_grad_source *source, int reader);
/* Call this in the READ phase. Like fsdp_grad_parts_sum(), but add the terms of the parts
 * [range->first, range->first + range->parts), which are a block (grad_sums.h). */
void fsdp_grad_hosts_sum(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                         const fsdp_grad_range *range, float *to, float scale);
