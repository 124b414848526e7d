/* Creates, releases and queries tensors. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/tensor.h"

const char *fsdp_shape_text(int ndim, const int64_t *shape, char buf[FSDP_SHAPE_TEXT])
{
    size_t at = 0;
    buf[at++] = '[';
    for (int i = 0; i < ndim && at < FSDP_SHAPE_TEXT - 24; i++)
        at += (size_t)snprintf(buf + at, FSDP_SHAPE_TEXT - at, "%s%lld", i ? ", " : "",
                               (long long)shape[i]);
    buf[at++] = ']';
    buf[at] = 0;
    return buf;
}

fsdp_status fsdp_shape_numel(int ndim, const int64_t *shape, int64_t *numel)
{
    char text[FSDP_SHAPE_TEXT];
    if (ndim < 0 || ndim > FSDP_MAX_DIMS)
        return fsdp_error(FSDP_ERR_INVALID, "a tensor has 0 to %d dimensions, not %d",
                          FSDP_MAX_DIMS, ndim);
    /* A tensor has no elements if one of its sizes is 0. But its strides are products of its other
     * sizes, and these must not overflow. So check the product of all sizes that are not 0. */
    int64_t product = 1, zero = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(product, shape[i] ? shape[i] : 1, &product))
            return fsdp_error(FSDP_ERR_INVALID, "shape %s is negative or too large",
                              fsdp_shape_text(ndim, shape, text));
        zero = shape[i] ? zero : 0;
    }
    if (product > INT64_MAX / 8)
        return fsdp_error(FSDP_ERR_INVALID, "shape %s is too large",
                          fsdp_shape_text(ndim, shape, text));
    *numel = product * zero;
    return FSDP_OK;
}

static void set_contiguous_strides(fsdp_tensor *t)
{
    int64_t step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        t->stride[i] = step;
        step *= t->shape[i];
    }
}

fsdp_status fsdp_tensor_over(fsdp_storage *storage, fsdp_dtype dtype, int ndim,
                             const int64_t *shape, int64_t offset, fsdp_tensor **tensor)
{
    int64_t numel;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    FSDP_ASSERT((size_t)(offset + numel) * fsdp_dtype_size(dtype) <= storage->bytes);
    fsdp_tensor *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    t->refs = 1;
    t->dtype = dtype;
    t->ndim = ndim;
    if (ndim)
        memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    t->offset = offset;
    set_contiguous_strides(t);
    storage->refs++;
    t->storage = storage;
    *tensor = t;
    return FSDP_OK;
}

void fsdp_tensor_exchange(fsdp_tensor *a, fsdp_tensor *b)
{
    const fsdp_tensor was = *a;
    FSDP_ASSERT(a->ndim == b->ndim);
    FSDP_ASSERT(memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0);
    a->storage = b->storage;
    a->offset = b->offset;
    a->dtype = b->dtype;
    a->has_values = b->has_values;
    b->storage = was.storage;
    b->offset = was.offset;
    b->dtype = was.dtype;
    b->has_values = was.has_values;
}

typedef fsdp_status alloc_fn(fsdp_allocator *allocator, size_t bytes, fsdp_tag tag,
                             fsdp_block **block, void **data);

static fsdp_status create_in(fsdp_device *device, alloc_fn *alloc, fsdp_dtype dtype, int ndim,
                             const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    int64_t numel;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    size_t bytes = (size_t)numel * fsdp_dtype_size(dtype);
    fsdp_block *block;
    void *data;
    FSDP_TRY(alloc(device->allocator, bytes, tag, &block, &data));
#ifdef FSDP_DEBUG
    if (data)
        /* these bytes are NaN in every floating dtype */
        fsdp_device_memset(device, data, 0xff, bytes);
#endif
    fsdp_storage *storage;
    fsdp_status status = fsdp_storage_from_memory(device, data, bytes, &storage);
    if (status != FSDP_OK) {
        fsdp_allocator_free(device->allocator, block);
        return status;
    }
    storage->block = block;
    status = fsdp_tensor_over(storage, dtype, ndim, shape, 0, tensor);
    fsdp_storage_release(storage);
    return status;
}

fsdp_status fsdp_tensor_create(fsdp_device *device, fsdp_dtype dtype, int ndim,
                               const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    return create_in(device,
                     tag == FSDP_TAG_OPTIM ? fsdp_allocator_alloc_lasting : fsdp_allocator_alloc,
                     dtype, ndim, shape, tag, tensor);
}

fsdp_status fsdp_tensor_create_in_forward(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                          const int64_t *shape, fsdp_tag tag, fsdp_tensor **tensor)
{
    return create_in(device, fsdp_allocator_alloc_in_forward, dtype, ndim, shape, tag, tensor);
}

fsdp_status fsdp_tensor_without_memory(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                       const int64_t *shape, fsdp_tensor **tensor)
{
    int64_t numel;
    fsdp_storage *storage;
    FSDP_TRY(fsdp_shape_numel(ndim, shape, &numel));
    FSDP_TRY(
        fsdp_storage_from_memory(device, NULL, (size_t)numel * fsdp_dtype_size(dtype), &storage));
    storage->is_skipped = true;
    fsdp_status status = fsdp_tensor_over(storage, dtype, ndim, shape, 0, tensor);
    fsdp_storage_release(storage);
    return status;
}

fsdp_status fsdp_tensor_from_data(fsdp_device *device, fsdp_dtype dtype, int ndim,
                                  const int64_t *shape, const void *data, fsdp_tag tag,
                                  fsdp_tensor **tensor)
{
    FSDP_TRY(fsdp_tensor_create(device, dtype, ndim, shape, tag, tensor));
    if (device->kernels)
        fsdp_device_from_host(device, fsdp_tensor_ptr(*tensor), data, (*tensor)->storage->bytes);
    return FSDP_OK;
}

fsdp_tensor *fsdp_tensor_retain(fsdp_tensor *t)
{
    if (t)
        t->refs++;
    return t;
}

void fsdp_tensor_release(fsdp_tensor *t)
{
    if (!t || --t->refs > 0)
        return;
    FSDP_ASSERT(t->refs == 0);
    if (t->spec)
        t->spec_destroy(t->spec);
    if (t->sink_destroy)
        t->sink_destroy(t->sink);
    if (t->derived)
        t->derived_forget(t->derived);
    fsdp_storage_release(t->storage);
    fsdp_free(t);
}

fsdp_dtype fsdp_tensor_dtype(const fsdp_tensor *t)
{
    return t->dtype;
}

fsdp_device *fsdp_tensor_device(const fsdp_tensor *t)
{
    return t->storage->device;
}

int fsdp_tensor_ndim(const fsdp_tensor *t)
{
    return t->ndim;
}

const int64_t *fsdp_tensor_shape(const fsdp_tensor *t)
{
    return t->shape;
}

int64_t fsdp_tensor_size(const fsdp_tensor *t, int dim)
{
    FSDP_ASSERT(dim >= 0 && dim < t->ndim);
    return t->shape[dim];
}

int64_t fsdp_tensor_numel(const fsdp_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

int64_t fsdp_tensor_row_numel(const fsdp_tensor *t)
{
    int64_t n = 1;
    for (int i = 1; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

bool fsdp_tensor_is_contiguous(const fsdp_tensor *t)
{
    bool in_order = true;
    int64_t step = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        in_order &= t->shape[i] == 1 || t->stride[i] == step;
        step *= t->shape[i];
    }
    /* If the tensor has no elements, `step` is 0, and the tensor is contiguous whatever its strides
     * are. */
    return in_order || step == 0;
}

bool fsdp_tensor_has_data(const fsdp_tensor *t)
{
    return t->storage->data != NULL;
}

fsdp_status fsdp_tensor_check_data(const fsdp_tensor *t)
{
    if (t->storage->data)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "the tensor has no data: it is %s",
                      !t->storage->device->kernels ? "on the meta device"
                      : t->storage->staged         ? "offloaded: fsdp_tensor_begin_read() first"
                      : t->storage->halved         ? "in halves: fsdp_tensor_begin_read() first"
                      : t->storage->is_skipped     ? "not computed again, since backward does not "
                                                     "need it (no_early_stop of the module's "
                                                     "activation checkpointing)"
                                                   : "resharded");
}

/* Wait until all kernels have run, so that the host may read the tensor. Return an error if it has
 * no data or if the host cannot read the device's memory. */
static fsdp_status wait_for_host(const fsdp_tensor *t)
{
    const fsdp_device *device = t->storage->device;
    FSDP_TRY(fsdp_tensor_check_data(t));
    FSDP_TRY(fsdp_device_synchronize(device));
    if (!fsdp_device_has_own_memory(device))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE,
                      "the host cannot read memory of device %s: use fsdp_tensor_copy_to_host(), "
                      "fsdp_tensor_to_floats() or fsdp_tensor_copy_from_host()",
                      device->ops->name);
}

void *fsdp_tensor_data(const fsdp_tensor *t)
{
    return wait_for_host(t) == FSDP_OK ? fsdp_tensor_ptr(t) : NULL;
}
