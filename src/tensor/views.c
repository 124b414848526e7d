/* Makes views and copies of tensors, and reads elements. */
#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/bf16.h"
#include "src/tensor/host_copy.h"

enum {
    STAGED_ELEMENTS = 1 << 20
};

/* Create a view: a second tensor over t's storage, with t's shape, strides and offset. The caller
 * then changes the shape, strides or offset of the view. */
static fsdp_status alias(fsdp_tensor *t, fsdp_tensor **view)
{
    /* The shape [0] has no elements, so it is valid for a storage of any size. */
    static const int64_t empty = 0;
    FSDP_TRY(fsdp_tensor_over(t->storage, t->dtype, 1, &empty, 0, view));
    (*view)->ndim = t->ndim;
    (*view)->offset = t->offset;
    (*view)->is_table = t->is_table;
    memcpy((*view)->shape, t->shape, sizeof t->shape);
    memcpy((*view)->stride, t->stride, sizeof t->stride);
    return FSDP_OK;
}

fsdp_status fsdp_tensor_narrow(fsdp_tensor *t, int64_t begin, int64_t end, fsdp_tensor **view)
{
    if (t->ndim == 0 || begin < 0 || end < begin || end > t->shape[0])
        return fsdp_error(FSDP_ERR_INVALID, "rows [%lld, %lld) of a tensor with %lld",
                          (long long)begin, (long long)end, t->ndim ? (long long)t->shape[0] : 0LL);
    FSDP_TRY(alias(t, view));
    (*view)->shape[0] = end - begin;
    (*view)->offset += begin * t->stride[0];
    return FSDP_OK;
}

/* Copy `shape` to `full`. Replace its first -1 by `numel` divided by the product of the other
 * sizes, or by 0 if that product overflows or is not positive. The caller checks the result. */
static void infer_open_dimension(int ndim, const int64_t *shape, int64_t numel, int64_t *full)
{
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < ndim; i++) {
        full[i] = shape[i];
        if (shape[i] == -1 && open < 0)
            open = i;
        else if (__builtin_mul_overflow(known, shape[i], &known))
            known = 0;
    }
    if (open >= 0)
        full[open] = known > 0 ? numel / known : 0;
}

fsdp_status fsdp_tensor_view(fsdp_tensor *t, int ndim, const int64_t *shape, fsdp_tensor **view)
{
    char from[FSDP_SHAPE_TEXT], to[FSDP_SHAPE_TEXT];
    if (!fsdp_tensor_is_contiguous(t))
        return fsdp_error(FSDP_ERR_INVALID, "view of a tensor that is not contiguous");
    if (ndim < 0 || ndim > FSDP_MAX_DIMS)
        return fsdp_error(FSDP_ERR_INVALID, "a tensor has 0 to %d dimensions, not %d",
                          FSDP_MAX_DIMS, ndim);
    int64_t full[FSDP_MAX_DIMS] = {0}, got;
    infer_open_dimension(ndim, shape, fsdp_tensor_numel(t), full);
    FSDP_TRY(fsdp_shape_numel(ndim, full, &got));
    if (got != fsdp_tensor_numel(t))
        return fsdp_error(FSDP_ERR_INVALID, "view of shape %s as %s",
                          fsdp_shape_text(t->ndim, t->shape, from),
                          fsdp_shape_text(ndim, shape, to));
    FSDP_TRY(fsdp_tensor_over(t->storage, t->dtype, ndim, full, t->offset, view));
    (*view)->is_table = t->is_table;
    return FSDP_OK;
}

fsdp_status fsdp_tensor_transpose(fsdp_tensor *t, int dim0, int dim1, fsdp_tensor **view)
{
    if (dim0 < 0 || dim1 < 0 || dim0 >= t->ndim || dim1 >= t->ndim)
        return fsdp_error(FSDP_ERR_INVALID, "transpose of dimensions %d and %d of %d", dim0, dim1,
                          t->ndim);
    FSDP_TRY(alias(t, view));
    (*view)->shape[dim0] = t->shape[dim1];
    (*view)->shape[dim1] = t->shape[dim0];
    (*view)->stride[dim0] = t->stride[dim1];
    (*view)->stride[dim1] = t->stride[dim0];
    return FSDP_OK;
}

static double element_as_double(const char *p, fsdp_dtype dtype)
{
    union {
        float f;
        double d;
        uint16_t half;
        int64_t i64;
        int32_t i32;
        uint8_t u8;
    } value;
    memcpy(&value, p, fsdp_dtype_size(dtype));
    switch (dtype) {
    case FSDP_DTYPE_F32:
        return (double)value.f;
    case FSDP_DTYPE_F64:
        return value.d;
    case FSDP_DTYPE_BF16:
        return (double)fsdp_f32_from_bf16(value.half);
    case FSDP_DTYPE_F16:
        return (double)fsdp_f32_from_f16(value.half);
    case FSDP_DTYPE_I64:
        return (double)value.i64;
    case FSDP_DTYPE_I32:
        return (double)value.i32;
    case FSDP_DTYPE_U8:
        return (double)value.u8;
    case FSDP_DTYPE_COUNT:
        break;
    }
    return 0.0;
}

/* Return the distance, in bytes, from the first element of t to its element number i, counted in
 * row-major order. t may have any strides. */
static size_t distance_of(const fsdp_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->shape[d] * t->stride[d];
        i /= t->shape[d];
    }
    return (size_t)at * fsdp_dtype_size(t->dtype);
}

/* Return the device's address of element number i of t, counted in row-major order. */
static const char *address_of(const fsdp_tensor *t, int64_t i)
{
    return (const char *)fsdp_tensor_ptr(t) + distance_of(t, i);
}

static void convert_floats(const fsdp_tensor *t, const char *elements, float *dst)
{
    const int64_t n = fsdp_tensor_numel(t);
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)element_as_double(elements + distance_of(t, i), t->dtype);
}

/* Convert the elements of t, for a device with memory of its own. First copy the elements to the
 * host, together with the elements between them in the storage, because t may have any strides.
 * Then convert them on the host. */
static fsdp_status copy_floats(const fsdp_tensor *t, float *dst)
{
    const size_t bytes = distance_of(t, fsdp_tensor_numel(t) - 1) + fsdp_dtype_size(t->dtype);
    char *elements = fsdp_realloc(NULL, bytes, 1);
    if (!elements)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        fsdp_device_to_host(t->storage->device, elements, fsdp_tensor_ptr(t), bytes);
    if (status == FSDP_OK)
        convert_floats(t, elements, dst);
    fsdp_free(elements);
    return status;
}

static fsdp_status read_floats(const fsdp_tensor *t, float *dst)
{
    int64_t n = fsdp_tensor_numel(t);
    if (!n)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_check_data(t));
    if (t->dtype == FSDP_DTYPE_F32 && fsdp_tensor_is_contiguous(t))
        return fsdp_device_to_host(t->storage->device, dst, fsdp_tensor_ptr(t),
                                   (size_t)n * sizeof *dst);
    if (fsdp_device_has_own_memory(t->storage->device))
        return copy_floats(t, dst);
    FSDP_TRY(fsdp_device_synchronize(t->storage->device));
    convert_floats(t, fsdp_tensor_ptr(t), dst);
    return FSDP_OK;
}

fsdp_status fsdp_tensor_to_floats(const fsdp_tensor *t, float *dst)
{
    FSDP_TRY(fsdp_tensor_begin_read(t));
    fsdp_status status = read_floats(t, dst);
    fsdp_tensor_end_read(t);
    return status;
}

fsdp_status fsdp_tensor_item(const fsdp_tensor *t, double *value)
{
    if (fsdp_tensor_numel(t) != 1)
        return fsdp_error(FSDP_ERR_INVALID, "item of a tensor of %lld elements",
                          (long long)fsdp_tensor_numel(t));
    FSDP_TRY(fsdp_tensor_begin_read(t));
    char bytes[8] = {0};
    fsdp_status status = fsdp_tensor_check_data(t);
    if (status == FSDP_OK)
        status = fsdp_device_to_host(t->storage->device, bytes, address_of(t, 0),
                                     fsdp_dtype_size(t->dtype));
    if (status == FSDP_OK)
        *value = element_as_double(bytes, t->dtype);
    fsdp_tensor_end_read(t);
    return status;
}

static fsdp_status copy_to(fsdp_tensor *t, fsdp_dtype dtype, fsdp_tag tag, fsdp_tensor **copy)
{
    fsdp_device *device = t->storage->device;
    int64_t n = fsdp_tensor_numel(t);
    if (device->kernels && n)
        FSDP_TRY(fsdp_tensor_check_data(t));
    FSDP_TRY(fsdp_tensor_create(device, dtype, t->ndim, t->shape, tag, copy));
    if (!device->kernels || !n)
        return FSDP_OK;
    bool contiguous = fsdp_tensor_is_contiguous(t);
    int64_t piece = contiguous ? n : 1;
    for (int64_t i = 0; i < n; i += piece)
        device->kernels->cast(device->context,
                              (char *)fsdp_tensor_ptr(*copy) + (size_t)i * fsdp_dtype_size(dtype),
                              dtype, address_of(t, i), t->dtype, piece);
    return FSDP_OK;
}

fsdp_status fsdp_tensor_to(fsdp_tensor *t, fsdp_dtype dtype, fsdp_tag tag, fsdp_tensor **copy)
{
    FSDP_TRY(fsdp_tensor_begin_read(t));
    fsdp_status status = copy_to(t, dtype, tag, copy);
    fsdp_tensor_end_read(t);
    return status;
}

static int64_t rows_of(const fsdp_tensor *t)
{
    return t->ndim ? t->shape[0] : 1;
}

/* Set *largest to the largest magnitude in n tensors. `rows` is temporary memory with one element
 * for each row of all tensors, and one more for the result. */
static fsdp_status find_largest(const fsdp_tensor *const *tensors, size_t n,
                                const fsdp_tensor *rows, fsdp_row_powers *powers, double *largest)
{
    const fsdp_device *device = rows->storage->device;
    double *values = fsdp_tensor_ptr(rows), *end = values;
    for (size_t i = 0; i < n; end += rows_of(tensors[i++]))
        powers[i] = (fsdp_row_powers){.x = fsdp_tensor_ptr(tensors[i]),
                                      .dtype = tensors[i]->dtype,
                                      .rows = rows_of(tensors[i]),
                                      .width = fsdp_tensor_row_numel(tensors[i]),
                                      .sums = end};
    const fsdp_numbers all = {.numbers = values, .n = end - values, .result = end};
    device->kernels->row_power_sums(device->context, powers, n, (double)INFINITY);
    device->kernels->combine(device->context, &all, 1, true);
    return fsdp_device_to_host(device, largest, end, sizeof *end);
}

fsdp_status fsdp_all_are_finite(const fsdp_tensor *const *tensors, size_t n, bool *yes)
{
    fsdp_tensor *rows = NULL;
    int64_t n_rows = 0;
    double largest = 0.0;
    if (!n) {
        *yes = true;
        return FSDP_OK;
    }
    fsdp_device *device = tensors[0]->storage->device;
    for (size_t i = 0; i < n; i++)
        n_rows += rows_of(tensors[i]);
    fsdp_row_powers *powers = fsdp_calloc(n, sizeof *powers);
    fsdp_status status = powers ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_tensor_create(device, FSDP_DTYPE_F64, 1, (int64_t[]){n_rows + 1},
                                    FSDP_TAG_COMM, &rows);
    if (status == FSDP_OK && device->kernels)
        status = find_largest(tensors, n, rows, powers, &largest);
    if (status == FSDP_OK)
        *yes = isfinite(largest);
    fsdp_tensor_release(rows);
    fsdp_free(powers);
    return status;
}

fsdp_status fsdp_all_finite(const fsdp_tensor *t, bool *yes)
{
    return fsdp_all_are_finite(&t, 1, yes);
}

/* --- from host memory --- */

/* Cast n elements from host memory to `dst` by way of a temporary tensor on the device. The kernel
 * cannot read the host memory itself, because the caller may reuse that memory before the kernel
 * runs. */
static fsdp_status cast_piece(fsdp_device *device, void *dst, fsdp_dtype to, const void *src,
                              fsdp_dtype from, int64_t n)
{
    fsdp_tensor *staging;
    FSDP_TRY(fsdp_tensor_from_data(device, from, 1, &n, src, FSDP_TAG_COMM, &staging));
    device->kernels->cast(device->context, dst, to, fsdp_tensor_ptr(staging), from, n);
    fsdp_tensor_release(staging);
    return FSDP_OK;
}

fsdp_status fsdp_tensor_from_host(fsdp_tensor *t, int64_t at, const void *src, fsdp_dtype dtype,
                                  int64_t n)
{
    fsdp_device *device = t->storage->device;
    char *dst = (char *)fsdp_tensor_ptr(t) + (size_t)at * fsdp_dtype_size(t->dtype);
    const size_t size = fsdp_dtype_size(dtype);
    if (dtype == t->dtype) {
        fsdp_device_from_host(device, dst, src, (size_t)n * size);
        return FSDP_OK;
    }
    if (!device->ops->synchronize) {
        device->kernels->cast(device->context, dst, t->dtype, src, dtype, n);
        return FSDP_OK;
    }
    for (int64_t done = 0, piece; done < n; done += piece) {
        piece = n - done < STAGED_ELEMENTS ? n - done : STAGED_ELEMENTS;
        FSDP_TRY(cast_piece(device, dst + (size_t)done * fsdp_dtype_size(t->dtype), t->dtype,
                            (const char *)src + (size_t)done * size, dtype, piece));
    }
    return FSDP_OK;
}
