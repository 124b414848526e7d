/* A linear layer of an activation, as one operation.
 *
 * Note [Activated in parts]. The activation in a feed-forward layer is as wide as its input, and
 * backward needs it only once, for the gradient of w. So backward computes it again (Note [Derived
 * results] in derived.h explains why it is not kept), for some features at a time: the product with
 * w gives their gradient; one pass over memory that is still in the caches turns that gradient into
 * the activation and the saved input into its own gradient; then follows the product with dy. The
 * whole activation and its whole gradient never exist, and their common exponential is computed
 * once. The parts are rows or columns of C, so products with our own tiles have the same bits. In
 * forward the whole activation is computed, unless the layer is in a checkpointed part or has no
 * backward: then memory matters more, and it is computed for some rows at a time.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

/* y [T, N] = (a(x) * up) w^T + bias. x and up are [T, D], w is [N, D], or [D, N] if `transposed`,
 * as in conv1d. up and bias may be NULL. All have the same dtype. y is owned by s. */
fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed);

/* dropout(relu(x), p) w^T + bias. The result of relu and dropout overwrites x's memory if nothing
 * else refers to it. The whole activation exists here; it is enough to compute its gradient, as x
 * would be. */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
