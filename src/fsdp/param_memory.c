/* Functions that several of the kinds of memory in storage_*.c share. Declared in param_storage.h.
 */
#include "src/fsdp/param_storage.h"

fsdp_status fsdp_param_memory_create_view(fsdp_param_memory *m)
{
    FSDP_TRY(
        fsdp_storage_from_memory(m->context->device, NULL, fsdp_param_memory_bytes(m), &m->view));
    m->view->guards = m->read_guard;
    return FSDP_OK;
}

/* Make m->view empty and release it. Tensors that use this storage may exist longer than m. */
void fsdp_param_memory_release_view(fsdp_param_memory *m)
{
    if (m->view) {
        fsdp_storage_drop_guards(m->view);
        fsdp_storage_set_data(m->view, NULL);
        m->view->lasting = NULL;
    }
    fsdp_storage_release(m->view);
    m->view = NULL;
}

void fsdp_param_memory_count_gather(const fsdp_param_memory *m)
{
    fsdp_group *group = m->context->shard_group;
    if (group)
        fsdp_group_count(group, FSDP_KIND_ALL_GATHER,
                         fsdp_param_memory_phase(m, FSDP_KIND_ALL_GATHER).bytes);
}

fsdp_status fsdp_param_memory_unshard_buffer(fsdp_param_memory *m, fsdp_buffer *buffer)
{
    const fsdp_phase_info info = fsdp_param_memory_phase(m, FSDP_KIND_ALL_GATHER);
    FSDP_TRY(fsdp_buffer_begin(buffer, FSDP_PHASE_READ, &info));
    fsdp_storage_set_data(m->view, fsdp_buffer_data(buffer));
    return FSDP_OK;
}

void fsdp_param_memory_show_buffer(fsdp_param_memory *m, fsdp_buffer *buffer)
{
    fsdp_param_memory_count_gather(m);
    fsdp_storage_set_data(m->view, fsdp_buffer_data(buffer));
}

fsdp_status fsdp_param_memory_prefetch(fsdp_param_memory *m)
{
    fsdp_tensor *first = m->params[0]->local;
    return fsdp_tensor_is_held_elsewhere(first) ? fsdp_tensor_prefetch(first) : m->ops->gather(m);
}

fsdp_status fsdp_create_private_local(fsdp_param_memory *m, const fsdp_param *p,
                                      const int64_t *shape, fsdp_tensor **local)
{
    const fsdp_param_context *c = m->context;
    const int ndim = p->parameter->ndim;
    FSDP_TRY(c->offload
                 ? fsdp_offload_tensor(c->offload, p->dtype, ndim, shape, FSDP_TAG_PARAM, local)
                 : fsdp_tensor_create(c->device, p->dtype, ndim, shape, FSDP_TAG_PARAM, local));
    (*local)->storage->guards = &m->write_guard;
    return FSDP_OK;
}

fsdp_status fsdp_param_memory_begin_write(fsdp_buffer *buffer, const fsdp_phase_info *info,
                                          int *writers)
{
    if (*writers == 0)
        FSDP_TRY(fsdp_buffer_begin(buffer, FSDP_PHASE_WRITE, info));
    ++*writers;
    return FSDP_OK;
}

void fsdp_param_memory_end_write(fsdp_buffer *buffer, int *writers)
{
    if (--*writers == 0)
        fsdp_buffer_end(buffer);
}
