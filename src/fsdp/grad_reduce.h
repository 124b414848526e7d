/* From posted gradients, over the ranks, to the parameters' own.
 *
 * Note [Same bits at any world size]. Leaf m = a * W + r is the gradient of micro-step a on rank r.
 * Leaves are added in float32 as the aligned binary tree over m: across ranks by the reduce of each
 * micro-step, across micro-steps in a stack of partial sums, where two of one level become one of
 * the next. The division comes last, once. 1 x 4, 2 x 2 and 4 x 1 (ranks x micro-steps) then agree
 * in every bit. With replicas (Note [Replicas]) rank r is column r mod S of row r / S of the mesh:
 * a row's ranks are added first, then the rows. If S is a power of two, that is the same tree. */
#pragma once
#include "src/fsdp/grad_buffer.h"

/* For a phase of `numel` gradients. Ranks that ran different code differ in these bytes, and the
 * phase check says so. */
fsdp_phase_info fsdp_grad_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind, size_t numel);
/* Sum own rows over all ranks' posted gradients, then over replicas (unless that is left to a later
 * reduce), and fold them with those of earlier micro-steps. At the last micro-step, divide, and
 * make the result the parameters' gradients. No effect unless something is posted. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce(fsdp_grad_buffer *b);
/* After the last micro-step: fold what parameters hold that only earlier micro-steps used; if the
 * group syncs, also what was summed over the shard group alone. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b);
/* Free what earlier micro-steps have left. */
void fsdp_grad_free_sums(fsdp_grad_buffer *b);
/* What is posted is not needed any more. */
void fsdp_grad_drop_posted(fsdp_grad_buffer *b);
