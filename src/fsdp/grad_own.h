/* The gradients of a group of one rank.
 *
 * Note [Gradients of one rank]. A rank that shares gradients with no other rank has no gradient
 * buffer. Backward writes each whole gradient to memory of its own (fsdp_param_grad.whole). This is
 * already the sum of the micro-step over all ranks. So no gradient is copied: the memory of a new
 * gradient becomes the parameter's gradient or a sum of micro-steps. If such a gradient or sum
 * exists already, the new gradient is added to it, and the memory of the new gradient is released.
 * The results have the same bits as with any other number of ranks (Note [Same bits at any world
 * size] in grad_sums.h).
 *
 * This is called handing over a gradient (fsdp_grad_hand_over()). It is done when the gradient is
 * complete (Note [Sections] in grad_buffer.h) and the next gradient of the group arrives. If the
 * memory of the gradient was released, the next gradient can use it. The remaining gradients are
 * handed over when the group posts its gradients. While the group does not communicate, gradients
 * stay in their memory, and backward adds later gradients to them.
 *
 * If one product computes the gradients of several parameters (Note [Joined products] in
 * src/autograd/joined_linear.h), these gradients get adjacent memory, as in a gradient buffer. */
#pragma once
#include "src/fsdp/grad_buffer.h"

/* Set fsdp_param_grad.placed of all parameters to false. Call this after a post, before the next
 * gradient arrives. */
void fsdp_grad_own_lay_out(fsdp_grad_buffer *b);
/* Allocate memory for p's gradient, if it has neither memory nor a table. If this backward
 * communicates gradients, first hand over the complete gradients of the other parameters. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_make_place(fsdp_grad_buffer *b, fsdp_param *p);
/* Replace p's table by a whole gradient with the same values. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_widen(fsdp_grad_buffer *b, fsdp_param *p);
/* Hand over all gradients, and free the memory to which no gradient was written. */
FSDP_MUST_CHECK fsdp_status fsdp_grad_own_post(fsdp_grad_buffer *b);
/* Free the memory of all gradients that are not handed over. */
void fsdp_grad_own_drop(fsdp_grad_buffer *b);
