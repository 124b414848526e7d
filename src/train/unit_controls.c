/* See unit_controls.h. */
#include "src/train/unit_controls.h"

#include "src/base/alloc.h"
#include "src/fsdp/name_patterns.h"

/* The units below the root, parents before children. A unit of several modules is represented by
 * its first module. */
typedef struct unit_list {
    fsdp_module **items;
    size_t n, cap;
} unit_list;

static fsdp_status add_unit(const char *path, fsdp_module *m, void *arg)
{
    unit_list *list = arg;
    fsdp_unit_info info;
    if (!*path || !fsdp_module_is_unit(m))
        return FSDP_OK;
    FSDP_TRY(fsdp_unit_get_info(m, &info));
    if (info.first_module != m)
        return FSDP_OK;
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = m;
    return FSDP_OK;
}

static size_t at_most(size_t n, int most)
{
    return n < (size_t)most ? n : (size_t)most;
}

/* Set the prefetch lists of all units. The forward list of a unit has the next `forward` units. The
 * backward list of a unit has the `backward` units that precede the unit, nearest first. `before`
 * is scratch memory with capacity for all units. */
static fsdp_status set_prefetch(const unit_list *units, int forward, int backward,
                                fsdp_module **before)
{
    for (size_t i = 0; i < units->n; i++) {
        const size_t after = at_most(units->n - 1 - i, forward), n = at_most(i, backward);
        if (after)
            FSDP_TRY(
                fsdp_set_modules_to_forward_prefetch(units->items[i], &units->items[i + 1], after));
        for (size_t k = 0; k < n; k++)
            before[k] = units->items[i - 1 - k];
        if (n)
            FSDP_TRY(fsdp_set_modules_to_backward_prefetch(units->items[i], before, n));
    }
    return FSDP_OK;
}

static fsdp_status set_depths(const fsdp_train_config *c, fsdp_module *root)
{
    unit_list units = {0};
    fsdp_status status = fsdp_module_visit(root, add_unit, &units);
    fsdp_module **before = fsdp_calloc(units.n + 1, sizeof(fsdp_module *));
    if (status == FSDP_OK && !before)
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status =
            set_prefetch(&units, c->forward_prefetch_depth, c->backward_prefetch_depth, before);
    fsdp_free(before);
    fsdp_free(units.items);
    return status;
}

typedef struct search {
    const char *word;
    size_t found;
} search;

static fsdp_status keep_sharded(const char *path, fsdp_module *m, void *arg)
{
    search *s = arg;
    if (!fsdp_module_is_unit(m) || !fsdp_module_matches(s->word, path, m))
        return FSDP_OK;
    s->found++;
    return fsdp_set_unshard_in_backward(m, false);
}

static fsdp_status keep_sharded_in_backward(fsdp_module *root, const char *word)
{
    search s = {.word = word};
    FSDP_TRY(fsdp_module_visit(root, keep_sharded, &s));
    return s.found ? FSDP_OK
                   : fsdp_refuse_module("--no-unshard-in-backward", word, "there is no such unit",
                                        root, true);
}

fsdp_status fsdp_train_set_unit_controls(const fsdp_train_config *c, fsdp_module *root)
{
    if (c->forward_prefetch_depth || c->backward_prefetch_depth)
        FSDP_TRY(set_depths(c, root));
    for (size_t i = 0; i < c->no_unshard_in_backward.count; i++)
        FSDP_TRY(keep_sharded_in_backward(root, c->no_unshard_in_backward.items[i]));
    return FSDP_OK;
}
