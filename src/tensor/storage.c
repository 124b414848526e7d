/* Storages: memory that views share, with write guards. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/tensor.h"

fsdp_status fsdp_storage_from_memory(fsdp_device *device, void *data, size_t bytes,
                                     fsdp_storage **storage)
{
    fsdp_storage *st = fsdp_calloc(1, sizeof *st);
    if (!st)
        return FSDP_ERR_NOMEM;
    st->refs = 1;
    st->device = device;
    st->data = data;
    st->bytes = bytes;
    *storage = st;
    return FSDP_OK;
}

void fsdp_storage_release(fsdp_storage *st)
{
    if (!st || --st->refs > 0)
        return;
    FSDP_ASSERT(st->refs == 0);
    fsdp_allocator_free(st->device->allocator, st->block);
    fsdp_free(st);
}

void fsdp_storage_set_data(fsdp_storage *st, void *data)
{
    FSDP_ASSERT(!st->block);
    st->data = data;
}

static void end_guards_before(fsdp_storage *st, const fsdp_storage_guard *stop)
{
    for (fsdp_storage_guard *g = st->guards; g != stop; g = g->next)
        if (g->end_write)
            g->end_write(g->self);
}

fsdp_status fsdp_storage_begin_write(fsdp_storage *st)
{
    for (fsdp_storage_guard *g = st->guards; g; g = g->next) {
        fsdp_status status = g->begin_write ? g->begin_write(g->self) : FSDP_OK;
        if (status != FSDP_OK) {
            end_guards_before(st, g);
            return status;
        }
    }
    return FSDP_OK;
}

void fsdp_storage_end_write(fsdp_storage *st)
{
    end_guards_before(st, NULL);
}

fsdp_status fsdp_tensor_begin_write(fsdp_tensor *tensor)
{
    return fsdp_storage_begin_write(tensor->storage);
}

void fsdp_tensor_end_write(fsdp_tensor *tensor)
{
    fsdp_storage_end_write(tensor->storage);
}
