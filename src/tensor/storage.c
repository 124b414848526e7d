/* Implements storages (a storage is memory that several views may share), and calls the guards of
 * storages. */
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
    if (st->kind)
        st->kind->remove(st);
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

static fsdp_status begin_guards(fsdp_storage *st)
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

static fsdp_status begin_use(fsdp_storage *st, bool write)
{
    return st->kind ? st->kind->begin(st, write) : FSDP_OK;
}

static void end_use(fsdp_storage *st, bool wrote)
{
    if (st->kind)
        st->kind->end(st, wrote);
}

fsdp_status fsdp_storage_begin_write(fsdp_storage *st)
{
    FSDP_TRY(begin_guards(st));
    fsdp_status status = begin_use(st, true);
    if (status != FSDP_OK)
        end_guards_before(st, NULL);
    return status;
}

void fsdp_storage_end_write(fsdp_storage *st)
{
    end_use(st, true);
    end_guards_before(st, NULL);
}

fsdp_status fsdp_storage_begin_read(fsdp_storage *st)
{
    return begin_use(st, false);
}

void fsdp_storage_end_read(fsdp_storage *st)
{
    end_use(st, false);
}

fsdp_status fsdp_tensor_check_read(const fsdp_tensor *tensor)
{
    for (const fsdp_storage_guard *g = tensor->storage->guards; g; g = g->next)
        if (g->check_read)
            FSDP_TRY(g->check_read(g->self, tensor));
    return FSDP_OK;
}

const void *fsdp_tensor_key(const fsdp_tensor *tensor)
{
    const fsdp_storage *st = tensor->storage;
    return st->kind ? st->kind->key(st) : st;
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

bool fsdp_tensor_write_takes_memory(const fsdp_tensor *t, bool in_halves)
{
    const fsdp_storage *st = t->storage;
    for (const fsdp_storage_guard *g = st->guards; g; g = g->next)
        if (g->writes_take_memory)
            return true;
    return st->kind && !(in_halves && st->halved);
}

static bool is_joined(const fsdp_writing *w, const fsdp_tensor *tensor)
{
    return !(w->in_halves && tensor->storage->halved);
}

static fsdp_status begin_next(fsdp_writing *w, fsdp_tensor *tensor)
{
    FSDP_TRY(is_joined(w, tensor) ? fsdp_storage_begin_write(tensor->storage)
                                  : begin_guards(tensor->storage));
    w->open = tensor;
    return FSDP_OK;
}

/* End the write of a tensor, but do not call the guards of its storage yet: record that the tensor
 * has values, and end the use of the storage. The caller must call end_write() of the guards
 * later. */
static void end_values(const fsdp_writing *w, fsdp_tensor *tensor)
{
    tensor->has_values = true;
    if (is_joined(w, tensor))
        end_use(tensor->storage, true);
}

fsdp_status fsdp_writing_next(fsdp_writing *w, fsdp_tensor *tensor)
{
    fsdp_tensor *last = w->open;
    if (last && last->storage == tensor->storage) {
        last->has_values = true;
        w->open = tensor;
        return FSDP_OK;
    }
    if (!last || !last->storage->halved || fsdp_tensor_key(last) != fsdp_tensor_key(tensor)) {
        fsdp_writing_end(w);
        return begin_next(w, tensor);
    }
    w->open = NULL;
    end_values(w, last);
    fsdp_status status = begin_next(w, tensor);
    end_guards_before(last->storage, NULL);
    return status;
}

void fsdp_writing_end(fsdp_writing *w)
{
    if (!w->open)
        return;
    end_values(w, w->open);
    end_guards_before(w->open->storage, NULL);
    w->open = NULL;
}
