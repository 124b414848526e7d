/* Functions shared by linear layers, with or without an activation on their input.
 * Legend: T rows of x, D features in, N features out. */
#pragma once
#include "src/autograd/ops.h"

typedef struct fsdp_linear_shape {
    int64_t rows, in_features, out_features;
    fsdp_dtype dtype;
    bool transposed; /* conv1d: w is [D, N], not [N, D] */
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} fsdp_linear_shape;

/* Check the shapes of x, w and bias (NULL: none), and fill in *shape. The caller has checked that
 * all have the same dtype. If a check fails, return false, and let the scope fail with a message
 * that names `op`. */
bool fsdp_linear_check(fsdp_scope *s, const char *op, const fsdp_tensor *x, const fsdp_tensor *w,
                       const fsdp_tensor *bias, bool transposed, fsdp_linear_shape *shape);
/* Create y, which has x's shape except that its last dimension is N. Its values are not computed
 * yet. */
fsdp_tensor *fsdp_linear_result(fsdp_scope *s, const fsdp_linear_shape *shape);
/* Compute y = x w^T + bias for `rows` rows of x. For conv1d, compute y = x w + bias. The scope must
 * have kernels. If the kernel fails, the scope fails. */
void fsdp_linear_product(fsdp_scope *s, const fsdp_linear_shape *shape, int64_t rows, const void *x,
                         const fsdp_tensor *w, const fsdp_tensor *bias, void *y);
/* A part of the D input features: [first, first + features). The next two functions compute the
 * gradients of one part. */
typedef struct fsdp_linear_part {
    int64_t first, features;
} fsdp_linear_part;
/* Compute dx [T, features] = dy w, for the columns of w that belong to the part of the input
 * features. */
void fsdp_linear_input_gradient(fsdp_scope *s, const fsdp_linear_shape *shape,
                                fsdp_linear_part part, const void *dy, const fsdp_tensor *w,
                                void *dx);
/* Compute dw = dy^T x, for the columns of dw that belong to the part of the input features, with x
 * [T, features]. If dw.beta is 1, the product is added to dw. */
void fsdp_linear_weight_gradient(fsdp_scope *s, const fsdp_linear_shape *shape,
                                 fsdp_linear_part part, const void *dy, const void *x,
                                 fsdp_grad_destination dw);
/* Return the destination for the gradient of w, if w is input i of node n
 * (fsdp_input_grad_destination()). */
fsdp_grad_destination fsdp_linear_open_weight(fsdp_scope *s, const fsdp_node *n, int i,
                                              const fsdp_linear_shape *shape,
                                              fsdp_tensor **grad_in);
/* Compute the gradient of the bias, which is input i of node n. The gradient is the column sums of
 * dy. */
void fsdp_linear_bias_gradient(fsdp_scope *s, const fsdp_node *n, int i,
                               const fsdp_linear_shape *shape, const fsdp_tensor *dy,
                               fsdp_tensor **grad_in);
