/* Functions shared by the operations (ops_*.c): checks of inputs, and the destinations of gradients
 * in backward.
 *
 * Each operation has four steps: check the shapes, create the output with fsdp_new(), run the
 * kernel, call fsdp_record(). On the meta device, fsdp_scope_kernels() is NULL, so the operation
 * skips the kernel, and only the kernel. So it allocates the same memory as on other devices.
 * Temporaries and tensors that only backward needs are released (fsdp_drop) before the operation
 * returns; the tape holds its own references.
 *
 * The folder has more than 25 source files, because each operation is a file. */
#pragma once
#include "src/autograd/autograd.h"

/* Check the tensors `t` [n] as fsdp_check_inputs() does. Also check that all of them have the same
 * dtype, and that kernels compute in this dtype (float32, bfloat16 or float16). names[i] is the
 * name of t[i] in error messages. */
bool fsdp_check_floats(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                       const char *const *names, int n);
/* Like fsdp_check_floats(), but check `t` with fsdp_check_rows() instead of fsdp_check_inputs(). */
bool fsdp_check_float_rows(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                           const char *const *names, int n);
/* Check that the kernels compute in `t`'s dtype; if not, return false and fail the scope. */
bool fsdp_check_float(fsdp_scope *s, const char *op, const fsdp_tensor *t, const char *name);
/* Return true if kernels compute in this dtype: float32, bfloat16 or float16. */
bool fsdp_is_computed_in(fsdp_dtype dtype);
/* Promote x as PyTorch does for an operation on x and `other`: if their dtypes differ, convert x to
 * float32. Return x itself if the two dtypes are equal, or if kernels do not compute in one of
 * them. If kernels do not compute in a dtype, the caller's own check reports an error. Return NULL
 * if the scope fails. Release the result with fsdp_drop_promoted(). */
fsdp_tensor *fsdp_promote(fsdp_scope *s, fsdp_tensor *x, const fsdp_tensor *other);
void fsdp_drop_promoted(fsdp_scope *s, fsdp_tensor *promoted, const fsdp_tensor *x);
/* Check that the shapes are equal; if not, return false and fail the scope. */
bool fsdp_check_same_shape(fsdp_scope *s, const char *op, const fsdp_tensor *x, const char *x_name,
                           const fsdp_tensor *y, const char *y_name);
/* Check that every label is below `classes`; if not, return false and fail the scope. Negative
 * labels are ignored. */
bool fsdp_check_labels(fsdp_scope *s, const char *op, const int32_t *labels, int64_t rows,
                       int64_t classes);
/* Report to the owner of `weight` that a forward has looked up n of its rows. */
static inline void fsdp_note_lookups(const fsdp_tensor *weight, int64_t n)
{
    if (weight->sink && weight->sink->note_lookups)
        weight->sink->note_lookups(weight->sink, n);
}
/* Return the size of the last dimension; 1 for a scalar. */
int64_t fsdp_last_dim(const fsdp_tensor *t);
/* Return the product of the sizes of all dimensions except the last; 1 for a vector. */
int64_t fsdp_leading_rows(const fsdp_tensor *t);

/* The tensor to which a kernel writes the gradient of an input. */
typedef struct fsdp_grad_destination {
    fsdp_tensor *tensor; /* NULL: the gradient is not needed, or the scope failed */
    float beta;          /* 0: the gradient overwrites the tensor; 1: it is added to the tensor */
} fsdp_grad_destination;
/* Get the destination for the gradient of input i. For a leaf, this is the leaf's target. For an
 * input that a node made, the destination is a new tensor [shape] of `dtype`, which is also stored
 * in grad_in[i].
 *
 * If several inputs are leaves, call this for the largest of them first. If the gradient of a leaf
 * does not fit in the current section of the gradient buffer (Note [Sections] in
 * src/fsdp/grad_buffer.h), a new section must begin. Only the first call for a node can begin a new
 * section. During a later call, the current section contains the incomplete gradient of another
 * leaf of the same node. */
fsdp_grad_destination fsdp_input_grad_destination(fsdp_scope *s, const fsdp_node *n, int i,
                                                  fsdp_dtype dtype, int ndim, const int64_t *shape,
                                                  fsdp_tensor **grad_in);
/* If input i needs a gradient, create a tensor like `t` for the gradient and store it in
 * grad_in[i]. Otherwise return NULL. */
fsdp_tensor *fsdp_input_grad_like(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_tensor *t,
                                  fsdp_tensor **grad_in);
/* Like fsdp_input_grad_like(), but return `t` itself if nothing else refers to it. Then a kernel
 * that works element by element can write the gradient over `t`. `t` is the gradient of an output,
 * or the saved input i. If something else refers to `t`, return a new tensor. Something else refers
 * to `t`, for example, if `add` has passed `t` on to both of its inputs, if `t` is the gradient of
 * a root and belongs to the caller, or if `t` is a leaf. */
fsdp_tensor *fsdp_input_grad_in_place(fsdp_scope *s, const fsdp_node *n, int i, fsdp_tensor *t,
                                      fsdp_tensor **grad_in);
static inline bool fsdp_node_needs(const fsdp_node *n, int i)
{
    return n->need >> i & 1;
}

/* Return true if an operation may overwrite x's memory. Return false if x is a leaf or a derived
 * result. Also return false if anything else uses the memory, such as a view or a node. */
bool fsdp_is_sole_user(const fsdp_tensor *x);
/* Create another tensor over x's memory, owned by s. */
fsdp_tensor *fsdp_tensor_alias(fsdp_scope *s, fsdp_tensor *x);
/* Return true if dropout with probability p has an effect in this run. */
static inline bool fsdp_dropout_is_active(const fsdp_scope *s, float p)
{
    return p > 0.0f && s->run->options.training;
}
/* Check that p is in [0, 1]; if not, return false and fail the scope. */
bool fsdp_check_probability(fsdp_scope *s, const char *op, float p);

/* Return true if `t` is a leaf that needs a gradient. The gradient of a leaf goes to its target.
 * The gradient of any other tensor goes to the node that made it. */
bool fsdp_grad_is_leaf(const fsdp_scope *s, const fsdp_tensor *t);

/* Return a copy of `ids` [n] in host memory, for fsdp_record_args.host. Return NULL if the scope
 * fails. */
int32_t *fsdp_copy_ids(fsdp_scope *s, const int32_t *ids, int64_t n);

/* Arguments of the kernel cross_entropy, and the smoothing of labels. */
typedef struct fsdp_cross_entropy_args {
    float *losses;
    void *logits;
    fsdp_dtype dtype;
    const int32_t *labels;
    int64_t rows, vocab, ld; /* ld: row stride of the logits */
    bool gradient;
    float factor, smoothing;
} fsdp_cross_entropy_args;

/* Run the kernel cross_entropy, or smoothed_cross_entropy if labels are smoothed
 * (ops_cross_entropy.c). */
void fsdp_run_cross_entropy(fsdp_scope *s, const fsdp_kernels *k,
                            const fsdp_cross_entropy_args *args);
