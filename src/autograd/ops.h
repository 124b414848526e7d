/* Functions shared by the operations (ops_*.c): checks of their inputs, and the destination of a
 * weight's gradient in backward.
 *
 * Each operation is: shape check -> output by fsdp_new -> kernel -> fsdp_record. On the meta device
 * fsdp_scope_kernels() is NULL and only the kernel is skipped, so memory requests are the same.
 * Temporaries and tensors that only backward needs are released (fsdp_drop) before the operation
 * returns; the tape holds its own references. */
#pragma once
#include "src/autograd/autograd.h"

/* fsdp_check_inputs, and all have the same dtype, one that the kernels compute in (float32,
 * bfloat16, float16). names[i] is the name of t[i] in messages. */
bool fsdp_check_floats(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                       const char *const *names, int n);
/* Do the kernels compute in `t`'s dtype? */
bool fsdp_check_float(fsdp_scope *s, const char *op, const fsdp_tensor *t, const char *name);
/* Do kernels compute in this dtype: float32, bfloat16 or float16? */
bool fsdp_is_computed_in(fsdp_dtype dtype);
/* x promoted as in PyTorch: to float32 if `other` has another dtype. Returns x itself if the dtypes
 * are equal, or if the kernels do not compute in one of them, which the operation's own check then
 * reports; NULL if the scope failed. Release the result with fsdp_drop_promoted(). */
fsdp_tensor *fsdp_promote(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *other);
void fsdp_drop_promoted(fsdp_scope *s, fsdp_tensor *promoted, const fsdp_tensor *x);
/* Are the shapes equal? */
bool fsdp_check_same_shape(fsdp_scope *s, const char *op, const fsdp_tensor *x, const char *x_name,
                           const fsdp_tensor *y, const char *y_name);
/* Is every label below `classes`? Negative ones are ignored. */
bool fsdp_check_labels(fsdp_scope *s, const char *op, const int32_t *labels, int64_t rows,
                       int64_t classes);
/* Number of elements in the last dimension, and the product of all others; rows is 1 for a
 * vector. */
int64_t fsdp_last_dim(const fsdp_tensor *t);
int64_t fsdp_leading_rows(const fsdp_tensor *t);

/* The place where a kernel writes the gradient of an input. */
typedef struct fsdp_grad_slot {
    fsdp_tensor *tensor; /* NULL: the gradient is not needed, or the scope failed */
    float beta;          /* 0: overwrite, 1: add */
} fsdp_grad_slot;
/* For a leaf, its own target. For an input made by a node, a new tensor [shape] of dtype, which is
 * also stored in grad_in[i]. If there are several leaves, open the largest first: a node's
 * gradients are incomplete until it has ended, so a section cannot end for a matrix that comes
 * after it (Note [Sections] in src/fsdp/grad_buffer.h). */
fsdp_grad_slot fsdp_grad_open(fsdp_scope *s, const fsdp_node *n, int i, fsdp_dtype dtype, int ndim,
                              const int64_t *shape, fsdp_tensor **grad_in);
/* A new gradient like `t` in grad_in[i] if input i needs one, else NULL. */
fsdp_tensor *fsdp_grad_like(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_tensor *t,
                            fsdp_tensor **grad_in);
/* The same for kernels that work element by element, but `t` itself (an output's gradient, or the
 * input as saved by this node) is overwritten if it is not shared. A gradient passed on by add has
 * two holders, a root's belongs to the caller, and a leaf is held by in[i]. */
fsdp_tensor *fsdp_grad_over(fsdp_scope *s, const fsdp_node *n, int i, fsdp_tensor *t,
                            fsdp_tensor **grad_in);
static inline bool fsdp_node_needs(const fsdp_node *n, int i)
{
    return n->need >> i & 1;
}

/* Is x's memory used by nothing else: no view, no node that saved it, no kept result, no leaf? */
bool fsdp_is_alone(const fsdp_tensor *x);
/* Another tensor over x's memory, owned by s. */
fsdp_tensor *fsdp_over(fsdp_scope *s, fsdp_tensor *x);
/* Is dropout with probability p active in this run? */
static inline bool fsdp_drops(const fsdp_scope *s, float p)
{
    return p > 0.0f && s->run->options.training;
}
/* Returns false, and the scope fails, unless p is in [0, 1]. */
bool fsdp_check_probability(fsdp_scope *s, const char *op, float p);

/* Does `t`'s gradient go to its own target, and not to the node that made it? */
bool fsdp_grad_is_leaf(const fsdp_scope *s, const fsdp_tensor *t);

/* A copy of host integers for fsdp_record_args.host; NULL if the scope failed. */
int32_t *fsdp_copy_ids(fsdp_scope *s, const int32_t *ids, int64_t n);
