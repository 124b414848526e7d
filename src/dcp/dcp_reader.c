/* Reads the data files of a distributed checkpoint. Each file contains archives of torch.save, one
 * after the other. An archive contains one chunk of a tensor, or one plain value. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/dcp/block_sums.h"
#include "src/dcp/dcp_reader.h"

enum {
    MAX_NDIM = 64,
    MAX_OPEN = 16,       /* limit of the number of files with an open descriptor */
    EDGE_BYTES = 4 << 10 /* an archive has at most this many bytes before its data, and at most this
                            many bytes after its data */
};

typedef struct data_file {
    const char *name; /* owned by the metadata */
    char *path;
    fsdp_mapping map;
    fsdp_block_check *blocks; /* checksums of blocks; NULL: the file has none */
    fsdp_block_check *check;  /* `blocks`, or NULL if reads do not verify blocks */
    int fd; /* descriptor for reads that verify blocks; -1: such reads use the mapping */
} data_file;

struct fsdp_dcp_reader {
    char *path;
    fsdp_dcp_metadata *metadata;
    data_file *files; /* [n], sorted by name */
    size_t n;
};

/* ---- files ----------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const data_file *)a)->name, ((const data_file *)b)->name);
}

static const data_file *file_of(const fsdp_dcp_reader *reader, const fsdp_dcp_chunk *chunk)
{
    data_file key = {.name = chunk->file};
    return bsearch(&key, reader->files, reader->n, sizeof key, compare_files);
}

/* List the files that are named in the metadata, each file once. */
static fsdp_status list_files(fsdp_dcp_reader *reader)
{
    size_t cap = 0, n = 0;
    for (size_t i = 0; i < fsdp_dcp_metadata_count(reader->metadata); i++) {
        const fsdp_dcp_item *item = fsdp_dcp_metadata_at(reader->metadata, i);
        if (!FSDP_GROW(reader->files, cap, n + item->n_chunks))
            return FSDP_ERR_NOMEM;
        for (size_t k = 0; k < item->n_chunks; k++)
            reader->files[n++] = (data_file){.name = item->chunks[k].file, .fd = -1};
    }
    if (n)
        qsort(reader->files, n, sizeof *reader->files, compare_files);
    for (size_t i = 0; i < n; i++)
        if (reader->n == 0 || compare_files(&reader->files[reader->n - 1], &reader->files[i]) != 0)
            reader->files[reader->n++] = reader->files[i];
    return FSDP_OK;
}

static fsdp_status check_places(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++) {
        const fsdp_dcp_chunk *chunk = &item->chunks[i];
        const data_file *file = file_of(reader, chunk);
        if (chunk->offset <= file->map.bytes && chunk->length <= file->map.bytes - chunk->offset)
            continue;
        /* A file that begins with "PK" is an archive. It can be too short only because it was
         * truncated. Any other file is not an archive at all. If the kind of such a file is
         * recognized, report it. */
        if (file->map.bytes < 2 || memcmp(file->map.data, "PK", 2) != 0)
            FSDP_TRY(fsdp_file_explain(file->path, "a file of torch.distributed.checkpoint",
                                       FSDP_WANTED_TEXT, file->map.data, file->map.bytes));
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: truncated: '%s' ends at byte %llu of a file of %zu bytes",
                          file->path, item->fqn,
                          (unsigned long long)(chunk->offset + chunk->length), file->map.bytes);
    }
    return FSDP_OK;
}

static fsdp_status map_file(const fsdp_dcp_reader *reader, data_file *file)
{
    file->path = fsdp_path_join(reader->path, file->name);
    if (!file->path)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_file_map(file->path, &file->map));
    if (!fsdp_dcp_metadata_is_own(reader->metadata))
        return FSDP_OK;
    FSDP_TRY(fsdp_block_check_open(file->path, &file->map, &file->blocks));
    file->check = file->blocks;
    if (file - reader->files < MAX_OPEN)
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC);
    return FSDP_OK;
}

static fsdp_status map_files(fsdp_dcp_reader *reader)
{
    FSDP_TRY(list_files(reader));
    for (size_t i = 0; i < reader->n; i++)
        FSDP_TRY(map_file(reader, &reader->files[i]));
    for (size_t i = 0; i < fsdp_dcp_metadata_count(reader->metadata); i++)
        FSDP_TRY(check_places(reader, fsdp_dcp_metadata_at(reader->metadata, i)));
    return FSDP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static fsdp_status check_there(const char *directory, const char *metadata)
{
    if (fsdp_path_is_file(metadata))
        return FSDP_OK;
    char *per_rank = fsdp_path_join(directory, "__0.metadata");
    if (!per_rank)
        return FSDP_ERR_NOMEM;
    bool there = fsdp_path_is_file(per_rank);
    fsdp_free(per_rank);
    if (there)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: each rank has its own metadata; load it in torch and save it again "
                          "with torch.distributed.checkpoint",
                          directory);
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no .metadata there: no checkpoint of torch.distributed.checkpoint, or "
                      "one that was never completed",
                      directory);
}

/* Return the status of reading .metadata. `status` is the result of parsing the file. If parsing
 * failed and the file does not begin like a pickle, return a better error, which says what kind of
 * file this seems to be. */
static fsdp_status explain_missing(const char *path, const fsdp_mapping *map, fsdp_status status)
{
    const bool begins_well = map->bytes > 0 && map->data[0] == 0x80;
    if ((status == FSDP_ERR_FORMAT || status == FSDP_ERR_UNSUPPORTED) && !begins_well)
        FSDP_TRY(fsdp_file_explain(path, "metadata of torch.distributed.checkpoint",
                                   FSDP_WANTED_TEXT, map->data, map->bytes));
    return status;
}

static fsdp_status read_metadata(fsdp_dcp_reader *reader)
{
    fsdp_mapping map = {0};
    char *path = fsdp_path_join(reader->path, ".metadata");
    fsdp_status status = path ? check_there(reader->path, path) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_file_map(path, &map);
    if (status == FSDP_OK)
        status = explain_missing(
            path, &map, fsdp_dcp_metadata_create(path, map.data, map.bytes, &reader->metadata));
    fsdp_file_unmap(&map);
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_dcp_reader_open(const char *path, fsdp_dcp_reader **reader)
{
    fsdp_dcp_reader *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return FSDP_ERR_NOMEM;
    r->path = fsdp_strdup(path);
    fsdp_status status = r->path ? read_metadata(r) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = map_files(r);
    if (status != FSDP_OK) {
        fsdp_dcp_reader_close(r);
        return status;
    }
    *reader = r;
    return FSDP_OK;
}

void fsdp_dcp_reader_close(fsdp_dcp_reader *reader)
{
    if (!reader)
        return;
    for (size_t i = 0; i < reader->n; i++) {
        if (reader->files[i].fd >= 0)
            close(reader->files[i].fd);
        fsdp_block_check_close(reader->files[i].blocks);
        fsdp_file_unmap(&reader->files[i].map);
        fsdp_free(reader->files[i].path);
    }
    fsdp_free(reader->files);
    fsdp_dcp_metadata_destroy(reader->metadata);
    fsdp_free(reader->path);
    fsdp_free(reader);
}

void fsdp_dcp_reader_skip_blocks(fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++)
        reader->files[i].check = NULL;
}

fsdp_status fsdp_dcp_reader_check_files(const fsdp_dcp_reader *reader)
{
    for (size_t i = 0; i < reader->n; i++) {
        const data_file *file = &reader->files[i];
        if (!file->blocks)
            continue;
        FSDP_TRY(fsdp_block_check_range(file->blocks, 0, file->map.bytes));
        fsdp_checkpoint_advise(file->map.data, file->map.bytes, FSDP_CHECKPOINT_DONE);
    }
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_check_companion(const fsdp_dcp_reader *reader)
{
    const char *name = fsdp_dcp_metadata_companion(reader->metadata);
    char *path = name ? fsdp_path_join(reader->path, name) : NULL;
    if (name && !path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (name && !fsdp_path_is_file(path))
        status = fsdp_error(FSDP_ERR_NOT_FOUND,
                            "%s: no such file, which .metadata in its folder names", path);
    fsdp_free(path);
    return status;
}

const fsdp_dcp_metadata *fsdp_dcp_reader_metadata(const fsdp_dcp_reader *reader)
{
    return reader->metadata;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Advise the kernel that the first and the last EDGE_BYTES of a chunk's archive will be read. They
 * surround the tensor's data. Without this advice, a page fault on one of these bytes would read
 * many more pages. */
static void advise_edges(const data_file *file, const fsdp_dcp_chunk *chunk)
{
    const unsigned char *data = file->map.data + chunk->offset;
    if (file->fd < 0 || chunk->length <= 2 * EDGE_BYTES)
        return;
    fsdp_checkpoint_advise(data, EDGE_BYTES, FSDP_CHECKPOINT_WILL_READ);
    fsdp_checkpoint_advise(data + chunk->length - EDGE_BYTES, EDGE_BYTES,
                           FSDP_CHECKPOINT_WILL_READ);
}

static fsdp_status open_item(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                             const fsdp_dcp_chunk *chunk, fsdp_torch_archive **archive)
{
    const data_file *file = file_of(reader, chunk);
    advise_edges(file, chunk);
    fsdp_status status = fsdp_torch_archive_create(file->path, file->map.data + chunk->offset,
                                                   (size_t)chunk->length, archive);
    fsdp_error_context(status, "'%s' at byte %llu", item->fqn, (unsigned long long)chunk->offset);
    return status;
}

fsdp_status fsdp_dcp_reader_value(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                  fsdp_torch_archive **archive)
{
    if (item->dtype_name)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is a tensor, no plain value", reader->path,
                          item->fqn);
    return open_item(reader, item, &item->chunks[0], archive);
}

/* ---- boxes ----------------------------------------------------------------------------------- */

/* The box of an item that the caller reads. Its elements are copied from chunks to `out`. */
typedef struct wanted {
    const fsdp_dcp_item *item;
    const int64_t *offsets, *sizes; /* [ndim] */
    size_t width;                   /* bytes per element */
    unsigned char *out;
} wanted;

/* The intersection of a box and a chunk. It is copied in runs. The elements of a run are contiguous
 * both in the box and in the chunk. */
typedef struct overlap {
    int64_t begin[MAX_NDIM], size[MAX_NDIM]; /* `begin`: coordinates in the tensor */
    int split;                               /* a run spans dimensions [split, ndim) */
    int64_t run;                             /* elements per run */
    int64_t n;                               /* number of runs */
} overlap;

static bool find_overlap(const wanted *w, const fsdp_dcp_chunk *chunk, overlap *o)
{
    const int ndim = w->item->ndim;
    for (int d = 0; d < ndim; d++) {
        int64_t end = chunk->offsets[d] + chunk->sizes[d], wanted_end = w->offsets[d] + w->sizes[d];
        o->begin[d] = w->offsets[d] > chunk->offsets[d] ? w->offsets[d] : chunk->offsets[d];
        o->size[d] = (end < wanted_end ? end : wanted_end) - o->begin[d];
        if (o->size[d] <= 0)
            return false;
    }
    o->run = o->n = 1;
    for (o->split = ndim; o->split > 0;) {
        int64_t size = o->size[--o->split];
        o->run *= size;
        if (size != chunk->sizes[o->split] || size != w->sizes[o->split])
            break;
    }
    for (int d = 0; d < o->split; d++)
        o->n *= o->size[d];
    return true;
}

/* Return the row-major index of an element within a box. `at` holds the coordinates of the element
 * in the tensor. The box begins at `offsets` and has the sizes `sizes`. */
static size_t place_in(int ndim, const int64_t *at, const int64_t *offsets, const int64_t *sizes)
{
    int64_t place = 0;
    for (int d = 0; d < ndim; d++)
        place = place * sizes[d] + at[d] - offsets[d];
    return (size_t)place;
}

static void copy_overlap(const wanted *w, const fsdp_dcp_chunk *chunk, const overlap *o,
                         const unsigned char *data)
{
    const int ndim = w->item->ndim;
    int64_t at[MAX_NDIM];
    memcpy(at, o->begin, (size_t)ndim * sizeof *at);
    for (int64_t i = 0; i < o->n; i++) {
        memcpy(w->out + place_in(ndim, at, w->offsets, w->sizes) * w->width,
               data + place_in(ndim, at, chunk->offsets, chunk->sizes) * w->width,
               (size_t)o->run * w->width);
        for (int d = o->split - 1; d >= 0 && ++at[d] == o->begin[d] + o->size[d]; d--)
            at[d] = o->begin[d];
    }
}

/* Set *entry to the tensor of a chunk, and check that its shape and dtype are those in the
 * metadata. */
static fsdp_status chunk_entry(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                               const fsdp_dcp_chunk *chunk, fsdp_torch_archive *archive,
                               fsdp_checkpoint_entry *entry)
{
    FSDP_TRY(
        fsdp_torch_archive_tensor(archive, fsdp_torch_archive_root(archive), item->fqn, entry));
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(entry, chunk->sizes, item->ndim));
    if (strcmp(entry->dtype_name, item->dtype_name) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: tensor '%s' is of %s, but its metadata say %s",
                          file_of(reader, chunk)->path, item->fqn, entry->dtype_name,
                          item->dtype_name);
    return FSDP_OK;
}

/* Set *begin and *end to the range of bytes in the chunk's data that contains all elements of the
 * overlap. */
static void span_of(const wanted *w, const fsdp_dcp_chunk *chunk, const overlap *o, size_t *begin,
                    size_t *end)
{
    const int ndim = w->item->ndim;
    int64_t last[MAX_NDIM];
    for (int d = 0; d < ndim; d++)
        last[d] = o->begin[d] + o->size[d] - 1;
    *begin = place_in(ndim, o->begin, chunk->offsets, chunk->sizes) * w->width;
    *end = (place_in(ndim, last, chunk->offsets, chunk->sizes) + 1) * w->width;
}

/* Return true if entry->data points into the mapping of the file, and false if it points to a copy
 * of strided data. */
static bool is_in_file(const data_file *file, const fsdp_dcp_chunk *chunk,
                       const fsdp_checkpoint_entry *entry)
{
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    return from >= chunk->offset && from < chunk->offset + chunk->length;
}

/* The overlap is a single run: bytes [begin, end) of the chunk's data. Copy them, and verify the
 * blocks that contain them. Whole blocks are read with a descriptor, because the kernel then reads
 * ahead and uses large pages. Page faults on the mapping would read single pages. */
static fsdp_status read_blocks(const data_file *file, const fsdp_checkpoint_entry *entry,
                               const wanted *w, const overlap *o, size_t begin, size_t end)
{
    const size_t to = place_in(w->item->ndim, o->begin, w->offsets, w->sizes) * w->width;
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    return fsdp_block_check_read(file->check, file->fd, from + begin, end - begin, w->out + to);
}

/* Verify the blocks that contain bytes [begin, end) of the chunk's data. If entry->data is a copy,
 * the order of its bytes differs from the order in the file. In this case, verify all blocks of the
 * chunk. */
static fsdp_status check_blocks(const data_file *file, const fsdp_dcp_chunk *chunk,
                                const fsdp_checkpoint_entry *entry, size_t begin, size_t end)
{
    const uint64_t from = (uintptr_t)entry->data - (uintptr_t)file->map.data;
    if (!is_in_file(file, chunk, entry))
        return fsdp_block_check_range(file->check, chunk->offset, chunk->length);
    return fsdp_block_check_range(file->check, from + begin, end - begin);
}

static fsdp_status copy_checked(const wanted *w, const data_file *file, const fsdp_dcp_chunk *chunk,
                                const overlap *o, const fsdp_checkpoint_entry *entry)
{
    size_t begin, end;
    span_of(w, chunk, o, &begin, &end);
    if (o->n == 1 && file->fd >= 0 && is_in_file(file, chunk, entry))
        return read_blocks(file, entry, w, o, begin, end);
    fsdp_checkpoint_advise((const char *)entry->data + begin, end - begin,
                           FSDP_CHECKPOINT_WILL_READ);
    FSDP_TRY(check_blocks(file, chunk, entry, begin, end));
    copy_overlap(w, chunk, o, entry->data);
    return FSDP_OK;
}

static fsdp_status copy_chunk(const fsdp_dcp_reader *reader, const wanted *w,
                              const fsdp_dcp_chunk *chunk, const overlap *o,
                              fsdp_torch_archive *archive)
{
    const data_file *file = file_of(reader, chunk);
    fsdp_checkpoint_entry entry;
    /* If reads of this file do not verify blocks, verify the checksum in the archive instead. The
     * archive's checksum covers the whole chunk, so verify it only if the whole chunk is read. */
    if (!file->check && o->n * o->run == chunk->numel)
        fsdp_torch_archive_check_all(archive);
    FSDP_TRY(chunk_entry(reader, w->item, chunk, archive, &entry));
    if (file->check) {
        fsdp_status status = copy_checked(w, file, chunk, o, &entry);
        fsdp_error_context(status, "'%s'", w->item->fqn);
        return status;
    }
    size_t begin, end;
    span_of(w, chunk, o, &begin, &end);
    fsdp_checkpoint_advise((const char *)entry.data + begin, end - begin,
                           FSDP_CHECKPOINT_WILL_READ);
    copy_overlap(w, chunk, o, entry.data);
    return FSDP_OK;
}

static fsdp_status check_box(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                             const int64_t *offsets, const int64_t *sizes)
{
    if (!item->dtype_name)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is a plain value, no tensor", reader->path,
                          item->fqn);
    for (int d = 0; d < item->ndim; d++)
        if (offsets[d] < 0 || sizes[d] < 0 || offsets[d] > item->shape[d] - sizes[d])
            return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' has no %lld from %lld on in dimension %d",
                              reader->path, item->fqn, (long long)sizes[d], (long long)offsets[d],
                              d);
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_box(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                const int64_t *offsets, const int64_t *sizes, void *out)
{
    FSDP_TRY(check_box(reader, item, offsets, sizes));
    size_t width = item->numel ? (size_t)(item->bytes / item->numel) : 1;
    wanted w = {.item = item, .offsets = offsets, .sizes = sizes, .width = width, .out = out};
    for (size_t i = 0; i < item->n_chunks; i++) {
        fsdp_torch_archive *archive;
        overlap o;
        if (!item->chunks[i].numel || !find_overlap(&w, &item->chunks[i], &o))
            continue;
        FSDP_TRY(open_item(reader, item, &item->chunks[i], &archive));
        fsdp_status status = copy_chunk(reader, &w, &item->chunks[i], &o, archive);
        fsdp_torch_archive_destroy(archive);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_rows(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                 int64_t begin, int64_t end, void *out)
{
    int64_t offsets[MAX_NDIM] = {0}, sizes[MAX_NDIM], n = item->ndim ? item->shape[0] : 1;
    if (!item->dtype_name || begin < 0 || end < begin || end > n)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' has no rows [%lld, %lld)", reader->path,
                          item->fqn, (long long)begin, (long long)end);
    if (begin == end)
        return FSDP_OK;
    for (int d = 0; d < item->ndim; d++)
        sizes[d] = item->shape[d];
    if (item->ndim) {
        offsets[0] = begin;
        sizes[0] = end - begin;
    }
    return fsdp_dcp_reader_box(reader, item, offsets, sizes, out);
}

/* ---- checking -------------------------------------------------------------------------------- */

static fsdp_status check_chunk(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                               const fsdp_dcp_chunk *chunk)
{
    fsdp_torch_archive *archive;
    fsdp_checkpoint_entry entry;
    FSDP_TRY(open_item(reader, item, chunk, &archive));
    fsdp_status status = chunk_entry(reader, item, chunk, archive, &entry);
    if (status == FSDP_OK)
        status = fsdp_torch_archive_check(archive, fsdp_torch_archive_root(archive), item->fqn);
    fsdp_torch_archive_destroy(archive);
    return status;
}

fsdp_status fsdp_dcp_reader_check_share(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item,
                                        size_t first, size_t step)
{
    for (size_t i = first; i < item->n_chunks; i += step)
        if (!file_of(reader, &item->chunks[i])->check)
            FSDP_TRY(check_chunk(reader, item, &item->chunks[i]));
    return FSDP_OK;
}

fsdp_status fsdp_dcp_reader_check(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++)
        FSDP_TRY(check_chunk(reader, item, &item->chunks[i]));
    return FSDP_OK;
}

void fsdp_dcp_reader_forget(const fsdp_dcp_reader *reader, const fsdp_dcp_item *item)
{
    for (size_t i = 0; i < item->n_chunks; i++)
        fsdp_checkpoint_advise(file_of(reader, &item->chunks[i])->map.data + item->chunks[i].offset,
                               (size_t)item->chunks[i].length, FSDP_CHECKPOINT_DONE);
}
