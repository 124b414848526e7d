/* See param.h. */
#include "src/fsdp/param.h"

#include <string.h>

#include <fsdp/dtensor.h>

#include "src/fsdp/param_storage.h"
#include "src/tensor/host_copy.h"

/* --- the shard of this rank --- */

fsdp_status fsdp_param_choose_shard(fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    const fsdp_fully_shard_options *o = &p->context->options;
    fsdp_group *group = p->context->shard_group;
    int dim = 0;
    if (o->shard_placement_fn)
        dim = o->shard_placement_fn(p->name, parameter, o->shard_placement_arg);
    fsdp_shard shard = {.dim = dim < 0 ? dim + parameter->ndim : dim, .group = group};
    if (shard.dim < 0 || shard.dim >= parameter->ndim)
        return fsdp_error(FSDP_ERR_INVALID,
                          "shard_placement_fn: Shard(%d) of '%s', which has %d "
                          "dimensions",
                          dim, p->name, parameter->ndim);
    if (!group)
        shard.dim = 0;
    if (shard.dim && parameter->extension)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shard_placement_fn: Shard(%d) of '%s', whose all_gather extension takes "
                          "rows",
                          shard.dim, p->name);
    if (shard.dim && parameter->quantized)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "shard_placement_fn: Shard(%d) of '%s', which is stored in NF4 "
                          "(--load-in-4bit) and cut at blocks of its rows",
                          shard.dim, p->name);
    fsdp_shard_rows(parameter->shape[shard.dim], fsdp_group_world_size(group),
                    fsdp_group_rank(group), &shard.begin, &shard.end);
    p->owner.shard = shard;
    p->slice = fsdp_slice_of(parameter->ndim, parameter->shape, shard.dim, shard.begin, shard.end);
    return FSDP_OK;
}

int64_t fsdp_param_most_numel(const fsdp_param *p)
{
    const fsdp_parameter *parameter = p->parameter;
    const fsdp_shard *shard = &p->owner.shard;
    int64_t begin, end;
    fsdp_shard_rows(parameter->shape[shard->dim], fsdp_group_world_size(shard->group), 0, &begin,
                    &end);
    const fsdp_slice most =
        fsdp_slice_of(parameter->ndim, parameter->shape, shard->dim, begin, end);
    return most.runs * most.length;
}

int64_t fsdp_param_trained_bytes(const fsdp_param *p)
{
    const int64_t numel = fsdp_param_most_numel(p);
    if (!fsdp_parameter_requires_grad(p->parameter))
        return 0;
    return p->storage->shard_bytes ? p->storage->shard_bytes(numel)
                                   : numel * (int64_t)fsdp_dtype_size(p->dtype);
}

fsdp_status fsdp_param_set_spec(const fsdp_param *p, fsdp_tensor *rows)
{
    const fsdp_shard *shard = &p->owner.shard;
    const fsdp_placement hybrid[] = {{FSDP_REPLICATE, 0}, {FSDP_SHARD, shard->dim}};
    const fsdp_device_mesh *mesh = p->context->options.mesh;
    if (!shard->group)
        return FSDP_OK;
    if (mesh)
        return fsdp_dtensor_from_local_on_mesh(
            rows, mesh, fsdp_device_mesh_ndim(mesh) == 1 ? &hybrid[1] : hybrid,
            p->parameter->shape);
    return fsdp_dtensor_from_local(rows, shard->group, hybrid[1], p->parameter->shape);
}

/* --- tensors of a parameter --- */

fsdp_status fsdp_param_create_tensors(fsdp_param *p, const fsdp_param_memories *memories)
{
    const fsdp_parameter *parameter = p->parameter;
    int64_t shape[FSDP_MAX_DIMS];
    memcpy(shape, parameter->shape, sizeof shape);
    shape[p->owner.shard.dim] = p->owner.shard.end - p->owner.shard.begin;
    FSDP_TRY(p->storage->create_local(memories, p, shape, &p->local));
    if (!parameter->quantized) /* `local` has bytes of blocks, which are not rows */
        FSDP_TRY(fsdp_param_set_spec(p, p->local));
    const fsdp_dtype dtype =
        p->storage->reads_codes ? FSDP_DTYPE_U8 : p->context->options.mp_policy.param_dtype;
    return fsdp_tensor_over(p->memory->view, dtype, parameter->ndim, parameter->shape,
                            (int64_t)p->offset, &p->data);
}

void fsdp_param_release_tensors(fsdp_param *p)
{
    if (p->local) {
        fsdp_storage_drop_guards(p->local->storage);
        if (p->storage->leave_local)
            p->storage->leave_local(p->local);
    }
    fsdp_tensor_release(p->local);
    fsdp_tensor_release(p->data);
    p->local = p->data = NULL;
}

/* Copy a slice of `old`, which may be on another device, to `local`. */
static fsdp_status read_slice(const fsdp_tensor *old, const fsdp_slice *slice, fsdp_tensor *local)
{
    fsdp_device *device = local->storage->device;
    fsdp_tensor *from;
    FSDP_TRY(fsdp_tensor_for_device(old, device, &from));
    fsdp_status status = fsdp_devices_synchronize(from->storage->device, device);
    fsdp_slice_read(device, slice, fsdp_tensor_ptr(local), local->dtype, fsdp_tensor_ptr(from),
                    from->dtype);
    if (status == FSDP_OK)
        status = fsdp_devices_synchronize(from->storage->device, device);
    fsdp_tensor_release(from);
    return status;
}

fsdp_status fsdp_tensor_take_values(const fsdp_tensor *old, const fsdp_slice *slice,
                                    fsdp_tensor *local)
{
    FSDP_TRY(fsdp_tensor_begin_read(old));
    fsdp_status status = fsdp_tensor_begin_write(local);
    if (status != FSDP_OK) {
        fsdp_tensor_end_read(old);
        return status;
    }
    if (local->storage->device->kernels && fsdp_tensor_ptr(old)) /* NULL on the meta device */
        status = read_slice(old, slice, local);
    fsdp_tensor_end_write(local);
    fsdp_tensor_end_read(old);
    return status;
}

void *fsdp_param_own_rows_of_copy(const fsdp_param *p, fsdp_dtype *dtype)
{
    return p->storage->own_rows_of_copy ? p->storage->own_rows_of_copy(p, dtype) : NULL;
}

/* --- the module's parameter --- */

void fsdp_param_show_tensors(fsdp_param *p)
{
    fsdp_parameter *parameter = p->parameter;
    if (parameter->data)
        parameter->data->sink = NULL; /* The sink must no longer count readers of the old tensor. */
    parameter->sink.n_readers = 0;
    fsdp_parameter_set_tensors(parameter, p->data, p->local);
}

static void drop_gradient(fsdp_parameter *parameter)
{
    fsdp_tensor_release(parameter->sink.grad);
    parameter->sink.grad = NULL;
}

void fsdp_param_adopt(fsdp_param *p, const fsdp_parameter_owner_ops *ops)
{
    fsdp_param_show_tensors(p);
    drop_gradient(p->parameter);
    p->owner.ops = ops;
    p->parameter->owner = &p->owner;
}

/* p->data has a sink from fsdp_param_adopt() until the module's parameter is destroyed. So if
 * p->data has no sink, there is nothing to undo. */
void fsdp_param_disown(fsdp_param *p)
{
    fsdp_parameter *parameter = p->parameter;
    if (!p->data || !p->data->sink)
        return;
    p->data->sink = NULL;
    drop_gradient(parameter);
    fsdp_tensor_release(parameter->data);
    fsdp_tensor_release(parameter->local);
    parameter->data = parameter->local = NULL;
    parameter->sink.target = fsdp_grad_sink_default_target;
    parameter->sink.rows = NULL;
    parameter->sink.note_lookups = NULL;
    parameter->owner = NULL;
    parameter->loaded = parameter->values_are_due = false;
}
