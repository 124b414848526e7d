/* Opens a directory of torch.distributed.checkpoint as a source. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/source/source_internal.h"

/* Convert the path that PyTorch stored for an item to keys, and return their number. A path
 * consists of strings (keys of dicts) and ints (indices of lists). If there is no path, the whole
 * name becomes the only key, as in PyTorch for a state dict that was not flattened. */
static int read_path(const fsdp_dcp_item *item, fsdp_nesting_key keys[FSDP_PICKLE_MAX_DEPTH])
{
    size_t n = fsdp_pickle_is(item->path, FSDP_PICKLE_TUPLE) ? item->path->list.n : 0;
    bool known = n > 0 && n <= FSDP_PICKLE_MAX_DEPTH;
    for (size_t i = 0; i < n && known; i++) {
        const fsdp_pickle_value *key = item->path->list.items[i];
        keys[i] = (fsdp_nesting_key){.name = fsdp_pickle_text(key)};
        if (fsdp_pickle_is(key, FSDP_PICKLE_INT))
            keys[i].index = key->integer;
        else
            known = keys[i].name != NULL;
    }
    if (known)
        return (int)n;
    keys[0] = (fsdp_nesting_key){.name = item->fqn};
    return 1;
}

static int compare_keys(const fsdp_nesting_key *a, const fsdp_nesting_key *b)
{
    if (a->name && b->name)
        return strcmp(a->name, b->name);
    if (a->name || b->name)
        return a->name ? 1 : -1;
    return (a->index > b->index) - (a->index < b->index);
}

static int compare_paths(const void *a, const void *b)
{
    const fsdp_source_item *x = a, *y = b;
    for (int i = 0; i < x->n_keys && i < y->n_keys; i++) {
        int order = compare_keys(&x->keys[i], &y->keys[i]);
        if (order != 0)
            return order;
    }
    return x->n_keys - y->n_keys;
}

static fsdp_status add_dcp_item(fsdp_source *source, const fsdp_dcp_item *dcp)
{
    fsdp_nesting_key keys[FSDP_PICKLE_MAX_DEPTH];
    fsdp_source_item *item;
    int n_keys = read_path(dcp, keys);
    FSDP_TRY(fsdp_source_add(source, keys, n_keys, &item));
    if (strcmp(item->fqn, dcp->fqn) != 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: .metadata: the path of '%s' is that of '%s'",
                          source->path, dcp->fqn, item->fqn);
    item->fqn = dcp->fqn;
    item->dcp = dcp;
    item->dtype_name = dcp->dtype_name;
    item->shape = dcp->shape;
    item->ndim = dcp->ndim;
    item->numel = dcp->numel;
    item->bytes = dcp->bytes;
    item->n_chunks = dcp->n_chunks;
    item->file = dcp->n_chunks ? dcp->chunks[0].file : ".metadata";
    return FSDP_OK;
}

static fsdp_status list_dcp_items(fsdp_source *source)
{
    const fsdp_dcp_metadata *metadata = fsdp_dcp_reader_metadata(source->dcp);
    for (size_t i = 0; i < fsdp_dcp_metadata_count(metadata); i++)
        FSDP_TRY(add_dcp_item(source, fsdp_dcp_metadata_at(metadata, i)));
    if (source->n)
        qsort(source->items, source->n, sizeof *source->items, compare_paths);
    source->values = fsdp_calloc(source->n, sizeof(fsdp_torch_archive *));
    return source->values ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_source_open_dcp(fsdp_source *source)
{
    FSDP_TRY(fsdp_dcp_reader_open(source->path, &source->dcp));
    /* The reader need not verify blocks while it reads, because fsdp_source_check() verifies whole
     * tensors. */
    fsdp_dcp_reader_skip_blocks(source->dcp);
    return list_dcp_items(source);
}

fsdp_status fsdp_source_open_dcp_names(fsdp_source *source)
{
    FSDP_TRY(fsdp_dcp_reader_open_metadata(source->path, &source->dcp));
    return list_dcp_items(source);
}
