/* See name_patterns.h. */
#include "src/fsdp/name_patterns.h"

#include <fnmatch.h>
#include <string.h>

#include <fsdp/fsdp.h>

#include "src/base/alloc.h"
#include "src/base/nearest.h"

bool fsdp_name_matches(const char *pattern, const char *name)
{
    return fnmatch(pattern, name, FNM_NOESCAPE) == 0;
}

bool fsdp_module_matches(const char *pattern, const char *path, const fsdp_module *module)
{
    return fsdp_name_matches(pattern, path) || strcmp(pattern, fsdp_module_class(module)) == 0;
}

fsdp_status fsdp_name_list_add(fsdp_name_list *list, const char *name)
{
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    char *copy = fsdp_strdup(name);
    if (!copy)
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = copy;
    return FSDP_OK;
}

fsdp_status fsdp_name_list_add_parameters(fsdp_name_list *list,
                                          const fsdp_parameter_list *parameters)
{
    for (size_t i = 0; i < parameters->n; i++)
        FSDP_TRY(fsdp_name_list_add(list, parameters->items[i].name));
    return FSDP_OK;
}

typedef struct module_walk {
    fsdp_name_list *list;
    bool units_only;
} module_walk;

static fsdp_status add_module(const char *path, fsdp_module *m, void *arg)
{
    const module_walk *walk = arg;
    if (walk->units_only && !fsdp_module_is_unit(m))
        return FSDP_OK;
    if (*path)
        FSDP_TRY(fsdp_name_list_add(walk->list, path));
    return fsdp_name_list_add(walk->list, fsdp_module_class(m));
}

void fsdp_name_list_fini(fsdp_name_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        fsdp_free(list->items[i]);
    fsdp_free(list->items);
    *list = (fsdp_name_list){0};
}

fsdp_status fsdp_refuse_name(const char *flag, const char *word, const char *why,
                             const fsdp_name_list *known)
{
    const int nearest = fsdp_nearest_name(word, (const char *const *)known->items, known->n);
    if (nearest >= 0)
        return fsdp_error(FSDP_ERR_INVALID, "%s %s: %s; did you mean '%s'?", flag, word, why,
                          known->items[nearest]);
    return fsdp_error(FSDP_ERR_INVALID, "%s %s: %s%s%s%s", flag, word, why,
                      known->n ? "; the first is '" : "", known->n ? known->items[0] : "",
                      known->n ? "'" : "");
}

fsdp_status fsdp_refuse_module(const char *flag, const char *word, const char *why,
                               fsdp_module *root, bool units_only)
{
    fsdp_name_list known = {0};
    module_walk walk = {.list = &known, .units_only = units_only};
    fsdp_status status = fsdp_module_visit(root, add_module, &walk);
    if (status == FSDP_OK)
        status = fsdp_refuse_name(flag, word, why, &known);
    fsdp_name_list_fini(&known);
    return status;
}
