/* The global norm of gradients, with the same bits at any world size, and clipping by it.
 *
 * Every rank computes the sums of squares of its own rows. They are gathered once for all
 * parameters: a rank's part holds ceil(rows / world_size) numbers for each parameter, however few
 * rows it has. Sums then run over the rows of the whole tensor in order, whoever had them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/dtensor.h>
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/nn/module.h"
#include "src/tensor/tensor.h"

typedef struct item {
    const fsdp_named_parameter *named;
    fsdp_tensor *grad;
    fsdp_group *group; /* NULL: every rank has all rows */
    int64_t rows;      /* of the whole gradient */
    double sum;        /* of squares */
} item;

typedef struct grad_norm {
    item *items; /* by name */
    size_t n;
    double total;
} grad_norm;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->named->name, ((const item *)b)->named->name);
}

static fsdp_status collect(const fsdp_parameter_list *list, grad_norm *norm)
{
    norm->items = fsdp_calloc(list->n, sizeof *norm->items);
    if (!norm->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->n; i++) {
        const fsdp_parameter *p = list->items[i].parameter;
        fsdp_tensor *grad = fsdp_parameter_grad(p);
        if (grad)
            norm->items[norm->n++] = (item){.named = &list->items[i],
                                            .grad = grad,
                                            .group = fsdp_parameter_group(p),
                                            .rows = fsdp_parameter_shape(p)[0]};
    }
    qsort(norm->items, norm->n, sizeof *norm->items, by_name);
    return FSDP_OK;
}

static int world_of(const fsdp_group *group)
{
    return group ? fsdp_group_world_size(group) : 1;
}

/* Numbers that each rank sends for it. */
static int64_t chunk_of(const item *it)
{
    int64_t begin, end;
    fsdp_shard_rows(it->rows, world_of(it->group), 0, &begin, &end);
    return end - begin;
}

/* Sums of the rows of this rank, parameter after parameter. */
static void sum_own_rows(const grad_norm *norm, fsdp_group *group, double *sums)
{
    for (size_t i = 0; i < norm->n; i++) {
        const item *it = &norm->items[i];
        const fsdp_device *device = it->grad->storage->device;
        if (it->group != group)
            continue;
        if (fsdp_tensor_numel(it->grad))
            device->kernels->row_sum_squares(device->context, sums, fsdp_tensor_ptr(it->grad),
                                             it->grad->shape[0], fsdp_tensor_row_numel(it->grad));
        sums += chunk_of(it);
    }
}

/* gathered: each rank's part, `total` numbers long. */
static void add_rows(grad_norm *norm, fsdp_group *group, const double *gathered, int64_t total)
{
    int64_t offset = 0;
    for (size_t i = 0; i < norm->n; i++) {
        item *it = &norm->items[i];
        if (it->group != group)
            continue;
        for (int r = 0; r < world_of(group); r++) {
            int64_t begin, end;
            const double *part = gathered + r * total + offset;
            fsdp_shard_rows(it->rows, world_of(group), r, &begin, &end);
            for (int64_t k = 0; k < end - begin; k++)
                it->sum += part[k];
        }
        offset += chunk_of(it);
    }
}

/* Fill in `sum` of the parameters that are sharded over `group`. */
static fsdp_status sum_group(grad_norm *norm, fsdp_group *group, fsdp_device *device)
{
    int64_t total = 0;
    int world_size = world_of(group);
    fsdp_tensor *own, *all;
    for (size_t i = 0; i < norm->n; i++)
        if (norm->items[i].group == group)
            total += chunk_of(&norm->items[i]);
    FSDP_TRY(
        fsdp_tensor_create(device, FSDP_DTYPE_F64, 1, (int64_t[]){total}, FSDP_TAG_COMM, &own));
    fsdp_status status = fsdp_tensor_create(device, FSDP_DTYPE_F64, 1,
                                            (int64_t[]){total * world_size}, FSDP_TAG_COMM, &all);
    if (status != FSDP_OK) {
        fsdp_tensor_release(own);
        return status;
    }
    if (device->kernels) {
        double *sums = fsdp_tensor_ptr(own), *gathered = fsdp_tensor_ptr(all);
        memset(sums, 0, (size_t)total * sizeof *sums);
        sum_own_rows(norm, group, sums);
        if (group)
            status = fsdp_all_gather(group, sums, (size_t)total * sizeof *sums, gathered);
        if (status == FSDP_OK)
            add_rows(norm, group, group ? gathered : sums, total);
    }
    fsdp_tensor_release(all);
    fsdp_tensor_release(own);
    return status;
}

/* One gather for each group that parameters are sharded over: for one, as a rule. */
static fsdp_status compute(grad_norm *norm)
{
    for (size_t i = 0; i < norm->n; i++) {
        bool done = false;
        for (size_t k = 0; k < i && !done; k++)
            done = norm->items[k].group == norm->items[i].group;
        if (!done)
            FSDP_TRY(sum_group(norm, norm->items[i].group, norm->items[i].grad->storage->device));
    }
    double sum = 0.0;
    for (size_t i = 0; i < norm->n; i++)
        sum += norm->items[i].sum;
    norm->total = sqrt(sum);
    return FSDP_OK;
}

static fsdp_status check_finite(const grad_norm *norm)
{
    if (isfinite(norm->total))
        return FSDP_OK;
    for (size_t i = 0; i < norm->n; i++)
        if (!isfinite(norm->items[i].sum))
            return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is %s: that of %s is",
                              isnan(norm->total) ? "NaN" : "infinite", norm->items[i].named->name);
    return fsdp_error(FSDP_ERR_NUMERIC, "the norm of gradients is infinite");
}

static void scale_all(const grad_norm *norm, float factor)
{
    for (size_t i = 0; i < norm->n; i++) {
        const fsdp_tensor *grad = norm->items[i].grad;
        const fsdp_device *device = grad->storage->device;
        if (device->kernels && fsdp_tensor_numel(grad))
            device->kernels->scale(device->context, fsdp_tensor_ptr(grad), fsdp_tensor_ptr(grad),
                                   factor, FSDP_DTYPE_F32, fsdp_tensor_numel(grad));
    }
}

fsdp_status fsdp_clip_grad_norm(const fsdp_parameter_list *parameters, double max_norm,
                                const fsdp_clip_grad_options *options, double *total_norm,
                                float *scale)
{
    grad_norm norm = {0};
    if (!(max_norm >= 0.0))
        return fsdp_error(FSDP_ERR_INVALID, "clip_grad_norm: max_norm is %g", max_norm);
    fsdp_status status = collect(parameters, &norm);
    if (status == FSDP_OK)
        status = compute(&norm);
    if (status == FSDP_OK && options && options->error_if_nonfinite)
        status = check_finite(&norm);
    if (status == FSDP_OK) {
        double factor = max_norm / (norm.total + 1e-6);
        factor = factor > 1.0 || isinf(max_norm) ? 1.0 : factor; /* NaN stays */
        if (total_norm)
            *total_norm = norm.total;
        if (scale)
            *scale = (float)factor;
        else if (factor != 1.0)
            scale_all(&norm, (float)factor);
    }
    fsdp_free(norm.items);
    return status;
}
