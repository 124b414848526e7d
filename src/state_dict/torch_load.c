/* Loads a torch.save file as a new state dict. The keys of an item are the dict keys and list
 * indices that lead to it in the file. Tensors are copied. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/log.h"
#include "src/state_dict/state_dict.h"
#include "src/tensor/tensor.h"
#include "src/torchfile/torch_archive.h"
#include "src/torchfile/torch_dtensor.h"

typedef struct loading {
    const char *path;
    fsdp_device *device;
    fsdp_torch_archive *archive;
    fsdp_state_dict *dict;
    fsdp_state_key keys[FSDP_PICKLE_MAX_DEPTH]; /* keys that lead to the current value */
    fsdp_arena arena; /* owns temporary plain values and texts of int keys */
    struct {
        const void *data;
        fsdp_tensor *tensor; /* borrowed from the dict */
    } * loaded;
    size_t n_loaded, cap_loaded;
    size_t visits; /* number of values that may still be visited. It is limited, because a hostile
                      file can have an enormous number of paths to its values */
    size_t tensor_budget; /* number of bytes of tensors that may still be copied */
} loading;

/* --- tensors --- */

/* Return the tensor that was already loaded from the same bytes of the file, or NULL if there is
 * none. A tied parameter, for example, is one tensor with several names. */
static fsdp_tensor *find_alias(const loading *l, const fsdp_checkpoint_entry *entry,
                               fsdp_dtype dtype)
{
    for (size_t i = l->n_loaded; i-- > 0;) {
        fsdp_tensor *t = l->loaded[i].tensor;
        if (l->loaded[i].data == entry->data && t->dtype == dtype && t->ndim == entry->ndim &&
            memcmp(t->shape, entry->shape, (size_t)entry->ndim * sizeof *t->shape) == 0)
            return t;
    }
    return NULL;
}

static fsdp_status load_tensor(loading *l, const fsdp_checkpoint_entry *entry, fsdp_dtype dtype,
                               fsdp_tensor **tensor)
{
    if (entry->bytes > l->tensor_budget)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: its tensors overlap: together they are many times "
                          "as large as the file",
                          l->path);
    l->tensor_budget -= entry->bytes;
    if (!FSDP_GROW(l->loaded, l->cap_loaded, l->n_loaded + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_tensor_from_data(l->device, dtype, entry->ndim, entry->shape, entry->data,
                                   FSDP_TAG_DATA, tensor));
    l->loaded[l->n_loaded].tensor = *tensor;
    l->loaded[l->n_loaded++].data = entry->data;
    return FSDP_OK;
}

/* --- items --- */

static fsdp_status put_tensor(loading *l, const fsdp_pickle_value *v, int n_keys)
{
    fsdp_checkpoint_entry entry;
    fsdp_dtype dtype;
    const char *last = l->keys[n_keys - 1].name;
    FSDP_TRY(fsdp_torch_archive_tensor(l->archive, v, last ? last : "a list's item", &entry));
    FSDP_TRY(fsdp_checkpoint_entry_dtype(&entry, &dtype));
    fsdp_tensor *tensor = find_alias(l, &entry, dtype);
    if (tensor)
        return fsdp_state_dict_put_tensor(l->dict, l->keys, n_keys, tensor);
    FSDP_TRY(load_tensor(l, &entry, dtype, &tensor));
    fsdp_status status = fsdp_state_dict_put_tensor(l->dict, l->keys, n_keys, tensor);
    fsdp_tensor_release(tensor);
    return status;
}

/* Check that no earlier item has the name of this item. Different keys can give the same name when
 * they are joined. */
static fsdp_status check_name(const loading *l, int n_keys)
{
    char *fqn = fsdp_state_keys_join(l->keys, n_keys);
    if (!fqn)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_state_dict_find(l->dict, fqn))
        status = fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: two items have the name '%s'", l->path, fqn);
    fsdp_free(fqn);
    return status;
}

static fsdp_status put_value(loading *l, const fsdp_pickle_value *v, int n_keys);

/* Set *place to `key`, a key of a dict in the file. It must be text or an int. The state dicts of
 * optimizers, for example, have parameter numbers as keys. */
static fsdp_status set_key(loading *l, const fsdp_pickle_value *key, fsdp_state_key *place)
{
    char text[128];
    *place = (fsdp_state_key){.name = fsdp_pickle_text(key)};
    if (place->name)
        return FSDP_OK;
    if (fsdp_pickle_is(key, FSDP_PICKLE_INT)) {
        size_t room = 24;
        char *digits = fsdp_arena_alloc(&l->arena, room);
        if (!digits)
            return FSDP_ERR_NOMEM;
        snprintf(digits, room, "%lld", (long long)key->integer);
        place->name = digits;
        place->is_int = true;
        return FSDP_OK;
    }
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: %s as key of a dict", l->path,
                      fsdp_pickle_describe(key, text, sizeof text));
}

static fsdp_status put_items(loading *l, const fsdp_pickle_value *v, int n_keys)
{
    const bool is_dict = v->kind == FSDP_PICKLE_DICT;
    if (n_keys == FSDP_PICKLE_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: nested too deeply", l->path);
    for (size_t i = 0; i < v->list.n; i += is_dict ? 2 : 1) {
        if (is_dict)
            FSDP_TRY(set_key(l, v->list.items[i], &l->keys[n_keys]));
        else
            l->keys[n_keys] = (fsdp_state_key){.index = (int64_t)i};
        FSDP_TRY(put_value(l, v->list.items[is_dict ? i + 1 : i], n_keys + 1));
    }
    return FSDP_OK;
}

/* Set *has to true if the value is a tensor or contains one. */
static fsdp_status has_tensor(loading *l, const fsdp_pickle_value *v, bool *has)
{
    if (l->visits-- == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: its values are nested without end", l->path);
    *has |= fsdp_torch_is_tensor(v);
    const bool is_list = v->kind == FSDP_PICKLE_DICT || v->kind == FSDP_PICKLE_LIST ||
                         v->kind == FSDP_PICKLE_TUPLE || v->kind == FSDP_PICKLE_SET;
    for (size_t i = 0; is_list && i < v->list.n && !*has; i++)
        FSDP_TRY(has_tensor(l, v->list.items[i], has));
    return FSDP_OK;
}

/* Skip a value that is not read: one that contains an instance of a class, bytes, an int beyond 64
 * bits, or a tuple of deeply nested values. Log a warning. */
static fsdp_status pass_over(const loading *l, const fsdp_pickle_value *v, int n_keys)
{
    char text[128];
    char *fqn = fsdp_state_keys_join(l->keys, n_keys);
    if (!fqn)
        return FSDP_ERR_NOMEM;
    fsdp_log("state", FSDP_LOG_WARN, -1, 1, "%s: '%s' is left out: %s, which is not read", l->path,
             fqn,
             fsdp_pickle_describe(v->opaque ? fsdp_pickle_find_opaque(v) : v, text, sizeof text));
    fsdp_free(fqn);
    return FSDP_OK;
}

static fsdp_status put_value(loading *l, const fsdp_pickle_value *v, int n_keys)
{
    char text[128];
    fsdp_plain plain;
    bool is_plain, has = false;
    if (l->visits-- == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: its values are nested without end", l->path);
    if (fsdp_torch_is_tensor(v)) {
        FSDP_TRY(check_name(l, n_keys));
        return put_tensor(l, v, n_keys);
    }
    const char *last = l->keys[n_keys - 1].name;
    FSDP_TRY(fsdp_torch_refuse_part(l->path, last ? last : "a list's item", v, NULL));
    fsdp_status status = fsdp_state_read_plain(v, &l->arena, &plain, &is_plain);
    fsdp_error_context(status, "%s", l->path);
    FSDP_TRY(status);
    if (is_plain)
        FSDP_TRY(check_name(l, n_keys));
    if (is_plain)
        return fsdp_state_dict_put_value(l->dict, l->keys, n_keys, &plain);
    if (v->kind == FSDP_PICKLE_DICT || v->kind == FSDP_PICKLE_LIST)
        return put_items(l, v, n_keys);
    if (!v->opaque)
        FSDP_TRY(has_tensor(l, v, &has));
    if (!has)
        return pass_over(l, v, n_keys);
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: %s with a tensor in it, which is not read",
                      l->path, fsdp_pickle_describe(v, text, sizeof text));
}

static fsdp_status load(loading *l)
{
    char text[128];
    const fsdp_pickle_value *root = fsdp_torch_archive_root(l->archive);
    FSDP_TRY(fsdp_torch_refuse_object(l->path, root));
    if (!fsdp_pickle_is(root, FSDP_PICKLE_DICT))
        return fsdp_error(FSDP_ERR_FORMAT, "%s: expected a dict, found %s", l->path,
                          fsdp_pickle_describe(root, text, sizeof text));
    return put_items(l, root, 0);
}

fsdp_status fsdp_torch_load(const char *path, fsdp_device *device, fsdp_state_dict **dict)
{
    fsdp_mapping map = {0};
    loading *l = fsdp_calloc(1, sizeof *l);
    if (!l)
        return FSDP_ERR_NOMEM;
    l->path = path;
    l->device = device;
    fsdp_status status = fsdp_file_map(path, &map);
    l->visits = map.bytes;
    l->tensor_budget = 16 * map.bytes;
    if (status == FSDP_OK)
        status = fsdp_torch_archive_create(path, map.data, map.bytes, &l->archive);
    if (status == FSDP_OK)
        status = fsdp_state_dict_create(&l->dict);
    if (status == FSDP_OK)
        status = load(l);
    if (status == FSDP_OK)
        *dict = l->dict;
    else
        fsdp_state_dict_destroy(l->dict);
    fsdp_torch_archive_destroy(l->archive);
    fsdp_file_unmap(&map);
    fsdp_arena_fini(&l->arena);
    fsdp_free(l->loaded);
    fsdp_free(l);
    return status;
}
