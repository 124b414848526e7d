/* Reduces posted gradients over the ranks and assigns the result to the parameters. */
#pragma once
#include "src/fsdp/grad_buffer.h"

/* Reduce the posted gradients. First, sum this rank's rows of these gradients over the ranks of the
 * group. Then sum the results over the replicas, and fold these sums with those of earlier
 * micro-steps. At the last micro-step, also divide the sums and assign them to the parameters'
 * gradients. If there are replicas and no_all_reduce is set, do only the first sum, and leave all
 * other steps to a later call. No effect if no gradients are posted. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce(fsdp_grad_buffer *b);
/* Return true if b has posted gradients, or sums over the replicas are in progress. */
bool fsdp_grad_is_in_flight(const fsdp_grad_buffer *b);
/* Do the next stage of what fsdp_grad_reduce() does. There is only one stage, unless replicas are
 * on several hosts: Note [Lanes of replicas] in grad_lanes.h. No effect if b is not in flight. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce_stage(fsdp_grad_buffer *b);
/* Return about how many bytes this rank will send to other hosts when the open buffer is posted.
 * This is an average over the ranks: see FSDP_UNIT_POST in observer.h. */
uint64_t fsdp_grad_reduce_sent_bytes(const fsdp_grad_buffer *b);
/* If the ranks that share the posted buffer are on several hosts: add up the gradients of this
 * host's ranks, and begin to send the sums. See Note [Sums of a host] in grad_terms.h. No effect if
 * this was done already, or if no gradients are posted. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce_send(fsdp_grad_buffer *b);
/* Call this after the last micro-step. If only earlier micro-steps used a parameter, no reduce of
 * the last micro-step has finished its gradient. This function divides all such gradients and
 * assigns them to their parameters. Earlier reduces may have postponed the sums over the replicas.
 * If fsdp_grad_buffer_syncs() is true, this function computes these sums first. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b);
/* Round p's gradient to reduce_dtype if that is not float32. The sums over the ranks are still
 * computed in float32. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_round(const fsdp_grad_buffer *b, const fsdp_param *p);
/* Call this only in a group of one rank. Add p's gradient to the sums of earlier micro-steps or, if
 * there are replicas, to fsdp_param_grad.partial. The gradient's memory becomes the memory of a
 * sum, or is released. At the last micro-step, if there are no replicas, also assign the total to
 * the parameter's gradient. p must have a whole gradient or a table, and has neither afterwards. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_hand_over(const fsdp_grad_buffer *b, fsdp_param *p);
/* Free the partial sums of earlier micro-steps. */
void fsdp_grad_free_sums(fsdp_grad_buffer *b);
/* Return the posted buffer, if there is one, to its pool, and forget its gradients. */
void fsdp_grad_drop_posted(fsdp_grad_buffer *b);
