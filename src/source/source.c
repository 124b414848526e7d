/* Detects the format of a checkpoint, lists its items, and reads them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/hf/rank_shards.h"
#include "src/source/parts.h"
#include "src/source/source_internal.h"

enum {
    /* Upper limit of the bytes of tensor rows that are read at one time. Only a single row may be
     * larger. */
    WINDOW_BYTES = 32 << 20
};

/* ---- detecting the format -------------------------------------------------------------------- */

/* Return true if the directory has a file that only DCP writes. One such file is enough, because
 * the checkpoint may be incomplete. */
static bool is_dcp(const char *dir)
{
    static const char *const names[] = {".metadata", "__0.metadata", "__0_0.distcp"};
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (fsdp_directory_has_file(dir, names[i]))
            return true;
    return false;
}

static bool is_torch_name(const char *path)
{
    return fsdp_ends_with(path, ".pt") || fsdp_ends_with(path, ".pth") ||
           fsdp_ends_with(path, ".bin");
}

/* Set *is to true if `path` is a torch.save file. A file is assumed to be one if its name has one
 * of the endings that are usual for torch.save files. A zip archive with any other name is assumed
 * to be one, too, unless its name ends in .safetensors or .json. */
static fsdp_status is_torch(const char *path, bool *is)
{
    fsdp_mapping map = {0};
    *is = is_torch_name(path);
    if (*is || fsdp_ends_with(path, ".safetensors") || fsdp_ends_with(path, ".json"))
        return FSDP_OK;
    FSDP_TRY(fsdp_file_map(path, &map));
    *is = map.bytes >= 2 && memcmp(map.data, "PK", 2) == 0;
    fsdp_file_unmap(&map);
    return FSDP_OK;
}

static fsdp_status find_format(const char *path, fsdp_source_format *format)
{
    bool is;
    if (fsdp_path_is_directory(path)) {
        is = is_dcp(path);
        *format = is ? FSDP_SOURCE_DCP : FSDP_SOURCE_HF;
        if (!is && !fsdp_parts_is_model(path) && fsdp_shard_is_folder(path)) {
            *format = FSDP_SOURCE_SAFETENSORS;
            return FSDP_OK;
        }
        return is || fsdp_parts_is_model(path) ? FSDP_OK : fsdp_source_refuse_folder(path);
    }
    FSDP_TRY(fsdp_source_check_file(path));
    FSDP_TRY(is_torch(path, &is));
    *format = is                              ? FSDP_SOURCE_TORCH
              : fsdp_ends_with(path, ".json") ? FSDP_SOURCE_HF
                                              : FSDP_SOURCE_SAFETENSORS;
    return FSDP_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static fsdp_status open_weights(fsdp_source *source)
{
    FSDP_TRY(fsdp_checkpoint_open(source->path, &source->weights));
    for (size_t i = 0; i < fsdp_checkpoint_count(source->weights); i++) {
        const fsdp_checkpoint_entry *entry = fsdp_checkpoint_at(source->weights, i);
        fsdp_source_item *item;
        FSDP_TRY(fsdp_source_add(source, &(fsdp_nesting_key){.name = entry->name}, 1, &item));
        fsdp_source_set_entry(item, entry);
    }
    return FSDP_OK;
}

/* Open a safetensors file, or a folder with one safetensors file for each rank. */
static fsdp_status open_safetensors(fsdp_source *source)
{
    return fsdp_path_is_directory(source->path) ? fsdp_source_open_shards(source)
                                                : open_weights(source);
}

static const struct {
    const char *name;
    fsdp_status (*open)(fsdp_source *source);
} formats[] = {
    [FSDP_SOURCE_DCP] = {"torch.distributed.checkpoint", fsdp_source_open_dcp},
    [FSDP_SOURCE_TORCH] = {"torch.save", fsdp_source_open_torch},
    [FSDP_SOURCE_SAFETENSORS] = {"safetensors", open_safetensors},
    [FSDP_SOURCE_HF] = {"Hugging Face", open_weights},
};

static fsdp_status open_path(fsdp_source *source)
{
    FSDP_TRY(fsdp_path_check(source->path));
    FSDP_TRY(find_format(source->path, &source->format));
    return formats[source->format].open(source);
}

fsdp_status fsdp_source_open(const char *path, fsdp_source **out)
{
    fsdp_source *source = fsdp_calloc(1, sizeof *source);
    if (!source)
        return FSDP_ERR_NOMEM;
    source->path = fsdp_strdup(path);
    fsdp_status status = source->path ? open_path(source) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_source_close(source);
        return status;
    }
    *out = source;
    return FSDP_OK;
}

fsdp_status fsdp_source_open_names(const char *path, fsdp_source **out)
{
    fsdp_source *source = fsdp_calloc(1, sizeof *source);
    if (!source)
        return FSDP_ERR_NOMEM;
    source->path = fsdp_strdup(path);
    source->format = FSDP_SOURCE_DCP;
    fsdp_status status = source->path ? fsdp_source_open_dcp_names(source) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_source_close(source);
        return status;
    }
    *out = source;
    return FSDP_OK;
}

void fsdp_source_close(fsdp_source *source)
{
    if (!source)
        return;
    for (size_t i = 0; i < source->n && source->values; i++)
        fsdp_torch_archive_destroy(source->values[i]);
    fsdp_free(source->values);
    fsdp_free(source->window.rows);
    fsdp_dcp_reader_close(source->dcp);
    fsdp_checkpoint_close(source->weights);
    fsdp_source_close_ranks(source);
    fsdp_torch_archive_destroy(source->archive);
    fsdp_file_unmap(&source->map);
    for (size_t i = 0; i < source->n_shards; i++)
        fsdp_safetensors_close(source->shards[i]);
    fsdp_free(source->shards);
    fsdp_free(source->items);
    fsdp_free(source->base_items);
    fsdp_arena_fini(&source->arena);
    fsdp_free(source->path);
    fsdp_free(source);
}

const char *fsdp_source_path(const fsdp_source *source)
{
    return source->path;
}

fsdp_source_format fsdp_source_format_of(const fsdp_source *source)
{
    return source->format;
}

const char *fsdp_source_format_name(fsdp_source_format format)
{
    return formats[format].name;
}

const char *fsdp_source_writer(const fsdp_source *source)
{
    if (!source->dcp)
        return NULL;
    return fsdp_dcp_metadata_is_own(fsdp_dcp_reader_metadata(source->dcp)) ? "fsdp.c" : "PyTorch";
}

static bool is_cut(const fsdp_source_item *item, int dim)
{
    for (size_t i = 0; i < item->n_chunks; i++) {
        const int64_t *sizes =
            item->dcp ? item->dcp->chunks[i].sizes : item->joined->parts[i].entry.shape;
        if (sizes[dim] != item->shape[dim])
            return true;
    }
    return false;
}

bool fsdp_source_placement_of(const fsdp_source_item *item, fsdp_source_placement *placement)
{
    int cuts = 0, dim = 0;
    if ((!item->dcp && !item->joined) || !item->dtype_name)
        return false;
    for (int d = 0; d < item->ndim; d++)
        if (is_cut(item, d)) {
            cuts++;
            dim = d;
        }
    if (cuts == 1)
        snprintf(placement->text, sizeof placement->text, "Shard(%d)", dim);
    else
        snprintf(placement->text, sizeof placement->text, cuts ? "boxes" : "Replicate");
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Return the name of the file that contains chunk `k` of the item. In DCP, the name is relative to
 * the folder. */
static const char *file_of_chunk(const fsdp_source_item *item, size_t k)
{
    return item->dcp      ? item->dcp->chunks[k].file
           : item->joined ? item->joined->parts[k].entry.path
                          : item->file;
}

typedef bool file_test(const char *path, const void *arg);

static fsdp_status test_file(const fsdp_source *source, const fsdp_source_item *item,
                             const char *file, file_test *test, const void *arg, bool *found)
{
    char *path = item->dcp ? fsdp_path_join(source->path, file) : fsdp_strdup(file);
    if (!path)
        return FSDP_ERR_NOMEM;
    *found = test(path, arg);
    fsdp_free(path);
    return FSDP_OK;
}

/* Call test(path, arg) for the files that contain chunks of the items, until it returns true. Set
 * *found to true if test() has returned true, otherwise to false. A file may be tested several
 * times. */
static fsdp_status find_file(const fsdp_source *source, file_test *test, const void *arg,
                             bool *found)
{
    const char *last = "";
    *found = false;
    for (size_t i = 0; i < source->n; i++) {
        const fsdp_source_item *item = &source->items[i];
        for (size_t k = 0; k < item->n_chunks && !*found; k++) {
            const char *file = file_of_chunk(item, k);
            if (file && strcmp(last, file) != 0)
                FSDP_TRY(test_file(source, item, file, test, arg, found));
            last = file ? file : last;
        }
    }
    return FSDP_OK;
}

static bool is_sparse_file(const char *path, const void *arg)
{
    (void)arg;
    return fsdp_path_is_sparse(path);
}

static bool resolves_to(const char *file, const void *path)
{
    char *real = realpath(file, NULL);
    const bool yes = real && strcmp(real, path) == 0;
    free(real); /* realpath() allocated it, not fsdp_calloc() */
    return yes;
}

fsdp_status fsdp_source_is_sparse(const fsdp_source *source, bool *is_sparse)
{
    return find_file(source, is_sparse_file, NULL, is_sparse);
}

fsdp_status fsdp_source_has_file(const fsdp_source *source, const char *path, bool *has)
{
    return find_file(source, resolves_to, path, has);
}

/* ---- items ----------------------------------------------------------------------------------- */

size_t fsdp_source_count(const fsdp_source *source)
{
    return source->n;
}

const fsdp_source_item *fsdp_source_at(const fsdp_source *source, size_t i)
{
    return &source->items[i];
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Read rows of `item` into source->window, beginning with the row that contains byte `offset`. */
static fsdp_status fill_window(fsdp_source *source, const fsdp_source_item *item, uint64_t offset,
                               size_t row_bytes)
{
    int64_t rows = item->ndim ? item->shape[0] : 1, n = (int64_t)(WINDOW_BYTES / row_bytes);
    int64_t begin = (int64_t)(offset / row_bytes);
    n = n < 1 ? 1 : n;
    int64_t end = rows - begin < n ? rows : begin + n;
    source->window.item = NULL;
    void *grown = fsdp_realloc(source->window.rows, (size_t)(end - begin), row_bytes);
    if (!grown)
        return FSDP_ERR_NOMEM;
    source->window.rows = grown;
    if (item->joined) {
        fsdp_joined_rows(item->joined, begin, end, source->window.rows);
    } else {
        FSDP_TRY(fsdp_dcp_reader_rows(source->dcp, item->dcp, begin, end, source->window.rows));
        fsdp_dcp_reader_forget(source->dcp, item->dcp);
    }
    source->window.item = item;
    source->window.begin = begin;
    source->window.end = end;
    return FSDP_OK;
}

/* Read bytes of a tensor that may be stored in several parts: a DCP tensor or a joined tensor. Its
 * rows are first read into source->window, and the bytes are copied from there. */
static fsdp_status read_parts(fsdp_source *source, const fsdp_source_item *item, uint64_t offset,
                              unsigned char *out, size_t bytes)
{
    size_t row_bytes = (size_t)(item->bytes / (item->ndim ? item->shape[0] : 1));
    while (bytes > 0) {
        uint64_t begin = (uint64_t)source->window.begin * row_bytes;
        uint64_t end = (uint64_t)source->window.end * row_bytes;
        if (source->window.item != item || offset < begin || offset >= end) {
            FSDP_TRY(fill_window(source, item, offset, row_bytes));
            continue;
        }
        size_t n = end - offset < bytes ? (size_t)(end - offset) : bytes;
        memcpy(out, source->window.rows + (offset - begin), n);
        out += n;
        offset += n;
        bytes -= n;
    }
    return FSDP_OK;
}

/* Read bytes of a tensor that is not made of rows of another tensor. */
static fsdp_status read_stored(fsdp_source *source, const fsdp_source_item *item, uint64_t offset,
                               void *out, size_t bytes)
{
    if (item->dcp || item->joined)
        return read_parts(source, item, offset, out, bytes);
    const unsigned char *from = (const unsigned char *)item->entry->data + offset;
    memcpy(out, from, bytes);
    fsdp_checkpoint_advise(from, bytes, FSDP_CHECKPOINT_DONE);
    return FSDP_OK;
}

/* Read bytes of an item that consists of rows of item->base. */
static fsdp_status read_ordered(fsdp_source *source, const fsdp_source_item *item, uint64_t offset,
                                unsigned char *out, size_t bytes)
{
    const uint64_t row_bytes = (uint64_t)(item->bytes / item->shape[0]);
    while (bytes > 0) {
        const int64_t row = (int64_t)(offset / row_bytes);
        const uint64_t within = offset % row_bytes;
        const uint64_t most = (uint64_t)fsdp_row_order_run(item->order, row) * row_bytes - within;
        const size_t n = most < bytes ? (size_t)most : bytes;
        const uint64_t from = (uint64_t)fsdp_row_order_at(item->order, row) * row_bytes + within;
        FSDP_TRY(read_stored(source, item->base, from, out, n));
        out += n;
        offset += n;
        bytes -= n;
    }
    return FSDP_OK;
}

fsdp_status fsdp_source_read(fsdp_source *source, const fsdp_source_item *item, uint64_t offset,
                             void *out, size_t bytes)
{
    FSDP_ASSERT(item->dtype_name);
    FSDP_ASSERT(offset <= (uint64_t)item->bytes && bytes <= (uint64_t)item->bytes - offset);
    if (bytes == 0)
        return FSDP_OK;
    return item->base ? read_ordered(source, item, offset, out, bytes)
                      : read_stored(source, item, offset, out, bytes);
}

fsdp_status fsdp_source_value(fsdp_source *source, const fsdp_source_item *item,
                              const fsdp_pickle_value **value)
{
    FSDP_ASSERT(!item->dtype_name);
    if (!item->dcp) {
        *value = item->value;
        return FSDP_OK;
    }
    fsdp_torch_archive **archive = &source->values[item - source->items];
    if (!*archive)
        FSDP_TRY(fsdp_dcp_reader_value(source->dcp, item->dcp, archive));
    *value = fsdp_torch_archive_root(*archive);
    return FSDP_OK;
}

fsdp_status fsdp_source_tensor_within(fsdp_source *source, const fsdp_source_item *item,
                                      const fsdp_pickle_value *tensor,
                                      struct fsdp_checkpoint_entry *entry)
{
    fsdp_torch_archive *archive =
        item->dcp ? source->values[item - source->items] : source->archive;
    return fsdp_torch_archive_tensor(archive, tensor, item->fqn, entry);
}

static fsdp_status check_value(fsdp_source *source, const fsdp_source_item *item)
{
    const fsdp_pickle_value *value;
    FSDP_TRY(fsdp_source_value(source, item, &value));
    return fsdp_torch_archive_check_rest(source->values[item - source->items]);
}

fsdp_status fsdp_source_check(fsdp_source *source, const fsdp_source_item *item)
{
    if (item->dcp)
        return item->dtype_name ? fsdp_dcp_reader_check(source->dcp, item->dcp)
                                : check_value(source, item);
    if (item->joined)
        return fsdp_joined_verify(item->joined, item->fqn);
    if (source->archive && item->dtype_name)
        return fsdp_torch_archive_check(source->archive, item->value, item->fqn);
    return FSDP_OK;
}

fsdp_status fsdp_source_check_files(const fsdp_source *source)
{
    for (size_t i = 0; i < source->n_ranks; i++)
        if (source->ranks[i].archive)
            FSDP_TRY(fsdp_torch_archive_check_rest(source->ranks[i].archive));
    if (source->archive)
        return fsdp_torch_archive_check_rest(source->archive);
    return source->dcp ? fsdp_dcp_reader_check_files(source->dcp) : FSDP_OK;
}

fsdp_status fsdp_source_check_companion(const fsdp_source *source)
{
    return source->dcp ? fsdp_dcp_reader_check_companion(source->dcp) : FSDP_OK;
}
