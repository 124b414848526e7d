/* Reads the tensors of an archive. In the pickle, each tensor is a call of one of two functions:
 *     torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, meta])
 *     torch._utils._rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype)
 * The argument `storage` is the persistent id ("storage", class, record, location, numel). The
 * offset and the strides count elements. Several tensors may share a storage. */
#include <string.h>
#include <sys/mman.h>

#include "src/base/alloc.h"
#include "src/torchfile/torch_archive_internal.h"
#include "src/torchfile/torch_names.h"

enum {
    MAX_NDIM = 64,
    MAX_RECORD_NAME = 64,
    /* Checksums of storages up to this size are always verified. */
    MAX_CHECKED_BYTES = 4096
};

typedef struct view {
    const fsdp_safetensors_dtype *dtype;
    const fsdp_zip_record *storage;
    int64_t width;  /* bytes per element */
    int64_t offset; /* in elements, from the start of the storage */
    int64_t *shape; /* [ndim] owned by the archive */
    int64_t stride[MAX_NDIM];
    int ndim;
    int64_t numel, bytes;
} view;

static fsdp_status bad_tensor(const fsdp_torch_archive *archive, const char *name, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s': %s", archive->path, name, what);
}

bool fsdp_torch_is_tensor(const fsdp_pickle_value *value)
{
    return fsdp_pickle_is(value, FSDP_PICKLE_RECORD) &&
           (fsdp_pickle_is_call(value, "_rebuild_tensor_v2") ||
            fsdp_pickle_is_call(value, "_rebuild_tensor_v3"));
}

/* ---- the call's arguments -------------------------------------------------------------------- */

static bool take_size(const fsdp_pickle_value *value, int64_t *size)
{
    if (!fsdp_pickle_is(value, FSDP_PICKLE_INT) || value->integer < 0)
        return false;
    *size = value->integer;
    return true;
}

static fsdp_status read_dtype(const fsdp_torch_archive *archive, const fsdp_pickle_value *value,
                              const fsdp_pickle_value *class, const char *name, view *v)
{
    bool typed = fsdp_pickle_is_call(value, "_rebuild_tensor_v2");
    const fsdp_pickle_value *dtype = typed ? class : fsdp_pickle_at(value, 6);
    const fsdp_pickle_value *meta = fsdp_pickle_at(value, typed ? 6 : 7);
    char text[128];
    v->dtype = fsdp_torch_dtype(dtype);
    if (!v->dtype)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s': %s is not a type of elements",
                          archive->path, name, fsdp_pickle_describe(dtype, text, sizeof text));
    v->width = v->dtype->bits / 8;
    /* Refuse tensors with metadata. Metadata could say, for example, that the elements must be
     * negated or conjugated. */
    if (meta && !fsdp_pickle_is(meta, FSDP_PICKLE_NONE) &&
        !(fsdp_pickle_is(meta, FSDP_PICKLE_DICT) && meta->list.n == 0))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s' has properties beyond its data; save tensor.clone() "
                          "in torch",
                          archive->path, name);
    return FSDP_OK;
}

/* Find the record of the storage, and check that it has the size given in the pickle. Verify the
 * checksum of the record if it has at most MAX_CHECKED_BYTES, or if archive->checks_all. */
static fsdp_status read_storage(const fsdp_torch_archive *archive, const fsdp_pickle_value *id,
                                bool typed, const char *name, view *v)
{
    char record_name[MAX_RECORD_NAME + 8] = "data/";
    const char *key = fsdp_pickle_text(fsdp_pickle_at(id, 2));
    int64_t numel, bytes;
    if (!key || strlen(key) > MAX_RECORD_NAME || !take_size(fsdp_pickle_at(id, 4), &numel))
        return bad_tensor(archive, name, "its storage has no record or no size");
    strcat(record_name, key);
    v->storage = fsdp_zip_reader_find(archive->zip, record_name);
    if (!v->storage)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s': record '%s' is missing", archive->path,
                          name, record_name);
    if (__builtin_mul_overflow(numel, typed ? v->width : 1, &bytes) ||
        (uint64_t)bytes != v->storage->bytes)
        return fsdp_error(
            FSDP_ERR_FORMAT,
            "%s: tensor '%s': record '%s' of %zu bytes is not a storage of %lld elements",
            archive->path, name, record_name, v->storage->bytes, (long long)numel);
    if (!archive->checks_all && v->storage->bytes > MAX_CHECKED_BYTES)
        return FSDP_OK;
    fsdp_status status = fsdp_zip_reader_check_crc(archive->zip, v->storage);
    fsdp_error_context(status, "tensor '%s'", name);
    return status;
}

static fsdp_status read_shape(fsdp_torch_archive *archive, const fsdp_pickle_value *value,
                              const char *name, view *v)
{
    const fsdp_pickle_value *size = fsdp_pickle_at(value, 2), *stride = fsdp_pickle_at(value, 3);
    if (!fsdp_pickle_is(size, FSDP_PICKLE_TUPLE) || !fsdp_pickle_is(stride, FSDP_PICKLE_TUPLE) ||
        size->list.n != stride->list.n || size->list.n > MAX_NDIM)
        return bad_tensor(archive, name,
                          "its size and stride are not tuples of one length up to 64");
    v->ndim = (int)size->list.n;
    v->shape = fsdp_arena_alloc(&archive->arena, size->list.n * sizeof *v->shape);
    if (!v->shape)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < v->ndim; i++)
        if (!take_size(size->list.items[i], &v->shape[i]) ||
            !take_size(stride->list.items[i], &v->stride[i]))
            return bad_tensor(
                archive, name,
                "its size or stride holds a value that is not a number, or is negative");
    if (!take_size(fsdp_pickle_at(value, 1), &v->offset))
        return bad_tensor(archive, name,
                          "its offset in the storage is not a number, or is negative");
    if (!fsdp_safetensors_size(v->dtype, v->shape, v->ndim, &v->numel, &v->bytes))
        return bad_tensor(archive, name, "its shape has more elements than a file can hold");
    return FSDP_OK;
}

/* Check that the last element of the view is within the storage. */
static fsdp_status check_bounds(const fsdp_torch_archive *archive, const char *name, const view *v)
{
    int64_t last = v->offset, span;
    bool inside = true;
    if (v->numel == 0)
        return FSDP_OK;
    for (int i = 0; i < v->ndim && inside; i++)
        inside = !__builtin_mul_overflow(v->shape[i] - 1, v->stride[i], &span) &&
                 !__builtin_add_overflow(last, span, &last);
    if (inside && (uint64_t)last < v->storage->bytes / (uint64_t)v->width)
        return FSDP_OK;
    return bad_tensor(archive, name, "its offset, shape and strides reach beyond its storage");
}

static fsdp_status read_view(fsdp_torch_archive *archive, const fsdp_pickle_value *value,
                             const char *name, view *v)
{
    const fsdp_pickle_value *storage = fsdp_pickle_at(value, 0);
    const fsdp_pickle_value *id = fsdp_pickle_at(storage, 0);
    const char *kind = fsdp_pickle_text(fsdp_pickle_at(id, 0));
    if (!fsdp_torch_is_tensor(value) || !fsdp_pickle_is(storage, FSDP_PICKLE_PERSISTENT) || !kind ||
        strcmp(kind, "storage") != 0)
        return bad_tensor(archive, name, "it has no storage");
    bool typed = fsdp_pickle_is_call(value, "_rebuild_tensor_v2");
    FSDP_TRY(read_dtype(archive, value, fsdp_pickle_at(id, 1), name, v));
    FSDP_TRY(read_storage(archive, id, typed, name, v));
    FSDP_TRY(read_shape(archive, value, name, v));
    return check_bounds(archive, name, v);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Return true if the elements are in row-major order without gaps. The stride of a dimension with
 * one element may have any value. */
static bool is_contiguous(const view *v)
{
    int64_t expected = 1;
    for (int i = v->ndim - 1; i >= 0; i--) {
        if (v->shape[i] != 1 && v->stride[i] != expected)
            return false;
        expected *= v->shape[i];
    }
    return true;
}

/* Copy the elements of `v` from `from` to `to`, in row-major order. `v` has at least one dimension
 * and one element. */
static void copy_strided(const view *v, const unsigned char *from, unsigned char *to)
{
    /* A row is a run along the last dimension. `index` has the indices of the current row in all
     * dimensions before the last one. `at` is the offset of the row's first element in `from`, in
     * elements. */
    int64_t index[MAX_NDIM] = {0}, at = 0;
    int last = v->ndim - 1;
    for (int64_t rows = v->numel / v->shape[last]; rows > 0; rows--) {
        for (int64_t k = 0; k < v->shape[last]; k++, to += v->width)
            memcpy(to, from + (at + k * v->stride[last]) * v->width, (size_t)v->width);
        for (int i = last - 1; i >= 0; i--) {
            /* check_bounds() has not bounded the stride of a dimension with one element, so the
             * sum could overflow. */
            if (v->shape[i] == 1)
                continue;
            at += v->stride[i];
            if (++index[i] < v->shape[i])
                break;
            at -= v->shape[i] * v->stride[i];
            index[i] = 0;
        }
    }
}

/* Allocate memory for a contiguous copy of a tensor. fsdp_checkpoint_advise() may release pages of
 * this memory. The memory must therefore be a shared mapping, whose released pages keep their
 * contents. Released pages of a private mapping would lose their contents. */
static fsdp_status new_copy(fsdp_torch_archive *archive, size_t bytes, unsigned char **copy)
{
    if (!FSDP_GROW(archive->copies, archive->copies_cap, archive->n_copies + 1))
        return FSDP_ERR_NOMEM;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return fsdp_error_nomem();
    archive->copies[archive->n_copies++] = (fsdp_mapping){.data = data, .bytes = bytes};
    *copy = data;
    return FSDP_OK;
}

static fsdp_status materialise(fsdp_torch_archive *archive, const char *name, const view *v,
                               const void **data)
{
    size_t bytes = (size_t)v->bytes;
    if (bytes > archive->copy_bytes)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: tensor '%s' is an expanded view of %lld bytes; save "
                          "tensor.contiguous() in torch",
                          archive->path, name, (long long)v->bytes);
    unsigned char *copy = NULL;
    FSDP_TRY(new_copy(archive, bytes, &copy));
    archive->copy_bytes -= bytes;
    copy_strided(v, v->storage->data + v->offset * v->width, copy);
    *data = copy;
    return FSDP_OK;
}

fsdp_status fsdp_torch_archive_tensor(fsdp_torch_archive *archive, const fsdp_pickle_value *value,
                                      const char *name, fsdp_checkpoint_entry *entry)
{
    view v = {0};
    FSDP_TRY(read_view(archive, value, name, &v));
    const void *data = v.storage->data;
    if (v.numel > 0 && is_contiguous(&v))
        data = v.storage->data + v.offset * v.width;
    else if (v.numel > 0)
        FSDP_TRY(materialise(archive, name, &v, &data));
    *entry = (fsdp_checkpoint_entry){
        .name = name,
        .path = archive->path,
        .dtype_name = v.dtype->name,
        .shape = v.shape,
        .ndim = v.ndim,
        .numel = v.numel,
        .data = data,
        .bytes = (size_t)v.bytes,
    };
    return FSDP_OK;
}

fsdp_status fsdp_torch_archive_check(fsdp_torch_archive *archive, const fsdp_pickle_value *value,
                                     const char *name)
{
    view v = {0};
    FSDP_TRY(read_view(archive, value, name, &v));
    archive->checked[v.storage - fsdp_zip_reader_at(archive->zip, 0)] = true;
    fsdp_status status = fsdp_zip_reader_check_crc_mapped(archive->zip, v.storage);
    fsdp_error_context(status, "tensor '%s'", name);
    return status;
}
