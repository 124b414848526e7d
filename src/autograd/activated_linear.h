/* A linear layer that is applied to an activation function of its input, as one operation.
 *
 * Note [Activated in parts]. A feed-forward layer multiplies an activation of x by w. The
 * activation is as large as x, and backward needs it only for the gradient of w. So forward does
 * not keep it (Note [Derived results] in derived.h), and backward computes it again, for one part
 * of the features at a time. Each part takes three steps. First, the product of dy with w gives the
 * gradient of the part's activation. Second, one pass over this gradient, which is still in the
 * caches, overwrites it with the activation. The same pass overwrites the saved x with the gradient
 * of x. Third, the product of dy with the activation gives the part's gradient of w. So the whole
 * activation and its whole gradient are never in memory, and the exponential that both need is
 * computed once. The sum of terms that makes one element of a product is never split between parts.
 * So products with our own tiles (src/kernels/cpu/gemm.h) give the same bits as without parts.
 *
 * In forward, the whole activation is usually computed at once. But if the layer is in a
 * checkpointed part or has no backward, memory matters more than time. Then the activation is
 * computed for a part of the rows at a time.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

/* y [T, N] = (a(x) * up) w^T + bias, with x and up [T, D] and w [N, D]. If `transposed` (conv1d), w
 * is [D, N]. If up is NULL, y = a(x) w^T + bias. bias may be NULL. All tensors have the same dtype.
 * s owns y. */
fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed);

/* y = dropout(relu(x), p) w^T + bias. The activation is dropout(relu(x), p). It overwrites x if
 * nothing else refers to x's memory. Backward needs the whole activation and not x, because it can
 * compute the gradient of x from the activation. So the activation is kept. */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
