/* Finding the model's state dict among the items of a checkpoint, and names without wrappers. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/ckpt/selection.h"

/* ---- names ----------------------------------------------------------------------------------- */

static void cut_out(char *name, const char *part)
{
    size_t n = strlen(part);
    for (char *at = strstr(name, part); at; at = strstr(at, part))
        memmove(at, at + n, strlen(at + n) + 1);
}

static char *without_wrappers(fsdp_selection *s, const char *name)
{
    char *copy = fsdp_arena_alloc(&s->arena, strlen(name) + 1);
    if (!copy)
        return NULL;
    memcpy(copy, name, strlen(name) + 1);
    cut_out(copy, "_fsdp_wrapped_module.");
    cut_out(copy, "_checkpoint_wrapped_module.");
    cut_out(copy, "_orig_mod.");
    return copy;
}

/* `name` is what is left of the item's once its first `skip` keys are gone. */
static fsdp_status add(fsdp_selection *s, const fsdp_source_item *item, int skip, const char *name)
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

/* ---- the model ------------------------------------------------------------------------------- */

static bool is_model_key(const fsdp_nesting_key *key, const char *name)
{
    return key->name && !key->is_int && strcmp(key->name, name) == 0;
}

/* A tensor of the dict `name`, the last but one of its `n_keys` keys. */
static bool is_below(const fsdp_source_item *item, const char *name, int n_keys)
{
    return item->dtype_name && item->n_keys == n_keys && item->keys[n_keys - 1].name &&
           is_model_key(&item->keys[item->n_keys - 2], name);
}

/* At the top if there is one: a dict beside it may hold its moving average, or a teacher. */
static const fsdp_source_item *find_model(const fsdp_source *source)
{
    static const char *const names[] = {"model", "state_dict", "model_state_dict"};
    for (int n_keys = 2; n_keys <= 3; n_keys++)
        for (size_t k = 0; k < FSDP_LENGTH(names); k++)
            for (size_t i = 0; i < fsdp_source_count(source); i++)
                if (is_below(fsdp_source_at(source, i), names[k], n_keys))
                    return fsdp_source_at(source, i);
    return NULL;
}

/* Length of the keys that lead to the model, joined with dots. */
static size_t prefix_length(const fsdp_source_item *found)
{
    return found ? strlen(found->fqn) - strlen(found->keys[found->n_keys - 1].name) - 1 : 0;
}

/* Every tensor below the same keys. */
static fsdp_status add_model(const fsdp_source *source, const fsdp_source_item *found,
                             fsdp_selection *s)
{
    const size_t n = prefix_length(found);
    const int skip = found ? found->n_keys - 1 : 0;
    for (size_t i = 0; i < fsdp_source_count(source); i++) {
        const fsdp_source_item *item = fsdp_source_at(source, i);
        if (!item->dtype_name || item->n_keys <= skip || (!found && item->n_keys != 1))
            continue;
        if (found && (strncmp(item->fqn, found->fqn, n) != 0 || item->fqn[n] != '.'))
            continue;
        FSDP_TRY(add(s, item, skip, found ? item->fqn + n + 1 : item->fqn));
    }
    return FSDP_OK;
}

static fsdp_status select_model(const fsdp_source *source, fsdp_selection *s)
{
    const fsdp_source_item *found = find_model(source);
    s->prefix = fsdp_strndup(found ? found->fqn : "", prefix_length(found));
    if (!s->prefix)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(add_model(source, found, s));
    if (s->n)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "%s: no model in it: no tensors at the top, nor below 'model', 'state_dict' "
                      "or 'model_state_dict'",
                      fsdp_source_path(source));
}

static fsdp_status select_all(const fsdp_source *source, fsdp_selection *s)
{
    for (size_t i = 0; i < fsdp_source_count(source); i++)
        FSDP_TRY(add(s, fsdp_source_at(source, i), 0, fsdp_source_at(source, i)->fqn));
    return FSDP_OK;
}

/* ---- selections ------------------------------------------------------------------------------ */

static fsdp_status begin(const fsdp_source *source, fsdp_selection *s)
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
    FSDP_TRY(begin(source, selection));
    return end(selection, select_all(source, selection));
}

fsdp_status fsdp_select_model(const fsdp_source *source, fsdp_selection *selection)
{
    FSDP_TRY(begin(source, selection));
    return end(selection, select_model(source, selection));
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const fsdp_selected *)a)->name, ((const fsdp_selected *)b)->name);
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
