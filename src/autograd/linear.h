/* What linear layers have in common, be their input an activation of something or not.
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

/* Of x, w and bias (or NULL), which are of one dtype; false with the scope failed, naming `op`. */
bool fsdp_linear_check(fsdp_scope *s, const char *op, const fsdp_tensor *x, const fsdp_tensor *w,
                       const fsdp_tensor *bias, bool transposed, fsdp_linear_shape *shape);
/* Memory for y, of x's shape but N in the last dimension. */
fsdp_tensor *fsdp_linear_result(fsdp_scope *s, const fsdp_linear_shape *shape);
/* y = x w^T + bias for so many rows. The scope has kernels; it fails if that does. */
void fsdp_linear_product(fsdp_scope *s, const fsdp_linear_shape *shape, int64_t rows, const void *x,
                         const fsdp_tensor *w, const fsdp_tensor *bias, void *y);
/* The gradients below are of features [first, first + features) of D. */
typedef struct fsdp_linear_part {
    int64_t first, features;
} fsdp_linear_part;
/* dx [T, features] = dy w. */
void fsdp_linear_input_gradient(fsdp_scope *s, const fsdp_linear_shape *shape,
                                fsdp_linear_part part, const void *dy, const fsdp_tensor *w,
                                void *dx);
/* dw = dy^T x, x [T, features]; added where dw.beta says so. */
void fsdp_linear_weight_gradient(fsdp_scope *s, const fsdp_linear_shape *shape,
                                 fsdp_linear_part part, const void *dy, const void *x,
                                 fsdp_grad_slot dw);
/* Where the gradient of w goes, input i of n. */
fsdp_grad_slot fsdp_linear_open_weight(fsdp_scope *s, const fsdp_node *n, int i,
                                       const fsdp_linear_shape *shape, fsdp_tensor **grad_in);
/* The column sums of dy, for input i of n. */
void fsdp_linear_bias_gradient(fsdp_scope *s, const fsdp_node *n, int i,
                               const fsdp_linear_shape *shape, const fsdp_tensor *dy,
                               fsdp_tensor **grad_in);
