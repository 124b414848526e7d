/* See ops.h. */
#include <string.h>

#include "src/autograd/ops.h"
#include "src/base/alloc.h"

bool fsdp_is_computed_in(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16;
}

bool fsdp_check_float(fsdp_scope *s, const char *op, const fsdp_tensor *t, const char *name)
{
    if (fsdp_is_computed_in(t->dtype))
        return true;
    fsdp_scope_error(s, op, "%s is %s, not float32, bfloat16 or float16", name,
                     fsdp_dtype_name(t->dtype));
    return false;
}

static bool check_dtypes(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                         const char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        if (!fsdp_check_float(s, op, t[i], names[i]))
            return false;
        if (t[i]->dtype != t[0]->dtype) {
            fsdp_scope_error(s, op,
                             "%s is %s but %s is %s: where units compute in different dtypes, the "
                             "OUTPUT_DTYPE of an mp_policy casts what its unit returns",
                             names[0], fsdp_dtype_name(t[0]->dtype), names[i],
                             fsdp_dtype_name(t[i]->dtype));
            return false;
        }
    }
    return true;
}

bool fsdp_check_floats(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                       const char *const *names, int n)
{
    return fsdp_check_inputs(s, op, t, n) && check_dtypes(s, op, t, names, n);
}

bool fsdp_check_float_rows(fsdp_scope *s, const char *op, fsdp_tensor *const *t,
                           const char *const *names, int n)
{
    return fsdp_check_rows(s, op, t, n) && check_dtypes(s, op, t, names, n);
}

bool fsdp_check_same_shape(fsdp_scope *s, const char *op, const fsdp_tensor *x, const char *x_name,
                           const fsdp_tensor *y, const char *y_name)
{
    char x_text[FSDP_SHAPE_TEXT], y_text[FSDP_SHAPE_TEXT];
    if (x->ndim == y->ndim && memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0)
        return true;
    fsdp_scope_error(s, op, "%s is %s but %s is %s: the shapes differ", x_name,
                     fsdp_shape_text(x->ndim, x->shape, x_text), y_name,
                     fsdp_shape_text(y->ndim, y->shape, y_text));
    return false;
}

bool fsdp_grad_scalar(fsdp_scope *s, const fsdp_tensor *grad, double *value)
{
    *value = 1.0;
    return !fsdp_scope_kernels(s) || grad->is_one ||
           fsdp_scope_check(s, fsdp_tensor_item(grad, value));
}

bool fsdp_check_labels(fsdp_scope *s, const char *op, const int32_t *labels, int64_t rows,
                       int64_t classes)
{
    for (int64_t t = 0; t < rows; t++)
        if (labels[t] >= classes) {
            fsdp_scope_error(s, op, "label %d at row %lld is not below the %lld classes",
                             (int)labels[t], (long long)t, (long long)classes);
            return false;
        }
    return true;
}

int64_t fsdp_last_dim(const fsdp_tensor *t)
{
    return t->ndim ? t->shape[t->ndim - 1] : 1;
}

int64_t fsdp_leading_rows(const fsdp_tensor *t)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < t->ndim; i++)
        rows *= t->shape[i];
    return rows;
}

fsdp_grad_destination fsdp_input_grad_destination(fsdp_scope *s, const fsdp_node *n, int i,
                                                  fsdp_dtype dtype, int ndim, const int64_t *shape,
                                                  fsdp_tensor **grad_in)
{
    fsdp_grad_destination slot = {0};
    if (!fsdp_node_needs(n, i) || !fsdp_scope_ok(s))
        return slot;
    if (n->in[i].leaf) {
        if (!fsdp_scope_check(s, fsdp_grad_target(n->in[i].leaf, &slot.tensor, &slot.beta)))
            slot.tensor = NULL;
        return slot;
    }
    slot.tensor = grad_in[i] = fsdp_new(s, dtype, ndim, shape);
    return slot;
}

fsdp_tensor *fsdp_input_grad_like(fsdp_scope *s, const fsdp_node *n, int i, const fsdp_tensor *t,
                                  fsdp_tensor **grad_in)
{
    if (fsdp_node_needs(n, i))
        grad_in[i] = fsdp_new(s, t->dtype, t->ndim, t->shape);
    return grad_in[i];
}

fsdp_tensor *fsdp_input_grad_in_place(fsdp_scope *s, const fsdp_node *n, int i, fsdp_tensor *t,
                                      fsdp_tensor **grad_in)
{
    if (!fsdp_node_needs(n, i) || t->refs > 1 || t->storage->refs > 1)
        return fsdp_input_grad_like(s, n, i, t, grad_in);
    t->is_one = false;
    return grad_in[i] = t;
}

bool fsdp_is_sole_user(const fsdp_tensor *x)
{
    return x->refs == 1 && x->storage->refs == 1 && !x->sink && !x->derived;
}

fsdp_tensor *fsdp_tensor_alias(fsdp_scope *s, fsdp_tensor *x)
{
    fsdp_tensor *out = NULL;
    if (!fsdp_scope_check(s, fsdp_tensor_view(x, x->ndim, x->shape, &out)))
        return NULL;
    return fsdp_scope_own(s, out);
}

bool fsdp_check_probability(fsdp_scope *s, const char *op, float p)
{
    if (p >= 0.0f && p <= 1.0f)
        return true;
    fsdp_scope_error(s, op, "p is %g, not in [0, 1]", (double)p);
    return false;
}

bool fsdp_grad_is_leaf(const fsdp_scope *s, const fsdp_tensor *t)
{
    return fsdp_needs_grad(s, t) && !(t->node && t->generation == s->run->tape->generation);
}

int32_t *fsdp_copy_ids(fsdp_scope *s, const int32_t *ids, int64_t n)
{
    int32_t *copy = fsdp_calloc((size_t)n, sizeof *copy);
    if (!copy)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    else if (n)
        memcpy(copy, ids, (size_t)n * sizeof *copy);
    return copy;
}
