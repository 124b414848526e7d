/* What the operations (ops_*.c) share: checks of their inputs, and where a backward writes the
 * gradient of a weight.
 *
 * Each operation is shape check -> output by fsdp_new -> kernel -> fsdp_record. On the meta device
 * fsdp_scope_kernels() is NULL and only the kernel is left out, so the requests for memory are the
 * same there. Temporaries and what only backward needs are handed back (fsdp_drop) before the
 * operation returns; the tape holds its own references. */
#pragma once
#include "src/autograd/autograd.h"

/* fsdp_check_inputs, and all of one dtype that the kernels compute in (float32, bfloat16,
 * float16). names[i] is what messages call t[i]. */
bool fsdp_check_floats(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                       const char *const *names, int n);
/* Is `t`'s dtype one that the kernels compute in? */
bool fsdp_check_float(fsdp_scope *s, const char *op, const fsdp_tensor *t, const char *name);
/* Is it a dtype that kernels compute in: float32, bfloat16 or float16? */
bool fsdp_is_computed_in(fsdp_dtype dtype);
/* x as PyTorch promotes it where another operand has another dtype: in float32. x itself where they
 * have one, or have none that kernels compute in, which the operation's check then says; NULL with
 * the scope failed. Handed back by fsdp_drop_promoted(). */
fsdp_tensor *fsdp_promote(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *other);
void fsdp_drop_promoted(fsdp_scope *s, fsdp_tensor *promoted, const fsdp_tensor *x);
/* Equal shapes? */
bool fsdp_check_same_shape(fsdp_scope *s, const char *op, const fsdp_tensor *x, const char *x_name,
                           const fsdp_tensor *y, const char *y_name);
/* Is every label below `classes`? Negative ones are ignored. */
bool fsdp_check_labels(fsdp_scope *s, const char *op, const int32_t *labels, int64_t rows,
                       int64_t classes);
/* Elements before and in the last dimension; rows is 1 for a vector. */
int64_t fsdp_last_dim(const fsdp_tensor *t);
int64_t fsdp_leading_rows(const fsdp_tensor *t);

/* Where a kernel writes the gradient of an input. */
typedef struct fsdp_grad_slot {
    fsdp_tensor *tensor; /* NULL: the gradient is not wanted, or the scope failed */
    float beta;          /* 0: overwrite, 1: add */
} fsdp_grad_slot;
/* A leaf's own target; for an input that a node made, a fresh tensor [shape] of dtype, also put
 * into grad_in[i]. Of several leaves the largest is opened first: what a node has begun is not
 * complete, and no section can end for a matrix that comes after it (Note [Sections] in
 * src/fsdp/grad_buffer.h). */
fsdp_grad_slot fsdp_grad_open(fsdp_scope *s, const fsdp_node *n, int i, fsdp_dtype dtype, int ndim,
                              const int64_t *shape, fsdp_tensor **grad_in);
/* A fresh gradient like `t` in grad_in[i] if input i wants one, else NULL. */
fsdp_tensor *fsdp_grad_like(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_tensor *t,
                            fsdp_tensor **grad_in);
/* For kernels that work element by element: the same, but `t` itself, an output's gradient or the
 * input as this node saved it, is overwritten where nobody else holds it (a gradient handed on by
 * add has two holders, a root's is the caller's, a leaf is in in[i]). */
fsdp_tensor *fsdp_grad_over(fsdp_scope *s, const fsdp_node *n, int i, fsdp_tensor *t,
                            fsdp_tensor **grad_in);
static inline bool fsdp_node_needs(const fsdp_node *n, int i)
{
    return n->need >> i & 1;
}

/* Is x's memory nobody else's: no view, no node that saved it, no kept result, no leaf? */
bool fsdp_is_alone(const fsdp_tensor *x);
/* Another tensor over x's memory, owned by s. */
fsdp_tensor *fsdp_over(fsdp_scope *s, fsdp_tensor *x);
/* A probability that does something in this run. */
static inline bool fsdp_drops(const fsdp_scope *s, float p)
{
    return p > 0.0f && s->run->options.training;
}
/* False with the scope failed unless p is in [0, 1]. */
bool fsdp_check_probability(fsdp_scope *s, const char *op, float p);

/* Does `t`'s gradient go to its own target, rather than to the node that made it? */
bool fsdp_grad_is_leaf(const fsdp_scope *s, const fsdp_tensor *t);

/* A copy of host integers for fsdp_record_args.host; NULL with the scope failed. */
int32_t *fsdp_copy_ids(fsdp_scope *s, const int32_t *ids, int64_t n);
