/* See not_finite.h. */
#include "src/train/not_finite.h"

#include <math.h>
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/tensor/tensor.h"

/* Are these rows, in memory, finite? `rows` is scratch for a number of each. */
static bool is_finite(const fsdp_tensor *local, double *rows)
{
    const fsdp_device *device = local->storage->device;
    const int64_t n = local->ndim ? local->shape[0] : 1;
    bool finite = true;
    if (!device->kernels || !fsdp_tensor_numel(local))
        return true;
    device->kernels->row_power_sums(device->context, rows, fsdp_tensor_ptr(local), local->dtype, n,
                                    fsdp_tensor_row_numel(local), (double)INFINITY);
    for (int64_t r = 0; r < n; r++)
        finite &= isfinite(rows[r]) != 0;
    return finite;
}

/* *bad is 1 if this rank's rows of p are not finite, else 0. */
static fsdp_status look_at(const fsdp_parameter *p, double *rows, float *bad)
{
    const fsdp_tensor *local = fsdp_parameter_local(p);
    FSDP_TRY(fsdp_tensor_begin_read(local));
    *bad = is_finite(local, rows) ? 0.0f : 1.0f;
    fsdp_tensor_end_read(local);
    return FSDP_OK;
}

static int64_t most_rows(const fsdp_parameter_list *list)
{
    int64_t most = 1;
    for (size_t i = 0; i < list->n; i++) {
        const int64_t rows = fsdp_parameter_shape(list->items[i].parameter)[0];
        most = rows > most ? rows : most;
    }
    return most;
}

fsdp_status fsdp_find_not_finite(const fsdp_train_loop *loop, const fsdp_named_parameter **found)
{
    const fsdp_parameter_list *list = &loop->parameters;
    double *rows = fsdp_calloc((size_t)most_rows(list), sizeof *rows);
    float *bad = fsdp_calloc(list->n, sizeof *bad);
    fsdp_status status = rows && bad ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; status == FSDP_OK && i < list->n; i++)
        status = look_at(list->items[i].parameter, rows, &bad[i]);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(loop->group, bad, list->n, FSDP_DTYPE_F32, FSDP_REDUCE_MAX);
    *found = NULL;
    for (size_t i = list->n; status == FSDP_OK && i-- > 0;)
        if (bad[i] != 0.0f)
            *found = &list->items[i];
    fsdp_free(rows);
    fsdp_free(bad);
    return status;
}

fsdp_status fsdp_not_finite(const fsdp_train_loop *loop, const char *what, int64_t step, double lr)
{
    const fsdp_named_parameter *bad;
    char text[512]; /* `what` may be the last error */
    snprintf(text, sizeof text, "%s", what);
    FSDP_TRY(fsdp_find_not_finite(loop, &bad));
    if (!bad)
        return fsdp_error(FSDP_ERR_NUMERIC,
                          "step %lld: %s (learning rate %g); nothing was updated. A smaller --lr, "
                          "--warmup-steps or --max-grad-norm may help",
                          (long long)step + 1, text, lr);
    const int64_t updates = fsdp_optimizer_steps(loop->optimizer, bad->parameter);
    if (updates == 0)
        return fsdp_error(FSDP_ERR_NUMERIC,
                          "step %lld: %s; parameter %s has values that are not finite, and had "
                          "them when training began",
                          (long long)step + 1, text, bad->name);
    return fsdp_error(FSDP_ERR_NUMERIC,
                      "step %lld: %s; parameter %s has values that are not finite after %lld "
                      "updates (learning rate %g)",
                      (long long)step + 1, text, bad->name, (long long)updates, lr);
}
