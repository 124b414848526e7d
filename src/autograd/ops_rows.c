/* Two operations: gather rows of an activation by index (gather_rows), and compute the means of
 * segments of consecutive rows (segment_mean). */
#include "src/autograd/ops.h"
#include "src/base/alloc.h"

/* --- gather_rows --- */

typedef struct rows_options {
    int64_t n;
    fsdp_dtype dtype;
    int x_ndim;
    int64_t x_shape[FSDP_MAX_DIMS];
} rows_options;

static void gather_rows_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                 fsdp_tensor **grad_in)
{
    const rows_options *o = (const rows_options *)n->options;
    fsdp_tensor *dx = grad_in[0] = fsdp_new(s, o->dtype, o->x_ndim, o->x_shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->scatter_rows(fsdp_scope_context(s), fsdp_tensor_ptr(dx), o->x_shape[0],
                        fsdp_tensor_ptr(grad_out[0]), n->host, o->n,
                        (size_t)fsdp_tensor_row_numel(dx) * fsdp_dtype_size(o->dtype));
}

static const fsdp_op gather_rows_op = {.name = "gather_rows", .backward = gather_rows_backward};

/* Check the row indices. No row may occur twice, because backward copies the gradients of rows
 * instead of adding them. */
static bool check_rows(fsdp_scope *s, const int32_t *rows, int64_t n, int64_t n_rows)
{
    unsigned char *seen = fsdp_calloc((size_t)n_rows / 8 + 1, 1);
    if (!seen)
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    for (int64_t i = 0; seen && i < n; i++) {
        int32_t row = rows[i];
        if (row < 0 || row >= n_rows) {
            fsdp_scope_error(s, "gather_rows", "row %d at %lld is outside of [0, %lld)", (int)row,
                             (long long)i, (long long)n_rows);
            break;
        }
        unsigned char bit = (unsigned char)(1u << (row & 7));
        if (seen[row >> 3] & bit) {
            fsdp_scope_error(s, "gather_rows", "row %d occurs again at %lld", (int)row,
                             (long long)i);
            break;
        }
        seen[row >> 3] |= bit;
    }
    fsdp_free(seen);
    return fsdp_scope_ok(s);
}

fsdp_tensor *fsdp_gather_rows(fsdp_scope *s, fsdp_tensor *x, const int32_t *rows, int64_t n)
{
    char text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, "gather_rows", &x, (const char *const[]){"x"}, 1))
        return NULL;
    if (x->ndim < 1 || n < 0) {
        fsdp_scope_error(s, "gather_rows", "%lld rows of %s", (long long)n,
                         fsdp_shape_text(x->ndim, x->shape, text));
        return NULL;
    }
    if (!check_rows(s, rows, n, x->shape[0]))
        return NULL;
    rows_options o = {.n = n, .dtype = x->dtype, .x_ndim = x->ndim};
    int64_t shape[FSDP_MAX_DIMS] = {0};
    for (int i = 0; i < x->ndim; i++)
        shape[i] = o.x_shape[i] = x->shape[i];
    shape[0] = n;
    fsdp_tensor *out = fsdp_new(s, x->dtype, x->ndim, shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->gather_rows(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), rows, n,
                       (size_t)fsdp_tensor_row_numel(x) * fsdp_dtype_size(x->dtype));
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, x))
        return out;
    int32_t *copy = fsdp_copy_ids(s, rows, n);
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &gather_rows_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = copy});
    return out;
}

/* --- segment_mean --- */

typedef struct segment_options {
    int64_t n, x_shape[2];
    fsdp_dtype dtype;
} segment_options;

static void segment_mean_backward(fsdp_scope *s, const fsdp_node *n, fsdp_tensor *const *grad_out,
                                  fsdp_tensor **grad_in)
{
    const segment_options *o = (const segment_options *)n->options;
    fsdp_tensor *dx = grad_in[0] = fsdp_new(s, o->dtype, 2, o->x_shape);
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->segment_mean_backward(fsdp_scope_context(s), fsdp_tensor_ptr(dx),
                                 fsdp_tensor_ptr(grad_out[0]), o->dtype, n->host, o->n,
                                 o->x_shape[1]);
}

static const fsdp_op segment_mean_op = {.name = "segment_mean", .backward = segment_mean_backward};

/* Check the offsets. Backward writes only the rows that are in a segment, so every row must be in a
 * segment. */
static bool check_offsets(fsdp_scope *s, const int32_t *offsets, int64_t n, int64_t n_rows)
{
    const char *op = segment_mean_op.name;
    if (offsets[0] != 0 || offsets[n] != n_rows)
        fsdp_scope_error(s, op, "offsets go from %d to %d, not from 0 to the %lld rows",
                         (int)offsets[0], (int)offsets[n], (long long)n_rows);
    for (int64_t i = 0; i < n && fsdp_scope_ok(s); i++)
        if (offsets[i] > offsets[i + 1])
            fsdp_scope_error(s, op, "offset %d at %lld is below %d before it", (int)offsets[i + 1],
                             (long long)(i + 1), (int)offsets[i]);
    return fsdp_scope_ok(s);
}

fsdp_tensor *fsdp_segment_mean(fsdp_scope *s, fsdp_tensor *x, const int32_t *offsets, int64_t n)
{
    char text[FSDP_SHAPE_TEXT];
    if (!fsdp_check_floats(s, segment_mean_op.name, &x, (const char *const[]){"x"}, 1))
        return NULL;
    if (x->ndim != 2 || n < 0) {
        fsdp_scope_error(s, segment_mean_op.name, "%lld segments of x %s, not [T, D]", (long long)n,
                         fsdp_shape_text(x->ndim, x->shape, text));
        return NULL;
    }
    if (!check_offsets(s, offsets, n, x->shape[0]))
        return NULL;
    segment_options o = {.n = n, .x_shape = {x->shape[0], x->shape[1]}, .dtype = x->dtype};
    fsdp_tensor *out = fsdp_new(s, x->dtype, 2, (const int64_t[]){n, x->shape[1]});
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    if (k)
        k->segment_mean(fsdp_scope_context(s), fsdp_tensor_ptr(out), fsdp_tensor_ptr(x), x->dtype,
                        offsets, n, x->shape[1]);
    if (!fsdp_scope_ok(s) || !fsdp_is_recorded(s, x))
        return out;
    int32_t *copy = fsdp_copy_ids(s, offsets, n + 1);
    if (!copy)
        return NULL;
    fsdp_record(s, &(fsdp_record_args){.op = &segment_mean_op,
                                       .in = {x},
                                       .n_in = 1,
                                       .out = {out},
                                       .n_out = 1,
                                       .options = &o,
                                       .options_bytes = sizeof o,
                                       .host = copy});
    return out;
}
