/* The gradients of a group of one rank.
 *
 * Note [Gradients of one rank]. A rank that shares gradients with no other rank has no gradient
 * buffer. Backward writes each whole gradient to memory of its own (fsdp_param_grad.whole). This is
 * already the sum of the micro-step over all ranks. So nothing is copied: the memory becomes that
 * of the parameter's gradient or of a sum of micro-steps. Only if there is a sum that it must be
 * added to, or the parameter has a gradient already, it is added and released. The results have
 * the bits of any other number of ranks (Note [Same bits at any world size] in grad_sums.h).
 *
 * A gradient is handed over (fsdp_grad_hand_over()) when it is complete (Note [Sections] in
 * grad_buffer.h) and the next gradient of the group arrives. If it was added and released, its
 * memory is free for the next one. The gradients that are left are handed over when the group posts
 * its gradients. Without communication, gradients stay where they are, and later ones are added to
 * them.
 *
 * If one product computes the gradients of several parameters (Note [Joined products] in
 * src/autograd/joined_linear.h), they get adjacent memory, as they have in a gradient buffer. */
#pragma once
#include "src/fsdp/grad_buffer.h"

/* Forget which gradients have had memory. Call this before the first gradient after a post. */
void fsdp_grad_own_lay_out(fsdp_grad_buffer *b);
/* Make memory for p's gradient, if it has neither memory nor a table. First hand over the complete
 * gradients of other parameters, if gradients are communicated now. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_make_place(fsdp_grad_buffer *b, fsdp_param *p);
/* Replace p's table by a whole gradient with the same values. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_widen(fsdp_grad_buffer *b, fsdp_param *p);
/* Hand over all gradients, and free memory that got none. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_post(fsdp_grad_buffer *b);
/* Free the memory of all gradients that are not handed over. */
void fsdp_grad_own_drop(fsdp_grad_buffer *b);
