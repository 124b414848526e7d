/* Writes the result of a conversion as a torch.save file or as a DCP directory. Both formats
 * contain tensors and plain values below keys. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/checkpoint_tools/convert_internal.h"
#include "src/dcp/dcp_writer.h"
#include "src/torchfile/torch_writer.h"

/* Prepend the path of the source and the name of `item` to the error message. */
static void add_name(const fsdp_converted *item, fsdp_status status)
{
    fsdp_error_context(status, "%s: '%s'", fsdp_source_path(item->run->source), item->from->name);
}

/* ---- torch.save ------------------------------------------------------------------------------ */

typedef struct writing {
    fsdp_conversion *run;
    fsdp_torch_writer *writer;
    /* [selection.n] number that the writer gave to each tensor; tied tensors share a number */
    size_t *numbers;
    bool *is_tied; /* [selection.n] true: an earlier item has the same data */
} writing;

/* Return true if `a` and `b` are one tensor with two names: they have the same dtype, the same
 * shape, and the same bytes of the mapped source file. */
static bool is_same_tensor(const fsdp_converted *a, const fsdp_converted *b)
{
    const fsdp_source_item *x = a->from->item, *y = b->from->item;
    return a->dtype == b->dtype && x->entry && y->entry && x->bytes > 0 &&
           x->entry->data == y->entry->data && x->ndim == y->ndim &&
           strcmp(x->dtype_name, y->dtype_name) == 0 &&
           memcmp(x->shape, y->shape, (size_t)x->ndim * sizeof *x->shape) == 0;
}

static fsdp_status put_tensor(writing *t, size_t i)
{
    const fsdp_converted *item = &t->run->items[i];
    for (size_t k = 0; k < i; k++)
        if (is_same_tensor(item, &t->run->items[k])) {
            t->is_tied[i] = true;
            t->numbers[i] = t->numbers[k];
            fsdp_torch_writer_tied(t->writer, t->numbers[i]);
            return FSDP_OK;
        }
    fsdp_status status =
        fsdp_torch_writer_tensor(t->writer, item->dtype->name, item->from->item->shape,
                                 item->from->item->ndim, &t->numbers[i]);
    add_name(item, status);
    return status;
}

static fsdp_status put_value(writing *t, size_t i)
{
    const fsdp_pickle_value *value;
    FSDP_TRY(fsdp_source_value(t->run->source, t->run->items[i].from->item, &value));
    fsdp_status status = fsdp_pickle_put_value(fsdp_torch_writer_pickle(t->writer), value);
    add_name(&t->run->items[i], status);
    return status;
}

static fsdp_status put_item(void *context, size_t i)
{
    writing *t = context;
    return t->run->items[i].dtype ? put_tensor(t, i) : put_value(t, i);
}

static bool key_of(const void *context, size_t i, int level, fsdp_nesting_key *key)
{
    const writing *t = context;
    const fsdp_selected *item = &t->run->selection.items[i];
    if (level >= item->n_keys)
        return false;
    *key = item->keys[level];
    return true;
}

static const char *name_of(const void *context, size_t i)
{
    const writing *t = context;
    return t->run->selection.items[i].name;
}

static fsdp_status put_all_items(writing *t)
{
    const fsdp_nesting nesting = {
        .path = t->run->to, .context = t, .key = key_of, .name = name_of, .write_item = put_item};
    return fsdp_nesting_write(&nesting, t->run->selection.n, fsdp_torch_writer_pickle(t->writer));
}

static fsdp_status append(void *context, uint64_t offset, const void *data, size_t bytes)
{
    writing *t = context;
    (void)offset; /* unused, because the pieces come in order and without gaps */
    return fsdp_torch_writer_data(t->writer, data, bytes);
}

static fsdp_status write_file(writing *t)
{
    fsdp_conversion *run = t->run;
    t->numbers = fsdp_calloc(run->selection.n, sizeof *t->numbers);
    t->is_tied = fsdp_calloc(run->selection.n, sizeof *t->is_tied);
    if (!t->numbers || !t->is_tied)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_torch_writer_create(run->to, &t->writer));
    if (run->is_sparse)
        fsdp_torch_writer_keep_holes(t->writer);
    FSDP_TRY(put_all_items(t));
    FSDP_TRY(fsdp_torch_writer_begin_data(t->writer));
    for (size_t i = 0; i < run->selection.n; i++)
        if (run->items[i].dtype && !t->is_tied[i])
            FSDP_TRY(fsdp_converted_stream(&run->items[i], append, t));
        else
            fsdp_conversion_step(run);
    fsdp_torch_writer *writer = t->writer;
    t->writer = NULL;
    return fsdp_torch_writer_finish(writer);
}

fsdp_status fsdp_convert_to_torch(fsdp_conversion *run)
{
    writing t = {.run = run};
    fsdp_status status = write_file(&t);
    fsdp_torch_writer_discard(t.writer);
    fsdp_free(t.numbers);
    fsdp_free(t.is_tied);
    return status;
}

/* ---- DCP ------------------------------------------------------------------------------------- */

static fsdp_status read_part(void *context, uint64_t offset, void *out, size_t bytes)
{
    const fsdp_converted *item = context;
    FSDP_TRY(fsdp_converted_read(item, offset, out, bytes));
    if (offset + bytes == (uint64_t)item->bytes)
        fsdp_conversion_step(item->run);
    return FSDP_OK;
}

static fsdp_status plan_tensor(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys,
                               fsdp_converted *item)
{
    const fsdp_source_item *from = item->from->item;
    const fsdp_dcp_tensor tensor = {.dtype_name = item->dtype->name,
                                    .shape = from->shape,
                                    .ndim = from->ndim,
                                    .end = from->ndim ? from->shape[0] : 1,
                                    .read = read_part,
                                    .context = item};
    fsdp_status status = fsdp_dcp_manifest_tensor(manifest, keys, item->from->n_keys, &tensor);
    fsdp_error_context(status, "%s",
                       fsdp_source_path(item->run->source)); /* the error message already names the
                                                                tensor */
    if (status == FSDP_OK && item->bytes == 0)
        fsdp_conversion_step(item->run); /* read_part() is not called for an empty tensor */
    return status;
}

static fsdp_status plan_value(fsdp_dcp_manifest *manifest, const fsdp_dcp_key *keys,
                              const fsdp_converted *item)
{
    const fsdp_pickle_value *value;
    fsdp_pickle_writer pickle = {0};
    FSDP_TRY(fsdp_source_value(item->run->source, item->from->item, &value));
    fsdp_status status = fsdp_pickle_put_value(&pickle, value);
    if (status != FSDP_OK) {
        fsdp_pickle_fini(&pickle);
        add_name(item, status);
        return status;
    }
    fsdp_conversion_step(item->run);
    return fsdp_dcp_manifest_value(manifest, keys, item->from->n_keys, &pickle);
}

static fsdp_status plan_items(fsdp_conversion *run, fsdp_dcp_manifest *manifest)
{
    for (size_t i = 0; i < run->selection.n; i++) {
        fsdp_converted *item = &run->items[i];
        fsdp_dcp_key keys[FSDP_PICKLE_MAX_DEPTH];
        /* An item without a name is an entry of a list at the top level. torch cannot load such a
         * list from DCP. */
        if (!item->from->keys[0].name)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "%s: a list; torch.distributed.checkpoint holds dicts",
                              fsdp_source_path(run->source));
        for (int k = 0; k < item->from->n_keys; k++)
            keys[k] = (fsdp_dcp_key){item->from->keys[k].name, item->from->keys[k].index};
        FSDP_TRY(item->dtype ? plan_tensor(manifest, keys, item)
                             : plan_value(manifest, keys, item));
    }
    return FSDP_OK;
}

fsdp_status fsdp_convert_to_dcp(fsdp_conversion *run)
{
    fsdp_dcp_manifest *manifest;
    const fsdp_group_place place = {.path = run->to,
                                    .existing = run->options->overwrite ? FSDP_EXISTING_UPDATE
                                                                        : FSDP_EXISTING_REFUSE,
                                    .is_stale = fsdp_conversion_drops,
                                    .is_stale_context = run};
    FSDP_TRY(fsdp_dcp_manifest_create(&manifest));
    manifest->is_sparse = run->is_sparse;
    fsdp_status status = plan_items(run, manifest);
    status = fsdp_dcp_save_manifest(status, &place, NULL, manifest);
    fsdp_dcp_manifest_destroy(manifest);
    return status;
}
