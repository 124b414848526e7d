/* A linear layer whose input is an activation function of a tensor, as one operation.
 *
 * Note [Activated in parts]. The activation in a feed-forward layer is as wide as its input, and
 * backward needs it only once, for the gradient of w. So backward computes the activation again
 * (Note [Derived results] in derived.h explains why it is not kept), in parts of some features
 * each. For each part there are three steps. The product of dy with w gives the gradient of the
 * activation. One pass over this memory, which is still in the caches, replaces that gradient by
 * the activation, and the saved input by the input's gradient. The product of dy with the
 * activation gives the gradient of w. So the whole activation and its whole gradient never exist,
 * and the exponential that both need is computed once. The parts are rows or columns of the matrix
 * that a product computes, so products with our own tiles have the same bits. In forward, the whole
 * activation is computed at once. But if the layer is in a checkpointed part or has no backward,
 * memory matters more, and the activation is computed in parts of some rows each.
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
 * else refers to x's memory. Here the whole activation exists: backward computes the gradient of x
 * from the activation as well as it could from x. */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
