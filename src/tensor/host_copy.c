/* Implements host_copy.h, and copies whole tensors for users of the library. */
#include "src/tensor/host_copy.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"

static size_t bytes_of(const fsdp_tensor *t)
{
    return (size_t)fsdp_tensor_numel(t) * fsdp_dtype_size(t->dtype);
}

fsdp_status fsdp_host_copy_create(fsdp_host_copy *c, const fsdp_tensor *t)
{
    const fsdp_device *device = t->storage->device;
    *c = (fsdp_host_copy){.tensor = t, .bytes = bytes_of(t)};
    FSDP_ASSERT(fsdp_tensor_is_contiguous(t));
    if (!device->kernels)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_check_data(t));
    if (!fsdp_device_has_own_memory(device)) {
        c->data = fsdp_tensor_ptr(t);
        /* earlier kernels may still use the memory that the host is about to access */
        return fsdp_device_synchronize(device);
    }
    c->data = c->buffer = fsdp_realloc(NULL, c->bytes ? c->bytes : 1, 1);
    return c->buffer ? FSDP_OK : FSDP_ERR_NOMEM;
}

void fsdp_host_copy_destroy(fsdp_host_copy *c)
{
    fsdp_free(c->buffer);
    *c = (fsdp_host_copy){0};
}

fsdp_status fsdp_host_copy_read_part(const fsdp_host_copy *c, size_t offset, size_t bytes)
{
    const fsdp_device *device = c->tensor->storage->device;
    FSDP_DEBUG_ASSERT(offset <= c->bytes && bytes <= c->bytes - offset);
    if (!c->buffer)
        return fsdp_device_synchronize(device);
    return fsdp_device_to_host(device, (char *)c->buffer + offset,
                               (const char *)fsdp_tensor_ptr(c->tensor) + offset, bytes);
}

void fsdp_host_copy_write_part(const fsdp_host_copy *c, size_t offset, size_t bytes)
{
    FSDP_DEBUG_ASSERT(offset <= c->bytes && bytes <= c->bytes - offset);
    if (c->buffer)
        fsdp_device_from_host(c->tensor->storage->device,
                              (char *)fsdp_tensor_ptr(c->tensor) + offset,
                              (const char *)c->buffer + offset, bytes);
}

fsdp_status fsdp_host_copy_of(fsdp_host_copy *c, const fsdp_tensor *t)
{
    FSDP_TRY(fsdp_host_copy_create(c, t));
    const fsdp_status status = fsdp_host_copy_read(c);
    if (status != FSDP_OK)
        fsdp_host_copy_destroy(c);
    return status;
}

fsdp_status fsdp_tensor_for_device(const fsdp_tensor *t, fsdp_device *device, fsdp_tensor **copy)
{
    const fsdp_device *from = t->storage->device;
    if (from == device ||
        (!fsdp_device_has_own_memory(from) && !fsdp_device_has_own_memory(device))) {
        *copy = fsdp_tensor_retain((fsdp_tensor *)(uintptr_t)t);
        return FSDP_OK;
    }
    fsdp_host_copy elements;
    FSDP_TRY(fsdp_host_copy_of(&elements, t));
    const fsdp_status status = fsdp_tensor_from_data(device, t->dtype, t->ndim, t->shape,
                                                     elements.data, FSDP_TAG_COMM, copy);
    fsdp_host_copy_destroy(&elements);
    return status;
}

/* --- the public functions --- */

static fsdp_status check_copy(const fsdp_tensor *t, size_t bytes)
{
    if (!fsdp_tensor_is_contiguous(t))
        return fsdp_error(FSDP_ERR_INVALID, "a copy of a tensor that is not contiguous");
    if (bytes != bytes_of(t))
        return fsdp_error(FSDP_ERR_INVALID, "a copy of %zu bytes of a tensor of %zu", bytes,
                          bytes_of(t));
    return FSDP_OK;
}

fsdp_status fsdp_tensor_copy_to_host(const fsdp_tensor *t, void *dst, size_t bytes)
{
    FSDP_TRY(check_copy(t, bytes));
    if (!bytes)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(t));
    fsdp_status status = fsdp_tensor_check_data(t);
    if (status == FSDP_OK)
        status = fsdp_device_to_host(t->storage->device, dst, fsdp_tensor_ptr(t), bytes);
    fsdp_tensor_end_read(t);
    return status;
}

fsdp_status fsdp_tensor_copy_from_host(fsdp_tensor *t, const void *src, size_t bytes)
{
    FSDP_TRY(check_copy(t, bytes));
    if (!bytes)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_check_data(t));
    fsdp_device_from_host(t->storage->device, fsdp_tensor_ptr(t), src, bytes);
    return FSDP_OK;
}
