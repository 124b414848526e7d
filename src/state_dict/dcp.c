/* Saves and loads state dicts as save() and load() of torch.distributed.checkpoint do. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/dcp/dcp_reader.h"
#include "src/dcp/dcp_writer.h"
#include "src/fsdp/param_group.h"
#include "src/state_dict/box.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/halved.h"
#include "src/torchfile/entry.h"

enum {
    STAGING_BYTES = 4 << 20, /* size of the buffer in which values are converted */
    MAX_KEYS = 16
};

/* --- save --- */

/* Copy bytes [offset, offset + bytes) of the tensor `context` to `out`. This function is used for
 * tensors whose bytes cannot be read through a pointer: the tensor is in the memory of a device, in
 * a file, or stored in halves (fsdp_tensor_is_held_elsewhere()). */
static fsdp_status read_from_elsewhere(void *context, uint64_t offset, void *out, size_t bytes)
{
    const fsdp_tensor *tensor = context;
    if (fsdp_tensor_is_halved(tensor)) {
        const size_t first = (size_t)tensor->offset * fsdp_dtype_size(tensor->dtype);
        return fsdp_halved_read(tensor->storage, first + (size_t)offset, out, bytes);
    }
    FSDP_TRY(fsdp_tensor_begin_read(tensor));
    fsdp_status status = fsdp_device_to_host(fsdp_tensor_device(tensor), out,
                                             (const char *)fsdp_tensor_ptr(tensor) + offset, bytes);
    fsdp_tensor_end_read(tensor);
    return status;
}

static bool part_of(const void *tensor, const fsdp_group *group, int rank, int64_t *offsets,
                    int64_t *sizes)
{
    fsdp_box box;
    if (!fsdp_box_of_rank(tensor, group, rank, &box))
        return false;
    memcpy(offsets, box.offset, (size_t)box.ndim * sizeof *offsets);
    memcpy(sizes, box.size, (size_t)box.ndim * sizeof *sizes);
    return true;
}

static fsdp_status add_tensor(fsdp_dcp_manifest *manifest, const fsdp_state_entry *entry,
                              fsdp_state_source *source, const fsdp_dcp_key *keys)
{
    fsdp_box box;
    fsdp_tensor *tensor = entry->tensor;
    fsdp_status status = fsdp_box_of(tensor, &box);
    fsdp_error_context(status, "'%s'", entry->fqn);
    FSDP_TRY(status);
    if (!fsdp_tensor_is_contiguous(tensor))
        return fsdp_error(FSDP_ERR_INVALID, "'%s' is not contiguous", entry->fqn);
    const bool elsewhere = fsdp_tensor_is_held_elsewhere(tensor) ||
                           fsdp_device_has_own_memory(fsdp_tensor_device(tensor));
    FSDP_TRY(fsdp_device_synchronize(fsdp_tensor_device(tensor)));
    fsdp_dcp_tensor spec = {.dtype_name = fsdp_safetensors_dtype_of(tensor->dtype)->name,
                            .shape = box.shape,
                            .ndim = box.ndim,
                            .offsets = box.offset,
                            .sizes = box.size,
                            .part_of = part_of,
                            .owner = tensor,
                            .data = elsewhere ? NULL : fsdp_tensor_ptr(tensor),
                            .read = elsewhere ? read_from_elsewhere : NULL,
                            .context = tensor};
    if (source) {
        spec.data = NULL;
        spec.read = source->read;
        spec.context = source;
    }
    return fsdp_dcp_manifest_tensor(manifest, keys, entry->n_keys, &spec);
}

static fsdp_status add_entry(fsdp_dcp_manifest *manifest, const fsdp_state_entry *entry,
                             fsdp_state_source *source)
{
    fsdp_dcp_key keys[MAX_KEYS];
    if (entry->n_keys > MAX_KEYS)
        return fsdp_error(FSDP_ERR_INVALID, "'%s' has %d keys, more than %d", entry->fqn,
                          entry->n_keys, MAX_KEYS);
    for (int i = 0; i < entry->n_keys; i++)
        keys[i] = (fsdp_dcp_key){.name = entry->keys[i].name, .index = entry->keys[i].index};
    if (entry->tensor)
        return add_tensor(manifest, entry, source, keys);
    fsdp_pickle_writer value = {0};
    fsdp_state_write_plain(&value, entry->value);
    return fsdp_dcp_manifest_value(manifest, keys, entry->n_keys, &value);
}

fsdp_status fsdp_state_dict_manifest(const fsdp_state_dict *dict, fsdp_state_source *sources,
                                     fsdp_dcp_manifest **manifest)
{
    fsdp_dcp_manifest *made;
    FSDP_TRY(fsdp_dcp_manifest_create(&made));
    made->companion = dict->companion;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < fsdp_state_dict_count(dict) && status == FSDP_OK; i++)
        status = add_entry(made, fsdp_state_dict_at(dict, i), sources ? &sources[i] : NULL);
    if (status != FSDP_OK) {
        fsdp_dcp_manifest_destroy(made);
        return status;
    }
    *manifest = made;
    return FSDP_OK;
}

fsdp_status fsdp_state_dict_save(fsdp_status mine, const fsdp_state_dict *dict,
                                 const fsdp_group_place *place, fsdp_group *group)
{
    fsdp_dcp_manifest *manifest = NULL;
    if (mine == FSDP_OK)
        mine = fsdp_state_dict_manifest(dict, NULL, &manifest);
    fsdp_status status = fsdp_dcp_save_manifest(mine, place, group, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    return status;
}

fsdp_status fsdp_dcp_save(const fsdp_state_dict *dict, const char *dir, fsdp_group *group,
                          const fsdp_dcp_save_options *options)
{
    const fsdp_group_place place = {
        .path = dir,
        .may_be_on_disks = true,
        .existing = options && options->overwrite ? FSDP_EXISTING_UPDATE : FSDP_EXISTING_REFUSE};
    return fsdp_state_dict_save(FSDP_OK, dict, &place, group);
}

/* --- load: finding the items of the dict in the checkpoint --- */

typedef struct load_run {
    fsdp_state_dict *dict;
    const char *dir;
    fsdp_dcp_reader *reader;
    const fsdp_dcp_item **items; /* [count of dict] items of the checkpoint; NULL: the checkpoint
                                    lacks the item, and `dict` keeps its value */
    unsigned char *staging;      /* [STAGING_BYTES] */
} load_run;

static fsdp_status check_item(const load_run *run, const fsdp_state_entry *entry,
                              const fsdp_dcp_item *item)
{
    char have[FSDP_SHAPE_TEXT], want[FSDP_SHAPE_TEXT];
    if (!entry->tensor != !item->dtype_name)
        return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is %s, the state dict has %s", run->dir,
                          item->fqn, item->dtype_name ? "a tensor" : "a plain value",
                          entry->tensor ? "a tensor" : "a plain value");
    if (!entry->tensor)
        return FSDP_OK;
    const fsdp_tensor *t = entry->tensor;
    const fsdp_safetensors_dtype *dtype = fsdp_safetensors_dtype_by_name(item->dtype_name);
    if (!dtype || dtype->fsdp_dtype < 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: '%s' is of %s", run->dir, item->fqn,
                          item->dtype_name);
    if (t->ndim == item->ndim &&
        memcmp(fsdp_dtensor_shape(t), item->shape, (size_t)t->ndim * sizeof *item->shape) == 0)
        return FSDP_OK;
    fsdp_checkpoint_shape_text(item->shape, item->ndim, have, sizeof have);
    return fsdp_error(FSDP_ERR_INVALID, "%s: '%s' is %s, the state dict has %s", run->dir,
                      item->fqn, have, fsdp_shape_text(t->ndim, fsdp_dtensor_shape(t), want));
}

static fsdp_status find_item(const load_run *run, const char *prefix, const char *fqn,
                             const fsdp_dcp_item **item)
{
    char *name = fsdp_strdup_printf("%s%s%s", prefix ? prefix : "", prefix ? "." : "", fqn);
    if (!name)
        return FSDP_ERR_NOMEM;
    *item = fsdp_dcp_metadata_find(fsdp_dcp_reader_metadata(run->reader), name);
    fsdp_free(name);
    return FSDP_OK;
}

static fsdp_status match_items(load_run *run, const fsdp_dcp_load_options *options)
{
    size_t n = fsdp_state_dict_count(run->dict);
    run->items = fsdp_calloc(n, sizeof(const fsdp_dcp_item *));
    run->staging = fsdp_calloc(STAGING_BYTES, 1);
    if (!run->items || !run->staging)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const fsdp_state_entry *entry = fsdp_state_dict_at(run->dict, i);
        FSDP_TRY(find_item(run, options->prefix, entry->fqn, &run->items[i]));
        if (run->items[i])
            FSDP_TRY(check_item(run, entry, run->items[i]));
        else if (!options->allow_partial_load)
            return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no '%s' in this checkpoint",
                              run->dir, entry->fqn);
    }
    return FSDP_OK;
}

/* --- load: plain values --- */

static fsdp_status load_value(const load_run *run, size_t i)
{
    fsdp_torch_archive *archive;
    fsdp_arena arena = {0};
    fsdp_plain value;
    bool known = true;
    FSDP_TRY(fsdp_dcp_reader_value(run->reader, run->items[i], &archive));
    fsdp_status status =
        fsdp_state_read_plain(fsdp_torch_archive_root(archive), &arena, &value, &known);
    const fsdp_state_entry *entry = fsdp_state_dict_at(run->dict, i);
    if (status == FSDP_OK && known)
        status = fsdp_state_dict_put_value(run->dict, entry->keys, entry->n_keys, &value);
    fsdp_arena_fini(&arena);
    fsdp_torch_archive_destroy(archive);
    return status;
}

static fsdp_status load_all_values(const load_run *run)
{
    for (size_t i = 0; i < fsdp_state_dict_count(run->dict); i++)
        if (run->items[i] && !run->items[i]->dtype_name)
            FSDP_TRY(load_value(run, i));
    return FSDP_OK;
}

static fsdp_status load_values(const load_run *run)
{
    return fsdp_dcp_reader_end(run->reader, load_all_values(run));
}

/* --- load: tensors --- */

static fsdp_dtype dtype_in_file(const fsdp_dcp_item *item)
{
    return (fsdp_dtype)fsdp_safetensors_dtype_by_name(item->dtype_name)->fsdp_dtype;
}

/* Return true if the item can be read directly into the memory of `to`. */
static bool is_direct(const fsdp_dcp_item *item, const fsdp_tensor *to)
{
    return dtype_in_file(item) == to->dtype && !fsdp_device_has_own_memory(fsdp_tensor_device(to));
}

/* Load the elements of the box `piece` of the item into `to`. The box has `numel` elements. The
 * first element of the box is stored at index `element` of `to`. The values are converted to the
 * dtype of `to`. */
static fsdp_status load_piece(const load_run *run, const fsdp_dcp_item *item, const fsdp_box *piece,
                              fsdp_tensor *to, int64_t element, int64_t numel)
{
    fsdp_dtype from = dtype_in_file(item);
    if (!is_direct(item, to)) {
        FSDP_TRY(fsdp_dcp_reader_box(run->reader, item, piece->offset, piece->size, run->staging));
        return fsdp_tensor_from_host(to, element, run->staging, from, numel);
    }
    FSDP_TRY(fsdp_device_synchronize(fsdp_tensor_device(to)));
    return fsdp_dcp_reader_box(run->reader, item, piece->offset, piece->size,
                               (char *)fsdp_tensor_ptr(to) +
                                   (size_t)element * fsdp_dtype_size(from));
}

/* Load `box` of the item into `to`. All values pass through the staging buffer. The box is
 * therefore divided into pieces that fit into this buffer and that are contiguous in `to`. The box
 * is divided along one dimension, `cut`. In this dimension, a piece has a range of the box's
 * indices. In each dimension before `cut`, a piece has a single index. In each dimension after
 * `cut`, a piece has all indices of the box. */
static fsdp_status load_staged(const load_run *run, const fsdp_dcp_item *item, const fsdp_box *box,
                               fsdp_tensor *to)
{
    const int64_t most = STAGING_BYTES / 8, numel = fsdp_tensor_numel(to);
    int64_t index[FSDP_MAX_DIMS] = {0}, inner = 1;
    int d = box->ndim;
    while (d > 0 && inner * box->size[d - 1] <= most)
        inner *= box->size[--d];
    int cut = d - 1; /* the dimension along which the box is divided; -1: the box is one piece */
    int64_t at_once = cut < 0 ? 1 : most / inner;
    for (int64_t done = 0; done < numel;) {
        fsdp_box piece = *box;
        int64_t count = 1;
        for (int k = 0; k <= cut; k++) {
            piece.offset[k] = box->offset[k] + index[k];
            piece.size[k] = 1;
        }
        if (cut >= 0) {
            count = box->size[cut] - index[cut] < at_once ? box->size[cut] - index[cut] : at_once;
            piece.size[cut] = count;
        }
        FSDP_TRY(load_piece(run, item, &piece, to, done, count * inner));
        done += count * inner;
        if (cut >= 0)
            index[cut] += count;
        for (int k = cut; k > 0 && index[k] == box->size[k]; k--) {
            index[k] = 0;
            index[k - 1]++;
        }
    }
    return FSDP_OK;
}

/* Store each frozen parameter in the dtype that it has in the checkpoint, as fsdp_module_load()
 * does. */
static fsdp_status apply_pending_dtypes(const load_run *run)
{
    const size_t n = fsdp_state_dict_count(run->dict);
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n; i++)
        if (run->items[i] && run->items[i]->dtype_name)
            fsdp_param_group_note_load(fsdp_state_dict_at(run->dict, i)->tensor,
                                       dtype_in_file(run->items[i]));
    for (size_t i = 0; i < n; i++) {
        const fsdp_tensor *tensor = fsdp_state_dict_at(run->dict, i)->tensor;
        fsdp_status settled = tensor ? fsdp_param_group_apply_load(tensor) : FSDP_OK;
        if (status == FSDP_OK)
            status = settled;
    }
    return status;
}

static fsdp_status load_tensor(const load_run *run, const fsdp_dcp_item *item, fsdp_tensor *to)
{
    fsdp_box box;
    if (!to->storage->device->kernels || !fsdp_tensor_numel(to))
        return FSDP_OK;
    FSDP_TRY(fsdp_box_of(to, &box));
    if (is_direct(item, to))
        return load_piece(run, item, &box, to, 0, fsdp_tensor_numel(to));
    return load_staged(run, item, &box, to);
}

static fsdp_status load_item(void *arg, size_t i, fsdp_tensor *to)
{
    const load_run *run = arg;
    if (!run->items[i] || fsdp_dcp_reader_given_up(run->reader))
        return FSDP_OK;
    /* End the session (fsdp_dcp_reader_open_on_hosts()) after each item. A session must not last
     * until the next unit, because ranks wait for each other between units. */
    return fsdp_dcp_reader_end(run->reader, load_tensor(run, run->items[i], to));
}

/* Verify the checksums of whole chunks in files that have no checksums of blocks. During the load,
 * each rank may have read only parts of chunks. Now each rank reads some of the chunks completely,
 * and together the ranks read all chunks. */
static fsdp_status check_share(const load_run *run, const fsdp_group *group)
{
    const size_t rank = (size_t)fsdp_group_rank(group),
                 ranks = (size_t)fsdp_group_world_size(group);
    for (size_t i = 0; i < fsdp_state_dict_count(run->dict); i++)
        if (run->items[i] && run->items[i]->dtype_name)
            FSDP_TRY(fsdp_dcp_reader_check_share(run->reader, run->items[i],
                                                 (rank + ranks - i % ranks) % ranks, ranks));
    return FSDP_OK;
}

fsdp_status fsdp_dcp_load(fsdp_state_dict *dict, const char *dir, fsdp_group *group,
                          const fsdp_dcp_load_options *options)
{
    static const fsdp_dcp_load_options defaults = {0};
    load_run run = {.dict = dict, .dir = dir};
    fsdp_status status = fsdp_dcp_reader_open_on_hosts(dir, group, &run.reader);
    if (status == FSDP_OK)
        status = fsdp_agree(group, match_items(&run, options ? options : &defaults));
    if (status == FSDP_OK)
        status = fsdp_agree(group, load_values(&run));
    if (status == FSDP_OK)
        status = fsdp_agree(group, apply_pending_dtypes(&run));
    if (status == FSDP_OK)
        status = fsdp_agree(group, fsdp_state_dict_fill(dict, load_item, &run));
    if (status == FSDP_OK)
        status = fsdp_agree(group, check_share(&run, group));
    fsdp_free(run.staging);
    fsdp_free(run.items);
    fsdp_dcp_reader_close(run.reader);
    return status;
}
