/* Functions shared by the operations (ops_*.c): checks of their inputs, and the destination of a
 * weight's gradient in backward.
 *
 * Each operation has four steps: shape check, output by fsdp_new(), kernel, fsdp_record(). On the
 * meta device fsdp_scope_kernels() is NULL and only the kernel is skipped, so an operation requests
 * the same memory there as on other devices. Temporaries and tensors that only backward needs are
 * released (fsdp_drop) before the operation returns; the tape holds its own references. */
#pragma once
#include "src/autograd/autograd.h"

/* Check `t` [n] as fsdp_check_inputs() does. Check also that all have the same dtype, and that it
 * is float32, bfloat16 or float16, in which kernels compute. names[i] is the name of t[i] in
 * messages. */
bool fsdp_check_floats(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                       const char *const *names, int n);
/* Check that the kernels compute in `t`'s dtype; if not, return false and fail the scope. */
bool fsdp_check_float(fsdp_scope *s, const char *op, const fsdp_tensor *t, const char *name);
/* Do kernels compute in this dtype: float32, bfloat16 or float16? */
bool fsdp_is_computed_in(fsdp_dtype dtype);
/* Promote x as PyTorch does: to float32 if `other` has another dtype. Returns x itself if the
 * dtypes are equal, or if the kernels do not compute in one of the two dtypes (the operation's own
 * check then reports this). Returns NULL if the scope failed. Release the result with
 * fsdp_drop_promoted(). */
fsdp_tensor *fsdp_promote(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *other);
void fsdp_drop_promoted(fsdp_scope *s, fsdp_tensor *promoted, const fsdp_tensor *x);
/* Check that the shapes are equal; if not, return false and fail the scope. */
bool fsdp_check_same_shape(fsdp_scope *s, const char *op, const fsdp_tensor *x, const char *x_name,
                           const fsdp_tensor *y, const char *y_name);
/* Check that every label is below `classes`; if not, return false and fail the scope. Negative
 * labels are ignored. */
bool fsdp_check_labels(fsdp_scope *s, const char *op, const int32_t *labels, int64_t rows,
                       int64_t classes);
/* Return the size of the last dimension, and the product of the sizes of all other dimensions,
 * which is 1 for a vector. */
int64_t fsdp_last_dim(const fsdp_tensor *t);
int64_t fsdp_leading_rows(const fsdp_tensor *t);

/* The place where a kernel writes the gradient of an input. */
typedef struct fsdp_grad_destination {
    fsdp_tensor *tensor; /* NULL: the gradient is not needed, or the scope failed */
    float beta;          /* 0: overwrite, 1: add */
} fsdp_grad_destination;
/* Open the place for the gradient of input i. For a leaf, this is the leaf's target. For an input
 * that a node made, it is a new tensor [shape] of `dtype`, which is also stored in grad_in[i]. If
 * several inputs are leaves, open the largest one first. If its gradient does not fit in the
 * current section (Note [Sections] in src/fsdp/grad_buffer.h), a new section can begin. Once
 * another leaf of the node has been opened, this is not possible, because that leaf's gradient is
 * incomplete. */
fsdp_grad_destination fsdp_input_grad_destination(fsdp_scope *s, const fsdp_node *n, int i,
                                                  fsdp_dtype dtype, int ndim, const int64_t *shape,
                                                  fsdp_tensor **grad_in);
/* If input i needs a gradient, create a tensor like `t` for the gradient and store it in
 * grad_in[i]. Otherwise return NULL. */
fsdp_tensor *fsdp_input_grad_like(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_tensor *t,
                                  fsdp_tensor **grad_in);
/* Like fsdp_input_grad_like(), for kernels that work element by element: the gradient overwrites
 * `t` (an output's gradient, or the input as this node saved it) if nothing else refers to `t`.
 * Something else may do so: a gradient that `add` passed on has two holders, the gradient of a root
 * belongs to the caller, and in[i] holds a leaf. */
fsdp_tensor *fsdp_input_grad_in_place(fsdp_scope *s, const fsdp_node *n, int i, fsdp_tensor *t,
                                      fsdp_tensor **grad_in);
static inline bool fsdp_node_needs(const fsdp_node *n, int i)
{
    return n->need >> i & 1;
}

/* May an operation overwrite x's memory? Not if x is a leaf or a derived result, or if a view, a
 * node or another holder uses the memory. */
bool fsdp_is_sole_user(const fsdp_tensor *x);
/* Create another tensor over x's memory, owned by s. */
fsdp_tensor *fsdp_tensor_alias(fsdp_scope *s, fsdp_tensor *x);
/* Is dropout with probability p active in this run? */
static inline bool fsdp_dropout_is_active(const fsdp_scope *s, float p)
{
    return p > 0.0f && s->run->options.training;
}
/* Returns false, and the scope fails, unless p is in [0, 1]. */
bool fsdp_check_probability(fsdp_scope *s, const char *op, float p);

/* Is `t` a leaf that needs a gradient? If it is, its gradient goes to the target of `t`; otherwise,
 * to the node that made `t`. */
bool fsdp_grad_is_leaf(const fsdp_scope *s, const fsdp_tensor *t);

/* Copy host integers for fsdp_record_args.host; NULL if the scope failed. */
int32_t *fsdp_copy_ids(fsdp_scope *s, const int32_t *ids, int64_t n);
