/* Builds the manifest of a checkpoint. Each entry is checked when it is added. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/crc32.h"
#include "src/dcp/dcp_manifest.h"
#include "src/torchfile/nesting.h"
#include "src/torchfile/torch_names.h"

fsdp_status fsdp_dcp_manifest_create(fsdp_dcp_manifest **manifest)
{
    fsdp_dcp_manifest *p = fsdp_calloc(1, sizeof *p);
    if (!p)
        return FSDP_ERR_NOMEM;
    *manifest = p;
    return FSDP_OK;
}

static void release(fsdp_dcp_entry *entry)
{
    fsdp_free(entry->fqn);
    fsdp_str_fini(&entry->value);
    fsdp_free(entry);
}

void fsdp_dcp_manifest_destroy(fsdp_dcp_manifest *manifest)
{
    if (!manifest)
        return;
    for (size_t i = 0; i < manifest->n; i++)
        release(manifest->entries[i]);
    fsdp_free(manifest->entries);
    fsdp_arena_fini(&manifest->arena);
    fsdp_free(manifest);
}

/* ---- names ----------------------------------------------------------------------------------- */

static char *join_keys(const fsdp_dcp_key *keys, int n_keys)
{
    fsdp_str fqn = {0};
    for (int i = 0; i < n_keys; i++)
        fsdp_nesting_join(&fqn, i, keys[i].name, keys[i].index);
    return fsdp_str_take(&fqn);
}

static fsdp_status fill_key(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *key,
                            fsdp_pickle_value *value)
{
    if (!key->name) {
        value->kind = FSDP_PICKLE_INT;
        value->integer = key->index;
        return FSDP_OK;
    }
    size_t bytes = strlen(key->name);
    char *name = fsdp_arena_alloc(&manifest->arena, bytes + 1);
    if (!name)
        return FSDP_ERR_NOMEM;
    memcpy(name, key->name, bytes + 1);
    value->kind = FSDP_PICKLE_STR;
    value->text.data = name;
    value->text.bytes = bytes;
    return FSDP_OK;
}

static fsdp_status fill_path(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys, int n_keys,
                             fsdp_dcp_entry *entry)
{
    size_t n = (size_t)n_keys;
    fsdp_pickle_value *values = fsdp_arena_alloc(&manifest->arena, (n + 1) * sizeof *values);
    fsdp_pickle_value **items = fsdp_arena_alloc(&manifest->arena, n * sizeof *items);
    if (!values || !items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        items[i] = &values[i + 1];
        FSDP_TRY(fill_key(manifest, &keys[i], items[i]));
    }
    values[0].kind = FSDP_PICKLE_TUPLE;
    values[0].list.items = items;
    values[0].list.n = values[0].list.cap = n;
    entry->path = values;
    entry->fqn = join_keys(keys, n_keys);
    return entry->fqn ? FSDP_OK : FSDP_ERR_NOMEM;
}

static uint32_t signature_of(const fsdp_dcp_entry *entry)
{
    fsdp_crc32_table table;
    fsdp_crc32_init(&table);
    uint32_t crc = fsdp_crc32(&table, 0, entry->fqn, strlen(entry->fqn));
    crc = fsdp_crc32(&table, crc, &entry->path->list.n, sizeof entry->path->list.n);
    if (entry->dtype)
        crc = fsdp_crc32(&table, crc, entry->dtype->name, strlen(entry->dtype->name));
    return fsdp_crc32(&table, crc, entry->tensor.shape,
                      (size_t)entry->tensor.ndim * sizeof *entry->tensor.shape);
}

/* ---- entries --------------------------------------------------------------------------------- */

static fsdp_status invalid_entry(const fsdp_dcp_entry *entry, const char *what)
{
    return fsdp_error(FSDP_ERR_INVALID, "'%s': %s", entry->fqn, what);
}

static int box_ndim(const fsdp_dcp_entry *entry)
{
    return entry->tensor.ndim < FSDP_DCP_BOX_NDIM ? entry->tensor.ndim : FSDP_DCP_BOX_NDIM;
}

static fsdp_status fill_rows(fsdp_dcp_entry *entry)
{
    const fsdp_dcp_tensor *t = &entry->tensor;
    fsdp_dcp_box *box = &entry->box;
    if (t->begin < 0 || t->end < t->begin || t->end > fsdp_dcp_entry_rows(entry))
        return fsdp_error(FSDP_ERR_INVALID, "'%s' has no rows [%lld, %lld)", entry->fqn,
                          (long long)t->begin, (long long)t->end);
    for (int i = 1; i < box_ndim(entry); i++)
        box->size[i] = t->shape[i];
    box->size[0] = t->end - t->begin;
    /* Like torch, let an empty shard begin at the end of the tensor. */
    box->offset[0] = box->size[0] ? t->begin : fsdp_dcp_entry_rows(entry);
    return FSDP_OK;
}

static fsdp_status fill_box(const fsdp_dcp_entry *entry, const int64_t *offsets,
                            const int64_t *sizes, fsdp_dcp_box *box)
{
    const fsdp_dcp_tensor *t = &entry->tensor;
    for (int i = 0; i < t->ndim; i++) {
        bool whole = offsets[i] == 0 && sizes[i] == t->shape[i];
        if (offsets[i] < 0 || sizes[i] < 0 || offsets[i] > t->shape[i] - sizes[i] ||
            (i >= FSDP_DCP_BOX_NDIM && !whole))
            return fsdp_error(FSDP_ERR_INVALID,
                              "'%s': %lld from %lld on is not a part of dimension %d", entry->fqn,
                              (long long)sizes[i], (long long)offsets[i], i);
        if (i < FSDP_DCP_BOX_NDIM) {
            box->offset[i] = offsets[i];
            box->size[i] = sizes[i];
        }
    }
    if (t->ndim == 0)
        box->size[0] = 1;
    return FSDP_OK;
}

bool fsdp_dcp_entry_part(const fsdp_dcp_entry *entry, const fsdp_group *group, int rank,
                         fsdp_dcp_box *box)
{
    const fsdp_dcp_tensor *t = &entry->tensor;
    int64_t offsets[FSDP_DCP_MAX_NDIM], sizes[FSDP_DCP_MAX_NDIM];
    *box = (fsdp_dcp_box){0};
    if (!entry->dtype)
        return true;
    return t->part_of && t->part_of(t->owner, group, rank, offsets, sizes) &&
           fill_box(entry, offsets, sizes, box) == FSDP_OK;
}

static fsdp_status check_tensor(fsdp_dcp_entry *entry)
{
    fsdp_dcp_tensor *t = &entry->tensor;
    int64_t numel, bytes;
    entry->dtype = fsdp_safetensors_dtype_by_name(t->dtype_name);
    if (!entry->dtype || !fsdp_torch_names_of(entry->dtype).dtype)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "'%s': torch has no dtype %s", entry->fqn,
                          t->dtype_name);
    if (t->ndim < 0 || t->ndim > FSDP_DCP_MAX_NDIM ||
        !fsdp_safetensors_size(entry->dtype, t->shape, t->ndim, &numel, &bytes))
        return invalid_entry(entry, "its shape has more elements than a file can hold");
    FSDP_TRY(t->offsets ? fill_box(entry, t->offsets, t->sizes, &entry->box) : fill_rows(entry));
    if (!t->data && !t->read && fsdp_dcp_box_numel(entry, &entry->box) > 0)
        return invalid_entry(entry, "its rows have no data");
    return FSDP_OK;
}

static fsdp_status fill_tensor(fsdp_dcp_manifest *manifest, const fsdp_dcp_tensor *tensor,
                               fsdp_dcp_entry *entry)
{
    entry->tensor = *tensor;
    FSDP_TRY(check_tensor(entry));
    int64_t *shape = fsdp_arena_alloc(&manifest->arena, (size_t)tensor->ndim * sizeof *shape);
    if (!shape)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < tensor->ndim; i++)
        shape[i] = tensor->shape[i];
    entry->tensor.shape = shape;
    entry->tensor.dtype_name = entry->dtype->name;
    entry->tensor.offsets = entry->tensor.sizes = NULL;
    return FSDP_OK;
}

/* Add an entry. If `tensor` is NULL, the entry is a plain value and takes over the text of
 * `value`. */
static fsdp_status add_entry(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys, int n_keys,
                             const fsdp_dcp_tensor *tensor, fsdp_str *value)
{
    FSDP_ASSERT(n_keys > 0);
    if (!FSDP_GROW(manifest->entries, manifest->cap, manifest->n + 1))
        return FSDP_ERR_NOMEM;
    fsdp_dcp_entry *entry = fsdp_calloc(1, sizeof *entry);
    if (!entry)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fill_path(manifest, keys, n_keys, entry);
    if (status == FSDP_OK && tensor)
        status = fill_tensor(manifest, tensor, entry);
    if (status != FSDP_OK) {
        release(entry);
        return status;
    }
    if (value) {
        entry->value = *value;
        *value = (fsdp_str){0};
    }
    entry->signature = signature_of(entry);
    manifest->entries[manifest->n++] = entry;
    return FSDP_OK;
}

fsdp_status fsdp_dcp_manifest_tensor(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys,
                                     int n_keys, const fsdp_dcp_tensor *tensor)
{
    return add_entry(manifest, keys, n_keys, tensor, NULL);
}

fsdp_status fsdp_dcp_manifest_value(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys,
                                    int n_keys, fsdp_pickle_writer *value)
{
    FSDP_ASSERT(value->depth == 0);
    fsdp_status status = value->text.failed ? fsdp_error_nomem() : FSDP_OK;
    if (status == FSDP_OK) {
        FSDP_ASSERT(value->text.len > 0);
        status = add_entry(manifest, keys, n_keys, NULL, &value->text);
    }
    fsdp_pickle_fini(value);
    return status;
}

static int by_fqn(const void *a, const void *b)
{
    return strcmp((*(fsdp_dcp_entry *const *)a)->fqn, (*(fsdp_dcp_entry *const *)b)->fqn);
}

fsdp_status fsdp_dcp_manifest_check(const fsdp_dcp_manifest *manifest)
{
    fsdp_status status = FSDP_OK;
    fsdp_dcp_entry **sorted = fsdp_calloc(manifest->n, sizeof(fsdp_dcp_entry *));
    if (!sorted)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < manifest->n; i++)
        sorted[i] = manifest->entries[i];
    qsort(sorted, manifest->n, sizeof *sorted, by_fqn);
    for (size_t i = 1; i < manifest->n && status == FSDP_OK; i++)
        if (by_fqn(&sorted[i - 1], &sorted[i]) == 0)
            status = invalid_entry(sorted[i], "two entries have this name");
    fsdp_free(sorted);
    return status;
}

int64_t fsdp_dcp_entry_rows(const fsdp_dcp_entry *entry)
{
    return entry->tensor.ndim ? entry->tensor.shape[0] : 1;
}

int64_t fsdp_dcp_box_numel(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box)
{
    int64_t numel = box->size[0];
    for (int i = 1; i < entry->tensor.ndim; i++)
        numel *= i < FSDP_DCP_BOX_NDIM ? box->size[i] : entry->tensor.shape[i];
    return numel;
}

uint64_t fsdp_dcp_box_bytes(const fsdp_dcp_entry *entry, const fsdp_dcp_box *box)
{
    return (uint64_t)(fsdp_dcp_box_numel(entry, box) * entry->dtype->bits / 8);
}
