/* See Note [Frozen parameters] in pending_dtype.h. */
#include "src/fsdp/pending_dtype.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/fsdp/param_storage.h"

enum {
    CHECKED_ELEMENTS = 1 << 10
};

fsdp_dtype fsdp_param_pending_dtype(const fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    const fsdp_dtype master = p->context->options.mp_policy.master_dtype;
    const bool frozen = !fsdp_parameter_requires_grad(parameter);
    if (parameter->quantized)
        return FSDP_DTYPE_U8;
    return frozen && parameter->loaded &&
                   fsdp_dtype_size(parameter->loaded_dtype) <= fsdp_dtype_size(master)
               ? parameter->loaded_dtype
               : master;
}

bool fsdp_param_is_pending(const fsdp_param *p)
{
    if (p->requires_grad == fsdp_parameter_requires_grad(p->parameter) &&
        !p->parameter->values_are_due)
        return false;
    const fsdp_dtype dtype = fsdp_param_pending_dtype(p);
    return dtype != p->dtype || fsdp_param_storage_for(p, dtype) != p->storage;
}

/* The n values at `at` have the dtype `from`. Set *fit to true if converting them to `dtype` and
 * back preserves them, otherwise to false. n is at most CHECKED_ELEMENTS. `scratch` is device
 * memory for the results of both conversions. */
static fsdp_status chunk_survives_cast(const fsdp_param_context *c, const char *at, fsdp_dtype from,
                                       fsdp_dtype dtype, int64_t n, const fsdp_tensor *scratch,
                                       bool *fit)
{
    const fsdp_kernels *k = c->device->kernels;
    const size_t bytes = (size_t)n * fsdp_dtype_size(from);
    char *narrow = fsdp_tensor_ptr(scratch), *back = narrow + CHECKED_ELEMENTS * sizeof(float);
    float values[2][CHECKED_ELEMENTS]; /* an element of dtype `from` has at most 4 bytes */
    k->cast(c->device->context, narrow, dtype, at, from, n);
    k->cast(c->device->context, back, from, narrow, dtype, n);
    FSDP_TRY(fsdp_device_to_host(c->device, values[0], at, bytes));
    FSDP_TRY(fsdp_device_to_host(c->device, values[1], back, bytes));
    *fit = memcmp(values[0], values[1], bytes) == 0;
    return FSDP_OK;
}

/* Set *fit to true if converting this rank's values of p to `dtype` and back preserves all of them,
 * otherwise to false. On meta, *fit is false, because values are unknown. */
static fsdp_status survives_cast(const fsdp_param *p, fsdp_dtype dtype, bool *fit)
{
    const fsdp_param_context *c = p->context;
    const int64_t bytes = 2 * CHECKED_ELEMENTS * (int64_t)sizeof(float);
    fsdp_tensor *scratch;
    *fit = c->device->kernels != NULL;
    if (!*fit)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_create(c->device, FSDP_DTYPE_U8, 1, &bytes, FSDP_TAG_COMM, &scratch));
    const char *from = fsdp_tensor_ptr(p->local);
    const size_t size = fsdp_dtype_size(p->dtype);
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0, left = fsdp_tensor_numel(p->local), n; left && *fit && status == FSDP_OK;
         i += n, left -= n) {
        n = left < CHECKED_ELEMENTS ? left : CHECKED_ELEMENTS;
        status = chunk_survives_cast(c, from + (size_t)i * size, p->dtype, dtype, n, scratch, fit);
    }
    fsdp_tensor_release(scratch);
    return status;
}

static bool widens(fsdp_dtype from, fsdp_dtype to)
{
    return fsdp_dtype_size(from) < fsdp_dtype_size(to);
}

/* dtypes[i] is the dtype to which the caller wants to convert params[i]. If the conversion would
 * change a value of params[i] on any rank, set dtypes[i] to the current dtype of params[i], so that
 * it is not converted. */
static fsdp_status keep_dtypes_if_lossy(const fsdp_param_context *c, const fsdp_param *params,
                                        size_t n, fsdp_dtype *dtypes)
{
    int32_t *fit = fsdp_calloc(n, sizeof *fit);
    if (!fit)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        const fsdp_param *p = &params[i];
        fit[i] =
            dtypes[i] == p->dtype || p->parameter->values_are_due || widens(p->dtype, dtypes[i]);
        if (fit[i])
            continue;
        status = fsdp_tensor_begin_read(p->local);
        if (status != FSDP_OK)
            break;
        bool comes_back = false;
        status = survives_cast(p, dtypes[i], &comes_back);
        fit[i] = comes_back;
        fsdp_tensor_end_read(p->local);
    }
    if (status == FSDP_OK && c->shard_group && c->device->kernels)
        status = fsdp_all_reduce(c->shard_group, fit, n, FSDP_DTYPE_I32, FSDP_REDUCE_MIN);
    for (size_t i = 0; i < n; i++)
        if (!fit[i])
            dtypes[i] = params[i].dtype;
    fsdp_free(fit);
    return status;
}

fsdp_status fsdp_params_choose_dtypes(const fsdp_param_context *c, const fsdp_param *params,
                                      size_t n, fsdp_dtype *dtypes)
{
    for (size_t i = 0; i < n; i++)
        dtypes[i] = fsdp_param_pending_dtype(&params[i]);
    const fsdp_status status = keep_dtypes_if_lossy(c, params, n, dtypes);
    if (c->device->kernels) /* If this rank failed, it must abort, because its peers would wait in
                               the all-reduce. On meta there is no all-reduce. */
        fsdp_param_context_abort(c, status);
    return status;
}
