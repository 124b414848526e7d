/* Converts the pickled Metadata object to a list of items. The object contains the dicts
 * planner_data and storage_data. These dicts are sorted first, so that names and offsets can be
 * found by binary search. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/arena.h"
#include "src/base/assert.h"
#include "src/dcp/box_overlap.h"
#include "src/dcp/dcp_metadata.h"
#include "src/torchfile/torch_names.h"

enum {
    MAX_NDIM = 64
};

/* A key and its value in planner_data or storage_data. */
typedef struct keyed {
    const char *fqn;
    const int64_t *offsets; /* [n_offsets]; NULL: the key has no offsets */
    int n_offsets;
    const fsdp_pickle_value *value;
} keyed;

typedef struct keyed_list {
    keyed *items; /* [n], sorted; owned */
    size_t n;
} keyed_list;

struct fsdp_dcp_metadata {
    char *label;
    fsdp_pickle *pickle;
    fsdp_arena arena;     /* owns shapes and chunks */
    fsdp_dcp_item *items; /* [n], sorted by name */
    size_t n;
};

static const fsdp_pickle_name names[] = {
    {NULL, "Metadata", FSDP_PICKLE_CALL},
    {NULL, "TensorStorageMetadata", FSDP_PICKLE_CALL},
    {NULL, "TensorProperties", FSDP_PICKLE_CALL},
    {NULL, "ChunkStorageMetadata", FSDP_PICKLE_CALL},
    {NULL, "BytesStorageMetadata", FSDP_PICKLE_CALL},
    {NULL, "MetadataIndex", FSDP_PICKLE_CALL},
    {NULL, "_StorageInfo", FSDP_PICKLE_CALL},
    {NULL, "StorageMeta", FSDP_PICKLE_CALL},
    {NULL, "_MEM_FORMAT_ENCODING", FSDP_PICKLE_CALL},
    {NULL, "MEM_FORMAT_ENCODING", FSDP_PICKLE_CALL},
    {NULL, "PosixPath", FSDP_PICKLE_CALL},
    {NULL, "WindowsPath", FSDP_PICKLE_CALL},
};

static fsdp_status bad_metadata(const fsdp_dcp_metadata *md, const char *fqn, const char *what)
{
    (void)fsdp_error(FSDP_ERR_FORMAT, "%s: '%s': %s", md->label, fqn, what);
    return FSDP_ERR_FORMAT;
}

/* ---- sorted dicts ---------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    int order = x->fqn == y->fqn ? 0 : strcmp(x->fqn, y->fqn);
    if (order != 0)
        return order;
    if (!x->offsets || !y->offsets)
        return (x->offsets != NULL) - (y->offsets != NULL);
    if (x->n_offsets != y->n_offsets)
        return x->n_offsets < y->n_offsets ? -1 : 1;
    for (int i = 0; i < x->n_offsets; i++)
        if (x->offsets[i] != y->offsets[i])
            return x->offsets[i] < y->offsets[i] ? -1 : 1;
    return 0;
}

/* Read a tuple of non-negative numbers, which are sizes or offsets. */
static fsdp_status read_ints(fsdp_dcp_metadata *md, const char *fqn, const fsdp_pickle_value *value,
                             const int64_t **ints, int *n)
{
    if (!fsdp_pickle_is(value, FSDP_PICKLE_TUPLE) || value->list.n > MAX_NDIM)
        return bad_metadata(md, fqn, "a size or offset is not a tuple of at most 64 numbers");
    int64_t *copy = fsdp_arena_alloc(&md->arena, value->list.n * sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < value->list.n; i++) {
        const fsdp_pickle_value *item = value->list.items[i];
        if (!fsdp_pickle_is(item, FSDP_PICKLE_INT) || item->integer < 0)
            return bad_metadata(md, fqn, "a size or offset is not a number, or is negative");
        copy[i] = item->integer;
    }
    *ints = copy;
    *n = (int)value->list.n;
    return FSDP_OK;
}

/* Read a key of planner_data or storage_data. A key of planner_data is text: the fqn of an item. A
 * key of storage_data is a MetadataIndex. It has the fqn in its field `fqn`. If the item is a
 * tensor, it also has the offsets of a chunk in its field `offset`. */
static fsdp_status read_key(fsdp_dcp_metadata *md, const fsdp_pickle_value *key, keyed *item)
{
    const fsdp_pickle_value *offset = NULL;
    item->fqn = fsdp_pickle_text(key);
    if (fsdp_pickle_is_call(key, "MetadataIndex")) {
        item->fqn = fsdp_pickle_text(fsdp_pickle_find(key, "fqn"));
        offset = fsdp_pickle_find(key, "offset");
    }
    if (!item->fqn)
        return bad_metadata(md, "storage_data", "a key has no name");
    if (!offset || fsdp_pickle_is(offset, FSDP_PICKLE_NONE))
        return FSDP_OK;
    return read_ints(md, item->fqn, offset, &item->offsets, &item->n_offsets);
}

static fsdp_status sort_dict(fsdp_dcp_metadata *md, const fsdp_pickle_value *dict,
                             keyed_list *sorted)
{
    sorted->items = fsdp_calloc(dict->list.n / 2, sizeof *sorted->items);
    if (!sorted->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
        keyed *item = &sorted->items[sorted->n++];
        FSDP_TRY(read_key(md, dict->list.items[i], item));
        item->value = dict->list.items[i + 1];
    }
    size_t i = 1;
    while (i < sorted->n && compare_keys(&sorted->items[i - 1], &sorted->items[i]) <= 0)
        i++;
    if (i < sorted->n)
        qsort(sorted->items, sorted->n, sizeof *sorted->items, compare_keys);
    return FSDP_OK;
}

/* Return the value of the key that has this fqn and these offsets, or NULL if there is none.
 * `offsets` is NULL for a key without offsets. */
static const fsdp_pickle_value *lookup(const keyed_list *list, const char *fqn,
                                       const int64_t *offsets, int n_offsets)
{
    keyed key = {.fqn = fqn, .offsets = offsets, .n_offsets = n_offsets};
    const keyed *found =
        list->n ? bsearch(&key, list->items, list->n, sizeof key, compare_keys) : NULL;
    return found ? found->value : NULL;
}

/* ---- places of chunks ------------------------------------------------------------------------ */

static fsdp_status read_place(fsdp_dcp_metadata *md, const char *fqn, const fsdp_pickle_value *info,
                              fsdp_dcp_chunk *chunk)
{
    const fsdp_pickle_value *transforms = fsdp_pickle_find(info, "transform_descriptors");
    const fsdp_pickle_value *offset = fsdp_pickle_find(info, "offset");
    const fsdp_pickle_value *length = fsdp_pickle_find(info, "length");
    if (!info)
        return bad_metadata(md, fqn, "a chunk of it is stored nowhere");
    chunk->file = fsdp_pickle_text(fsdp_pickle_find(info, "relative_path"));
    if (!fsdp_pickle_is_call(info, "_StorageInfo") || !chunk->file ||
        !fsdp_pickle_is(offset, FSDP_PICKLE_INT) || offset->integer < 0 ||
        !fsdp_pickle_is(length, FSDP_PICKLE_INT) || length->integer < 0)
        return bad_metadata(md, fqn, "where a chunk of it is stored is not recorded");
    if (strchr(chunk->file, '/') || chunk->file[0] == '.' || !chunk->file[0])
        return bad_metadata(md, fqn, "a chunk of it is not in a file in the folder of .metadata");
    if (transforms && !fsdp_pickle_is(transforms, FSDP_PICKLE_NONE) &&
        !(fsdp_pickle_is(transforms, FSDP_PICKLE_LIST) && transforms->list.n == 0)) {
        (void)fsdp_error(FSDP_ERR_UNSUPPORTED,
                         "%s: '%s': compressed items are not read; save without extensions",
                         md->label, fqn);
        return FSDP_ERR_UNSUPPORTED;
    }
    chunk->offset = (uint64_t)offset->integer;
    chunk->length = (uint64_t)length->integer;
    return FSDP_OK;
}

/* ---- boxes of chunks ------------------------------------------------------------------------- */

static fsdp_status check_box(const fsdp_dcp_metadata *md, const fsdp_dcp_item *item,
                             fsdp_dcp_chunk *chunk)
{
    chunk->numel = 1;
    for (int i = 0; i < item->ndim; i++) {
        if (chunk->offsets[i] > item->shape[i] ||
            chunk->sizes[i] > item->shape[i] - chunk->offsets[i])
            return bad_metadata(md, item->fqn, "a chunk reaches beyond its tensor");
        chunk->numel *= chunk->sizes[i]; /* cannot overflow: no size is larger than the tensor's */
    }
    return FSDP_OK;
}

/* Check that no two chunks of a tensor overlap. */
static fsdp_status check_overlap(const fsdp_dcp_metadata *md, const fsdp_dcp_item *item)
{
    fsdp_dcp_extent *extents = fsdp_calloc(item->n_chunks, sizeof *extents);
    size_t n = 0, first, second;
    if (!extents)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < item->n_chunks; i++)
        if (item->chunks[i].numel)
            extents[n++] = (fsdp_dcp_extent){item->chunks[i].offsets, item->chunks[i].sizes, i};
    const bool found = fsdp_dcp_find_overlap(extents, n, item->ndim, &first, &second);
    fsdp_free(extents);
    return found ? bad_metadata(md, item->fqn, "two of its chunks overlap") : FSDP_OK;
}

/* Check that the chunks of a tensor cover it. The chunks must not overlap, and the sum of their
 * elements must be the number of elements of the tensor. PyTorch does not check this; in PyTorch,
 * elements that no chunk covers keep their old values. */
static fsdp_status check_coverage(const fsdp_dcp_metadata *md, const fsdp_dcp_item *item)
{
    int64_t covered = 0;
    FSDP_TRY(check_overlap(md, item));
    for (size_t i = 0; i < item->n_chunks; i++)
        if ((covered += item->chunks[i].numel) > item->numel)
            return bad_metadata(md, item->fqn, "its chunks have more elements than it");
    return covered == item->numel ? FSDP_OK
                                  : bad_metadata(md, item->fqn, "a part of it is in no chunk");
}

/* ---- items ----------------------------------------------------------------------------------- */

static fsdp_status new_chunks(fsdp_dcp_metadata *md, fsdp_dcp_item *item, size_t n)
{
    item->chunks = fsdp_arena_alloc(&md->arena, n * sizeof *item->chunks);
    item->n_chunks = n;
    return item->chunks ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_chunk(fsdp_dcp_metadata *md, const fsdp_dcp_item *item,
                              const fsdp_pickle_value *value, const keyed_list *places,
                              fsdp_dcp_chunk *chunk)
{
    int n_offsets = -1, n_sizes = -1;
    FSDP_TRY(
        read_ints(md, item->fqn, fsdp_pickle_find(value, "offsets"), &chunk->offsets, &n_offsets));
    FSDP_TRY(read_ints(md, item->fqn, fsdp_pickle_find(value, "sizes"), &chunk->sizes, &n_sizes));
    if (n_offsets != item->ndim || n_sizes != item->ndim)
        return bad_metadata(md, item->fqn, "a chunk has not as many dimensions as its tensor");
    FSDP_TRY(check_box(md, item, chunk));
    return read_place(md, item->fqn, lookup(places, item->fqn, chunk->offsets, n_offsets), chunk);
}

static fsdp_status read_tensor(fsdp_dcp_metadata *md, const fsdp_pickle_value *value,
                               const keyed_list *places, fsdp_dcp_item *item)
{
    const fsdp_pickle_value *properties = fsdp_pickle_find(value, "properties");
    const fsdp_pickle_value *chunks = fsdp_pickle_find(value, "chunks");
    const fsdp_safetensors_dtype *dtype = NULL;
    /* The state of TensorProperties is a tuple whose first item is the dtype. */
    if (fsdp_pickle_is_call(properties, "TensorProperties") &&
        fsdp_pickle_is(properties, FSDP_PICKLE_RECORD))
        dtype = fsdp_torch_dtype(fsdp_pickle_at(properties->record.state, 0));
    if (!dtype || !fsdp_pickle_is(chunks, FSDP_PICKLE_LIST))
        return bad_metadata(md, item->fqn, "it has no dtype or no chunks");
    item->dtype_name = dtype->name;
    FSDP_TRY(read_ints(md, item->fqn, fsdp_pickle_find(value, "size"), &item->shape, &item->ndim));
    if (!fsdp_safetensors_size(dtype, item->shape, item->ndim, &item->numel, &item->bytes))
        return bad_metadata(md, item->fqn, "its shape has more elements than a file can hold");
    FSDP_TRY(new_chunks(md, item, chunks->list.n));
    for (size_t i = 0; i < chunks->list.n; i++)
        FSDP_TRY(read_chunk(md, item, chunks->list.items[i], places, &item->chunks[i]));
    return check_coverage(md, item);
}

static fsdp_status read_item(fsdp_dcp_metadata *md, const fsdp_pickle_value *value,
                             const keyed_list *places, fsdp_dcp_item *item)
{
    if (fsdp_pickle_is_call(value, "TensorStorageMetadata"))
        return read_tensor(md, value, places, item);
    if (!fsdp_pickle_is_call(value, "BytesStorageMetadata"))
        return bad_metadata(md, item->fqn, "it is neither a tensor nor a value");
    FSDP_TRY(new_chunks(md, item, 1));
    return read_place(md, item->fqn, lookup(places, item->fqn, NULL, 0), &item->chunks[0]);
}

static int compare_fqns(const void *a, const void *b)
{
    return strcmp(((const fsdp_dcp_item *)a)->fqn, ((const fsdp_dcp_item *)b)->fqn);
}

static fsdp_status read_items(fsdp_dcp_metadata *md, const fsdp_pickle_value *dict,
                              const keyed_list *places, const keyed_list *paths)
{
    md->items = fsdp_calloc(dict->list.n / 2, sizeof *md->items);
    if (!md->items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i + 1 < dict->list.n; i += 2) {
        fsdp_dcp_item *item = &md->items[md->n];
        item->fqn = fsdp_pickle_text(dict->list.items[i]);
        if (!item->fqn)
            return bad_metadata(md, "state_dict_metadata", "a key is not a text");
        item->path = lookup(paths, item->fqn, NULL, 0);
        if (!item->path && fsdp_dcp_metadata_is_own(md)) /* a checkpoint of PyTorch need not have
                                                            the path */
            return bad_metadata(md, item->fqn, "planner_data has no path of it");
        FSDP_TRY(read_item(md, dict->list.items[i + 1], places, item));
        md->n++;
    }
    qsort(md->items, md->n, sizeof *md->items, compare_fqns);
    for (size_t i = 1; i < md->n; i++)
        if (compare_fqns(&md->items[i - 1], &md->items[i]) == 0)
            return bad_metadata(md, md->items[i].fqn, "it is there twice");
    return FSDP_OK;
}

/* ---- the Metadata object --------------------------------------------------------------------- */

static fsdp_status read_metadata(fsdp_dcp_metadata *md, keyed_list *places, keyed_list *paths)
{
    const fsdp_pickle_value *root = fsdp_pickle_root(md->pickle);
    const fsdp_pickle_value *items = fsdp_pickle_find(root, "state_dict_metadata");
    const fsdp_pickle_value *storage = fsdp_pickle_find(root, "storage_data");
    const fsdp_pickle_value *planner = fsdp_pickle_find(root, "planner_data");
    if (!fsdp_pickle_is_call(root, "Metadata") || !fsdp_pickle_is(items, FSDP_PICKLE_DICT) ||
        !fsdp_pickle_is(storage, FSDP_PICKLE_DICT))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: not the metadata of a checkpoint", md->label);
    FSDP_TRY(sort_dict(md, storage, places));
    if (fsdp_pickle_is(planner, FSDP_PICKLE_DICT))
        FSDP_TRY(sort_dict(md, planner, paths));
    return read_items(md, items, places, paths);
}

static fsdp_status read_pickle(fsdp_dcp_metadata *md, const void *data, size_t bytes)
{
    static const fsdp_pickle_names all = {names, FSDP_LENGTH(names), &fsdp_torch_names};
    keyed_list places = {0}, paths = {0};
    FSDP_TRY(fsdp_pickle_create(md->label, data, bytes, &all, &md->pickle));
    fsdp_status status = read_metadata(md, &places, &paths);
    fsdp_free(places.items);
    fsdp_free(paths.items);
    return status;
}

fsdp_status fsdp_dcp_metadata_create(const char *label, const void *data, size_t bytes,
                                     fsdp_dcp_metadata **metadata)
{
    fsdp_dcp_metadata *md = fsdp_calloc(1, sizeof *md);
    if (!md)
        return FSDP_ERR_NOMEM;
    md->label = fsdp_strdup(label);
    fsdp_status status = md->label ? read_pickle(md, data, bytes) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_dcp_metadata_destroy(md);
        return status;
    }
    *metadata = md;
    return FSDP_OK;
}

void fsdp_dcp_metadata_destroy(fsdp_dcp_metadata *metadata)
{
    if (!metadata)
        return;
    fsdp_pickle_destroy(metadata->pickle);
    fsdp_arena_fini(&metadata->arena);
    fsdp_free(metadata->items);
    fsdp_free(metadata->label);
    fsdp_free(metadata);
}

size_t fsdp_dcp_metadata_count(const fsdp_dcp_metadata *metadata)
{
    return metadata->n;
}

const fsdp_dcp_item *fsdp_dcp_metadata_at(const fsdp_dcp_metadata *metadata, size_t i)
{
    return &metadata->items[i];
}

static const fsdp_pickle_value *storage_meta(const fsdp_dcp_metadata *metadata, const char *key)
{
    const fsdp_pickle_value *root = fsdp_pickle_root(metadata->pickle);
    return fsdp_pickle_find(fsdp_pickle_find(root, "storage_meta"), key);
}

bool fsdp_dcp_metadata_is_own(const fsdp_dcp_metadata *metadata)
{
    const char *id = fsdp_pickle_text(storage_meta(metadata, "save_id"));
    return id && strcmp(id, FSDP_DCP_SAVE_ID) == 0;
}

const char *fsdp_dcp_metadata_companion(const fsdp_dcp_metadata *metadata)
{
    const fsdp_pickle_value *modules = storage_meta(metadata, "modules");
    if (!fsdp_dcp_metadata_is_own(metadata) || !fsdp_pickle_is(modules, FSDP_PICKLE_LIST) ||
        modules->list.n == 0)
        return NULL;
    return fsdp_pickle_text(modules->list.items[0]);
}

const fsdp_dcp_item *fsdp_dcp_metadata_find(const fsdp_dcp_metadata *metadata, const char *fqn)
{
    fsdp_dcp_item key = {.fqn = fqn};
    return metadata->n ? bsearch(&key, metadata->items, metadata->n, sizeof key, compare_fqns)
                       : NULL;
}
