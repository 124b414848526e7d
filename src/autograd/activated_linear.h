/* A linear layer whose input first goes through an activation function. The activation function and
 * the layer are computed as one operation.
 *
 * Note [Activated in parts]. A feed-forward layer multiplies a(x), the result of an activation
 * function, by w. a(x) is as large as x, and backward needs a(x) only for the gradient of w. So
 * forward does not keep a(x) (Note [Derived results] in derived.h), and backward computes it again,
 * for one part of the features at a time. Each part takes three steps. First, the product of dy
 * with w gives the gradient of the part of a(x). Second, one pass reads this gradient, which is
 * still in the caches, and writes the part of a(x) over it. The same pass writes the gradient of x
 * over the saved x. Third, the product of dy with the part of a(x) gives the part's gradient of w.
 * So neither the whole a(x) nor the whole gradient of a(x) is ever in memory, and the exponential
 * that a(x) and its gradient need is computed once. Each element of a product is a sum of terms. No
 * sum is split between two parts. So products with our own tiles (src/kernels/cpu/gemm.h) give the
 * same bits as without parts.
 *
 * In forward, a(x) is usually computed as a whole. But if the layer is in a checkpointed part of
 * the model or has no backward, memory matters more than time. Then a(x) is computed for a part of
 * the rows at a time.
 *
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/autograd.h"

/* Compute y [T, N] = (a(x) * up) w^T + bias, with x and up [T, D] and w [N, D]. If `transposed`
 * (conv1d), w is [D, N]. If up is NULL, compute y = a(x) w^T + bias. bias may be NULL. All tensors
 * have the same dtype. s owns y. */
fsdp_tensor *fsdp_activated_linear(fsdp_scope *s, fsdp_activation a, fsdp_tensor *x,
                                   fsdp_tensor *up, fsdp_tensor *w, fsdp_tensor *bias,
                                   bool transposed);

/* Compute y = dropout(relu(x), p) w^T + bias. dropout(relu(x), p) is written over x if nothing else
 * refers to x's memory. Backward needs all of dropout(relu(x), p), so it is kept. Backward does not
 * need x, because it can compute the gradient of x from dropout(relu(x), p). */
fsdp_tensor *fsdp_relu_dropout_linear_(fsdp_scope *s, fsdp_tensor *x, float p, fsdp_tensor *w,
                                       fsdp_tensor *bias);
