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

/* A tensor of a model's dict, whose key is the last but one of its `n_keys` keys. */
static bool is_of_model(const fsdp_source_item *item, int n_keys)
{
    if (!item->dtype_name || item->n_keys != n_keys || !item->keys[n_keys - 1].name)
        return false;
    const fsdp_nesting_key *key = &item->keys[n_keys - 2];
    return is_model_key(key, "model") || is_model_key(key, "state_dict") ||
           is_model_key(key, "model_state_dict");
}

/* Length of the keys that lead to the model, joined with dots. */
static size_t prefix_length(const fsdp_source_item *found)
{
    return found ? strlen(found->fqn) - strlen(found->keys[found->n_keys - 1].name) - 1 : 0;
}

/* Has `item` the `n` bytes of keys that lead to the model `found`? */
static bool is_in_dict_of(const fsdp_source_item *item, const fsdp_source_item *found, size_t n)
{
    return strncmp(item->fqn, found->fqn, n) == 0 && item->fqn[n] == '.';
}

/* Which of two is meant nobody said. */
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

/* At the top if there is one: a dict beside it may hold its moving average, or a teacher. NULL:
 * there is none. */
static fsdp_status find_model(const fsdp_source *source, const fsdp_source_item **found)
{
    *found = NULL;
    for (int n_keys = 2; n_keys <= 3 && !*found; n_keys++)
        for (size_t i = 0; i < fsdp_source_count(source) && !*found; i++)
            if (is_of_model(fsdp_source_at(source, i), n_keys))
                *found = fsdp_source_at(source, i);
    return *found ? check_alone(source, *found) : FSDP_OK;
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
        if (found && !is_in_dict_of(item, found, n))
            continue;
        FSDP_TRY(add(s, item, skip, found ? item->fqn + n + 1 : item->fqn));
    }
    return FSDP_OK;
}

static fsdp_status select_model(const fsdp_source *source, fsdp_selection *s)
{
    const fsdp_source_item *found;
    FSDP_TRY(find_model(source, &found));
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

/* Is one of the sorted items called by the first `n` bytes of `name`? */
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
