/* A linear layer whose input is an activation function of a tensor, as one operation.
 *
 * Note [Activated in parts]. The activation in a feed-forward layer is as wide as its input, and
 * backward needs it only once, for the gradient of w. So backward computes the activation again,
 * for one part of the features at a time. (Note [Derived results] in derived.h explains why it is
 * not kept.) A part takes three steps. First, the product of dy with w gives the gradient of the
 * part's activation. The second step is one pass over this gradient, which is still in the caches.
 * The pass overwrites the gradient with the activation, and the saved input with the gradient of
 * the input. Last, the product of dy with the activation gives the part's gradient of w. So the
 * whole activation and its whole gradient never exist, and the exponential that the activation and
 * the gradient both need is computed once. The parts split the rows or columns of the results, but
 * not the sums in them. So products with our own tiles (src/kernels/cpu/gemm.h) give the same bits
 * as they would without parts. In forward, the whole activation is usually computed at once. But if
 * the layer is in a checkpointed part or has no backward, memory matters more than time, and the
 * activation is computed for a part of the rows at a time.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

/* y [T, N] = (a(x) * up) w^T + bias. x and up are [T, D], w is [N, D], or [D, N] if `transposed`,
 * as in conv1d. up and bias may be NULL. All tensors have the same dtype. s owns y. */
fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed);

/* y = dropout(relu(x), p) w^T + bias. The activation, dropout(relu(x), p), overwrites x if nothing
 * else refers to x's memory. Here the whole activation is kept, and x is not: backward can compute
 * the gradient of x from the activation. */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
