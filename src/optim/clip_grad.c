/* Clipping of gradients by their global norm or by value. The norm has the same bits at any world
 * size.
 *
 * For each row that a rank has of a gradient, the rank computes one number: the sum of |x|^p or,
 * for the infinity norm, the largest |x|. Note [Row sums] in row_sums.h describes how the numbers
 * of all rows are combined into one number for each whole tensor. The numbers of the tensors are
 * then combined in the order of the parameters' names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/optim/optimizer.h"
#include "src/optim/row_sums.h"
#include "src/tensor/tensor.h"
#include "src/trace/trace.h"

typedef struct grad_norm {
    double type;                 /* p of the norm */
    fsdp_named_parameter *named; /* [n] the parameters that have a gradient, sorted by name */
    fsdp_row_sum *items;         /* [n] */
    size_t n;
    fsdp_device *device; /* NULL if n is 0 */
    double total;
} grad_norm;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fsdp_named_parameter *)a)->name, ((const fsdp_named_parameter *)b)->name);
}

static fsdp_tensor *grad_of(const grad_norm *norm, size_t i)
{
    return fsdp_parameter_grad(norm->named[i].parameter);
}

/* Returns true if p is sharded along dimension 0. If p is sharded along any other dimension, no
 * rank has whole rows. Each rank then treats all its elements of p as a single row, and contributes
 * one number for them. */
static bool is_cut_by_rows(const fsdp_parameter *p)
{
    return fsdp_parameter_shard(p).dim == 0;
}

static fsdp_status collect_gradients(const fsdp_parameter_list *list, grad_norm *norm)
{
    norm->named = fsdp_calloc(list->n, sizeof *norm->named);
    norm->items = fsdp_calloc(list->n, sizeof *norm->items);
    if (!norm->named || !norm->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->n; i++)
        if (fsdp_optimizer_gradient(list->items[i].parameter))
            norm->named[norm->n++] = list->items[i];
    qsort(norm->named, norm->n, sizeof *norm->named, by_name);
    for (size_t i = 0; i < norm->n; i++) {
        const fsdp_parameter *p = norm->named[i].parameter;
        norm->items[i] = (fsdp_row_sum){
            .group = fsdp_parameter_group(p),
            .rows = is_cut_by_rows(p) ? fsdp_parameter_shape(p)[0]
                                      : fsdp_group_world_size(fsdp_parameter_group(p)),
            .inner = 1,
            .width = 1};
        norm->device = grad_of(norm, i)->storage->device;
    }
    return FSDP_OK;
}

/* Adds x to *sum. For the infinity norm, sets *sum to the larger of *sum and x instead. */
static void add_to_norm(const grad_norm *norm, double *sum, double x)
{
    if (!isinf(norm->type))
        *sum += x;
    else
        *sum = x > *sum || isnan(x) ? x : *sum; /* NaN stays NaN */
}

/* Combines the numbers rows[0] to rows[n - 1] into one number, which replaces rows[0]. */
static void join_rows(const grad_norm *norm, double *rows, int64_t n)
{
    for (int64_t r = 1; r < n; r++)
        add_to_norm(norm, &rows[0], rows[r]);
}

/* Starts the kernel that computes one number for each row that this rank has of gradient i, and
 * stores the numbers at element `at` of the tensor `rows`. */
static void start_rows(const grad_norm *norm, size_t i, const fsdp_tensor *rows, int64_t at)
{
    const fsdp_tensor *grad = grad_of(norm, i);
    norm->device->kernels->row_power_sums(
        norm->device->context, (double *)fsdp_tensor_ptr(rows) + at, fsdp_tensor_ptr(grad),
        grad->dtype, grad->shape[0], fsdp_tensor_row_numel(grad), norm->type);
}

/* Combines the numbers of the rows of gradient i, and stores the results in `sums`. */
static void put_rows(const grad_norm *norm, size_t i, const fsdp_row_sums *sums, double *rows)
{
    if (!is_cut_by_rows(norm->named[i].parameter))
        join_rows(norm, rows, grad_of(norm, i)->shape[0]);
    fsdp_row_sums_put(sums, i, 0, rows);
}

/* Computes the numbers of all gradients, in scratch memory for one gradient at a time: room for the
 * gradient with the most rows. */
static fsdp_status sum_one_by_one(const grad_norm *norm, const fsdp_row_sums *sums,
                                  const fsdp_host_copy *scratch)
{
    for (size_t i = 0; i < norm->n; i++) {
        if (!fsdp_tensor_numel(grad_of(norm, i)))
            continue;
        start_rows(norm, i, scratch->tensor, 0);
        FSDP_TRY(fsdp_host_copy_read_part(scratch, 0,
                                          (size_t)grad_of(norm, i)->shape[0] * sizeof(double)));
        put_rows(norm, i, sums, scratch->data);
    }
    return FSDP_OK;
}

/* Does the same with room for the rows of all gradients, so that the host waits once. */
static fsdp_status sum_together(const grad_norm *norm, const fsdp_row_sums *sums,
                                const fsdp_host_copy *scratch)
{
    int64_t at = 0;
    for (size_t i = 0; i < norm->n; at += grad_of(norm, i++)->shape[0])
        if (fsdp_tensor_numel(grad_of(norm, i)))
            start_rows(norm, i, scratch->tensor, at);
    FSDP_TRY(fsdp_host_copy_read(scratch));
    at = 0;
    for (size_t i = 0; i < norm->n; at += grad_of(norm, i++)->shape[0])
        if (fsdp_tensor_numel(grad_of(norm, i)))
            put_rows(norm, i, sums, (double *)scratch->data + at);
    return FSDP_OK;
}

/* Returns the number of rows that the scratch memory has room for. */
static int64_t scratch_rows(const grad_norm *norm, bool together)
{
    int64_t most = 0, all = 0;
    for (size_t i = 0; i < norm->n; i++) {
        const int64_t rows = grad_of(norm, i)->shape[0];
        most = rows > most ? rows : most;
        all += rows;
    }
    return together ? all : most;
}

static fsdp_status gather_sums(const grad_norm *norm, fsdp_row_sums *sums)
{
    const bool together = norm->device->traits->joins_reads;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(norm->device, FSDP_DTYPE_F64, 1,
                                (int64_t[]){scratch_rows(norm, together)}, FSDP_TAG_COMM, &rows));
    fsdp_host_copy scratch = {0};
    fsdp_status status = fsdp_host_copy_create(&scratch, rows);
    if (status == FSDP_OK && norm->device->kernels)
        status = (together ? sum_together : sum_one_by_one)(norm, sums, &scratch);
    fsdp_host_copy_destroy(&scratch);
    fsdp_tensor_release(rows);
    return status == FSDP_OK ? fsdp_row_sums_gather(sums) : status;
}

/* Returns the total of one gradient over all its rows: the sum of |x|^p or, for the infinity norm,
 * the largest |x|. On meta there are no values, and the result is 0. */
static double sum_of(const fsdp_row_sum *s)
{
    return s->total ? s->total[0] : 0.0;
}

static void add_tensors(grad_norm *norm)
{
    double sum = 0.0;
    for (size_t i = 0; i < norm->n; i++)
        add_to_norm(norm, &sum, sum_of(&norm->items[i]));
    if (norm->type == 2.0)
        norm->total = sqrt(sum);
    else
        norm->total = norm->type == 1.0 || isinf(norm->type) ? sum : pow(sum, 1.0 / norm->type);
}

static bool is_finite(const grad_norm *norm, const fsdp_parameter *p)
{
    for (size_t i = 0; i < norm->n; i++)
        if (norm->named[i].parameter == p)
            return isfinite(sum_of(&norm->items[i]));
    return true;
}

/* Fails if the norm is not finite. The message names the first parameter of `list` whose gradient
 * is not finite. The parameters in `list` are in the order of the model, so the name shows best
 * where the problem began. */
static fsdp_status check_finite(const grad_norm *norm, const fsdp_parameter_list *list)
{
    if (isfinite(norm->total))
        return FSDP_OK;
    for (size_t i = 0; i < list->n; i++)
        if (!is_finite(norm, list->items[i].parameter))
            return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is %s: that of %s is",
                              isnan(norm->total) ? "NaN" : "infinite", list->items[i].name);
    return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is infinite");
}

/* Computes the norm. If `to_check` is not NULL, fails if the norm is not finite; see
 * check_finite(). */
static fsdp_status compute_norm(grad_norm *norm, const fsdp_parameter_list *to_check)
{
    fsdp_row_sums sums = {0};
    if (!norm->n)
        return FSDP_OK;
    fsdp_status status =
        fsdp_row_sums_open(&sums, norm->items, norm->n,
                           isinf(norm->type) ? FSDP_REDUCE_MAX : FSDP_REDUCE_SUM, norm->device);
    if (status == FSDP_OK)
        status = gather_sums(norm, &sums);
    if (status == FSDP_OK)
        add_tensors(norm);
    if (status == FSDP_OK && to_check)
        status = check_finite(norm, to_check);
    fsdp_row_sums_close(&sums);
    return status;
}

static void scale_all(const grad_norm *norm, float factor)
{
    for (size_t i = 0; i < norm->n; i++) {
        const fsdp_tensor *grad = grad_of(norm, i);
        if (norm->device->kernels && fsdp_tensor_numel(grad))
            norm->device->kernels->scale(norm->device->context, fsdp_tensor_ptr(grad),
                                         fsdp_tensor_ptr(grad), factor, FSDP_DTYPE_F32,
                                         fsdp_tensor_numel(grad));
    }
}

fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters, double max_norm,
                                const fsdp_clip_grad_options *options, double *total_norm,
                                float *scale)
{
    fsdp_clip_grad_options o = options ? *options : (fsdp_clip_grad_options){0};
    grad_norm norm = {.type = o.norm_type != 0.0 ? o.norm_type : 2.0};
    if (!(max_norm >= 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_norm: max_norm is %g", max_norm);
    if (!(norm.type > 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_norm: norm_type is %g, not above 0",
                          norm.type);
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "clip_grad_norm", NULL);
    fsdp_status status = collect_gradients(parameters, &norm);
    if (status == FSDP_OK)
        status = compute_norm(&norm, o.error_if_nonfinite ? parameters : NULL);
    if (status == FSDP_OK) {
        double factor = max_norm / (norm.total + 1e-6);
        factor = factor > 1.0 || isinf(max_norm) ? 1.0 : factor; /* NaN stays NaN */
        if (total_norm)
            *total_norm = norm.total;
        if (scale)
            *scale = (float)factor;
        else if (factor != 1.0)
            scale_all(&norm, (float)factor);
    }
    fsdp_free(norm.items);
    fsdp_free(norm.named);
    fsdp_trace_end();
    return status;
}

fsdp_status fsdp_clip_grad_value(const fsdp_parameter_list *parameters, double clip_value)
{
    if (!(clip_value >= 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_value: clip_value is %g", clip_value);
    for (size_t i = 0; i < parameters->n; i++) {
        fsdp_tensor *grad = fsdp_optimizer_gradient(parameters->items[i].parameter);
        const fsdp_device *device = grad ? grad->storage->device : NULL;
        if (grad && device->kernels && fsdp_tensor_numel(grad))
            device->kernels->clamp(device->context, fsdp_tensor_ptr(grad), (float)clip_value,
                                   fsdp_tensor_numel(grad));
    }
    return FSDP_OK;
}
