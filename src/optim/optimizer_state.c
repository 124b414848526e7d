/* The state tensors of optimizers: their shapes, their placements, and their first values. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/dynamic_map.h"
#include "src/dtensor/mesh.h"
#include "src/nn/module.h"
#include "src/optim/optimizer_internal.h"
#include "src/tensor/offload.h"

/* Computes the shape of a state tensor from the shape `of` [ndim] of its parameter. Stores the
 * result in `shape`, and returns the number of its dimensions. */
static int state_shape(fsdp_state_shape kind, int ndim, const int64_t *of,
                       int64_t shape[FSDP_MAX_DIMS])
{
    int64_t inner = 1;
    memcpy(shape, of, (size_t)ndim * sizeof *shape);
    if (kind == FSDP_STATE_MAP)
        shape[0] = FSDP_MAP_VALUES;
    if (kind == FSDP_STATE_BLOCKS) {
        for (int d = 1; d < ndim; d++)
            inner *= of[d];
        shape[1] = (inner + FSDP_MAP_BLOCK - 1) / FSDP_MAP_BLOCK;
        return 2;
    }
    if (kind == FSDP_STATE_COLUMNS)
        shape[ndim - 2] = of[ndim - 1];
    return kind == FSDP_STATE_SAME || kind == FSDP_STATE_COPY ? ndim
           : kind == FSDP_STATE_MAP                           ? 1
           : kind == FSDP_STATE_SCALAR                        ? 0
                                                              : ndim - 1;
}

static fsdp_status check_state(const char *name, const fsdp_tensor *local, const fsdp_tensor *state,
                               fsdp_state_shape kind)
{
    char have[FSDP_SHAPE_TEXT], now[FSDP_SHAPE_TEXT];
    int64_t want[FSDP_MAX_DIMS];
    int ndim = state_shape(kind, local->ndim, local->shape, want);
    if (state->ndim != ndim || memcmp(state->shape, want, (size_t)ndim * sizeof *want) != 0)
        return fsdp_error(FSDP_ERR_STATE,
                          "parameter %s: the optimizer's state is %s, this rank's rows are now %s: "
                          "call fully_shard before the first step",
                          name, fsdp_shape_text(state->ndim, state->shape, have),
                          fsdp_shape_text(local->ndim, local->shape, now));
    if (state->storage->device != local->storage->device)
        return fsdp_error(FSDP_ERR_STATE,
                          "parameter %s: the optimizer's state is on device %s, the parameter now "
                          "on %s: call fsdp_module_to_empty() before the first step",
                          name, fsdp_device_name(state->storage->device),
                          fsdp_device_name(local->storage->device));
    return FSDP_OK;
}

/* Gives `state` the placements of `local`. There are two exceptions: for a matrix, a state of kind
 * FSDP_STATE_COLUMNS is replicated; a state that does not depend on the rows gets no placements. */
static fsdp_status place_state(const fsdp_tensor *local, fsdp_state_shape kind, fsdp_tensor *state)
{
    if (!fsdp_is_dtensor(local) || kind == FSDP_STATE_SCALAR || kind == FSDP_STATE_MAP)
        return FSDP_OK;
    fsdp_tensor_spec spec = *local->spec;
    state_shape(kind, local->ndim, fsdp_dtensor_shape(local), spec.shape);
    for (int d = 0; d < spec.mesh_ndim; d++)
        if (kind == FSDP_STATE_COLUMNS && local->ndim == 2)
            spec.placements[d] = (fsdp_placement){.kind = FSDP_REPLICATE};
    return fsdp_spec_attach(state, &spec);
}

/* Creates a state tensor of zeros. If the parameter is offloaded, its states are also offloaded,
 * with one exception: if the optimizer needs statistics of whole tensors
 * (fsdp_optimizer_class.whole), each step reads the small states of all parameters at one time, so
 * these states stay in memory. A state is large if it has the shape of its parameter and the
 * parameter has two or more dimensions. All other states are small. */
static fsdp_status new_state(const fsdp_optimizer *o, const fsdp_tensor *local, fsdp_dtype dtype,
                             fsdp_state_shape kind, int ndim, const int64_t *shape,
                             fsdp_tensor **state)
{
    if (o->class->whole && (kind != FSDP_STATE_SAME || local->ndim < 2))
        return fsdp_tensor_zeros(local->storage->device, dtype, ndim, shape, FSDP_TAG_OPTIM, state);
    return fsdp_tensor_zeros_placed_like(local, dtype, ndim, shape, FSDP_TAG_OPTIM, state);
}

/* Sets *state to the tensor of the constant state k, which all parameters share. */
static fsdp_status retain_map(fsdp_optimizer *o, fsdp_device *device, int k, fsdp_tensor **state)
{
    if (!o->maps[k])
        FSDP_TRY(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (int64_t[]){FSDP_MAP_VALUES},
                                       o->class->map(k), FSDP_TAG_OPTIM, &o->maps[k]));
    *state = fsdp_tensor_retain(o->maps[k]);
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_fill_state(const fsdp_tensor *local, fsdp_state_shape kind,
                                      fsdp_tensor *state)
{
    const fsdp_device *device = state->storage->device;
    const int64_t n = fsdp_tensor_numel(state);
    const bool copies = kind == FSDP_STATE_COPY;
    if (!device->kernels || !n)
        return FSDP_OK;
    FSDP_TRY(copies ? fsdp_tensor_begin_read(local) : FSDP_OK);
    const fsdp_status status = fsdp_tensor_begin_write(state);
    if (status == FSDP_OK && copies)
        device->kernels->cast(device->context, fsdp_tensor_ptr(state), state->dtype,
                              fsdp_tensor_ptr(local), local->dtype, n);
    else if (status == FSDP_OK)
        device->kernels->fill(device->context, fsdp_tensor_ptr(state), state->dtype, 0.0, n);
    if (status == FSDP_OK)
        fsdp_tensor_end_write(state);
    if (copies)
        fsdp_tensor_end_read(local);
    return status;
}

static fsdp_status create_state(const fsdp_optimizer *o, const fsdp_tensor *local, fsdp_dtype dtype,
                                fsdp_state_shape kind, fsdp_tensor **state)
{
    int64_t shape[FSDP_MAX_DIMS];
    int ndim = state_shape(kind, local->ndim, local->shape, shape);
    fsdp_tensor *t;
    FSDP_TRY(new_state(o, local, dtype, kind, ndim, shape, &t));
    fsdp_status status = place_state(local, kind, t);
    if (status == FSDP_OK && kind == FSDP_STATE_COPY)
        status = fsdp_optimizer_fill_state(local, kind, t);
    if (status != FSDP_OK) {
        fsdp_tensor_release(t);
        return status;
    }
    *state = t;
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_prepare_state(fsdp_optimizer *o, size_t i, const fsdp_tensor *local)
{
    fsdp_optimizer_entry *e = &o->entries[i];
    const fsdp_optimizer_options *options = &o->groups[e->group];
    for (int k = 0; k < FSDP_MAX_OPTIMIZER_STATE && o->class->state_names[k]; k++) {
        const fsdp_state_shape kind = o->class->state_shape(options, local, k);
        const fsdp_dtype dtype =
            o->class->state_dtype ? o->class->state_dtype(options, local, k) : FSDP_DTYPE_F32;
        if (kind == FSDP_STATE_NONE)
            continue;
        if (e->state[k])
            FSDP_TRY(check_state(o->list.items[i].name, local, e->state[k], kind));
        else if (kind == FSDP_STATE_MAP)
            FSDP_TRY(retain_map(o, local->storage->device, k, &e->state[k]));
        else
            FSDP_TRY(create_state(o, local, dtype, kind, &e->state[k]));
    }
    return FSDP_OK;
}

fsdp_status fsdp_optimizer_check_memory(const fsdp_optimizer *o, size_t i)
{
    if (fsdp_parameter_local(o->list.items[i].parameter))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "parameter %s has no memory", o->list.items[i].name);
}

void fsdp_optimizer_release_kept(fsdp_optimizer *o, size_t i)
{
    fsdp_tensor_release(o->entries[i].kept);
    o->entries[i].kept = NULL;
}
