/* Sums gradients over the replicas (Note [Replicas] in param_context.h).
 *
 * Note [Lanes of replicas]. In this note, the replicas are the ranks of a mesh column: they own the
 * same rows of the parameters. Each of them has summed the gradients of these rows over its mesh
 * row. This partial sum is in fsdp_param_grad.partial. The replicas share a buffer with a lane for
 * each of them. If replicas are on several hosts, the all-reduce is done in stages. Between the
 * stages, backward goes on with other units, so that bytes cross the network while the ranks
 * compute:
 *   1. WRITE: each replica writes its lane. If several replicas are on a host, a REWRITE phase
 *      follows, in which they add up their lanes (Note [Sums of a host] in grad_terms.h).
 *   2. READ: each replica adds up all lanes. It then has the sums.
 *
 * With replicas on more than two hosts, each lane would cross to every other host. So then each
 * replica adds up only a piece of the rows, and the replicas exchange the sums:
 *   2. READ: each replica adds up its piece of all lanes. All replicas have equal sums of earlier
 *      micro-steps, so it also adds its piece of these earlier sums. In a REWRITE phase, it writes
 *      the result to a part of the buffer that nothing else uses.
 *   3. READ: each replica copies the pieces of the others.
 * The results are always exchanged in float32. So all replicas have sums with equal bits. */
#pragma once
#include "src/fsdp/grad_sums.h"

/* Return true if the sums over the replicas are done in stages, because bytes cross a network. */
bool fsdp_grad_lanes_are_staged(const fsdp_param_context *c);
/* Do stage 1 for the sums `partial` of each parameter. b->lanes.exists is true afterwards. For
 * `last`, see fsdp_grad_sums_add(). */
FSDP_MUST_CHECK fsdp_status fsdp_grad_lanes_write(fsdp_grad_buffer *b, bool last);
/* Do the next stage. After the last stage, the sums are added to the sums of earlier micro-steps,
 * and b->lanes.exists is false. For `scale`, see fsdp_grad_sums_add(). */
FSDP_MUST_CHECK fsdp_status fsdp_grad_lanes_advance(fsdp_grad_buffer *b, float scale);
/* Return the lanes to their pool, and forget them. No effect if no lanes exist. */
void fsdp_grad_lanes_drop(fsdp_grad_buffer *b);
