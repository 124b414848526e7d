/* Lists the items of a torch.save file. The keys of an item are the dict keys and list indices that
 * lead to it. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/source/source_internal.h"
#include "src/torchfile/torch_dtensor.h"

typedef struct walk {
    fsdp_source *source;
    fsdp_nesting_key keys[FSDP_PICKLE_MAX_DEPTH]; /* keys that lead to the current value */
    size_t budget; /* number of visits of values that are still allowed. A value that several lists
                      contain is visited once for each of them, so without a limit a hostile file
                      could cause an enormous number of visits */
} walk;

/* ---- which values are taken apart ------------------------------------------------------------ */

static bool has_container(walk *w, const fsdp_pickle_value *list)
{
    for (size_t i = 0; i < list->list.n; i++) {
        const fsdp_pickle_value *v = list->list.items[i];
        if (w->budget == 0)
            return false;
        w->budget--;
        if (fsdp_torch_is_tensor(v) || fsdp_torch_is_dtensor(v) || v->kind == FSDP_PICKLE_DICT ||
            (v->kind == FSDP_PICKLE_LIST && has_container(w, v)))
            return true;
    }
    return false;
}

/* Return the first key of a dict that cannot be a key of an item, because it is neither text nor an
 * int. Return NULL if there is none. */
static const fsdp_pickle_value *odd_key(const fsdp_pickle_value *dict)
{
    for (size_t i = 0; i + 1 < dict->list.n; i += 2)
        if (!fsdp_pickle_text(dict->list.items[i]) &&
            !fsdp_pickle_is(dict->list.items[i], FSDP_PICKLE_INT))
            return dict->list.items[i];
    return NULL;
}

/* Return true if the value is taken apart, so that each of its parts is an item or is taken apart,
 * too. Return false if the whole value is one item. As in torch.distributed.checkpoint, dicts are
 * taken apart. Lists are taken apart if they contain dicts or tensors. Three kinds of dicts are not
 * taken apart: an empty dict, a dict with a key that is neither text nor an int, and a Counter that
 * contains neither dicts nor tensors. */
static bool is_taken_apart(walk *w, const fsdp_pickle_value *v)
{
    return (v->kind == FSDP_PICKLE_DICT && v->list.n > 0 && !odd_key(v) &&
            (!v->counts || has_container(w, v))) ||
           (v->kind == FSDP_PICKLE_LIST && has_container(w, v));
}

/* ---- items ----------------------------------------------------------------------------------- */

static fsdp_status add_tensor(walk *w, const fsdp_pickle_value *v, int n_keys)
{
    fsdp_source *source = w->source;
    fsdp_checkpoint_entry *entry = fsdp_arena_alloc(&source->arena, sizeof *entry);
    fsdp_source_item *item;
    if (!entry)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_source_add(source, w->keys, n_keys, &item));
    FSDP_TRY(fsdp_torch_archive_tensor(source->archive, v, item->fqn, entry));
    fsdp_source_set_entry(item, entry);
    item->value = v;
    return FSDP_OK;
}

static fsdp_status add_value(walk *w, const fsdp_pickle_value *v, int n_keys)
{
    fsdp_source_item *item;
    FSDP_TRY(fsdp_source_add(w->source, w->keys, n_keys, &item));
    item->value = v;
    item->file = w->source->path;
    return FSDP_OK;
}

static fsdp_status set_key(walk *w, const fsdp_pickle_value *key, fsdp_nesting_key *to)
{
    enum {
        ROOM = 24
    };
    *to = (fsdp_nesting_key){.name = fsdp_pickle_text(key)};
    if (to->name)
        return FSDP_OK;
    char *digits = fsdp_arena_alloc(&w->source->arena, ROOM);
    if (!digits)
        return FSDP_ERR_NOMEM;
    snprintf(digits, ROOM, "%lld", (long long)key->integer);
    to->name = digits;
    to->is_int = true;
    return FSDP_OK;
}

static fsdp_status visit(walk *w, const fsdp_pickle_value *v, int n_keys);

static fsdp_status visit_items(walk *w, const fsdp_pickle_value *v, int n_keys)
{
    const bool is_dict = v->kind == FSDP_PICKLE_DICT;
    if (n_keys == FSDP_PICKLE_MAX_DEPTH)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: nested too deeply", w->source->path);
    for (size_t i = 0; i < v->list.n; i += is_dict ? 2 : 1) {
        if (is_dict)
            FSDP_TRY(set_key(w, v->list.items[i], &w->keys[n_keys]));
        else
            w->keys[n_keys] = (fsdp_nesting_key){.index = (int64_t)i};
        FSDP_TRY(visit(w, v->list.items[is_dict ? i + 1 : i], n_keys + 1));
    }
    return FSDP_OK;
}

static fsdp_status visit(walk *w, const fsdp_pickle_value *v, int n_keys)
{
    if (w->budget == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: its values are nested without end",
                          w->source->path);
    w->budget--;
    if (fsdp_torch_is_tensor(v))
        return add_tensor(w, v, n_keys);
    if (fsdp_torch_is_dtensor(v))
        return fsdp_source_add_dtensor(w->source, w->keys, n_keys, v);
    if (v->kind == FSDP_PICKLE_OPAQUE)
        FSDP_TRY(fsdp_torch_refuse_part(
            w->source->path, w->keys[n_keys - 1].name ? w->keys[n_keys - 1].name : "a list's item",
            v, NULL));
    return is_taken_apart(w, v) ? visit_items(w, v, n_keys) : add_value(w, v, n_keys);
}

static fsdp_status refuse_key(const fsdp_source *source, const fsdp_pickle_value *key)
{
    enum {
        SHOWN_BYTES = 100
    };
    fsdp_str text = {0};
    fsdp_source_repr(key, SHOWN_BYTES, &text);
    fsdp_status status =
        text.failed ? FSDP_ERR_NOMEM
                    : fsdp_error(FSDP_ERR_UNSUPPORTED,
                                 "%s: key %s of its dict is neither a text without NUL nor an int",
                                 source->path, text.data);
    fsdp_str_fini(&text);
    return status;
}

/* Check that the outermost value of the file is a list, or a dict whose keys are text or ints. Only
 * the outermost dict is checked. A dict below it may have keys of other types, because such a dict
 * is not taken apart: the whole dict is one item. */
static fsdp_status check_root(const fsdp_source *source, const fsdp_pickle_value *root)
{
    char text[128];
    FSDP_TRY(fsdp_torch_refuse_object(source->path, root));
    if (!fsdp_pickle_is(root, FSDP_PICKLE_DICT) && !fsdp_pickle_is(root, FSDP_PICKLE_LIST))
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: expected a dict or a list, found %s",
                          source->path, fsdp_pickle_describe(root, text, sizeof text));
    const fsdp_pickle_value *odd = root->kind == FSDP_PICKLE_DICT ? odd_key(root) : NULL;
    return odd ? refuse_key(source, odd) : FSDP_OK;
}

/* List the items of source->archive. */
static fsdp_status list_archive(fsdp_source *source)
{
    const fsdp_pickle_value *root = fsdp_torch_archive_root(source->archive);
    FSDP_TRY(check_root(source, root));
    walk *w = fsdp_calloc(1, sizeof *w);
    if (!w)
        return FSDP_ERR_NOMEM;
    w->source = source;
    w->budget = source->map.bytes;
    fsdp_status status = visit_items(w, root, 0);
    fsdp_free(w);
    return status;
}

fsdp_status fsdp_source_open_torch(fsdp_source *source)
{
    FSDP_TRY(fsdp_file_map(source->path, &source->map));
    FSDP_TRY(fsdp_torch_archive_create(source->path, source->map.data, source->map.bytes,
                                       &source->archive));
    return list_archive(source);
}
