/* Layout and memory of a unit: Note [Three memories of a unit] in param_group.h. */
#include <stddef.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/group.h"
#include "src/fsdp/extension.h"
#include "src/fsdp/grad_rows.h"
#include "src/fsdp/once_per_host.h"
#include "src/tensor/halved.h"

/* Offsets are multiples of this many elements: 64 bytes in every floating dtype. */
enum {
    ALIGN_ELEMENTS = 32,
    LEAST_IN_SECTIONS = 2 << 20 /* what less memory waits for its peers oftener for */
};

/* A whole master lies in one mapping, which hosts do not share. */
static bool is_on_one_host(const fsdp_group *group)
{
    return !group || fsdp_group_local_world_size(group) == fsdp_group_world_size(group);
}

int64_t fsdp_param_group_aligned(int64_t numel)
{
    return (numel + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

/* May operations read p where it is stored? */
static bool may_lie_whole(const fsdp_param_group *u, const fsdp_param *p)
{
    return !u->offload && is_on_one_host(u->shard_group) && p->slice.runs == 1 &&
           !fsdp_param_is_extended(p);
}

static bool is_zero_copy(const fsdp_param_group *u, const fsdp_param *p)
{
    return p->dtype == u->options.mp_policy.param_dtype && may_lie_whole(u, p);
}

/* Whole on several ranks, it is cast: each has values to itself, or all one memory (Note [Once per
 * host]). */
static bool is_halved(const fsdp_param_group *u, const fsdp_param *p)
{
    const bool is_alone = !fsdp_param_group_any_group(u) && !u->options.no_shard;
    return (u->shard_group || is_alone) && p->dtype == FSDP_DTYPE_F32 &&
           u->options.mp_policy.param_dtype == FSDP_DTYPE_BF16 && may_lie_whole(u, p);
}

/* Of every parameter by the dtype that it is stored in. */
static void lay_out(fsdp_param_group *u)
{
    u->zero_copy = u->copied = (fsdp_unit_part){0};
    u->logical_numel = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        p->halved = is_halved(u, p);
        p->zero_copy = p->halved || is_zero_copy(u, p);
        u->logical_numel += fsdp_parameter_numel(p->parameter);
        p->on_host = fsdp_is_once_per_host(u, p->parameter);
        if (fsdp_param_is_extended(p))
            continue; /* src/fsdp/extension.c */
        if (p->on_host && p->zero_copy)
            continue; /* src/fsdp/once_per_host.c */
        fsdp_unit_part *part = p->zero_copy ? &u->zero_copy : &u->copied;
        p->offset = (size_t)part->numel;
        part->numel += fsdp_param_group_aligned(fsdp_parameter_numel(p->parameter));
        part->logical_numel += fsdp_parameter_numel(p->parameter);
    }
}

static bool has_zero_copy(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].zero_copy && !u->params[i].on_host)
            return true;
    return false;
}

static fsdp_status create_storages(fsdp_param_group *u)
{
    const size_t bytes = fsdp_unit_part_bytes(u, &u->zero_copy);
    if (has_zero_copy(u)) {
        FSDP_TRY(fsdp_buffer_create(u->device, u->shard_group, bytes, FSDP_TAG_PARAM, &u->master));
        FSDP_TRY(fsdp_storage_from_memory(u->device, fsdp_buffer_data(u->master), bytes,
                                          &u->master_storage));
    }
    FSDP_TRY(fsdp_once_per_host_prepare(u));
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, bytes, &u->view_storage));
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, fsdp_unit_part_bytes(u, &u->copied),
                                      &u->gathered_storage));
    u->view_storage->guards = u->gathered_storage->guards = &u->gathered_guard;
    return fsdp_extension_prepare(u);
}

fsdp_status fsdp_param_group_place(const fsdp_param_group *u, const fsdp_param *p,
                                   fsdp_tensor *rows)
{
    const fsdp_placement hybrid[] = {{FSDP_REPLICATE, 0}, {FSDP_SHARD, p->dim}};
    const fsdp_device_mesh *mesh = u->options.mesh;
    if (!u->shard_group)
        return FSDP_OK;
    if (mesh)
        return fsdp_dtensor_from_local_on_mesh(
            rows, mesh, fsdp_device_mesh_ndim(mesh) == 1 ? &hybrid[1] : hybrid,
            p->parameter->shape);
    return fsdp_dtensor_from_local(rows, u->shard_group, hybrid[1], p->parameter->shape);
}

static fsdp_status new_local(const fsdp_param_group *u, const fsdp_param *p, const int64_t *shape,
                             fsdp_tensor **local)
{
    const int ndim = p->parameter->ndim;
    if (u->offload)
        return fsdp_offload_tensor(u->offload, p->dtype, ndim, shape, FSDP_TAG_PARAM, local);
    return fsdp_tensor_create(u->device, p->dtype, ndim, shape, FSDP_TAG_PARAM, local);
}

/* Of a zero-copy parameter: over own rows in the master. */
static fsdp_status local_in_master(const fsdp_param_group *u, const fsdp_param *p,
                                   const int64_t *shape, fsdp_tensor **local)
{
    const size_t first = p->offset + (size_t)p->slice.first;
    uint16_t *base = fsdp_buffer_data(u->master);
    if (!p->halved)
        return fsdp_tensor_over(u->master_storage, p->dtype, p->parameter->ndim, shape,
                                (int64_t)first, local);
    return fsdp_halved_tensor(u->device, base ? base + first : NULL, u->master_storage,
                              p->parameter->ndim, shape, FSDP_TAG_PARAM, local);
}

/* The rows of p that this rank's optimizer updates. */
static fsdp_status create_local(fsdp_param_group *u, fsdp_param *p, fsdp_tensor **local)
{
    const fsdp_parameter *parameter = p->parameter;
    int64_t shape[FSDP_MAX_DIMS];
    if (p->on_host)
        return fsdp_once_per_host_local(u, p, local);
    memcpy(shape, parameter->shape, sizeof shape);
    shape[p->dim] = p->end - p->begin;
    if (p->zero_copy)
        FSDP_TRY(local_in_master(u, p, shape, local));
    else
        FSDP_TRY(new_local(u, p, shape, local));
    (*local)->storage->guards = p->zero_copy ? &u->master_guard : &u->guard;
    return fsdp_param_group_place(u, p, *local);
}

fsdp_status fsdp_param_group_take_values(const fsdp_tensor *old, const fsdp_slice *slice,
                                         fsdp_tensor *local)
{
    const fsdp_device *device = local->storage->device;
    FSDP_TRY(fsdp_tensor_begin_read(old));
    fsdp_status status = fsdp_tensor_begin_write(local);
    if (status != FSDP_OK) {
        fsdp_tensor_end_read(old);
        return status;
    }
    const void *from = fsdp_tensor_ptr(old); /* NULL if it comes from the meta device */
    if (device->kernels && from) {
        status = fsdp_devices_meet(old->storage->device, device);
        fsdp_slice_read(device, slice, fsdp_tensor_ptr(local), local->dtype, from, old->dtype);
        if (status == FSDP_OK)
            status = fsdp_devices_meet(old->storage->device, device);
    }
    fsdp_tensor_end_write(local);
    fsdp_tensor_end_read(old);
    return status;
}

/* Which slice of p this rank has. */
static fsdp_status choose_slice(const fsdp_param_group *u, fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    const fsdp_fully_shard_options *o = &u->options;
    int dim = 0;
    if (o->shard_placement_fn)
        dim = o->shard_placement_fn(p->name, parameter, o->shard_placement_arg);
    p->dim = dim < 0 ? dim + parameter->ndim : dim;
    if (p->dim < 0 || p->dim >= parameter->ndim)
        return fsdp_error(FSDP_ERR_INVALID,
                          "shard_placement_fn: Shard(%d) of '%s', which has %d "
                          "dimensions",
                          dim, p->name, parameter->ndim);
    if (!u->shard_group)
        p->dim = 0;
    if (p->dim && fsdp_param_is_extended(p))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shard_placement_fn: Shard(%d) of '%s', whose all_gather extension takes "
                          "rows",
                          p->dim, p->name);
    fsdp_shard_rows(parameter->shape[p->dim], fsdp_group_world_size(u->shard_group),
                    fsdp_group_rank(u->shard_group), &p->begin, &p->end);
    p->slice = fsdp_slice_of(parameter->ndim, parameter->shape, p->dim, p->begin, p->end);
    return FSDP_OK;
}

/* The tensors of p in the memory that there is for it. */
static fsdp_status create_tensors(fsdp_param_group *u, fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    FSDP_TRY(create_local(u, p, &p->local));
    if (p->on_host && p->zero_copy)
        return fsdp_once_per_host_data(u, p, &p->data);
    fsdp_storage *storage = fsdp_param_is_extended(p) ? u->unpacked_storage
                            : p->zero_copy            ? u->view_storage
                                                      : u->gathered_storage;
    return fsdp_tensor_over(storage, u->options.mp_policy.param_dtype, parameter->ndim,
                            parameter->shape, (int64_t)p->offset, &p->data);
}

static fsdp_status prepare(fsdp_param_group *u, fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    FSDP_TRY(create_tensors(u, p));
    FSDP_TRY(fsdp_tensor_over(u->slot_storage, FSDP_DTYPE_F32, parameter->ndim, parameter->shape, 0,
                              &p->grad_slot));
    if (u->options.sync_module_states)
        return fsdp_param_group_sync_values(u, p);
    const fsdp_tensor *values = parameter->data;
    return values && !fsdp_device_is_meta(fsdp_tensor_device(values))
               ? fsdp_param_group_take_values(values, &p->slice, p->local)
               : FSDP_OK;
}

void fsdp_param_group_at(const fsdp_param_group *u, const char *call)
{
    fsdp_group *group = fsdp_param_group_any_group(u);
    if (group && call)
        fsdp_group_at(group, u->step, *u->name ? u->name : "root", call);
    else if (group)
        fsdp_group_at(group, u->step, "", "");
}

static fsdp_status settle(void *owner)
{
    return fsdp_param_group_settle(owner);
}

fsdp_param *fsdp_param_group_find(const fsdp_param_group *u, const fsdp_parameter *parameter)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].parameter == parameter)
            return &u->params[i];
    return NULL;
}

/* Parameters show the unit's tensors from here on. */
static void show_tensors(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        fsdp_parameter *parameter = p->parameter;
        if (parameter->data)
            parameter->data->sink = NULL; /* its readers count no more */
        parameter->sink.n_readers = 0;
        fsdp_parameter_set_tensors(parameter, p->data, p->local, p->begin, p->end, u->shard_group);
        parameter->shard_dim = p->dim;
    }
}

void fsdp_param_group_adopt(fsdp_param_group *u)
{
    show_tensors(u);
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_parameter *parameter = u->params[i].parameter;
        fsdp_tensor_release(parameter->sink.grad);
        parameter->sink.grad = NULL;
        parameter->sink.target = fsdp_param_group_target;
        parameter->sink.rows = fsdp_param_group_target_rows;
        parameter->owner = u;
        parameter->settle = settle;
        parameter->mirror = fsdp_param_group_mirror;
    }
}

/* NULL for one of a single rank: nothing is to be communicated over it. */
static fsdp_group *unless_alone(fsdp_group *group)
{
    return fsdp_group_world_size(group) > 1 ? group : NULL;
}

static void choose_groups(fsdp_param_group *u, fsdp_group *group)
{
    const fsdp_device_mesh *mesh = u->options.mesh;
    if (mesh) {
        const int last = fsdp_device_mesh_ndim(mesh) - 1;
        group = fsdp_device_mesh_group(mesh, last);
        u->replicate_group = last ? unless_alone(fsdp_device_mesh_group(mesh, 0)) : NULL;
    }
    u->group = unless_alone(group);
    u->shard_group = u->options.no_shard ? NULL : u->group;
}

int64_t fsdp_param_most_numel(const fsdp_param_group *u, const fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    int64_t begin, end;
    fsdp_shard_rows(parameter->shape[p->dim], fsdp_group_world_size(u->shard_group), 0, &begin,
                    &end);
    const fsdp_slice most = fsdp_slice_of(parameter->ndim, parameter->shape, p->dim, begin, end);
    return most.runs * most.length;
}

int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *u)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        const int64_t numel = fsdp_param_most_numel(u, p);
        if (!fsdp_parameter_requires_grad(p->parameter))
            continue;
        bytes += numel * (int64_t)fsdp_dtype_size(p->dtype);
        bytes -= p->halved ? fsdp_halves_words(numel) * (int64_t)sizeof(uint16_t) : 0;
    }
    return bytes;
}

int fsdp_param_group_world_size(const fsdp_param_group *u)
{
    return fsdp_group_world_size(u->group) * fsdp_group_world_size(u->replicate_group);
}

bool fsdp_param_group_is_on_one_host(const fsdp_param_group *u)
{
    return is_on_one_host(u->group) && is_on_one_host(u->replicate_group) &&
           !fsdp_group_has_network(u->group) && !fsdp_group_has_network(u->replicate_group);
}

fsdp_group *fsdp_param_group_any_group(const fsdp_param_group *u)
{
    return u->group ? u->group : u->replicate_group;
}

static int64_t numel_of_all(const fsdp_param_group *u)
{
    int64_t n = 0;
    for (size_t i = 0; i < u->n_params; i++)
        n += fsdp_param_group_aligned(fsdp_parameter_numel(u->params[i].parameter));
    return n;
}

static fsdp_status create_params(fsdp_param_group *u, const fsdp_named_parameter *parameters,
                                 size_t n)
{
    u->n_params = n;
    for (size_t i = 0; i < n; i++) {
        fsdp_param *p = &u->params[i];
        p->unit = u;
        p->parameter = parameters[i].parameter;
        p->trains = fsdp_parameter_requires_grad(p->parameter);
        if (u->options.sync_module_states)
            FSDP_TRY(fsdp_param_group_sync_dtype(u, p->parameter));
        p->dtype = fsdp_param_group_dtype_of(u, p->parameter);
        p->name = fsdp_strdup(parameters[i].name);
        if (!p->name)
            return FSDP_ERR_NOMEM;
        FSDP_TRY(choose_slice(u, p));
    }
    lay_out(u);
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, (size_t)numel_of_all(u) * sizeof(float),
                                      &u->slot_storage));
    FSDP_TRY(create_storages(u));
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(prepare(u, &u->params[i]));
    return FSDP_OK;
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
    u->least_in_sections = LEAST_IN_SECTIONS;
    u->options.ignored_params = NULL; /* borrowed for the call only */
    choose_groups(u, group);
    fsdp_param_group_set_guards(u);
    u->params = fsdp_calloc(n, sizeof *u->params);
    u->sources = fsdp_calloc((size_t)fsdp_param_group_world_size(u), sizeof *u->sources);
    u->name = fsdp_strdup("");
    fsdp_status status = u->params && u->sources && u->name ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && options->offload_policy.kind == FSDP_OFFLOAD_DIR)
        status = fsdp_offload_unit_create(device, options->offload_policy.dir, &u->offload);
    if (status == FSDP_OK)
        status = create_params(u, parameters, n);
    if (status != FSDP_OK) {
        fsdp_param_group_destroy(u);
        return status;
    }
    *unit = u;
    return FSDP_OK;
}

/* Locals may live on: those in memory of several ranks are emptied, since their memory goes. */
static void release_memory(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (p->local) {
            fsdp_storage_drop_guards(p->local->storage);
            fsdp_halved_leave(p->local->storage);
        }
        if (p->local && p->on_host)
            fsdp_storage_set_data(p->local->storage, NULL);
        fsdp_tensor_release(p->local);
        fsdp_tensor_release(p->data);
        p->local = p->data = NULL;
    }
    fsdp_storage *const storages[] = {u->master_storage, u->view_storage, u->gathered_storage};
    for (size_t i = 0; i < FSDP_LENGTH(storages); i++) {
        if (!storages[i])
            continue;
        fsdp_storage_drop_guards(storages[i]);
        fsdp_storage_set_data(storages[i], NULL);
        fsdp_storage_release(storages[i]);
    }
    fsdp_extension_release(u);
    fsdp_once_per_host_release(u);
    fsdp_buffer_destroy(u->master);
    u->master_storage = u->view_storage = u->gathered_storage = NULL;
    u->master = NULL;
}

fsdp_status fsdp_param_group_set_name(fsdp_param_group *u, const char *name)
{
    char *copy = fsdp_strdup(name);
    if (!copy)
        return FSDP_ERR_NOMEM;
    fsdp_free(u->name);
    u->name = copy;
    if (u->offload)
        fsdp_offload_unit_set_name(u->offload, name);
    return FSDP_OK;
}

/* As it was before it was given memory. */
static void forget_memory(fsdp_parameter *p)
{
    fsdp_tensor_release(p->sink.grad);
    fsdp_tensor_release(p->data);
    fsdp_tensor_release(p->local);
    p->sink.grad = p->data = p->local = NULL;
    p->sink.target = fsdp_grad_sink_default_target;
    p->sink.rows = NULL;
    p->shard_dim = 0;
    p->row_begin = p->row_end = 0;
    p->group = NULL;
    p->owner = NULL;
    p->settle = NULL;
    p->mirror = NULL;
    p->loaded = p->values_are_due = false;
}

/* The opposite of adopt, for parameters that a module outside names as well: they live on. Data is
 * a leaf of the parameter's while that lives and the unit has it. */
static void let_go(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (!p->data || !p->data->sink)
            continue;
        p->data->sink = NULL;
        forget_memory(p->parameter);
    }
}

void fsdp_param_group_destroy(fsdp_param_group *u)
{
    if (!u)
        return;
    fsdp_param_group_free_gradients(u);
    if (u->pools)
        fsdp_param_group_reshard(u);
    fsdp_param_group_drop_copy(u);
    let_go(u);
    release_memory(u);
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_grad_rows_fini(&u->params[i]);
        fsdp_tensor_release(u->params[i].grad_slot);
        fsdp_free(u->params[i].name);
    }
    fsdp_storage_release(u->slot_storage);
    fsdp_offload_unit_release(u->offload);
    fsdp_free(u->sources);
    fsdp_free(u->params);
    fsdp_free(u->name);
    fsdp_free(u);
}

/* --- other memory, the same values --- */

static fsdp_status make_memory(fsdp_param_group *u, const fsdp_param *old)
{
    lay_out(u);
    FSDP_TRY(create_storages(u));
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        FSDP_TRY(create_tensors(u, p));
        const fsdp_slice all = {.runs = 1, .length = fsdp_tensor_numel(p->local)};
        const bool same_device = fsdp_tensor_device(old[i].local) == u->device;
        if (!same_device || p->parameter->values_are_due)
            continue;
        FSDP_TRY(fsdp_param_group_take_values(old[i].local, &all, p->local));
        p->local->has_values = old[i].local->has_values;
    }
    return FSDP_OK;
}

/* State dicts hold the local tensors: these stay, and lie in the new memory. */
static void keep_locals(fsdp_param_group *u, fsdp_param *old)
{
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_tensor *made = u->params[i].local;
        fsdp_tensor_exchange(made, old[i].local);
        u->params[i].local = old[i].local;
        old[i].local = made;
    }
}

/* `old`: the parameters as they were, to be dropped or to be returned to. */
static fsdp_status exchange_memory(fsdp_param_group *u, fsdp_param *old, const fsdp_dtype *dtypes)
{
    fsdp_param_group before = *u, made;
    before.params = old;
    memcpy(old, u->params, u->n_params * sizeof *old);
    u->master = u->host = NULL;
    u->master_storage = u->view_storage = u->gathered_storage = u->unpacked_storage = NULL;
    u->host_view = NULL;
    for (size_t i = 0; i < u->n_params; i++) {
        u->params[i].local = u->params[i].data = NULL;
        u->params[i].dtype = dtypes[i];
    }
    fsdp_status status = make_memory(u, old);
    if (status == FSDP_OK) {
        keep_locals(u, old);
        show_tensors(u);
        release_memory(&before);
        return FSDP_OK;
    }
    made = *u;
    release_memory(&made);
    memcpy(u->params, old, u->n_params * sizeof *old);
    before.params = u->params;
    *u = before;
    return status;
}

fsdp_status fsdp_param_group_store_as(fsdp_param_group *u, const fsdp_dtype *dtypes)
{
    FSDP_ASSERT(u->state == FSDP_UNIT_SHARDED);
    FSDP_ASSERT(u->writers == 0);
    fsdp_param *old = fsdp_calloc(u->n_params, sizeof *old);
    if (!old)
        return FSDP_ERR_NOMEM;
    fsdp_param_group_drop_copy(u);
    fsdp_status status = exchange_memory(u, old, dtypes);
    fsdp_free(old);
    return status;
}

/* --- another device --- */

static void drop_all_gradients(fsdp_param_group *u)
{
    fsdp_param_group_drop_gradients(u);
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_grad_sink *sink = &u->params[i].parameter->sink;
        fsdp_tensor_release(sink->grad);
        sink->grad = NULL;
    }
}

/* Those of the unit's tree, if a forward has made them. */
static fsdp_status move_pools(fsdp_pools *pools, fsdp_device *device)
{
    if (!pools)
        return FSDP_OK;
    FSDP_TRY(fsdp_pool_move(&pools->gathered, device));
    FSDP_TRY(fsdp_pool_move(&pools->whole, device));
    FSDP_TRY(fsdp_pool_move(&pools->slots, device));
    return fsdp_pool_move(&pools->lanes, device);
}

/* The unit's memory is made on `device`, staged there if it was. */
static fsdp_status remake_on(fsdp_param_group *u, fsdp_device *device)
{
    fsdp_dtype *dtypes = fsdp_calloc(u->n_params, sizeof *dtypes);
    fsdp_device *device_before = u->device;
    fsdp_offload_unit *offload_before = u->offload;
    fsdp_status status = dtypes ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; dtypes && i < u->n_params; i++)
        dtypes[i] = u->params[i].dtype;
    if (status == FSDP_OK && u->offload)
        status = fsdp_offload_unit_create(device, u->options.offload_policy.dir, &u->offload);
    if (status == FSDP_OK) {
        u->device = device;
        status = fsdp_param_group_store_as(u, dtypes);
    }
    fsdp_offload_unit *unused = status == FSDP_OK ? offload_before : u->offload;
    if (status != FSDP_OK) {
        u->device = device_before;
        u->offload = offload_before;
    }
    if (unused != u->offload)
        fsdp_offload_unit_release(unused);
    fsdp_free(dtypes);
    return status;
}

fsdp_status fsdp_param_group_to_empty(fsdp_param_group *u, fsdp_device *device)
{
    if (!fsdp_device_is_meta(u->device) || fsdp_device_is_meta(device))
        return FSDP_OK;
    if (u->state >= FSDP_UNIT_UNSHARDED || u->writers)
        return fsdp_error(FSDP_ERR_STATE, "to_empty: unit '%s' is %s", u->name,
                          u->writers ? "being written" : "unsharded: reshard it first");
    fsdp_param_group_reshard(u); /* a prefetch */
    drop_all_gradients(u);
    FSDP_TRY(move_pools(u->pools, device));
    FSDP_TRY(remake_on(u, device));
    u->slot_storage->device = device; /* it has no memory of its own */
    if (u->offload)
        fsdp_offload_unit_set_name(u->offload, u->name);
    return FSDP_OK;
}
