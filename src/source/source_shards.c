/* Reads a folder with one safetensors file for each rank. The files have names such as
 * shard-00001-model-00001-of-00001. HuggingFaceStorageWriter of torch.distributed.checkpoint writes
 * such a folder if it does not consolidate the files. Each file contains parts of tensors. The
 * header of the file has the key DCP_SHARDING_INFO. Its value is JSON that says at which offsets in
 * the whole tensors these parts begin. The shape of a whole tensor is not recorded. The shape is
 * assumed to be the smallest one that contains all parts of the tensor. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/json.h"
#include "src/hf/rank_shards.h"
#include "src/source/source_internal.h"

/* A part of a tensor, in one of the files. */
typedef struct shard_entry {
    const fsdp_checkpoint_entry *entry;
    const int64_t *offsets; /* [ndim] owned by the source's arena */
} shard_entry;

typedef struct listing {
    fsdp_source *source;
    shard_entry *entries; /* [n] */
    size_t n;
} listing;

static int compare_entries(const void *a, const void *b)
{
    const shard_entry *x = a, *y = b;
    const int order = strcmp(x->entry->name, y->entry->name);
    return order ? order : strcmp(x->entry->path, y->entry->path);
}

/* ---- the files of the ranks ------------------------------------------------------------------ */

static fsdp_status open_shard(fsdp_source *source, const char *name)
{
    char *path = fsdp_path_join(source->path, name);
    fsdp_status status =
        path ? fsdp_safetensors_open(path, &source->shards[source->n_shards]) : FSDP_ERR_NOMEM;
    source->n_shards += status == FSDP_OK;
    fsdp_free(path);
    return status;
}

/* Check that no file is missing between the previous file and `name`, because the files of all
 * ranks are needed. The numbers of the files must have no gap (shard-00001-..., shard-00002-...).
 * *last is the number of the previous file, and is set to the number of this file. */
static fsdp_status check_number(const fsdp_source *source, const char *name, long *last)
{
    const long number = strtol(name + strlen(FSDP_SHARD_PREFIX), NULL, 10);
    if (number > *last + 1)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "%s: it has %s, but no file %s%05ld-...: get the files of all ranks",
                          source->path, name, FSDP_SHARD_PREFIX, *last + 1);
    *last = number;
    return FSDP_OK;
}

static fsdp_status open_shards(fsdp_source *source)
{
    char **names;
    size_t n;
    long last = 0;
    FSDP_TRY(fsdp_directory_list(source->path, &names, &n));
    source->shards = fsdp_calloc(n, sizeof(fsdp_safetensors *));
    fsdp_status status = source->shards ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        if (!fsdp_shard_is_name(names[i]))
            continue;
        status = check_number(source, names[i], &last);
        if (status == FSDP_OK)
            status = open_shard(source, names[i]);
    }
    fsdp_free(names);
    return status;
}

/* ---- listing the parts of tensors ------------------------------------------------------------ */

static fsdp_status read_offsets(listing *l, fsdp_json_node info, shard_entry *to)
{
    const fsdp_checkpoint_entry *entry = to->entry;
    fsdp_json_node at, offsets;
    int64_t *copy =
        fsdp_arena_alloc(&l->source->arena, (size_t)(entry->ndim ? entry->ndim : 1) * sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_json_get_object(info, entry->name, &at));
    FSDP_TRY(fsdp_json_get_array(at, "saved_offsets", &offsets));
    if (fsdp_json_len(offsets) != (size_t)entry->ndim)
        return fsdp_json_mismatch(at, "saved_offsets", "a number for each dimension");
    for (int d = 0; d < entry->ndim; d++) {
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(offsets, (size_t)d), NULL, 0,
                                   INT64_MAX - entry->shape[d], &copy[d]));
    }
    to->offsets = copy;
    return FSDP_OK;
}

static fsdp_status list_file(listing *l, const fsdp_safetensors *file, fsdp_json *info)
{
    for (size_t i = 0; i < fsdp_safetensors_count(file); i++) {
        shard_entry *to = &l->entries[l->n++];
        to->entry = fsdp_safetensors_at(file, i);
        FSDP_TRY(read_offsets(l, fsdp_json_root(info), to));
    }
    return FSDP_OK;
}

/* Add the parts of tensors in `file` to the list. A file without parts has no DCP_SHARDING_INFO. */
static fsdp_status list_shard(listing *l, const fsdp_safetensors *file)
{
    fsdp_json *info;
    if (fsdp_safetensors_count(file) == 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_shard_read_info(file, fsdp_safetensors_at(file, 0)->path, &info));
    if (!info)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: its header does not say which parts of tensors it has "
                          "(DCP_SHARDING_INFO)",
                          fsdp_safetensors_at(file, 0)->path);
    fsdp_status status = list_file(l, file, info);
    fsdp_json_destroy(info);
    return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
}

static fsdp_status list_shards(listing *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->source->n_shards; i++)
        n += fsdp_safetensors_count(l->source->shards[i]);
    l->entries = fsdp_calloc(n, sizeof *l->entries);
    if (!l->entries)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < l->source->n_shards; i++)
        FSDP_TRY(list_shard(l, l->source->shards[i]));
    if (l->n)
        qsort(l->entries, l->n, sizeof *l->entries, compare_entries);
    return FSDP_OK;
}

/* ---- joining the tensors --------------------------------------------------------------------- */

static fsdp_status join_parts(fsdp_source *source, const shard_entry *parts, size_t n)
{
    const int ndim = parts[0].entry->ndim;
    fsdp_joined *joined = fsdp_arena_alloc(&source->arena, sizeof *joined);
    int64_t *shape = fsdp_arena_alloc(&source->arena, (size_t)(ndim ? ndim : 1) * sizeof *shape);
    fsdp_source_item *item;
    if (!joined || !shape)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const fsdp_joined_part part = {.entry = *parts[i].entry, .offsets = parts[i].offsets};
        for (int d = 0; d < ndim && d < part.entry.ndim; d++)
            if (shape[d] < part.offsets[d] + part.entry.shape[d])
                shape[d] = part.offsets[d] + part.entry.shape[d];
        FSDP_TRY(fsdp_joined_add(joined, &source->arena, &part));
    }
    joined->shape = shape;
    joined->ndim = ndim;
    FSDP_TRY(fsdp_source_add(source, &(fsdp_nesting_key){.name = parts[0].entry->name}, 1, &item));
    return fsdp_source_set_joined(item, source->path, joined);
}

static fsdp_status join_all(listing *l)
{
    for (size_t i = 0, n; i < l->n; i += n) {
        for (n = 1;
             i + n < l->n && strcmp(l->entries[i].entry->name, l->entries[i + n].entry->name) == 0;)
            n++;
        FSDP_TRY(join_parts(l->source, &l->entries[i], n));
    }
    return FSDP_OK;
}

fsdp_status fsdp_source_open_shards(fsdp_source *source)
{
    listing l = {.source = source};
    fsdp_status status = open_shards(source);
    if (status == FSDP_OK)
        status = list_shards(&l);
    if (status == FSDP_OK)
        status = join_all(&l);
    fsdp_free(l.entries);
    return status;
}
