/* See Note [Three memories of a unit] in param_group.h. */
#include <stddef.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/param_group.h"

/* Offsets are multiples of this many elements: 64 bytes in every floating dtype. */
enum {
    ALIGN_ELEMENTS = 32
};

static int world_of(const fsdp_group *group)
{
    return group ? fsdp_group_world_size(group) : 1;
}

static int rank_of(const fsdp_group *group)
{
    return group ? fsdp_group_rank(group) : 0;
}

static size_t bytes_of(const fsdp_param_group *u, fsdp_dtype dtype)
{
    return (size_t)u->numel * fsdp_dtype_size(dtype);
}

static fsdp_phase_info info_of(const fsdp_param_group *u, fsdp_phase_kind kind, fsdp_dtype dtype)
{
    return (fsdp_phase_info){.unit = u->number,
                             .step = u->step,
                             .kind = (uint16_t)kind,
                             .dtype = (uint16_t)dtype,
                             .bytes = (uint64_t)u->logical_numel * fsdp_dtype_size(dtype)};
}

/* --- write guard of locals --- */

/* What is gathered would go stale: neither memory that peers read now nor a copy may be behind. */
static fsdp_status guard_begin(void *self)
{
    fsdp_param_group *u = self;
    if (u->state != FSDP_UNIT_SHARDED)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is unsharded: its parameters cannot be written before reshard",
                          u->name);
    if (u->zero_copy && u->writers == 0) {
        fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, u->options.mp_policy.master_dtype);
        FSDP_TRY(fsdp_buffer_begin(u->master, FSDP_PHASE_WRITE, &info));
    }
    u->writers++;
    return FSDP_OK;
}

static void guard_end(void *self)
{
    fsdp_param_group *u = self;
    FSDP_ASSERT(u->writers > 0);
    if (--u->writers == 0 && u->zero_copy)
        fsdp_buffer_end(u->master);
}

/* What operations read is no place to write: it is a copy, or all ranks' master. */
static fsdp_status refuse_write(void *self)
{
    const fsdp_param_group *u = self;
    return fsdp_error(FSDP_ERR_STATE,
                      "unit '%s': fsdp_parameter_data() of a unit is read only: write "
                      "fsdp_parameter_local()",
                      u->name);
}

/* --- layout and memory --- */

static void lay_out(fsdp_param_group *u)
{
    int64_t at = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        u->params[i].offset = (size_t)at;
        int64_t n = fsdp_parameter_numel(u->params[i].parameter);
        u->logical_numel += n;
        at += (n + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
    }
    u->numel = at;
}

static fsdp_status create_storages(fsdp_param_group *u)
{
    const fsdp_mp_policy *mp = &u->options.mp_policy;
    if (u->zero_copy) {
        FSDP_TRY(fsdp_buffer_create(u->device, u->shard_group, bytes_of(u, mp->master_dtype),
                                    FSDP_TAG_PARAM, &u->master));
        FSDP_TRY(fsdp_storage_from_memory(u->device, fsdp_buffer_data(u->master),
                                          bytes_of(u, mp->master_dtype), &u->master_storage));
    }
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, bytes_of(u, mp->param_dtype),
                                      &u->gathered_storage));
    u->gathered_storage->guards = &u->gathered_guard;
    return fsdp_storage_from_memory(u->device, NULL, bytes_of(u, FSDP_DTYPE_F32), &u->slot_storage);
}

/* The rows of p that this rank's optimizer updates. */
static fsdp_status create_local(fsdp_param_group *u, fsdp_param *p, int64_t begin, int64_t end,
                                fsdp_tensor **local)
{
    const fsdp_parameter *parameter = p->parameter;
    fsdp_dtype dtype = u->options.mp_policy.master_dtype;
    int64_t shape[FSDP_MAX_DIMS], row = 1;
    memcpy(shape, parameter->shape, sizeof shape);
    for (int d = 1; d < parameter->ndim; d++)
        row *= shape[d];
    shape[0] = end - begin;
    if (u->zero_copy)
        FSDP_TRY(fsdp_tensor_over(u->master_storage, dtype, parameter->ndim, shape,
                                  (int64_t)p->offset + begin * row, local));
    else
        FSDP_TRY(
            fsdp_tensor_create(u->device, dtype, parameter->ndim, shape, FSDP_TAG_PARAM, local));
    if (!u->shard_group)
        return FSDP_OK;
    return fsdp_dtensor_from_local(*local, u->shard_group, (fsdp_placement){FSDP_SHARD, 0},
                                   parameter->shape);
}

/* A parameter that had memory before: keep this rank's rows of its values. */
static fsdp_status take_values(const fsdp_tensor *old, int64_t begin, fsdp_tensor *local)
{
    const fsdp_device *device = local->storage->device;
    int64_t n = fsdp_tensor_numel(local);
    FSDP_TRY(fsdp_tensor_begin_write(local));
    const char *from = fsdp_tensor_ptr(old); /* NULL if it comes from the meta device */
    if (device->kernels && n && from) {
        from += (size_t)(begin * fsdp_tensor_row_numel(old)) * fsdp_dtype_size(old->dtype);
        device->kernels->cast(device->context, fsdp_tensor_ptr(local), local->dtype, from,
                              old->dtype, n);
    }
    fsdp_tensor_end_write(local);
    return FSDP_OK;
}

static fsdp_status prepare(fsdp_param_group *u, fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    int64_t begin, end;
    fsdp_shard_rows(parameter->shape[0], world_of(u->shard_group), rank_of(u->shard_group), &begin,
                    &end);
    FSDP_TRY(create_local(u, p, begin, end, &p->local));
    p->local->storage->guards = &u->guard;
    FSDP_TRY(fsdp_tensor_over(u->gathered_storage, u->options.mp_policy.param_dtype,
                              parameter->ndim, parameter->shape, (int64_t)p->offset, &p->data));
    FSDP_TRY(fsdp_tensor_over(u->slot_storage, FSDP_DTYPE_F32, parameter->ndim, parameter->shape,
                              (int64_t)p->offset, &p->grad_slot));
    return parameter->data ? take_values(parameter->data, begin, p->local) : FSDP_OK;
}

void fsdp_param_group_adopt(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        fsdp_parameter *parameter = p->parameter;
        int64_t begin, end;
        fsdp_shard_rows(parameter->shape[0], world_of(u->shard_group), rank_of(u->shard_group),
                        &begin, &end);
        if (parameter->data)
            parameter->data->sink = NULL;
        fsdp_tensor_release(parameter->sink.grad);
        parameter->sink.grad = NULL;
        fsdp_parameter_set_tensors(parameter, p->data, p->local, begin, end, u->shard_group);
        parameter->sink.target = fsdp_param_group_target;
        parameter->owner = u;
    }
}

fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                    const fsdp_fully_shard_options *options,
                                    const fsdp_named_parameter *parameters, size_t n,
                                    fsdp_param_group **unit)
{
    fsdp_param_group *u = fsdp_calloc(1, sizeof *u);
    if (!u)
        return FSDP_ERR_NOMEM;
    u->device = device;
    u->options = *options;
    u->group = world_of(group) > 1 ? group : NULL;
    u->shard_group = options->no_shard ? NULL : u->group;
    u->zero_copy = options->mp_policy.param_dtype == options->mp_policy.master_dtype;
    u->guard = (fsdp_storage_guard){.begin_write = guard_begin, .end_write = guard_end, .self = u};
    u->gathered_guard = (fsdp_storage_guard){.begin_write = refuse_write, .self = u};
    u->params = fsdp_calloc(n, sizeof *u->params);
    u->sources = fsdp_calloc((size_t)world_of(u->group), sizeof *u->sources);
    u->name = fsdp_strdup("");
    fsdp_status status = u->params && u->sources && u->name ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        u->n_params = n;
        for (size_t i = 0; i < n; i++) {
            u->params[i].parameter = parameters[i].parameter;
            u->params[i].name = fsdp_strdup(parameters[i].name);
            if (!u->params[i].name)
                status = FSDP_ERR_NOMEM;
        }
        lay_out(u);
    }
    if (status == FSDP_OK)
        status = create_storages(u);
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = prepare(u, &u->params[i]);
    if (status != FSDP_OK) {
        fsdp_param_group_destroy(u);
        return status;
    }
    *unit = u;
    return FSDP_OK;
}

void fsdp_param_group_destroy(fsdp_param_group *u)
{
    if (!u)
        return;
    fsdp_param_group_drop_gradients(u);
    if (u->pools)
        fsdp_param_group_reshard(u);
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (p->local) /* it may live on */
            p->local->storage->guards = NULL;
        fsdp_tensor_release(p->local);
        fsdp_tensor_release(p->data);
        fsdp_tensor_release(p->grad_slot);
        fsdp_free(p->name);
    }
    if (u->gathered_storage)
        u->gathered_storage->guards = NULL;
    if (u->master_storage) /* its memory goes, so locals that live on are emptied */
        fsdp_storage_set_data(u->master_storage, NULL);
    fsdp_storage_release(u->master_storage);
    fsdp_storage_release(u->gathered_storage);
    fsdp_storage_release(u->slot_storage);
    fsdp_buffer_destroy(u->master);
    fsdp_free(u->sources);
    fsdp_free(u->params);
    fsdp_free(u->name);
    fsdp_free(u);
}

/* --- unshard, reshard --- */

static fsdp_pool *gathered_pool(const fsdp_param_group *u)
{
    return u->shard_group ? &u->pools->gathered : &u->pools->whole;
}

/* Cast this rank's rows of every parameter into the gathered buffer. */
static void write_own_rows(fsdp_param_group *u)
{
    const fsdp_kernels *k = u->device->kernels;
    char *base = fsdp_buffer_data(u->gathered);
    fsdp_dtype dtype = u->options.mp_policy.param_dtype;
    for (size_t i = 0; k && i < u->n_params; i++) {
        const fsdp_tensor *local = u->params[i].parameter->local;
        int64_t first = u->params[i].parameter->row_begin * fsdp_tensor_row_numel(local);
        size_t at = (u->params[i].offset + (size_t)first) * fsdp_dtype_size(dtype);
        if (fsdp_tensor_numel(local))
            k->cast(u->device->context, base + at, dtype, fsdp_tensor_ptr(local), local->dtype,
                    fsdp_tensor_numel(local));
    }
}

fsdp_status fsdp_param_group_prefetch(fsdp_param_group *u)
{
    if (u->state != FSDP_UNIT_SHARDED || u->zero_copy || u->writers)
        return FSDP_OK;
    fsdp_dtype dtype = u->options.mp_policy.param_dtype;
    FSDP_ASSERT(!u->gathered);
    FSDP_TRY(fsdp_pool_take(gathered_pool(u), bytes_of(u, dtype), &u->gathered));
    fsdp_phase_info info = info_of(u, FSDP_KIND_WRITE_SHARD, dtype);
    fsdp_status status = fsdp_buffer_begin(u->gathered, FSDP_PHASE_WRITE, &info);
    if (status != FSDP_OK) {
        fsdp_pool_give_back(gathered_pool(u), u->gathered);
        u->gathered = NULL;
        return status;
    }
    write_own_rows(u);
    fsdp_buffer_end(u->gathered);
    u->state = FSDP_UNIT_GATHERING;
    return FSDP_OK;
}

fsdp_status fsdp_param_group_unshard(fsdp_param_group *u)
{
    if (u->state == FSDP_UNIT_UNSHARDED)
        return FSDP_OK;
    if (u->writers)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' is being written: end_write comes before unshard", u->name);
    FSDP_TRY(fsdp_param_group_prefetch(u));
    fsdp_buffer *from = u->zero_copy ? u->master : u->gathered;
    fsdp_phase_info info = info_of(u, FSDP_KIND_ALL_GATHER, u->options.mp_policy.param_dtype);
    FSDP_TRY(fsdp_buffer_begin(from, FSDP_PHASE_READ, &info));
    fsdp_storage_set_data(u->gathered_storage, fsdp_buffer_data(from));
    u->state = FSDP_UNIT_UNSHARDED;
    return FSDP_OK;
}

void fsdp_param_group_reshard(fsdp_param_group *u)
{
    if (u->state == FSDP_UNIT_SHARDED)
        return;
    fsdp_storage_set_data(u->gathered_storage, NULL);
    if (u->state == FSDP_UNIT_UNSHARDED)
        fsdp_buffer_end(u->zero_copy ? u->master : u->gathered);
    if (u->gathered)
        fsdp_pool_give_back(gathered_pool(u), u->gathered);
    u->gathered = NULL;
    u->state = FSDP_UNIT_SHARDED;
}
