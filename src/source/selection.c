/* Finds the model's state dict among the items of a checkpoint, and removes the parts that wrappers
 * of modules added to names. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/source/selection.h"

/* ---- names ----------------------------------------------------------------------------------- */

static char *without_wrappers(fsdp_selection *s, const char *name)
{
    char *copy = fsdp_arena_alloc(&s->arena, strlen(name) + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, strlen(name) + 1);
    fsdp_name_unwrap(copy);
    return copy;
}

/* Append `item` to the selection, without its first `skip` keys. `name` is the item's name without
 * these keys. */
static fsdp_status add_item(fsdp_selection *s, const fsdp_source_item *item, int skip,
                            const char *name)
{
    const int n_keys = item->n_keys - skip;
    fsdp_nesting_key *keys = fsdp_arena_alloc(&s->arena, (size_t)n_keys * sizeof *keys);
    fsdp_selected *to = &s->items[s->n];
    if (!keys)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < n_keys; i++) {
        keys[i] = item->keys[skip + i];
        if (keys[i].name && !(keys[i].name = without_wrappers(s, keys[i].name)))
            return FSDP_ERR_NOMEM;
    }
    *to = (fsdp_selected){without_wrappers(s, name), keys, n_keys, item};
    if (!to->name)
        return FSDP_ERR_NOMEM;
    s->n++;
    return FSDP_OK;
}

/* Set the keys of item i to `keys`, and its name to the same keys joined with dots. */
static fsdp_status rename_item(fsdp_selection *s, size_t i, const fsdp_nesting_key *keys)
{
    fsdp_selected *to = &s->items[i];
    fsdp_str name = {0};
    for (int k = 0; k < to->n_keys; k++)
        fsdp_nesting_join(&name, k, keys[k].name, keys[k].index);
    char *copy = name.failed ? NULL : fsdp_arena_alloc(&s->arena, name.len + 1);
    if (copy) {
        memcpy(copy, name.data, name.len);
        to->name = copy;
        to->keys = keys;
    }
    fsdp_str_fini(&name);
    return copy ? FSDP_OK : fsdp_error_nomem();
}

/* Remove `prefix` from each key of item i that begins with it. */
static fsdp_status strip_keys(fsdp_selection *s, size_t i, const char *prefix)
{
    const fsdp_selected *of = &s->items[i];
    const size_t n = strlen(prefix);
    bool changed = false;
    fsdp_nesting_key *keys = fsdp_arena_alloc(&s->arena, (size_t)of->n_keys * sizeof *keys);
    if (!keys)
        return FSDP_ERR_NOMEM;
    for (int k = 0; k < of->n_keys; k++) {
        keys[k] = of->keys[k];
        if (keys[k].name && strncmp(keys[k].name, prefix, n) == 0 && keys[k].name[n]) {
            keys[k].name += n;
            changed = true;
        }
    }
    return changed ? rename_item(s, i, keys) : FSDP_OK;
}

/* Find the prefix that a wrapper added to all names of the model in `s`. Set *wrapper to this
 * prefix, which is allocated in s->arena. If there is no such prefix, or if an item of the model
 * has several keys, set *wrapper to "". */
static fsdp_status find_wrapper(fsdp_selection *s, const char **wrapper)
{
    *wrapper = "";
    const char **names = fsdp_calloc(s->n, sizeof(const char *));
    if (!names)
        return FSDP_ERR_NOMEM;
    size_t n = 0;
    while (n < s->n && s->items[n].n_keys == 1) {
        names[n] = s->items[n].name;
        n++;
    }
    const size_t length = n == s->n ? fsdp_names_wrapper_length(names, n) : 0;
    size_t i = 0;
    while (i < n && length && fsdp_name_without(names[i], length) == names[i])
        i++;
    char *copy = length && i < n ? fsdp_arena_alloc(&s->arena, length + 1) : NULL;
    if (copy)
        *wrapper = memcpy(copy, names[i], length);
    const bool failed = length && i < n && !copy;
    fsdp_free(names);
    return failed ? FSDP_ERR_NOMEM : FSDP_OK;
}

static fsdp_status strip_wrapper(fsdp_selection *s, const char *wrapper)
{
    for (size_t i = 0; i < s->n && *wrapper; i++)
        FSDP_TRY(strip_keys(s, i, wrapper));
    return FSDP_OK;
}

fsdp_status fsdp_selection_change(fsdp_selection *s, const fsdp_name_change *change)
{
    for (size_t i = 0; i < s->n; i++) {
        const fsdp_selected *of = &s->items[i];
        fsdp_nesting_key *keys = fsdp_arena_alloc(&s->arena, (size_t)of->n_keys * sizeof *keys);
        if (!keys)
            return FSDP_ERR_NOMEM;
        memcpy(keys, of->keys, (size_t)of->n_keys * sizeof *keys);
        for (int k = 0; k < of->n_keys && change->every_module; k++) {
            if (!keys[k].name)
                continue; /* the key is an index of a list, so it has no name */
            char *name = without_wrappers(s, keys[k].name);
            if (!name)
                return FSDP_ERR_NOMEM;
            fsdp_name_drop_modules(name);
            keys[k].name = name;
        }
        FSDP_TRY(rename_item(s, i, keys));
        if (*change->prefix)
            FSDP_TRY(strip_keys(s, i, change->prefix));
    }
    return FSDP_OK;
}

/* ---- finding the model ----------------------------------------------------------------------- */

enum {
    MAX_MODEL_KEYS = 8, /* a model whose tensors have more keys than this is not found */
    MAX_TOP_KEYS = 8    /* largest number of keys that a message lists */
};

static bool is_model_key(const fsdp_nesting_key *key, const char *name)
{
    return key->name && !key->is_int && strcmp(key->name, name) == 0;
}

/* Return true if `item` is a tensor in a model's state dict and has `n_keys` keys. The last key
 * must be the name of the tensor. The key before it must be a usual key of a model's state dict,
 * such as "model". */
static bool is_of_model(const fsdp_source_item *item, int n_keys)
{
    if (!item->dtype_name || item->n_keys != n_keys || !item->keys[n_keys - 1].name)
        return false;
    const fsdp_nesting_key *key = &item->keys[n_keys - 2];
    return is_model_key(key, "model") || is_model_key(key, "state_dict") ||
           is_model_key(key, "model_state_dict") || is_model_key(key, "module");
}

/* Return the length in bytes of the model's prefix. The prefix consists of the keys that lead to
 * the model's state dict, joined with dots. `found` is a tensor in this dict, or NULL if the model
 * is at the top. */
static size_t prefix_length(const fsdp_source_item *found)
{
    return found ? strlen(found->fqn) - strlen(found->keys[found->n_keys - 1].name) - 1 : 0;
}

/* Return true if `item` is in the dict that contains `found`, or in a dict below it. `found` is a
 * tensor of the model. `n` is prefix_length(found). */
static bool is_in_dict_of(const fsdp_source_item *item, const fsdp_source_item *found, size_t n)
{
    return strncmp(item->fqn, found->fqn, n) == 0 && item->fqn[n] == '.';
}

/* Return an error if there is another model that is as near the top as the model that contains
 * `found`. In this case it is unclear which model the user means. */
static fsdp_status check_alone(const fsdp_source *source, const fsdp_source_item *found)
{
    const size_t n = prefix_length(found);
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (is_of_model(item, found->n_keys) && !is_in_dict_of(item, found, n))
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: more than one model in it, '%.*s' and '%.*s': save the one that "
                              "is meant alone, in torch",
                              fsdp_source_path(source), (int)n, found->fqn,
                              (int)prefix_length(item), item->fqn);
    }
    return FSDP_OK;
}

/* Find the model that is nearest to the top. A model that is deeper may be a teacher model, or a
 * moving average of the model that is wanted. *found is set to a tensor of the model, or to NULL if
 * there is no model. */
static fsdp_status find_model(const fsdp_source *source, const fsdp_source_item **found)
{
    *found = NULL;
    for (int n_keys = 2; n_keys <= MAX_MODEL_KEYS && !*found; n_keys++)
        for (size_t i = 0; i < fsdp_source_count(source) && !*found; i++)
            if (is_of_model(fsdp_source_at(source, i), n_keys))
                *found = fsdp_source_at(source, i);
    return *found ? check_alone(source, *found) : FSDP_OK;
}

/* Add every tensor of the model that contains `found`. If `found` is NULL, add every tensor at the
 * top. */
static fsdp_status add_model(const fsdp_source *source, const fsdp_source_item *found,
                             fsdp_selection *s)
{
    const size_t n = prefix_length(found);
    const int skip = found ? found->n_keys - 1 : 0;
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (!item->dtype_name || item->n_keys <= skip || (!found && item->n_keys != 1))
            continue;
        if (found && !is_in_dict_of(item, found, n))
            continue;
        FSDP_TRY(add_item(s, item, skip, found ? item->fqn + n + 1 : item->fqn));
    }
    return FSDP_OK;
}

static bool has_key_before(const fsdp_source *source, size_t at, const char *key)
{
    for (size_t i = 0; i < at; i++) {
        const char *other = fsdp_source_at(source, i)->keys[0].name;
        if (other && strcmp(other, key) == 0)
            return true;
    }
    return false;
}

static fsdp_status no_model(const fsdp_source *source)
{
    fsdp_str top = {0};
    int n = 0;
    for (size_t i = 0; i < fsdp_source_count(source) && n < MAX_TOP_KEYS; i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (item->n_keys && item->keys[0].name && !has_key_before(source, i, item->keys[0].name))
            fsdp_str_printf(&top, "%s'%s'", n++ ? ", " : "", item->keys[0].name);
    }
    const fsdp_status status =
        top.failed ? fsdp_error_nomem()
                   : fsdp_error(FSDP_ERR_NOT_FOUND,
                                "%s: no model in it: no tensors at the top, nor below 'model', "
                                "'state_dict', 'model_state_dict' or 'module'; the keys at the top "
                                "are %s",
                                fsdp_source_path(source), n ? top.data : "none");
    fsdp_str_fini(&top);
    return status;
}

static fsdp_status select_model(const fsdp_source *source, fsdp_selection *s)
{
    const fsdp_source_item *found;
    FSDP_TRY(find_model(source, &found));
    s->prefix = fsdp_strndup(found ? found->fqn : "", prefix_length(found));
    if (!s->prefix)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(add_model(source, found, s));
    if (s->n) {
        const char *wrapper;
        FSDP_TRY(find_wrapper(s, &wrapper));
        return strip_wrapper(s, wrapper);
    }
    return no_model(source);
}

/* Find the prefix that a wrapper added to the names of the model's tensors. The optimizer's keys
 * may contain the same names, so the caller removes this prefix from the keys of all items.
 * *wrapper is set to "" if there is no prefix, or if several models are equally near the top. The
 * function uses `s` as scratch space: `s` must be empty, and is empty again afterwards. */
static fsdp_status find_wrapper_of_model(const fsdp_source *source, fsdp_selection *s,
                                         const char **wrapper)
{
    const fsdp_source_item *found;
    *wrapper = "";
    if (find_model(source, &found) != FSDP_OK)
        return FSDP_OK;
    FSDP_TRY(add_model(source, found, s));
    FSDP_TRY(find_wrapper(s, wrapper));
    s->n = 0;
    return FSDP_OK;
}

static fsdp_status select_all(const fsdp_source *source, fsdp_selection *s)
{
    const char *wrapper;
    FSDP_TRY(find_wrapper_of_model(source, s, &wrapper));
    for (size_t i = 0; i < fsdp_source_count(source); i++)
        FSDP_TRY(add_item(s, fsdp_source_at(source, i), 0, fsdp_source_at(source, i)->fqn));
    return strip_wrapper(s, wrapper);
}

/* ---- selections ------------------------------------------------------------------------------ */

static fsdp_status begin_selection(const fsdp_source *source, fsdp_selection *s)
{
    *s = (fsdp_selection){0};
    s->items = fsdp_calloc(fsdp_source_count(source), sizeof *s->items);
    return s->items ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status end(fsdp_selection *s, fsdp_status status)
{
    if (status != FSDP_OK)
        fsdp_selection_fini(s);
    return status;
}

fsdp_status fsdp_select_all(const fsdp_source *source, fsdp_selection *selection)
{
    FSDP_TRY(begin_selection(source, selection));
    return end(selection, select_all(source, selection));
}

fsdp_status fsdp_select_model(const fsdp_source *source, fsdp_selection *selection)
{
    FSDP_TRY(begin_selection(source, selection));
    return end(selection, select_model(source, selection));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const fsdp_selected *)a)->name, ((const fsdp_selected *)b)->name);
}

/* Return true if the first `n` bytes of `name` are the name of an item. The items must be
 * sorted. */
static bool has_item(const fsdp_selection *s, const char *name, size_t n)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const char *have = s->items[mid].name;
        int order = strncmp(have, name, n);
        if (order == 0 && have[n])
            order = 1;
        if (order == 0)
            return true;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return false;
}

bool fsdp_selection_is_flat_optimizer(const fsdp_selection *selection, const char *name)
{
    static const char state[] = "state.";
    const char *key = strrchr(name, '.');
    if (strncmp(name, state, sizeof state - 1) != 0 || key < name + sizeof state)
        return false;
    name += sizeof state - 1;
    return has_item(selection, name, (size_t)(key - name));
}

fsdp_status fsdp_selection_drop_flat_optimizer(fsdp_selection *s)
{
    fsdp_selected *kept = fsdp_calloc(s->n, sizeof *kept);
    size_t n = 0;
    if (!kept)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < s->n; i++)
        if (!fsdp_selection_is_flat_optimizer(s, s->items[i].name))
            kept[n++] = s->items[i];
    fsdp_free(s->items);
    s->items = kept;
    s->n = n;
    return FSDP_OK;
}

void fsdp_selection_sort(fsdp_selection *selection)
{
    if (selection->n)
        qsort(selection->items, selection->n, sizeof *selection->items, compare_names);
}

void fsdp_selection_fini(fsdp_selection *selection)
{
    fsdp_free(selection->items);
    fsdp_free(selection->prefix);
    fsdp_arena_fini(&selection->arena);
    *selection = (fsdp_selection){0};
}
