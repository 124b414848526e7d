/* In which dtype a unit keeps each parameter.
 *
 * Note [Frozen parameters]. What trains is stored in master_dtype. What is frozen has neither
 * gradient nor moments, so its master is no more than its value: it is stored in the dtype that it
 * was loaded in, if that takes no more memory, each rank its own rows; where that is param_dtype,
 * operations read it as it lies. requires_grad may change between steps: the unit's next forward,
 * and whoever loads, settles it. Unfreezing widens. Freezing narrows only what comes back equal in
 * every bit, on all ranks: a value that was trained stays as it is. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/fsdp/once_per_host.h"
#include "src/tensor/tensor.h"

enum {
    CHECKED_ELEMENTS = 1 << 10
};

fsdp_dtype fsdp_param_group_dtype_of(const fsdp_param_group *u, const fsdp_parameter *p)
{
    const fsdp_dtype master = u->options.mp_policy.master_dtype;
    const bool frozen = !fsdp_parameter_requires_grad(p);
    return frozen && p->loaded && fsdp_dtype_size(p->loaded_dtype) <= fsdp_dtype_size(master)
               ? p->loaded_dtype
               : master;
}

/* Do n own values of p from `at` on come back from `dtype` as they are? `scratch` is for both. */
static fsdp_status fits_here(const fsdp_param_group *u, const char *at, fsdp_dtype from,
                             fsdp_dtype dtype, int64_t n, const fsdp_tensor *scratch, bool *fit)
{
    const fsdp_kernels *k = u->device->kernels;
    char *narrow = fsdp_tensor_ptr(scratch), *back = narrow + CHECKED_ELEMENTS * sizeof(float);
    k->cast(u->device->context, narrow, dtype, at, from, n);
    k->cast(u->device->context, back, from, narrow, dtype, n);
    FSDP_TRY(fsdp_device_synchronize(u->device));
    *fit = memcmp(at, back, (size_t)n * fsdp_dtype_size(from)) == 0;
    return FSDP_OK;
}

/* Would every own value of p come back from `dtype` as it is? On meta nobody knows: more memory. */
static fsdp_status fits(const fsdp_param_group *u, const fsdp_param *p, fsdp_dtype dtype, bool *fit)
{
    const int64_t bytes = 2 * CHECKED_ELEMENTS * (int64_t)sizeof(float);
    fsdp_tensor *scratch;
    *fit = u->device->kernels != NULL;
    if (!*fit)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_create(u->device, FSDP_DTYPE_U8, 1, &bytes, FSDP_TAG_COMM, &scratch));
    const char *from = fsdp_tensor_ptr(p->local);
    const size_t size = fsdp_dtype_size(p->dtype);
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0, left = fsdp_tensor_numel(p->local), n; left && *fit && status == FSDP_OK;
         i += n, left -= n) {
        n = left < CHECKED_ELEMENTS ? left : CHECKED_ELEMENTS;
        status = fits_here(u, from + (size_t)i * size, p->dtype, dtype, n, scratch, fit);
    }
    fsdp_tensor_release(scratch);
    return status;
}

static bool widens(fsdp_dtype from, fsdp_dtype to)
{
    return fsdp_dtype_size(from) < fsdp_dtype_size(to);
}

/* Keeps in `dtypes` what does not fit on some rank as it is stored now. */
static fsdp_status keep_bits(const fsdp_param_group *u, fsdp_dtype *dtypes)
{
    int32_t *fit = fsdp_calloc(u->n_params, sizeof *fit);
    if (!fit)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++) {
        const fsdp_param *p = &u->params[i];
        fit[i] =
            dtypes[i] == p->dtype || p->parameter->values_are_due || widens(p->dtype, dtypes[i]);
        if (fit[i])
            continue;
        status = fsdp_tensor_begin_read(p->local);
        if (status != FSDP_OK)
            break;
        bool comes_back = false;
        status = fits(u, p, dtypes[i], &comes_back);
        fit[i] = comes_back;
        fsdp_tensor_end_read(p->local);
    }
    if (status == FSDP_OK && u->shard_group && u->device->kernels)
        status = fsdp_all_reduce(u->shard_group, fit, u->n_params, FSDP_DTYPE_I32, FSDP_REDUCE_MIN);
    for (size_t i = 0; i < u->n_params; i++)
        if (!fit[i])
            dtypes[i] = u->params[i].dtype;
    fsdp_free(fit);
    return status;
}

/* Into memory of the host's, or of the rank's own. */
static bool moves(const fsdp_param_group *u, const fsdp_param *p)
{
    return p->on_host != fsdp_is_once_per_host(u, p->parameter);
}

static fsdp_status store_as(fsdp_param_group *u, fsdp_dtype *dtypes)
{
    bool changed = false;
    FSDP_TRY(keep_bits(u, dtypes));
    for (size_t i = 0; i < u->n_params; i++)
        changed |= dtypes[i] != u->params[i].dtype || moves(u, &u->params[i]);
    return changed ? fsdp_param_group_store_as(u, dtypes) : FSDP_OK;
}

/* Is a parameter to be stored otherwise than when this was asked last? */
static bool is_settled(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        const bool asked = p->trains == fsdp_parameter_requires_grad(p->parameter) &&
                           !p->parameter->values_are_due;
        if (moves(u, p) || (!asked && fsdp_param_group_dtype_of(u, p->parameter) != p->dtype))
            return false;
    }
    return true;
}

fsdp_status fsdp_param_group_settle(fsdp_param_group *u)
{
    fsdp_status status = FSDP_OK;
    if (!is_settled(u)) {
        if (u->state >= FSDP_UNIT_UNSHARDED || u->writers)
            return fsdp_error(FSDP_ERR_STATE,
                              "unit '%s' is %s: its parameters can be frozen or unfrozen only "
                              "while it is neither gathered nor written",
                              u->name, u->writers ? "being written" : "unsharded");
        fsdp_param_group_reshard(u); /* a prefetch */
        fsdp_dtype *dtypes = fsdp_calloc(u->n_params, sizeof *dtypes);
        if (!dtypes)
            return FSDP_ERR_NOMEM;
        for (size_t i = 0; i < u->n_params; i++)
            dtypes[i] = fsdp_param_group_dtype_of(u, u->params[i].parameter);
        status = store_as(u, dtypes);
        fsdp_free(dtypes);
    }
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++)
        u->params[i].trains = fsdp_parameter_requires_grad(u->params[i].parameter);
    return status;
}

void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype)
{
    const fsdp_param_group *u = fsdp_param_group_of_local(local);
    for (size_t i = 0; u && i < u->n_params; i++) {
        fsdp_parameter *parameter = u->params[i].parameter;
        if (u->params[i].local != local || !fsdp_dtype_is_floating(dtype))
            continue;
        parameter->loaded = parameter->values_are_due = true;
        parameter->loaded_dtype = dtype;
    }
}

fsdp_status fsdp_param_group_settle_load(const fsdp_tensor *local)
{
    fsdp_param_group *u = fsdp_param_group_of_local(local);
    if (!u)
        return FSDP_OK;
    fsdp_status status = fsdp_param_group_settle(u);
    for (size_t i = 0; i < u->n_params; i++)
        u->params[i].parameter->values_are_due = false;
    return status;
}
