/* Storages: memory that views share, with write guards. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/offload.h"

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
    if (st->staged)
        fsdp_staged_remove(st->staged);
    fsdp_allocator_free(st->device->allocator, st->block);
    fsdp_free(st);
}

void fsdp_storage_set_data(fsdp_storage *st, void *data)
{
    FSDP_ASSERT(!st->block);
    st->data = data;
}

void fsdp_storage_drop_guards(fsdp_storage *st)
{
    for (fsdp_storage_guard *g = st->guards; g; g = g->next)
        if (g->leave)
            g->leave(g->self);
    st->guards = NULL;
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
    fsdp_status status = st->staged ? fsdp_staged_begin(st->staged, true) : FSDP_OK;
    if (status != FSDP_OK)
        end_guards_before(st, NULL);
    return status;
}

void fsdp_storage_end_write(fsdp_storage *st)
{
    if (st->staged)
        fsdp_staged_end(st->staged);
    end_guards_before(st, NULL);
}

fsdp_status fsdp_storage_begin_read(fsdp_storage *st)
{
    return st->staged ? fsdp_staged_begin(st->staged, false) : FSDP_OK;
}

void fsdp_storage_end_read(fsdp_storage *st)
{
    if (st->staged)
        fsdp_staged_end(st->staged);
}

fsdp_status fsdp_tensor_check_read(const fsdp_tensor *tensor)
{
    for (const fsdp_storage_guard *g = tensor->storage->guards; g; g = g->next)
        if (g->check_read)
            FSDP_TRY(g->check_read(g->self, tensor));
    return FSDP_OK;
}

fsdp_status fsdp_tensor_begin_write(fsdp_tensor *tensor)
{
    return fsdp_storage_begin_write(tensor->storage);
}

void fsdp_tensor_end_write(fsdp_tensor *tensor)
{
    tensor->has_values = true;
    fsdp_storage_end_write(tensor->storage);
}

fsdp_status fsdp_tensor_begin_read(const fsdp_tensor *tensor)
{
    return fsdp_storage_begin_read(tensor->storage);
}

void fsdp_tensor_end_read(const fsdp_tensor *tensor)
{
    fsdp_storage_end_read(tensor->storage);
}

fsdp_status fsdp_writing_next(fsdp_writing *w, fsdp_tensor *tensor)
{
    if (w->open && w->open->storage == tensor->storage) {
        w->open->has_values = true;
        w->open = tensor;
        return FSDP_OK;
    }
    fsdp_writing_end(w);
    FSDP_TRY(fsdp_tensor_begin_write(tensor));
    w->open = tensor;
    return FSDP_OK;
}

void fsdp_writing_end(fsdp_writing *w)
{
    if (w->open)
        fsdp_tensor_end_write(w->open);
    w->open = NULL;
}
