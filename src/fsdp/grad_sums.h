/* Adds the gradients of micro-batches: over the ranks of a micro-step, and over micro-steps.
 *
 * Note [Same bits at any world size]. With W ranks, rank r computes micro-batch `m = a * W + r` in
 * micro-step a. The gradients of micro-batches are added in float32, in an order that depends on
 * their numbers m alone. FSDP_SUM_BLOCK micro-batches are a block. Within a block, gradients are
 * added in a binary tree over m: gradient 0 is added to gradient 1, and gradient 2 to gradient 3;
 * then these two sums are added. The blocks are added in their order to a running sum. The total is
 * divided once, at the end. So 1 x 8, 2 x 4, 4 x 2 and 8 x 1 (ranks x micro-steps) agree in every
 * bit.
 *
 * A tree over all micro-batches would need 1 + log2(micro-steps) partial sums. With blocks, a
 * parameter has at most three: the running sum, and those of two levels of a block. If the number
 * of ranks is a multiple of FSDP_SUM_BLOCK, it has only the running sum.
 *
 * With replicas (Note [Replicas] in param_context.h), each mesh row has S ranks. Rank r is in mesh
 * row `r / S` and in mesh column `r mod S`. The gradients within each mesh row are added first,
 * then the sums of the mesh rows. If S is 1, 2 or FSDP_SUM_BLOCK, this is the same order as without
 * replicas. */
#pragma once
#include "src/fsdp/grad_parts.h"
#include "src/fsdp/grad_terms.h"

/* Create a tensor for a sum, with the shape of this rank's rows. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sums_create(const fsdp_grad_buffer *b, const fsdp_param *p,
                                                  fsdp_tensor **out);
/* Sum the source over all parts, in the order of Note [Same bits at any world size] and without
 * sums of earlier micro-steps. Store the sum multiplied by `scale` in `rows`. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sums_store(const fsdp_grad_buffer *b,
                                                 const fsdp_grad_source *source,
                                                 const fsdp_param *p, fsdp_tensor *rows,
                                                 float scale);
/* Sum the source over all parts, and add this sum to p's sums of earlier micro-steps. If p has no
 * sum to which this sum can be added, this sum becomes a new partial sum. The new partial sum is
 * stored in the tensor *rows, which then belongs to p, and *rows is set to NULL. If *rows is NULL,
 * a new tensor is created.
 *
 * If `last` is true, no micro-step will follow. Call fsdp_grad_sums_take() with the same `scale`
 * afterwards, to get the total multiplied by `scale`. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_sums_add(const fsdp_grad_buffer *b,
                                               const fsdp_grad_source *source, fsdp_param *p,
                                               bool last, float scale, fsdp_tensor **rows);
/* Like fsdp_grad_sums_add(), but add p->grad.whole, which is already the sum over all parts. Its
 * memory either becomes a partial sum, or is released after the addition. p->grad.whole is then
 * NULL. */
void fsdp_grad_sums_add_whole(const fsdp_grad_buffer *b, fsdp_param *p, bool last, float scale);
/* Remove all sums of p, and return their total multiplied by `scale`. The caller owns the total. p
 * must have a sum. */
fsdp_tensor *fsdp_grad_sums_take(const fsdp_grad_buffer *b, fsdp_param *p, float scale);
/* Set `to` to `(to + from) * scale`. */
void fsdp_grad_fold(const fsdp_grad_buffer *b, fsdp_tensor *to, const fsdp_tensor *from,
                    float scale);
/* Free the sums of p. */
void fsdp_grad_sums_free(fsdp_param *p);
