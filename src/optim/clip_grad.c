/* Clipping of gradients by their global norm or by value. The norm has the same bits at any world
 * size.
 *
 * Each rank computes one number for each of its rows of each gradient: the sum of |x|^p or, for the
 * infinity norm, the largest |x|. Note [Row sums] in row_sums.h describes how the numbers of all
 * rows of a gradient are combined into one number. The numbers of the gradients are then combined
 * in the order of the parameters' names. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/optim/clip_grad.h"
#include "src/optim/optimizer.h"
#include "src/optim/row_sums.h"
#include "src/tensor/tensor.h"
#include "src/trace/trace.h"

struct fsdp_clip {
    double type; /* p of the norm */
    double max_norm;
    bool error_if_nonfinite;
    const fsdp_parameter_list *list; /* borrowed */
    fsdp_named_parameter *named;     /* [n] the parameters that have a gradient, sorted by name */
    fsdp_row_sum *items;             /* [n] the sums over the rows of each gradient */
    size_t n;
    fsdp_device *device; /* NULL if n is 0 */
    fsdp_row_sums sums;
    fsdp_tensor *on_device; /* an fsdp_clip_result; NULL if n is 0 */
    fsdp_event *computed;   /* occurs when the kernels of fsdp_clip_compute() have run */
    /* The optimizer whose step has been started but may still be refused (Note [Late norm] in
     * clip_grad.h). NULL: no step has been started. Borrowed. */
    fsdp_optimizer *stepped;
    /* true: the host has read the result from the device, so `result` is complete */
    bool is_known;
    fsdp_clip_result result;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fsdp_named_parameter *)a)->name, ((const fsdp_named_parameter *)b)->name);
}

static fsdp_tensor *grad_of(const fsdp_clip *clip, size_t i)
{
    return fsdp_parameter_grad(clip->named[i].parameter);
}

/* Returns true if p is sharded along dimension 0. If p is sharded along any other dimension, no
 * rank has whole rows. Each rank then treats all its elements of p as a single row, and contributes
 * one number for them. */
static bool is_cut_by_rows(const fsdp_parameter *p)
{
    return fsdp_parameter_shard(p).dim == 0;
}

static fsdp_status collect_gradients(const fsdp_parameter_list *list, fsdp_clip *clip)
{
    clip->named = fsdp_calloc(list->n, sizeof *clip->named);
    clip->items = fsdp_calloc(list->n, sizeof *clip->items);
    if (!clip->named || !clip->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->n; i++)
        if (fsdp_optimizer_gradient(list->items[i].parameter))
            clip->named[clip->n++] = list->items[i];
    qsort(clip->named, clip->n, sizeof *clip->named, by_name);
    for (size_t i = 0; i < clip->n; i++) {
        const fsdp_parameter *p = clip->named[i].parameter;
        clip->items[i] = (fsdp_row_sum){
            .group = fsdp_parameter_group(p),
            .rows = is_cut_by_rows(p) ? fsdp_parameter_shape(p)[0]
                                      : fsdp_group_world_size(fsdp_parameter_group(p)),
            .inner = 1,
            .width = 1};
        clip->device = grad_of(clip, i)->storage->device;
    }
    return FSDP_OK;
}

/* Returns the number of rows for which temporary memory is needed at one time: the rows of all
 * gradients if `together` is true, otherwise the rows of the gradient with the most rows. */
static int64_t scratch_rows(const fsdp_clip *clip, bool together)
{
    int64_t most = 0, all = 0;
    for (size_t i = 0; i < clip->n; i++) {
        const int64_t rows = grad_of(clip, i)->shape[0];
        most = rows > most ? rows : most;
        all += rows;
    }
    return together ? all : most;
}

/* Sets *powers to the arguments of the kernel that computes one number for each of this rank's rows
 * of gradient i and writes these numbers to `rows`. Sets *values to the arguments that then combine
 * these numbers. */
static void describe_rows(const fsdp_clip *clip, size_t i, double *rows, fsdp_row_powers *powers,
                          fsdp_row_values *values)
{
    const fsdp_tensor *grad = grad_of(clip, i);
    *powers = (fsdp_row_powers){.x = fsdp_tensor_ptr(grad),
                                .dtype = grad->dtype,
                                .rows = grad->shape[0],
                                .width = fsdp_tensor_row_numel(grad),
                                .sums = rows};
    *values = (fsdp_row_values){.item = i,
                                .rows = rows,
                                .n = grad->shape[0],
                                .in_order = !is_cut_by_rows(clip->named[i].parameter)};
}

static void start_kernels(const fsdp_clip *clip, const fsdp_row_powers *powers,
                          const fsdp_row_values *values, size_t n)
{
    clip->device->kernels->row_power_sums(clip->device->context, powers, n, clip->type);
    fsdp_row_sums_combine(&clip->sums, values, n);
}

/* Computes one number for each row of all gradients, one gradient after another. The numbers are
 * stored in `rows`, which is large enough for the gradient with the most rows and is used again for
 * each gradient. */
static fsdp_status sum_one_by_one(const fsdp_clip *clip, double *rows)
{
    for (size_t i = 0; i < clip->n; i++) {
        fsdp_row_powers powers;
        fsdp_row_values values;
        if (!fsdp_tensor_numel(grad_of(clip, i)))
            continue;
        describe_rows(clip, i, rows, &powers, &values);
        start_kernels(clip, &powers, &values, 1);
    }
    return FSDP_OK;
}

/* Computes one number for each row of all gradients, with a single call of the kernel. `rows` is
 * large enough for the rows of all gradients. */
static fsdp_status sum_together(const fsdp_clip *clip, double *rows)
{
    fsdp_row_powers *powers = fsdp_calloc(clip->n, sizeof *powers);
    fsdp_row_values *values = fsdp_calloc(clip->n, sizeof *values);
    const fsdp_status status = powers && values ? FSDP_OK : FSDP_ERR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < clip->n && status == FSDP_OK; rows += grad_of(clip, i++)->shape[0])
        if (fsdp_tensor_numel(grad_of(clip, i))) {
            describe_rows(clip, i, rows, &powers[n], &values[n]);
            n++;
        }
    if (n)
        start_kernels(clip, powers, values, n);
    fsdp_free(values);
    fsdp_free(powers);
    return status;
}

static fsdp_status start_sums(const fsdp_clip *clip)
{
    const bool together = clip->device->traits->joins_sums;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(clip->device, FSDP_DTYPE_F64, 1,
                                (int64_t[]){scratch_rows(clip, together)}, FSDP_TAG_COMM, &rows));
    fsdp_status status = FSDP_OK;
    if (clip->device->kernels)
        status = (together ? sum_together : sum_one_by_one)(clip, fsdp_tensor_ptr(rows));
    fsdp_tensor_release(rows);
    return status;
}

/* --- gradients that are not finite --- */

/* Returns the total of one gradient over all its rows: the sum of |x|^p or, for the infinity norm,
 * the largest |x|. */
static double sum_of(const fsdp_row_sum *s)
{
    return s->total ? s->total[0] : 0.0;
}

/* Returns the total of the gradient of p, or 0 if p has none. */
static double sum_of_parameter(const fsdp_clip *clip, const fsdp_parameter *p)
{
    for (size_t i = 0; i < clip->n; i++)
        if (clip->named[i].parameter == p)
            return sum_of(&clip->items[i]);
    return 0.0;
}

static const char *not_finite(double x)
{
    return isnan(x) ? "NaN" : "infinite";
}

/* Fails if the norm is not finite. The message names the first parameter of clip->list whose
 * gradient is not finite. The parameters in this list are in the order of the model, so the problem
 * probably began at the first one. If its norm is infinite and that of a later parameter is NaN,
 * the norm of all gradients is NaN. */
static fsdp_status check_finite(fsdp_clip *clip)
{
    const fsdp_parameter_list *list = clip->list;
    const char *what = not_finite(clip->result.norm);
    if (isfinite(clip->result.norm))
        return FSDP_OK;
    if (clip->sums.is_local) /* if not, fsdp_clip_compute() has already done this gather */
        FSDP_TRY(fsdp_row_sums_gather(&clip->sums));
    for (size_t i = 0; i < list->n; i++) {
        const double sum = sum_of_parameter(clip, list->items[i].parameter);
        if (!isfinite(sum))
            return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is %s: that of %s is %s",
                              what, list->items[i].name, not_finite(sum));
    }
    return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is %s", what);
}

/* --- the steps --- */

static fsdp_status begin_clip(fsdp_clip *clip)
{
    enum {
        NUMBERS = sizeof(fsdp_clip_result) / sizeof(double)
    };
    _Static_assert(sizeof(fsdp_clip_result) == NUMBERS * sizeof(double), "whole numbers");
    FSDP_TRY(collect_gradients(clip->list, clip));
    if (!clip->n)
        return FSDP_OK;
    FSDP_TRY(fsdp_row_sums_open(&clip->sums, clip->items, clip->n,
                                isinf(clip->type) ? FSDP_REDUCE_MAX : FSDP_REDUCE_SUM,
                                clip->device));
    FSDP_TRY(fsdp_tensor_create(clip->device, FSDP_DTYPE_F64, 1, (int64_t[]){NUMBERS},
                                FSDP_TAG_COMM, &clip->on_device));
    return start_sums(clip);
}

fsdp_status fsdp_clip_begin(const fsdp_parameter_list *parameters, double max_norm,
                            const fsdp_clip_grad_options *options, fsdp_clip **out)
{
    const fsdp_clip_grad_options o = options ? *options : (fsdp_clip_grad_options){0};
    const double type = o.norm_type != 0.0 ? o.norm_type : 2.0;
    if (!(max_norm >= 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_norm: max_norm is %g", max_norm);
    if (!(type > 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_norm: norm_type is %g, not above 0", type);
    fsdp_clip *clip = fsdp_calloc(1, sizeof *clip);
    if (!clip)
        return FSDP_ERR_NOMEM;
    *clip = (fsdp_clip){.type = type,
                        .max_norm = max_norm,
                        .error_if_nonfinite = o.error_if_nonfinite,
                        .list = parameters};
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "clip_grad_norm", NULL);
    const fsdp_status status = begin_clip(clip);
    fsdp_trace_end();
    if (status != FSDP_OK) {
        fsdp_clip_destroy(clip);
        return status;
    }
    *out = clip;
    return FSDP_OK;
}

static void start_factor(const fsdp_clip *clip, const fsdp_tensor *losses)
{
    const fsdp_clip_args args = {.sums = fsdp_row_sums_send_totals(&clip->sums),
                                 .n = (int64_t)clip->n,
                                 .power = clip->type,
                                 .max_norm = clip->max_norm,
                                 .refuses_norm = clip->error_if_nonfinite,
                                 .losses = losses ? fsdp_tensor_ptr(losses) : NULL,
                                 .n_losses = losses ? fsdp_tensor_numel(losses) : 0,
                                 .result = fsdp_tensor_ptr(clip->on_device)};
    clip->device->kernels->clip_factor(clip->device->context, &args);
}

/* See clip_grad.h. The norm is 0 if there are no gradients, and also on the meta device. */
fsdp_status fsdp_clip_compute(fsdp_clip *clip, const fsdp_tensor *losses)
{
    const fsdp_device *device = clip->n ? clip->device : losses ? losses->storage->device : NULL;
    fsdp_status status = FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "clip_grad_norm", NULL);
    if (clip->n && !clip->sums.is_local)
        status = fsdp_row_sums_gather(&clip->sums);
    clip->is_known = !clip->n || !device->kernels;
    clip->result.scale = fsdp_clip_scale(0.0, clip->max_norm);
    if (status == FSDP_OK && !clip->is_known)
        start_factor(clip, losses);
    if (status == FSDP_OK && device)
        clip->computed = fsdp_device_record(device);
    fsdp_trace_end();
    return status;
}

fsdp_status fsdp_clip_wait(fsdp_clip *clip)
{
    FSDP_TRY(fsdp_event_synchronize(clip->computed));
    if (clip->is_known)
        return FSDP_OK;
    FSDP_TRY(fsdp_device_peek(clip->device, &clip->result, fsdp_tensor_ptr(clip->on_device),
                              sizeof clip->result));
    clip->is_known = true;
    if (clip->stepped && clip->result.refused)
        fsdp_optimizer_uncount_step(clip->stepped);
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_step_clipped(fsdp_optimizer *optimizer, fsdp_clip *clip)
{
    if (!clip->is_known && !clip->stepped && clip->device->traits->joins_kernels &&
        fsdp_optimizer_is_elementwise(optimizer)) {
        FSDP_TRY(fsdp_optimizer_step_scaled(optimizer, 1.0f, fsdp_tensor_ptr(clip->on_device)));
        clip->stepped = optimizer;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_clip_wait(clip));
    return clip->result.refused ? FSDP_OK : fsdp_optimizer_step(optimizer, clip->result.scale);
}

fsdp_status fsdp_clip_end(fsdp_clip *clip, double *total_norm, float *scale)
{
    fsdp_trace_begin(FSDP_TRACE_OPTIMIZER, "clip_grad_norm", NULL);
    fsdp_status status = fsdp_clip_wait(clip);
    if (status == FSDP_OK && clip->error_if_nonfinite)
        status = check_finite(clip);
    if (status == FSDP_OK && total_norm)
        *total_norm = clip->result.norm;
    if (status == FSDP_OK && scale)
        *scale = clip->result.scale;
    fsdp_trace_end();
    return status;
}

void fsdp_clip_destroy(fsdp_clip *clip)
{
    if (!clip)
        return;
    fsdp_event_destroy(clip->computed);
    fsdp_tensor_release(clip->on_device);
    fsdp_row_sums_close(&clip->sums);
    fsdp_free(clip->items);
    fsdp_free(clip->named);
    fsdp_free(clip);
}

/* --- public functions --- */

static void scale_all(const fsdp_clip *clip, float factor)
{
    for (size_t i = 0; i < clip->n; i++) {
        const fsdp_tensor *grad = grad_of(clip, i);
        if (clip->device->kernels && fsdp_tensor_numel(grad))
            clip->device->kernels->scale(clip->device->context, fsdp_tensor_ptr(grad),
                                         fsdp_tensor_ptr(grad), factor, FSDP_DTYPE_F32,
                                         fsdp_tensor_numel(grad));
    }
}

fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters, double max_norm,
                                const fsdp_clip_grad_options *options, double *total_norm,
                                float *scale)
{
    fsdp_clip *clip;
    float factor;
    FSDP_TRY(fsdp_clip_begin(parameters, max_norm, options, &clip));
    fsdp_status status = fsdp_clip_compute(clip, NULL);
    if (status == FSDP_OK)
        status = fsdp_clip_end(clip, total_norm, &factor);
    if (status == FSDP_OK && scale)
        *scale = factor;
    else if (status == FSDP_OK && factor != 1.0f)
        scale_all(clip, factor);
    fsdp_clip_destroy(clip);
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
