/* Saves a state dict as a torch.save file. Whole tensors are gathered one at a time, and rank 0
 * writes them. A rank can also save only its own parts. */
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/host_copy.h"
#include "src/torchfile/nesting.h"
#include "src/torchfile/safetensors_dtype.h"
#include "src/torchfile/torch_writer.h"

/* --- nesting --- */

/* An order of the items of a state dict in which the items of each nested dict are adjacent. In the
 * state dict itself, the items may be in any other order. */
typedef struct ordering {
    const fsdp_state_dict *dict;
    size_t *order; /* [n] indices of the dict's items, in the new order */
    size_t n;
    bool *taken; /* [count] true if the item is already in `order` */
} ordering;

static bool same_key(const fsdp_state_key *a, const fsdp_state_key *b)
{
    if (!a->name || !b->name)
        return !a->name && !b->name && a->index == b->index;
    return a->is_int == b->is_int && strcmp(a->name, b->name) == 0;
}

static bool same_prefix(const fsdp_state_entry *a, const fsdp_state_entry *b, int n_keys)
{
    for (int k = 0; k < n_keys; k++)
        if (k >= b->n_keys || !same_key(&a->keys[k], &b->keys[k]))
            return false;
    return true;
}

/* Put the items of one dict next to each other. The first n_keys keys of `first` lead to this dict.
 * Append to `order` all items of the dict that are not in `order` yet. The dict may contain inner
 * dicts. When the loop reaches the first item of an inner dict, it appends all items of that inner
 * dict at once. */
static void order_below(ordering *o, const fsdp_state_entry *first, int n_keys)
{
    for (size_t i = 0; i < fsdp_state_dict_count(o->dict); i++) {
        const fsdp_state_entry *e = fsdp_state_dict_at(o->dict, i);
        if (o->taken[i] || !same_prefix(first, e, n_keys))
            continue;
        if (e->n_keys > n_keys + 1) {
            order_below(o, e, n_keys + 1);
            continue;
        }
        o->taken[i] = true;
        o->order[o->n++] = i;
    }
}

static fsdp_status put_entry(fsdp_state_dict *dict, const fsdp_state_entry *e)
{
    return e->tensor ? fsdp_state_dict_put_tensor(dict, e->keys, e->n_keys, e->tensor)
                     : fsdp_state_dict_put_value(dict, e->keys, e->n_keys, e->value);
}

/* Copy the dict so that the items of each nested dict are adjacent. */
static fsdp_status nest(const fsdp_state_dict *dict, fsdp_state_dict **nested)
{
    size_t n = fsdp_state_dict_count(dict);
    ordering o = {.dict = dict};
    o.order = fsdp_calloc(n, sizeof *o.order);
    o.taken = fsdp_calloc(n, sizeof *o.taken);
    fsdp_status status = o.order && o.taken ? fsdp_state_dict_create(nested) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        if (n)
            order_below(&o, fsdp_state_dict_at(dict, 0), 0);
        for (size_t i = 0; i < o.n && status == FSDP_OK; i++)
            status = put_entry(*nested, fsdp_state_dict_at(dict, o.order[i]));
        if (status != FSDP_OK) {
            fsdp_state_dict_destroy(*nested);
            *nested = NULL;
        }
    }
    fsdp_free(o.order);
    fsdp_free(o.taken);
    return status;
}

/* --- the file without the data of tensors --- */

typedef struct writing {
    const char *path;
    fsdp_state_dict *dict; /* copy of the caller's dict, in the order of nest() */
    fsdp_state_dict *data; /* the items of `dict`, but each tensor only once */
    bool local;            /* save only this rank's parts */
    /* [items of `dict`] first[i] is the index of the first item with the same tensor as item i.
     * first[i] is less than i if the tensor has several names, as a tied parameter has. */
    size_t *first;
    size_t *numbers; /* [items of `dict`] number of the item's tensor in the file */
    fsdp_torch_writer *writer;
} writing;

/* Allocate `first` and `numbers`, and set t->first[i] for each item i. */
static fsdp_status find_first(writing *t)
{
    const size_t n = fsdp_state_dict_count(t->dict);
    t->numbers = fsdp_calloc(n, sizeof *t->numbers);
    t->first = fsdp_calloc(n, sizeof *t->first);
    if (!t->numbers || !t->first)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const fsdp_tensor *tensor = fsdp_state_dict_at(t->dict, i)->tensor;
        t->first[i] = tensor ? 0 : i;
        while (t->first[i] < i && fsdp_state_dict_at(t->dict, t->first[i])->tensor != tensor)
            t->first[i]++;
    }
    return FSDP_OK;
}

static fsdp_status open_writing(writing *t, const fsdp_state_dict *dict)
{
    FSDP_TRY(nest(dict, &t->dict));
    FSDP_TRY(find_first(t));
    FSDP_TRY(fsdp_state_dict_create(&t->data));
    for (size_t i = 0; i < fsdp_state_dict_count(t->dict); i++)
        if (t->first[i] == i)
            FSDP_TRY(put_entry(t->data, fsdp_state_dict_at(t->dict, i)));
    return FSDP_OK;
}

static void close_writing(writing *t)
{
    fsdp_torch_writer_discard(t->writer);
    fsdp_state_dict_destroy(t->data);
    fsdp_state_dict_destroy(t->dict);
    fsdp_free(t->numbers);
    fsdp_free(t->first);
}

static fsdp_status put_item(void *context, size_t i)
{
    const writing *t = context;
    const fsdp_state_entry *e = fsdp_state_dict_at(t->dict, i);
    const size_t first = t->first[i];
    if (!e->tensor) {
        fsdp_state_write_plain(fsdp_torch_writer_pickle(t->writer), e->value);
        return FSDP_OK;
    }
    if (first < i) {
        fsdp_torch_writer_tied(t->writer, t->numbers[first]);
        return FSDP_OK;
    }
    const bool whole = !t->local && fsdp_is_dtensor(e->tensor);
    const int64_t *shape = whole ? fsdp_dtensor_shape(e->tensor) : fsdp_tensor_shape(e->tensor);
    return fsdp_torch_writer_tensor(t->writer, fsdp_safetensors_dtype_of(e->tensor->dtype)->name,
                                    shape, fsdp_tensor_ndim(e->tensor), &t->numbers[i]);
}

static bool key_of(const void *context, size_t i, int level, fsdp_nesting_key *key)
{
    const writing *t = context;
    const fsdp_state_entry *e = fsdp_state_dict_at(t->dict, i);
    if (level >= e->n_keys)
        return false;
    const fsdp_state_key *from = &e->keys[level];
    *key = (fsdp_nesting_key){.name = from->name, .index = from->index, .is_int = from->is_int};
    return true;
}

static const char *name_of(const void *context, size_t i)
{
    const writing *t = context;
    return fsdp_state_dict_at(t->dict, i)->fqn;
}

static fsdp_status put_all_items(writing *t)
{
    const fsdp_nesting nesting = {
        .path = t->path, .context = t, .key = key_of, .name = name_of, .write_item = put_item};
    return fsdp_nesting_write(&nesting, fsdp_state_dict_count(t->dict),
                              fsdp_torch_writer_pickle(t->writer));
}

/* Create the file, and write everything except the data of tensors. */
static fsdp_status begin_file(writing *t)
{
    FSDP_TRY(fsdp_torch_writer_create(t->path, &t->writer));
    FSDP_TRY(put_all_items(t));
    return fsdp_torch_writer_begin_data(t->writer);
}

/* --- the data of tensors --- */

static fsdp_status write_tensor(const fsdp_state_entry *e, void *arg)
{
    const writing *t = arg;
    if (!e->tensor)
        return FSDP_OK;
    fsdp_host_copy copy;
    FSDP_TRY(fsdp_host_copy_of(&copy, e->tensor));
    const fsdp_status status = fsdp_torch_writer_data(t->writer, copy.data, copy.bytes);
    fsdp_host_copy_destroy(&copy);
    return status;
}

static fsdp_status save(writing *t, fsdp_group *group)
{
    bool writes = !group || fsdp_group_rank(group) == 0;
    FSDP_TRY(fsdp_agree(group, writes ? begin_file(t) : FSDP_OK));
    FSDP_TRY(fsdp_state_dict_stream(t->data, group, write_tensor, t));
    fsdp_torch_writer *writer = t->writer;
    t->writer = NULL;
    return fsdp_agree(group, writes ? fsdp_torch_writer_finish(writer) : FSDP_OK);
}

/* --- saving one rank's parts --- */

static fsdp_status write_part(writing *t, const fsdp_state_entry *e)
{
    if (!e->tensor)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_begin_read(e->tensor));
    fsdp_status status = write_tensor(e, t);
    fsdp_tensor_end_read(e->tensor);
    return status;
}

static fsdp_status save_parts(writing *t)
{
    FSDP_TRY(begin_file(t));
    for (size_t i = 0; i < fsdp_state_dict_count(t->data); i++)
        FSDP_TRY(write_part(t, fsdp_state_dict_at(t->data, i)));
    fsdp_torch_writer *writer = t->writer;
    t->writer = NULL;
    return fsdp_torch_writer_finish(writer);
}

fsdp_status fsdp_state_dict_write_parts(const fsdp_state_dict *dict, const char *path)
{
    writing t = {.path = path, .local = true};
    fsdp_status status = open_writing(&t, dict);
    if (status == FSDP_OK)
        status = save_parts(&t);
    close_writing(&t);
    return status;
}

/* --- saving whole tensors --- */

fsdp_status fsdp_torch_save(const fsdp_state_dict *dict, const char *path, fsdp_group *group)
{
    writing t = {.path = path};
    fsdp_status status = fsdp_agree(group, open_writing(&t, dict));
    if (status == FSDP_OK)
        status = save(&t, group);
    close_writing(&t);
    return status;
}
