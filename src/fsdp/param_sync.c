/* Implements sync_module_states: before parameters are sharded, rank 0 broadcasts its whole values
 * to all ranks, one parameter at a time. */
#include "src/fsdp/param.h"
#include "src/tensor/host_copy.h"

/* What rank 0 broadcasts first for a parameter: whether it has values, and their dtype. */
typedef struct announcement {
    int32_t has_values, dtype;
} announcement;

/* Broadcast rank 0's data to all ranks in two steps. For mesh rows and columns, see Note [Replicas]
 * in param_context.h. In the first step, the first rank of each mesh row broadcasts its own data
 * within the row. Then all ranks of rank 0's row have rank 0's data, but the other rows have other
 * data. In the second step, each rank of rank 0's row broadcasts within its mesh column. This
 * replaces the data of the other rows. */
static fsdp_status broadcast(const fsdp_param_context *c, void *data, size_t bytes)
{
    if (c->group)
        FSDP_TRY(fsdp_broadcast(c->group, data, bytes, 0));
    return c->replicate_group ? fsdp_broadcast(c->replicate_group, data, bytes, 0) : FSDP_OK;
}

fsdp_status fsdp_param_sync_loaded_dtype(const fsdp_param *p)
{
    fsdp_parameter *parameter = p->parameter;
    int32_t note[] = {parameter->loaded, (int32_t)parameter->loaded_dtype};
    if (!p->context->device->kernels)
        return FSDP_OK;
    FSDP_TRY(broadcast(p->context, note, sizeof note));
    parameter->loaded = note[0];
    parameter->loaded_dtype = (fsdp_dtype)note[1];
    return FSDP_OK;
}

static bool has_values(const fsdp_tensor *data)
{
    return data && fsdp_tensor_ptr(data);
}

/* Copy `data`, which may be on another device, to `whole`, which has the same shape and dtype. */
static fsdp_status copy_values(const fsdp_tensor *data, fsdp_tensor *whole)
{
    fsdp_device *device = whole->storage->device;
    fsdp_tensor *from;
    FSDP_TRY(fsdp_tensor_for_device(data, device, &from));
    fsdp_status status = fsdp_devices_synchronize(from->storage->device, device);
    if (status == FSDP_OK)
        device->kernels->copy(device->context, fsdp_tensor_ptr(whole), fsdp_tensor_ptr(from),
                              (size_t)fsdp_tensor_numel(whole) * fsdp_dtype_size(whole->dtype));
    fsdp_tensor_release(from);
    return status;
}

/* Give all ranks the elements that `whole` has on rank 0. */
static fsdp_status broadcast_tensor(const fsdp_param_context *c, const fsdp_tensor *whole)
{
    fsdp_host_copy copy;
    FSDP_TRY(fsdp_host_copy_of(&copy, whole)); /* this call waits for kernels */
    const fsdp_status status = copy.bytes ? broadcast(c, copy.data, copy.bytes) : FSDP_OK;
    if (status == FSDP_OK)
        fsdp_host_copy_write(&copy);
    fsdp_host_copy_destroy(&copy);
    return status;
}

/* Broadcast rank 0's whole parameter, which has `dtype`, to a new tensor *whole. */
static fsdp_status broadcast_values(const fsdp_param_context *c, const fsdp_parameter *parameter,
                                    fsdp_dtype dtype, fsdp_tensor **whole)
{
    const fsdp_tensor *data = parameter->data;
    fsdp_tensor *t;
    FSDP_TRY(
        fsdp_tensor_create(c->device, dtype, parameter->ndim, parameter->shape, FSDP_TAG_COMM, &t));
    fsdp_status status = FSDP_OK;
    if (has_values(data) && data->dtype == dtype && fsdp_tensor_numel(t))
        status = copy_values(data, t);
    if (status == FSDP_OK)
        status = broadcast_tensor(c, t);
    if (status == FSDP_OK)
        *whole = t;
    else
        fsdp_tensor_release(t);
    return status;
}

fsdp_status fsdp_param_sync_values(const fsdp_param *p)
{
    const fsdp_param_context *c = p->context;
    const fsdp_tensor *data = p->parameter->data;
    announcement first = {.has_values = has_values(data),
                          .dtype = data ? (int32_t)data->dtype : (int32_t)FSDP_DTYPE_F32};
    fsdp_tensor *whole;
    if (!c->device->kernels)
        return FSDP_OK;
    FSDP_TRY(broadcast(c, &first, sizeof first));
    if (!first.has_values)
        return FSDP_OK;
    const fsdp_status sent = broadcast_values(c, p->parameter, (fsdp_dtype)first.dtype, &whole);
    fsdp_param_context_abort(c, sent); /* otherwise peers would wait for this rank in the next
                                          broadcast */
    FSDP_TRY(sent);
    fsdp_status status = fsdp_tensor_take_values(whole, &p->slice, p->local);
    fsdp_tensor_release(whole);
    return status;
}
