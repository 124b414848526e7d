/* See weights_names.h. */
#include "src/pretrained/weights_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/models/model_type.h"
#include "src/nn/module.h"
#include "src/pretrained/load_names.h"

typedef struct fitting {
    const char *label;
    const char *const *names; /* [n] names of the weights */
    size_t n;
    const fsdp_model_type *type;
    fsdp_parameter_list wanted; /* every name of every parameter */
    const char **sorted;        /* [n] sorted copies of `names`; find_change() removes prefixes from
                                   them */
    fsdp_arena arena;           /* owns the strings of `sorted` */
} fitting;

/* ---- names that the model needs -------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const void *in_sorted(const void *file, const char *name)
{
    const fitting *f = file;
    return bsearch(&name, f->sorted, f->n, sizeof *f->sorted, compare_names);
}

static bool is_below(const char *name, const char *module)
{
    const size_t n = strlen(module);
    return strncmp(name, module, n) == 0 && name[n] == '.';
}

bool fsdp_weights_name_is_optional(const fsdp_model_type *type, const char *name)
{
    for (const char *const *m = type->fresh_modules; m && *m; m++)
        if (is_below(name, *m))
            return true;
    return type->head && strcmp(name, type->head) == 0;
}

static fsdp_status is_found(const fitting *f, const fsdp_parameter *parameter, bool *found)
{
    *found = false;
    for (size_t k = 0; k < f->wanted.n && !*found; k++) {
        const void *entry;
        if (f->wanted.items[k].parameter != parameter)
            continue;
        FSDP_TRY(
            fsdp_load_lookup(in_sorted, f, f->type->base_prefix, f->wanted.items[k].name, &entry));
        *found = entry != NULL;
    }
    return FSDP_OK;
}

/* Find the first parameter that the model requires and that is not in `sorted` under any of its
 * names. *missing is a name of this parameter, or NULL if there is no such parameter. */
static fsdp_status find_missing(const fitting *f, const char **missing)
{
    *missing = NULL;
    for (size_t i = 0; i < f->wanted.n && !*missing; i++) {
        bool found;
        FSDP_TRY(is_found(f, f->wanted.items[i].parameter, &found));
        if (!found && !fsdp_weights_name_is_optional(f->type, f->wanted.items[i].name))
            *missing = f->wanted.items[i].name;
    }
    return FSDP_OK;
}

/* ---- changes to try -------------------------------------------------------------------------- */

/* Fill `sorted` with sorted copies of the names. If `every_module`, remove every "module." from the
 * copies. */
static fsdp_status begin_names(fitting *f, bool every_module)
{
    for (size_t i = 0; i < f->n; i++) {
        char *copy = fsdp_arena_alloc(&f->arena, strlen(f->names[i]) + 1);
        if (!copy)
            return FSDP_ERR_NOMEM;
        memcpy(copy, f->names[i], strlen(f->names[i]) + 1);
        if (every_module)
            fsdp_name_drop_modules(copy);
        f->sorted[i] = copy;
    }
    if (f->n)
        qsort(f->sorted, f->n, sizeof *f->sorted, compare_names);
    return FSDP_OK;
}

/* If all names in `sorted` have the same first component, return the length of this component in
 * bytes, including its dot. Otherwise return 0. The first component of a name ends with the name's
 * first dot. Removing a common component does not change the order of the names. */
static size_t common_component(const fitting *f)
{
    const char *dot = f->n ? strchr(f->sorted[0], '.') : NULL;
    const size_t length = dot ? (size_t)(dot - f->sorted[0]) + 1 : 0;
    const char *last = f->n ? f->sorted[f->n - 1] : "";
    return length && strncmp(f->sorted[0], last, length) == 0 ? length : 0;
}

static fsdp_status try_prefixes(fitting *f, fsdp_name_change *change, const char **missing)
{
    size_t used = 0;
    FSDP_TRY(find_missing(f, missing));
    for (size_t n; *missing && (n = common_component(f)) > 0;) {
        if (used + n >= sizeof change->prefix)
            return FSDP_OK;
        memcpy(change->prefix + used, f->sorted[0], n);
        used += n;
        for (size_t i = 0; i < f->n; i++)
            f->sorted[i] += n;
        FSDP_TRY(find_missing(f, missing));
    }
    return FSDP_OK;
}

/* Search for a change that makes the names fit the model. If such a change is found, set *change to
 * it, and *missing to NULL. If the names already fit, the change removes nothing. If no such change
 * is found, do not change *change. In this case, set *missing to the first name that the model
 * requires and that is not among the unchanged names. */
static fsdp_status find_change(fitting *f, fsdp_name_change *change, const char **missing)
{
    for (int every_module = 0; every_module < 2; every_module++) {
        const char *lacking;
        fsdp_name_change tried = {.every_module = every_module};
        FSDP_TRY(begin_names(f, every_module));
        if (!every_module)
            FSDP_TRY(find_missing(f, missing));
        FSDP_TRY(try_prefixes(f, &tried, &lacking));
        if (lacking)
            continue;
        *change = tried;
        *missing = NULL;
        return FSDP_OK;
    }
    return FSDP_OK;
}

/* ---- explanations of a misfit ---------------------------------------------------------------- */

static const char *name_with(const fitting *f, const char *part)
{
    for (size_t i = 0; i < f->n; i++)
        if (strstr(f->names[i], part))
            return f->names[i];
    return NULL;
}

static size_t count_with_prefix(const fitting *f, const char *prefix, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < f->n; i++)
        count += strncmp(f->names[i], prefix, length) == 0;
    return count;
}

/* Return a name in the weights that ends with a dot and `wanted`, or NULL if there is none. */
static const char *name_around(const fitting *f, const char *wanted)
{
    const size_t n = strlen(wanted);
    for (size_t i = 0; i < f->n; i++) {
        const size_t length = strlen(f->names[i]);
        if (length > n + 1 && f->names[i][length - n - 1] == '.' &&
            strcmp(f->names[i] + length - n, wanted) == 0)
            return f->names[i];
    }
    return NULL;
}

static fsdp_status refuse_prefix(const fitting *f, const char *wanted, const char *there)
{
    const int length = (int)(strlen(there) - strlen(wanted));
    const size_t having = count_with_prefix(f, there, (size_t)length);
    char count[64] = "all names begin";
    if (having < f->n)
        snprintf(count, sizeof count, "%zu of %zu names begin", having, f->n);
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: there is no tensor '%s', but '%s': %s with '%.*s', and without it they "
                      "are not all that a %s has. Save the model alone, in torch: {k[%d:]: v for "
                      "k, v in state_dict.items() if k.startswith('%.*s')}",
                      f->label, wanted, there, count, length, there, f->type->root_class, length,
                      length, there);
}

/* Return an error if a name of the model is not in the weights, but is there with a prefix before
 * it. The message is about the first such name. */
static fsdp_status explain_prefix(fitting *f)
{
    FSDP_TRY(begin_names(f, false));
    for (size_t i = 0; i < f->wanted.n; i++) {
        const char *wanted = f->wanted.items[i].name, *there = name_around(f, wanted);
        bool found = true;
        if (there)
            FSDP_TRY(is_found(f, f->wanted.items[i].parameter, &found));
        if (!found)
            return refuse_prefix(f, wanted, there);
    }
    return FSDP_OK;
}

static fsdp_status explain_misfit(fitting *f, const char *missing)
{
    const char *there = name_with(f, ".lora_A.");
    there = there ? there : name_with(f, ".base_layer.");
    if (there)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: there is no tensor '%s', but '%s': weights of PEFT, with an adapter "
                          "beside those of the model. Merge it first, in PEFT: "
                          "model.merge_and_unload().save_pretrained(DIR)",
                          f->label, missing, there);
    there = name_with(f, "flat_param");
    if (there)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: there is no tensor '%s', but '%s': flat parameters of FSDP1, one "
                          "rank's part of the model (LOCAL_STATE_DICT). Save it with "
                          "StateDictType.FULL_STATE_DICT",
                          f->label, missing, there);
    return explain_prefix(f);
}

/* ---- the whole search ------------------------------------------------------------------------ */

static fsdp_status fit_names(fitting *f, fsdp_name_change *change)
{
    const char *missing;
    f->sorted = fsdp_calloc(f->n, sizeof(const char *));
    if (!f->sorted)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(find_change(f, change, &missing));
    return missing ? explain_misfit(f, missing) : FSDP_OK;
}

fsdp_status fsdp_weights_names_fit(const fsdp_model_config *config, const char *label,
                                   const char *const *names, size_t n, fsdp_name_change *change)
{
    fsdp_module *module;
    fitting f = {.label = label, .names = names, .n = n, .type = config->type};
    *change = (fsdp_name_change){0};
    FSDP_TRY(fsdp_model_create(config, &module));
    fsdp_status status = fsdp_module_parameters(module, true, &f.wanted);
    if (status == FSDP_OK)
        status = fit_names(&f, change);
    fsdp_parameter_list_free(&f.wanted);
    fsdp_module_destroy(module);
    fsdp_free(f.sorted);
    fsdp_arena_fini(&f.arena);
    return status;
}
