/* A linear layer of an activation, as one operation.
 *
 * Note [Activated in parts]. The activation of a feed-forward is as wide as what it is made from,
 * and backward needs it once, for the gradient of w. So it is made again there (Note [Derived
 * results] in derived.h says why it is not kept), but of some features at a time: the product with
 * w gives their gradient, one pass over what the caches still hold turns that into the activation
 * and what was there before into its gradient, and the product with dy follows. Neither the
 * activation nor its gradient is ever there as a whole, and their common exponential is computed
 * once. Products are cut at rows or columns of C, which changes no bit of those by our tiles. In
 * forward it is whole, unless the layer is in a checkpointed part or no backward follows: then
 * memory is what counts, and it is made for some rows at a time.
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

/* y [T, N] = (a(x) * up) w^T + bias; x and up [T, D], w [N, D], for `transposed` [D, N] as
 * conv1d's. up and bias may be NULL: there is none. All of one dtype. y is owned by s. */
fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed);

/* dropout(relu(x), p) w^T + bias; where nobody else has x's memory it is written over. What is
 * there as a whole is the activation, which says as much about its gradient as x does. */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
