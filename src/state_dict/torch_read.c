/* Reads torch.save files into existing tensors, as fsdp_dcp_load() does with folders. Each rank
 * maps the file and copies its part of each tensor, so at most one additional tensor is in
 * memory. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/state_dict/box.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/tensor.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/torch_dtensor.h"

typedef struct reading {
    fsdp_state_dict *dict;
    const char *path;
    fsdp_group *group;
    bool local;   /* fsdp_local_save() wrote the file; its tensors are this rank's parts */
    bool partial; /* items that the file lacks keep their values */
    fsdp_mapping map;
    fsdp_torch_archive *archive;
    const fsdp_pickle_value **values; /* [count of dict] values in the file; NULL: the file lacks
                                         the item */
    fsdp_checkpoint_entry *entries;   /* [count of dict]; set for items that are tensors */
} reading;

/* --- finding the items of the dict in the file --- */

/* Return the value of `key` in a dict of the file. If `key` is an int, the dict may also have the
 * text of its digits as a key, because DCP converts int keys to text. */
static const fsdp_pickle_value *find_key(const fsdp_pickle_value *dict, const fsdp_state_key *key)
{
    if (!fsdp_pickle_is(dict, FSDP_PICKLE_DICT))
        return NULL;
    for (size_t i = 0; key->is_int && i + 1 < dict->list.n; i += 2)
        if (fsdp_pickle_is(dict->list.items[i], FSDP_PICKLE_INT) &&
            dict->list.items[i]->integer == strtoll(key->name, NULL, 10))
            return dict->list.items[i + 1];
    return fsdp_pickle_find(dict, key->name);
}

/* Follow `keys` from `value`, and return the value to which they lead, or NULL if there is none. */
static const fsdp_pickle_value *find_below(const fsdp_pickle_value *value,
                                           const fsdp_state_key *keys, int n_keys)
{
    for (int k = 0; k < n_keys && value; k++)
        if (keys[k].name)
            value = find_key(value, &keys[k]);
        else
            value = fsdp_pickle_is(value, FSDP_PICKLE_LIST)
                        ? fsdp_pickle_at(value, (size_t)keys[k].index)
                        : NULL;
    return value;
}

static fsdp_status part_of(const reading *r, const fsdp_tensor *tensor, fsdp_box *box)
{
    FSDP_TRY(fsdp_box_of(tensor, box));
    if (!r->local)
        return FSDP_OK;
    memcpy(box->shape, box->size, sizeof box->shape);
    memset(box->offset, 0, sizeof box->offset);
    return FSDP_OK;
}

/* Check that the part in the file has the offsets of this rank's part. Comparing shapes is not
 * enough, because parts at different offsets may have the same shape. */
static fsdp_status check_offsets(const reading *r, const fsdp_state_entry *entry)
{
    const fsdp_state_key keys[] = {
        {.name = FSDP_LOCAL_SHARDS}, {.name = "offsets"}, {.name = entry->fqn}};
    const fsdp_pickle_value *offsets = find_below(fsdp_torch_archive_root(r->archive), keys, 3);
    fsdp_box box;
    FSDP_TRY(fsdp_box_of(entry->tensor, &box));
    bool same = fsdp_pickle_is(offsets, FSDP_PICKLE_TUPLE) && offsets->list.n == (size_t)box.ndim;
    for (int d = 0; d < box.ndim && same; d++) {
        const fsdp_pickle_value *at = fsdp_pickle_at(offsets, (size_t)d);
        same = fsdp_pickle_is(at, FSDP_PICKLE_INT) && at->integer == box.offset[d];
    }
    if (same)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the part of '%s' is not the one that this rank has: parts of "
                      "LOCAL_STATE_DICT are read by the sharding that wrote them",
                      r->path, entry->fqn);
}

static fsdp_status match_tensor(const reading *r, size_t i, const fsdp_state_entry *entry)
{
    fsdp_dtype dtype;
    fsdp_box box;
    FSDP_TRY(fsdp_torch_archive_tensor(r->archive, r->values[i], entry->fqn, &r->entries[i]));
    FSDP_TRY(fsdp_checkpoint_entry_dtype(&r->entries[i], &dtype));
    FSDP_TRY(part_of(r, entry->tensor, &box));
    FSDP_TRY(fsdp_checkpoint_entry_check_shape(&r->entries[i], box.shape, box.ndim));
    return r->local ? check_offsets(r, entry) : FSDP_OK;
}

static fsdp_status match_entry(const reading *r, size_t i)
{
    const fsdp_state_entry *entry = fsdp_state_dict_at(r->dict, i);
    const fsdp_pickle_value *root = fsdp_torch_archive_root(r->archive);
    const fsdp_pickle_value *value = find_below(root, entry->keys, entry->n_keys);
    if (!value && r->partial)
        return FSDP_OK;
    if (!value)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no '%s' in this file", r->path,
                          entry->fqn);
    FSDP_TRY(fsdp_torch_refuse_part(r->path, entry->fqn, value, NULL));
    if (fsdp_torch_is_tensor(value) != (entry->tensor != NULL))
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is %s tensor, in the state dict it is %s one",
                          r->path, entry->fqn, entry->tensor ? "no" : "a",
                          entry->tensor ? "" : "not");
    r->values[i] = value;
    return entry->tensor ? match_tensor(r, i, entry) : FSDP_OK;
}

static fsdp_status check_number(const reading *r, const char *name, int *number)
{
    const fsdp_state_key keys[] = {{.name = FSDP_LOCAL_SHARDS}, {.name = name}};
    const fsdp_pickle_value *value = find_below(fsdp_torch_archive_root(r->archive), keys, 2);
    if (!fsdp_pickle_is(value, FSDP_PICKLE_INT) || value->integer < 0 ||
        value->integer > FSDP_LOCAL_MAX_RANKS)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: there is no '%s.%s': no file of LOCAL_STATE_DICT",
                          r->path, FSDP_LOCAL_SHARDS, name);
    *number = (int)value->integer;
    return FSDP_OK;
}

static fsdp_status check_ranks(const reading *r)
{
    const int ranks = fsdp_group_world_size(r->group);
    const int mine = fsdp_group_rank(r->group);
    int wrote, rank;
    FSDP_TRY(check_number(r, "world_size", &wrote));
    FSDP_TRY(check_number(r, "rank", &rank));
    if (wrote != ranks)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: LOCAL_STATE_DICT of %d rank%s can be read on as many only, not on "
                          "%d; SHARDED_STATE_DICT and FULL_STATE_DICT can",
                          r->path, wrote, wrote == 1 ? "" : "s", ranks);
    if (rank != mine)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: these are the parts of rank %d", r->path, rank);
    return FSDP_OK;
}

static fsdp_status match_all(reading *r)
{
    const size_t n = fsdp_state_dict_count(r->dict);
    FSDP_TRY(fsdp_file_map(r->path, &r->map));
    FSDP_TRY(fsdp_torch_archive_create(r->path, r->map.data, r->map.bytes, &r->archive));
    if (r->local)
        FSDP_TRY(check_ranks(r));
    /* A local file is read by only one rank, which must verify its checksums. If all ranks of a
     * group read the same file, only rank 0 verifies all checksums. */
    if (r->local || !r->group || fsdp_group_rank(r->group) == 0)
        fsdp_torch_archive_check_all(r->archive);
    r->values = fsdp_calloc(n, sizeof(const fsdp_pickle_value *));
    r->entries = fsdp_calloc(n, sizeof *r->entries);
    if (!r->values || !r->entries)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(match_entry(r, i));
    return FSDP_OK;
}

/* --- values --- */

static fsdp_status take_values(const reading *r)
{
    for (size_t i = 0; i < fsdp_state_dict_count(r->dict); i++) {
        const fsdp_state_entry *entry = fsdp_state_dict_at(r->dict, i);
        fsdp_arena arena = {0};
        fsdp_plain value;
        bool known = true;
        if (entry->tensor || !r->values[i])
            continue;
        fsdp_status status = fsdp_state_read_plain(r->values[i], &arena, &value, &known);
        if (status == FSDP_OK && known)
            status = fsdp_state_dict_put_value(r->dict, entry->keys, entry->n_keys, &value);
        fsdp_arena_fini(&arena);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* Load this rank's part of a tensor. If the part consists of complete rows, it is contiguous in the
 * file, and only these rows are copied. In all other cases, the part is taken from a copy of the
 * whole tensor. The copy is necessary because the data in the mapped file may be unaligned. */
static fsdp_status load_tensor(void *arg, size_t i, fsdp_tensor *to)
{
    const reading *r = arg;
    const fsdp_checkpoint_entry *entry = &r->entries[i];
    const char *data = entry->data;
    fsdp_dtype dtype;
    fsdp_box box;
    fsdp_tensor *from;
    if (!r->values[i] || !to->storage->device->kernels || !fsdp_tensor_numel(to))
        return FSDP_OK;
    FSDP_TRY(part_of(r, to, &box));
    FSDP_TRY(fsdp_checkpoint_entry_dtype(entry, &dtype));
    if (fsdp_box_is_rows(&box)) {
        if (box.ndim)
            data += (size_t)(box.offset[0] * fsdp_tensor_row_numel(to)) * fsdp_dtype_size(dtype);
        memcpy(box.shape, box.size, sizeof box.shape);
        memset(box.offset, 0, sizeof box.offset);
        if (dtype == to->dtype) {
            fsdp_device_from_host(to->storage->device, fsdp_tensor_ptr(to), data,
                                  (size_t)fsdp_tensor_numel(to) * fsdp_dtype_size(dtype));
            return FSDP_OK;
        }
    }
    FSDP_TRY(fsdp_tensor_from_data(to->storage->device, dtype, box.ndim, box.shape, data,
                                   FSDP_TAG_COMM, &from));
    fsdp_box_copy(&box, from, to);
    fsdp_tensor_release(from);
    return FSDP_OK;
}

static fsdp_status read_into(reading *r)
{
    fsdp_status status = fsdp_agree(r->group, match_all(r));
    if (status == FSDP_OK)
        status = fsdp_agree(r->group, take_values(r));
    if (status == FSDP_OK)
        status = fsdp_agree(r->group, fsdp_state_dict_fill(r->dict, load_tensor, r));
    fsdp_free(r->entries);
    fsdp_free(r->values);
    fsdp_torch_archive_destroy(r->archive);
    fsdp_file_unmap(&r->map);
    return status;
}

fsdp_status fsdp_torch_load_into(fsdp_state_dict *dict, const char *path, fsdp_group *group)
{
    reading r = {.dict = dict, .path = path, .group = group};
    return read_into(&r);
}

fsdp_status fsdp_torch_load_partly(fsdp_state_dict *dict, const char *path, fsdp_group *group)
{
    reading r = {.dict = dict, .path = path, .group = group, .partial = true};
    return read_into(&r);
}

/* --- one file for each rank: fsdp_local_save(), fsdp_local_load() --- */

static char *local_path(const char *stem, fsdp_group *group)
{
    return fsdp_strdup_printf("%s_rank%d.pt", stem, fsdp_group_rank(group));
}

fsdp_status fsdp_local_load(fsdp_state_dict *dict, const char *stem, fsdp_group *group)
{
    char *path = local_path(stem, group);
    FSDP_TRY(fsdp_agree(group, path ? FSDP_OK : FSDP_ERR_NOMEM));
    reading r = {.dict = dict, .path = path, .group = group, .local = true};
    fsdp_status status = read_into(&r);
    fsdp_free(path);
    return status;
}

static fsdp_status put_number(fsdp_state_dict *dict, const char *name, int number)
{
    const fsdp_state_key keys[] = {{.name = FSDP_LOCAL_SHARDS}, {.name = name}};
    const fsdp_plain value = {.kind = FSDP_PLAIN_INT, .as.integer = number};
    return fsdp_state_dict_put_value(dict, keys, 2, &value);
}

static fsdp_status put_offsets(fsdp_state_dict *dict, const fsdp_state_entry *entry)
{
    const fsdp_state_key keys[] = {
        {.name = FSDP_LOCAL_SHARDS}, {.name = "offsets"}, {.name = entry->fqn}};
    fsdp_plain items[FSDP_MAX_DIMS];
    fsdp_box box;
    FSDP_TRY(fsdp_box_of(entry->tensor, &box));
    for (int d = 0; d < box.ndim; d++)
        items[d] = (fsdp_plain){.kind = FSDP_PLAIN_INT, .as.integer = box.offset[d]};
    const fsdp_plain tuple = {.kind = FSDP_PLAIN_TUPLE, .as.list = {items, (size_t)box.ndim}};
    return fsdp_state_dict_put_value(dict, keys, 3, &tuple);
}

/* Put into `out` the items of `dict`, the number of this rank, the world size, and the offsets of
 * this rank's part of each tensor. */
static fsdp_status describe(const fsdp_state_dict *dict, fsdp_group *group, fsdp_state_dict *out)
{
    FSDP_TRY(put_number(out, "world_size", fsdp_group_world_size(group)));
    FSDP_TRY(put_number(out, "rank", fsdp_group_rank(group)));
    for (size_t i = 0; i < fsdp_state_dict_count(dict); i++) {
        const fsdp_state_entry *e = fsdp_state_dict_at(dict, i);
        FSDP_TRY(e->tensor ? fsdp_state_dict_put_tensor(out, e->keys, e->n_keys, e->tensor)
                           : fsdp_state_dict_put_value(out, e->keys, e->n_keys, e->value));
        if (e->tensor)
            FSDP_TRY(put_offsets(out, e));
    }
    return FSDP_OK;
}

fsdp_status fsdp_local_save(const fsdp_state_dict *dict, const char *stem, fsdp_group *group)
{
    fsdp_state_dict *description = NULL;
    char *path = local_path(stem, group);
    fsdp_status status = path ? fsdp_state_dict_create(&description) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = describe(dict, group, description);
    if (status == FSDP_OK)
        status = fsdp_state_dict_write_parts(description, path);
    fsdp_state_dict_destroy(description);
    fsdp_free(path);
    return fsdp_agree(group, status);
}
