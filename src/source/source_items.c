/* Fills the list of items of a source. The readers of all formats call these functions. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/source/source_internal.h"
#include "src/torchfile/safetensors_dtype.h"

static char *keep_text(fsdp_source *source, const char *text, size_t bytes)
{
    char *copy = fsdp_arena_alloc(&source->arena, bytes + 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

static char *join_keys(fsdp_source *source, const fsdp_nesting_key *keys, int n_keys)
{
    fsdp_str fqn = {0};
    char *kept = NULL;
    for (int i = 0; i < n_keys; i++)
        fsdp_nesting_join(&fqn, i, keys[i].name, keys[i].index);
    if (!fqn.failed)
        kept = keep_text(source, fqn.data ? fqn.data : "", fqn.len);
    fsdp_str_fini(&fqn);
    return kept;
}

fsdp_status fsdp_source_add(fsdp_source *source, const fsdp_nesting_key *keys, int n_keys,
                            fsdp_source_item **item)
{
    if (!FSDP_GROW(source->items, source->cap, source->n + 1))
        return FSDP_ERR_NOMEM;
    fsdp_nesting_key *own = fsdp_arena_alloc(&source->arena, (size_t)n_keys * sizeof *own);
    if (!own)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < n_keys; i++) {
        own[i] = keys[i];
        own[i].name = keys[i].name ? keep_text(source, keys[i].name, strlen(keys[i].name)) : NULL;
        if (keys[i].name && !own[i].name)
            return FSDP_ERR_NOMEM;
    }
    char *fqn = join_keys(source, own, n_keys);
    if (!fqn)
        return fsdp_error_nomem();
    *item = &source->items[source->n++];
    **item = (fsdp_source_item){.fqn = fqn, .keys = own, .n_keys = n_keys, .n_chunks = 1};
    return FSDP_OK;
}

void fsdp_source_set_entry(fsdp_source_item *item, const fsdp_checkpoint_entry *entry)
{
    item->entry = entry;
    item->dtype_name = entry->dtype_name;
    item->shape = entry->shape;
    item->ndim = entry->ndim;
    item->numel = entry->numel;
    item->bytes = (int64_t)entry->bytes;
    item->file = entry->path;
}

fsdp_status fsdp_source_set_joined(fsdp_source_item *item, const char *path, fsdp_joined *joined)
{
    const fsdp_safetensors_dtype *dtype =
        joined->n ? fsdp_safetensors_dtype_by_name(joined->parts[0].entry.dtype_name) : NULL;
    if (!dtype || dtype->bits < 8)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: '%s': parts of this dtype are not joined",
                          path, item->fqn);
    joined->width = (size_t)dtype->bits / 8;
    if (!fsdp_safetensors_size(dtype, joined->shape, joined->ndim, &joined->numel, &item->bytes))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: '%s': its shape has more elements than a file can hold", path,
                          item->fqn);
    FSDP_TRY(fsdp_joined_check(joined, item->fqn));
    item->joined = joined;
    item->dtype_name = dtype->name;
    item->shape = joined->shape;
    item->ndim = joined->ndim;
    item->numel = joined->numel;
    item->file = joined->parts[0].entry.path;
    item->n_chunks = joined->n;
    return FSDP_OK;
}
