/* See Note [Once per host] in once_per_host.h. */
#include "src/fsdp/once_per_host.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"
#include "src/fsdp/extension.h"

bool fsdp_is_once_per_host(const fsdp_param_group *u, const fsdp_parameter *p)
{
    return u->options.no_shard && u->group && !u->offload && !p->extension &&
           !fsdp_parameter_requires_grad(p) &&
           fsdp_group_local_world_size(u->group) == fsdp_group_world_size(u->group);
}

static size_t bytes_of(const fsdp_param *p)
{
    return (size_t)fsdp_param_group_aligned(fsdp_parameter_numel(p->parameter)) *
           fsdp_dtype_size(p->dtype);
}

fsdp_status fsdp_once_per_host_prepare(fsdp_param_group *u)
{
    size_t bytes = 0;
    bool any = false;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (!p->on_host)
            continue;
        any = true;
        p->host_offset = bytes;
        bytes += bytes_of(p);
    }
    if (!any)
        return FSDP_OK;
    FSDP_TRY(fsdp_buffer_create(u->device, u->group, bytes, FSDP_TAG_PARAM, &u->host));
    FSDP_TRY(fsdp_storage_from_memory(u->device, NULL, bytes, &u->host_view));
    u->host_view->guards = &u->gathered_guard;
    return FSDP_OK;
}

void fsdp_once_per_host_release(fsdp_param_group *u)
{
    if (u->host_view) {
        u->host_view->guards = NULL;
        fsdp_storage_set_data(u->host_view, NULL);
    }
    fsdp_storage_release(u->host_view);
    fsdp_buffer_destroy(u->host);
    u->host_view = NULL;
    u->host = NULL;
}

static void *memory_of(const fsdp_param_group *u, const fsdp_param *p)
{
    char *base = fsdp_buffer_data(u->host);
    return base ? base + p->host_offset : NULL;
}

/* --- writes --- */

static bool is_first(const fsdp_param_group *u)
{
    return fsdp_group_rank(u->group) == 0;
}

static fsdp_status begin_write(void *self)
{
    fsdp_param *p = self;
    fsdp_param_group *u = p->unit;
    if (!u->device->kernels || p->host_writers++)
        return FSDP_OK;
    fsdp_status status = FSDP_OK;
    if (!is_first(u) && !(p->unwanted = fsdp_calloc(1, bytes_of(p))))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_device_synchronize(u->device);
    status = fsdp_agree(u->group, status); /* and nobody reads the memory any more */
    if (status != FSDP_OK) {
        fsdp_free(p->unwanted);
        p->unwanted = NULL;
        p->host_writers--;
        return status;
    }
    if (p->unwanted)
        fsdp_storage_set_data(p->local->storage, p->unwanted);
    return FSDP_OK;
}

static void end_write(void *self)
{
    fsdp_param *p = self;
    fsdp_param_group *u = p->unit;
    if (!u->device->kernels || --p->host_writers)
        return;
    fsdp_status status = fsdp_device_synchronize(u->device);
    if (status != FSDP_OK)
        fsdp_group_abort(u->group, status);
    fsdp_storage_set_data(p->local->storage, memory_of(u, p));
    fsdp_free(p->unwanted);
    p->unwanted = NULL;
    /* A peer that is lost has poisoned the group: whatever comes next there tells it. */
    if (fsdp_barrier(u->group) != FSDP_OK)
        return;
}

/* --- tensors --- */

fsdp_status fsdp_once_per_host_local(fsdp_param_group *u, fsdp_param *p, fsdp_tensor **local)
{
    fsdp_storage *storage;
    FSDP_TRY(fsdp_storage_from_memory(u->device, memory_of(u, p), bytes_of(p), &storage));
    fsdp_status status =
        fsdp_tensor_over(storage, p->dtype, p->parameter->ndim, p->parameter->shape, 0, local);
    p->host_guard = (fsdp_storage_guard){
        .begin_write = begin_write, .end_write = end_write, .self = p, .next = &u->guard};
    storage->guards = &p->host_guard;
    fsdp_storage_release(storage);
    return status;
}

fsdp_status fsdp_once_per_host_data(const fsdp_param_group *u, const fsdp_param *p,
                                    fsdp_tensor **data)
{
    FSDP_ASSERT(p->zero_copy);
    const int64_t offset = (int64_t)(p->host_offset / fsdp_dtype_size(p->dtype));
    return fsdp_tensor_over(u->host_view, p->dtype, p->parameter->ndim, p->parameter->shape, offset,
                            data);
}

void fsdp_once_per_host_show(const fsdp_param_group *u, bool show)
{
    if (u->host_view)
        fsdp_storage_set_data(u->host_view, show ? fsdp_buffer_data(u->host) : NULL);
}
