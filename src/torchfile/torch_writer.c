/* Writes the records of a file in the order in which torch.save writes them. First come the pickle
 * and three records that describe the format. They are followed by one record for each storage, and
 * finally by the records `version` and `.data/serialization_id`. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/torchfile/torch_names.h"
#include "src/torchfile/torch_writer.h"
#include "src/torchfile/zip_writer.h"

enum {
    MAX_NDIM = 64,
    ID_DIGITS = 40
};

typedef struct storage {
    const fsdp_safetensors_dtype *dtype;
    int64_t shape[MAX_NDIM];
    int ndim;
    int64_t numel, bytes;
} storage;

struct fsdp_torch_writer {
    char *path;
    fsdp_atomic_file *file;
    bool borrows_file; /* the caller owns the file */
    bool keeps_holes;
    fsdp_zip_writer *zip;
    fsdp_pickle_writer pickle;
    char id[ID_DIGITS + 1]; /* id of the archive, made from the checksum of the pickle. torch never
                               compares this id with anything */
    storage **storages; /* [n] in the order in which the caller put the tensors into the pickle */
    size_t n, cap;
    size_t begun;  /* number of storages whose records have been begun */
    bool has_data; /* begin_data() was called */
};

/* ---- creating and discarding a writer -------------------------------------------------------- */

/* Return the name of the archive's top folder, chosen as torch does. It is the name of the file
 * without its last extension, or "archive" if the name of the file is not ASCII. */
static char *folder_of(const char *path)
{
    const char *name = fsdp_path_name(path), *dot = strrchr(name, '.');
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p >= 0x80)
            return fsdp_strdup("archive");
    return fsdp_strndup(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static fsdp_status begin_file(fsdp_torch_writer *w, const char *path)
{
    w->path = fsdp_strdup(path);
    char *folder = w->borrows_file ? fsdp_strdup("archive") : folder_of(path);
    fsdp_status status = w->path && folder ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && !w->borrows_file)
        status = fsdp_atomic_file_begin(path, 0, &w->file);
    if (status == FSDP_OK)
        status = fsdp_zip_writer_create(w->file, folder, &w->zip);
    fsdp_free(folder);
    return status;
}

/* Create a writer that appends to `file`. If `file` is NULL, the writer creates a new file. */
static fsdp_status create_writer(fsdp_atomic_file *file, const char *path,
                                 fsdp_torch_writer **writer)
{
    fsdp_torch_writer *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    w->file = file;
    w->borrows_file = file != NULL;
    fsdp_status status = begin_file(w, path);
    if (status != FSDP_OK) {
        fsdp_torch_writer_discard(w);
        return status;
    }
    *writer = w;
    return FSDP_OK;
}

fsdp_status fsdp_torch_writer_create(const char *path, fsdp_torch_writer **writer)
{
    return create_writer(NULL, path, writer);
}

void fsdp_torch_writer_keep_holes(fsdp_torch_writer *writer)
{
    writer->keeps_holes = true;
    fsdp_atomic_file_keep_holes(writer->file);
}

fsdp_status fsdp_torch_writer_create_in(fsdp_atomic_file *file, const char *path,
                                        fsdp_torch_writer **writer)
{
    return create_writer(file, path, writer);
}

void fsdp_torch_writer_discard(fsdp_torch_writer *writer)
{
    if (!writer)
        return;
    if (!writer->borrows_file)
        fsdp_atomic_file_discard(writer->file);
    fsdp_zip_writer_destroy(writer->zip);
    fsdp_pickle_fini(&writer->pickle);
    for (size_t i = 0; i < writer->n; i++)
        fsdp_free(writer->storages[i]);
    fsdp_free(writer->storages);
    fsdp_free(writer->path);
    fsdp_free(writer);
}

/* ---- the pickled value ----------------------------------------------------------------------- */

fsdp_pickle_writer *fsdp_torch_writer_pickle(fsdp_torch_writer *writer)
{
    return &writer->pickle;
}

/* Put ("storage", class, record, location, numel). For an UntypedStorage, numel is the number of
 * bytes; otherwise it is the number of elements. */
static void put_storage(fsdp_pickle_writer *pickle, const storage *s, size_t number,
                        const fsdp_torch_dtype_names *names)
{
    char record[24];
    snprintf(record, sizeof record, "%zu", number);
    fsdp_pickle_begin(pickle, FSDP_PICKLE_TUPLE);
    fsdp_pickle_put_str(pickle, "storage");
    if (names->storage)
        fsdp_pickle_put_global(pickle, "torch", names->storage);
    else
        fsdp_pickle_put_global(pickle, "torch.storage", "UntypedStorage");
    fsdp_pickle_put_str(pickle, record);
    fsdp_pickle_put_str(pickle, "cpu");
    fsdp_pickle_put_int(pickle, names->storage ? s->numel : s->bytes);
    fsdp_pickle_end(pickle);
    fsdp_pickle_persistent(pickle);
}

/* Put the strides of a row-major tensor. Like torch, count a dimension of size 0 as 1. */
static void put_strides(fsdp_pickle_writer *pickle, const storage *s)
{
    int64_t strides[MAX_NDIM], stride = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= s->shape[i] > 0 ? s->shape[i] : 1;
    }
    fsdp_pickle_put_ints(pickle, strides, s->ndim);
}

void fsdp_torch_writer_tied(fsdp_torch_writer *writer, size_t tensor)
{
    FSDP_ASSERT(tensor < writer->n);
    const storage *s = writer->storages[tensor];
    fsdp_torch_dtype_names names = fsdp_torch_names_of(s->dtype);
    fsdp_pickle_writer *pickle = &writer->pickle;
    fsdp_pickle_put_global(pickle, "torch._utils",
                           names.storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    fsdp_pickle_begin(pickle, FSDP_PICKLE_TUPLE);
    put_storage(pickle, s, tensor, &names);
    fsdp_pickle_put_int(pickle, 0);
    fsdp_pickle_put_ints(pickle, s->shape, s->ndim);
    put_strides(pickle, s);
    fsdp_pickle_put_bool(pickle, false);                          /* requires_grad */
    fsdp_pickle_put_global(pickle, "collections", "OrderedDict"); /* backward hooks */
    fsdp_pickle_put_ints(pickle, NULL, 0);
    fsdp_pickle_call(pickle);
    if (!names.storage)
        fsdp_pickle_put_global(pickle, "torch", names.dtype);
    fsdp_pickle_end(pickle);
    fsdp_pickle_call(pickle);
}

static fsdp_status fill_storage(const fsdp_torch_writer *w, const char *dtype_name,
                                const int64_t *shape, int ndim, storage *s)
{
    s->dtype = fsdp_safetensors_dtype_by_name(dtype_name);
    if (!s->dtype || !fsdp_torch_names_of(s->dtype).dtype)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: tensor %zu: torch has no dtype %s", w->path,
                          w->n, dtype_name);
    if (ndim > MAX_NDIM || !fsdp_safetensors_size(s->dtype, shape, ndim, &s->numel, &s->bytes))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: tensor %zu: its shape has more elements than a file can hold",
                          w->path, w->n);
    s->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        s->shape[i] = shape[i];
    return FSDP_OK;
}

fsdp_status fsdp_torch_writer_tensor(fsdp_torch_writer *writer, const char *dtype_name,
                                     const int64_t *shape, int ndim, size_t *tensor)
{
    FSDP_ASSERT(!writer->has_data);
    if (!FSDP_GROW(writer->storages, writer->cap, writer->n + 1))
        return FSDP_ERR_NOMEM;
    storage *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fill_storage(writer, dtype_name, shape, ndim, s);
    if (status != FSDP_OK) {
        fsdp_free(s);
        return status;
    }
    writer->storages[writer->n] = s;
    *tensor = writer->n++;
    fsdp_torch_writer_tied(writer, *tensor);
    return FSDP_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

static fsdp_status put_text(fsdp_torch_writer *w, const char *name, const char *text)
{
    return fsdp_zip_writer_put(w->zip, name, text, strlen(text));
}

static fsdp_status check_room(const fsdp_torch_writer *w)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < w->n; i++)
        if (__builtin_add_overflow(bytes, (uint64_t)w->storages[i]->bytes, &bytes))
            return fsdp_error(FSDP_ERR_INVALID, "%s: the tensors are too large for a file",
                              w->path);
    return w->keeps_holes ? FSDP_OK : fsdp_check_free_space(w->path, bytes);
}

static fsdp_status put_head(fsdp_torch_writer *w, const char *pickle, size_t bytes)
{
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    snprintf(w->id, sizeof w->id, "%040u", fsdp_crc32(&table, 0, pickle, bytes));
    FSDP_TRY(fsdp_zip_writer_put(w->zip, "data.pkl", pickle, bytes));
    FSDP_TRY(put_text(w, ".format_version", "1"));
    FSDP_TRY(put_text(w, ".storage_alignment", "64"));
    return put_text(w, "byteorder", "little");
}

/* If the current record is complete, begin the next record that has data. If storages without data
 * come before it, write their empty records first. */
static fsdp_status begin_next(fsdp_torch_writer *w)
{
    while (w->begun < w->n && fsdp_zip_writer_remaining(w->zip) == 0) {
        char name[32];
        snprintf(name, sizeof name, "data/%zu", w->begun);
        FSDP_TRY(fsdp_zip_writer_begin(w->zip, name, (uint64_t)w->storages[w->begun]->bytes));
        w->begun++;
    }
    return FSDP_OK;
}

fsdp_status fsdp_torch_writer_begin_data(fsdp_torch_writer *writer)
{
    size_t bytes;
    FSDP_TRY(check_room(writer));
    char *pickle = fsdp_pickle_take(&writer->pickle, &bytes);
    if (!pickle)
        return FSDP_ERR_NOMEM;
    fsdp_status status = put_head(writer, pickle, bytes);
    fsdp_free(pickle);
    writer->has_data = true;
    return status == FSDP_OK ? begin_next(writer) : status;
}

fsdp_status fsdp_torch_writer_data(fsdp_torch_writer *writer, const void *data, size_t bytes)
{
    const char *from = data;
    FSDP_ASSERT(writer->has_data);
    while (bytes > 0) {
        uint64_t left = fsdp_zip_writer_remaining(writer->zip);
        size_t piece = left < bytes ? (size_t)left : bytes;
        if (piece == 0)
            return fsdp_error(FSDP_ERR_STATE, "%s: %zu bytes more than all tensors have",
                              writer->path, bytes);
        FSDP_TRY(fsdp_zip_writer_append(writer->zip, from, piece));
        FSDP_TRY(begin_next(writer));
        from += piece;
        bytes -= piece;
    }
    return FSDP_OK;
}

static fsdp_status put_tail(fsdp_torch_writer *w)
{
    if (!w->has_data || fsdp_zip_writer_remaining(w->zip) > 0)
        return fsdp_error(FSDP_ERR_STATE, "%s: tensor %zu of %zu lacks %llu bytes", w->path,
                          w->begun ? w->begun - 1 : 0, w->n,
                          (unsigned long long)fsdp_zip_writer_remaining(w->zip));
    FSDP_TRY(put_text(w, "version", "3\n"));
    FSDP_TRY(put_text(w, ".data/serialization_id", w->id));
    return fsdp_zip_writer_finish(w->zip);
}

fsdp_status fsdp_torch_writer_finish(fsdp_torch_writer *writer)
{
    fsdp_status status = put_tail(writer);
    if (status == FSDP_OK && !writer->borrows_file) {
        fsdp_atomic_file *file = writer->file;
        writer->file = NULL;
        status = fsdp_atomic_file_commit(file);
    }
    fsdp_torch_writer_discard(writer);
    return status;
}
