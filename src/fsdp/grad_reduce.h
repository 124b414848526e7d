/* Reduces posted gradients over the ranks and assigns the result to the parameters.
 *
 * Note [Same bits at any world size]. Leaf m = a * W + r is the gradient of micro-step a on rank r.
 * Leaves are added in float32 as the aligned binary tree over m. The reduce of each micro-step adds
 * across ranks. A stack of partial sums adds across micro-steps: two sums of one level become one
 * of the next. The sum is divided once, at the end. 1 x 4, 2 x 2 and 4 x 1 (ranks x micro-steps)
 * then agree in every bit. With replicas (Note [Replicas] in param_context.h) rank r is column r
 * mod S of row r / S of the mesh: the ranks of a row are added first, then the rows. If S is a
 * power of two, that is the same tree. */
#pragma once
#include "src/fsdp/grad_buffer.h"

/* The phase info for a phase of `numel` gradients. If ranks ran different code, these sizes differ,
 * and the phase check returns an error. */
fsdp_phase_info fsdp_grad_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind, size_t numel);
/* Sum own rows over all ranks' posted gradients, then over replicas (unless that is left to a later
 * reduce), and fold them with those of earlier micro-steps. At the last micro-step, divide and
 * assign the result to the parameters' gradients. No effect unless something is posted. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce(fsdp_grad_buffer *b);
/* Call this after the last micro-step: finish the gradients of parameters that only earlier
 * micro-steps used. If the group syncs, also those that were summed over the shard group alone. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b);
/* Free the partial sums of earlier micro-steps. */
void fsdp_grad_free_sums(fsdp_grad_buffer *b);
/* Drop the posted buffer. */
void fsdp_grad_drop_posted(fsdp_grad_buffer *b);
