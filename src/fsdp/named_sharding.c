/* See named_sharding.h. */
#include "src/fsdp/named_sharding.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/fsdp/name_patterns.h"
#include "src/fsdp/state.h"
#include "src/nn/module.h"

typedef struct placement {
    const fsdp_parameter *parameter;
    int dim;
} placement;

struct fsdp_named_sharding {
    fsdp_module **joint; /* [n_joint] modules that form one unit */
    size_t n_joint, cap_joint;
    fsdp_parameter **ignored;
    size_t n_ignored, cap_ignored;
    fsdp_dtype param_dtype; /* the root's param_dtype, in which ignored parameters are stored */
    /* [n_placements] If several placements are for one parameter, the first is used. */
    placement *placements;
    size_t n_placements, cap_placements;
    fsdp_unit_mp_policy *policies; /* [n_policies] the first one that matches a unit is used */
    size_t n_policies;
    bool *used;                /* [n_policies] true if a unit matches the name of the policy */
    const char **excluded;     /* NULL-terminated class names, or NULL if the flag was not given */
    const char **force_leaves; /* NULL-terminated class names, or NULL if the flag was not given */
};

/* --- parsing --- */

/* Split "NAME:DIM" at its last ':'. */
static fsdp_status split_placement(const char *text, char name[256], int *dim)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    errno = 0;
    const long value = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == text || colon - text >= 256 || end == colon + 1 || *end || errno ||
        value < INT_MIN || value > INT_MAX)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--shard-placement %s: expected NAME:DIM, e.g. '*.weight:1'", text);
    snprintf(name, 256, "%.*s", (int)(colon - text), text);
    *dim = (int)value;
    return FSDP_OK;
}

fsdp_status fsdp_check_compute_dtype(const char *flag, fsdp_dtype dtype)
{
    if (dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "%s %s: it takes float32, bfloat16 or float16", flag,
                      fsdp_dtype_name(dtype));
}

static fsdp_status parse_dtype(const char *text, const char *word, fsdp_dtype *dtype)
{
    char where[300];
    fsdp_status status = fsdp_dtype_from_name(word, dtype);
    snprintf(where, sizeof where, "--unit-mp-policy %s", text);
    fsdp_error_context(status, "%s", where);
    return status == FSDP_OK ? fsdp_check_compute_dtype(where, *dtype) : status;
}

fsdp_status fsdp_unit_mp_policy_parse(const char *text, fsdp_unit_mp_policy *policy)
{
    char copy[256], *rest = copy, *words[4] = {NULL};
    int n = 0;
    *policy = (fsdp_unit_mp_policy){0};
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; (word = strsep(&rest, ":"));)
        if (n++ < 4)
            words[n - 1] = word;
    if (n < 2 || n > 4 || !*words[0] || strlen(text) >= sizeof copy)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--unit-mp-policy %s: expected NAME:PARAM_DTYPE, optionally followed by "
                          ":REDUCE_DTYPE and :OUTPUT_DTYPE",
                          text);
    snprintf(policy->name, sizeof policy->name, "%s", words[0]);
    FSDP_TRY(parse_dtype(text, words[1], &policy->param_dtype));
    policy->set_reduce_dtype = n > 2;
    policy->set_output_dtype = n > 3;
    if (n > 2)
        FSDP_TRY(parse_dtype(text, words[2], &policy->reduce_dtype));
    return n > 3 ? parse_dtype(text, words[3], &policy->output_dtype) : FSDP_OK;
}

/* --- matching names --- */

static fsdp_status add_ignored(fsdp_named_sharding *s, fsdp_parameter *p)
{
    for (size_t i = 0; i < s->n_ignored; i++)
        if (s->ignored[i] == p)
            return FSDP_OK;
    if (!FSDP_GROW(s->ignored, s->cap_ignored, s->n_ignored + 1))
        return FSDP_ERR_NOMEM;
    s->ignored[s->n_ignored++] = p;
    return FSDP_OK;
}

static fsdp_status add_ignored_below(fsdp_named_sharding *s, fsdp_module *m)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        status = add_ignored(s, list.items[i].parameter);
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status add_joint(fsdp_named_sharding *s, fsdp_module *m)
{
    for (size_t i = 0; i < s->n_joint; i++)
        if (s->joint[i] == m)
            return FSDP_OK;
    if (!FSDP_GROW(s->joint, s->cap_joint, s->n_joint + 1))
        return FSDP_ERR_NOMEM;
    s->joint[s->n_joint++] = m;
    return FSDP_OK;
}

/* Called for each module that matches a word of a command-line flag's value. */
typedef fsdp_status module_fn(fsdp_named_sharding *s, fsdp_module *m);

/* A search for the modules that match one word of a command-line flag's value. */
typedef struct module_search {
    const char *word;
    fsdp_named_sharding *sharding;
    module_fn *found_one;
    size_t found;
} module_search;

static fsdp_status visit_module(const char *path, fsdp_module *m, void *arg)
{
    module_search *search = arg;
    if (!fsdp_module_matches(search->word, path, m))
        return FSDP_OK;
    search->found++;
    return search->found_one(search->sharding, m);
}

static fsdp_status find_modules(fsdp_named_sharding *s, fsdp_module *root, const char *flag,
                                const fsdp_option_list *words, module_fn *found_one)
{
    for (size_t i = 0; i < words->count; i++) {
        module_search search = {.word = words->items[i], .sharding = s, .found_one = found_one};
        FSDP_TRY(fsdp_module_visit(root, visit_module, &search));
        if (!search.found)
            return fsdp_refuse_module(flag, search.word, "the model has no such module", root,
                                      false);
    }
    return FSDP_OK;
}

static fsdp_status find_joint(fsdp_named_sharding *s, fsdp_module *root,
                              const fsdp_option_list *words)
{
    FSDP_TRY(find_modules(s, root, "--joint-units", words, add_joint));
    fsdp_status status =
        s->n_joint ? fsdp_check_joint_modules(root, s->joint, s->n_joint) : FSDP_OK;
    fsdp_error_context(status, "--joint-units");
    return status;
}

static fsdp_status count_class(const char *path, fsdp_module *m, void *arg)
{
    module_search *search = arg;
    (void)path;
    search->found += strcmp(search->word, fsdp_module_class(m)) == 0;
    return FSDP_OK;
}

static fsdp_status check_class(fsdp_module *root, const char *flag, const char *word)
{
    module_search search = {.word = word};
    FSDP_TRY(fsdp_module_visit(root, count_class, &search));
    return search.found ? FSDP_OK
                        : fsdp_refuse_module(flag, word, "no module of this model is of that class",
                                             root, false);
}

/* Called for each parameter that a word of a flag matches. */
typedef fsdp_status found_fn(fsdp_named_sharding *s, const char *word,
                             const fsdp_named_parameter *p, int dim);

static fsdp_status found_ignored(fsdp_named_sharding *s, const char *word,
                                 const fsdp_named_parameter *p, int dim)
{
    (void)word, (void)dim;
    return add_ignored(s, p->parameter);
}

static fsdp_status found_placed(fsdp_named_sharding *s, const char *word,
                                const fsdp_named_parameter *p, int dim)
{
    const int ndim = fsdp_parameter_ndim(p->parameter);
    if (dim < -ndim || dim >= ndim)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--shard-placement %s:%d: a dimension of %s is from %d to %d", word, dim,
                          p->name, -ndim, ndim - 1);
    if (!FSDP_GROW(s->placements, s->cap_placements, s->n_placements + 1))
        return FSDP_ERR_NOMEM;
    s->placements[s->n_placements++] = (placement){.parameter = p->parameter, .dim = dim};
    return FSDP_OK;
}

/* Call `found` for each item of `all` whose name `word` matches. A parameter with several names has
 * one item in `all` for each name. Return an error if `word` matches no name. */
static fsdp_status find_parameters(fsdp_named_sharding *s, const fsdp_parameter_list *all,
                                   const char *flag, const char *word, int dim, found_fn *found)
{
    fsdp_name_list known = {0};
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!fsdp_name_matches(word, all->items[i].name))
            continue;
        FSDP_TRY(found(s, word, &all->items[i], dim));
        n++;
    }
    if (n)
        return FSDP_OK;
    fsdp_status status = fsdp_name_list_add_parameters(&known, all);
    if (status == FSDP_OK)
        status = fsdp_refuse_name(flag, word, "the model has no such parameter", &known);
    fsdp_name_list_fini(&known);
    return status;
}

static fsdp_status find_states(fsdp_named_sharding *s, const fsdp_named_sharding_options *o,
                               const fsdp_parameter_list *all)
{
    for (size_t i = 0; i < o->ignored_states.count; i++)
        FSDP_TRY(find_parameters(s, all, "--ignored-states", o->ignored_states.items[i], 0,
                                 found_ignored));
    for (size_t i = 0; i < o->shard_placement.count; i++) {
        char name[256];
        int dim = 0;
        FSDP_TRY(split_placement(o->shard_placement.items[i], name, &dim));
        FSDP_TRY(find_parameters(s, all, "--shard-placement", name, dim, found_placed));
    }
    return FSDP_OK;
}

/* --- applying the flags to the options of units --- */

static int placement_of(const char *name, const fsdp_parameter *parameter, void *arg)
{
    const fsdp_named_sharding *s = arg;
    (void)name; /* `name` is a path within one unit, so it is not unique in the model. Compare
                   addresses instead. */
    for (size_t i = 0; i < s->n_placements; i++)
        if (s->placements[i].parameter == parameter)
            return s->placements[i].dim;
    return 0;
}

static void set_policy(const fsdp_unit_mp_policy *p, fsdp_mp_policy *to)
{
    to->param_dtype = p->param_dtype;
    if (p->set_reduce_dtype)
        to->reduce_dtype = p->reduce_dtype;
    if (p->set_output_dtype) {
        to->set_output_dtype = true;
        to->output_dtype = p->output_dtype;
    }
}

static void unit_options_of(const char *path, const fsdp_module *module, void *arg,
                            fsdp_fully_shard_options *options)
{
    fsdp_named_sharding *s = arg;
    const fsdp_mp_policy of_all = options->mp_policy;
    /* If several policies match the unit, the unit gets the first of them. Go backwards, so that
     * the first one is set last and replaces the others. */
    for (size_t i = s->n_policies; i-- > 0;) {
        if (!fsdp_module_matches(s->policies[i].name, path, module))
            continue;
        options->mp_policy = of_all;
        set_policy(&s->policies[i], &options->mp_policy);
        s->used[i] = true;
    }
}

void fsdp_named_sharding_apply(fsdp_named_sharding *s, fsdp_fully_shard_options *options,
                               fsdp_wrap_policy *policy)
{
    s->param_dtype = options->mp_policy.param_dtype;
    options->ignored_params = s->ignored;
    options->n_ignored_params = s->n_ignored;
    if (s->n_placements) {
        options->shard_placement_fn = placement_of;
        options->shard_placement_arg = s;
    }
    if (s->n_policies) {
        policy->unit_options = unit_options_of;
        policy->unit_options_arg = s;
    }
    policy->joint_modules = s->joint;
    policy->n_joint_modules = s->n_joint;
    policy->exclude_wrap_modules = s->excluded;
    policy->force_leaf_modules = s->force_leaves;
}

/* --- creating and destroying --- */

static fsdp_status parse_policies(fsdp_named_sharding *s, const fsdp_option_list *list)
{
    if (!list->count)
        return FSDP_OK;
    s->policies = fsdp_calloc(list->count, sizeof *s->policies);
    s->used = fsdp_calloc(list->count, sizeof *s->used);
    if (!s->policies || !s->used)
        return FSDP_ERR_NOMEM;
    for (; s->n_policies < list->count; s->n_policies++)
        FSDP_TRY(
            fsdp_unit_mp_policy_parse(list->items[s->n_policies], &s->policies[s->n_policies]));
    return FSDP_OK;
}

/* Set *classes to a NULL-terminated array of the words of a flag. If the flag has no words, leave
 * *classes unchanged. The words are borrowed. Return FSDP_ERR_INVALID if a word
 * is not the class of a module. */
static fsdp_status copy_classes(fsdp_module *root, const char *flag, const fsdp_option_list *list,
                                const char ***classes)
{
    if (!list->count)
        return FSDP_OK;
    *classes = fsdp_calloc(list->count + 1, sizeof **classes);
    if (!*classes)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->count; i++) {
        FSDP_TRY(check_class(root, flag, list->items[i]));
        (*classes)[i] = list->items[i];
    }
    return FSDP_OK;
}

/* Return an error if an ignored parameter requires a gradient. As in PyTorch, the ranks do not sum
 * gradients of ignored parameters. So training would change the parameter differently on each
 * rank. */
static fsdp_status check_ignored(const fsdp_named_sharding *s, const fsdp_parameter_list *all)
{
    for (size_t i = 0; i < all->n; i++)
        for (size_t k = 0; k < s->n_ignored; k++)
            if (s->ignored[k] == all->items[i].parameter &&
                fsdp_parameter_requires_grad(s->ignored[k]))
                return fsdp_error(FSDP_ERR_INVALID,
                                  "--ignored-modules, --ignored-states: gradients of what is "
                                  "ignored are not reduced, so each rank would train a '%s' of its "
                                  "own; --frozen-prefixes %s freezes it",
                                  all->items[i].name, all->items[i].name);
    return FSDP_OK;
}

static fsdp_status resolve_flags(fsdp_named_sharding *s, const fsdp_named_sharding_options *o,
                                 fsdp_module *root)
{
    fsdp_parameter_list all;
    FSDP_TRY(find_joint(s, root, &o->joint_units));
    FSDP_TRY(find_modules(s, root, "--ignored-modules", &o->ignored_modules, add_ignored_below));
    FSDP_TRY(parse_policies(s, &o->unit_mp_policy));
    FSDP_TRY(copy_classes(root, "--exclude-wrap-modules", &o->exclude_wrap_modules, &s->excluded));
    FSDP_TRY(copy_classes(root, "--force-leaf-modules", &o->force_leaf_modules, &s->force_leaves));
    FSDP_TRY(fsdp_module_parameters(root, true, &all));
    fsdp_status status = find_states(s, o, &all);
    if (status == FSDP_OK)
        status = check_ignored(s, &all);
    fsdp_parameter_list_free(&all);
    return status;
}

fsdp_status fsdp_named_sharding_create(const fsdp_named_sharding_options *options,
                                       fsdp_module *root, fsdp_named_sharding **sharding)
{
    fsdp_named_sharding *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    fsdp_status status = resolve_flags(s, options, root);
    if (status != FSDP_OK) {
        fsdp_named_sharding_destroy(s);
        return status;
    }
    *sharding = s;
    return FSDP_OK;
}

void fsdp_named_sharding_destroy(fsdp_named_sharding *s)
{
    if (!s)
        return;
    fsdp_free(s->joint);
    fsdp_free(s->ignored);
    fsdp_free(s->placements);
    fsdp_free(s->policies);
    fsdp_free(s->used);
    fsdp_free(s->excluded);
    fsdp_free(s->force_leaves);
    fsdp_free(s);
}

/* Allocate an ignored parameter. Units do not cast it, so store it in the dtype in which operations
 * compute. */
static fsdp_status allocate_ignored(const fsdp_named_sharding *s, fsdp_parameter *p,
                                    fsdp_device *device)
{
    fsdp_tensor *data;
    FSDP_TRY(fsdp_tensor_create(device, s->param_dtype, fsdp_parameter_ndim(p),
                                fsdp_parameter_shape(p), FSDP_TAG_PARAM, &data));
    fsdp_parameter_set_tensors(p, data, data);
    fsdp_tensor_release(data);
    return FSDP_OK;
}

fsdp_status fsdp_named_sharding_finish(fsdp_named_sharding *s, fsdp_module *root,
                                       fsdp_device *device)
{
    for (size_t i = 0; i < s->n_policies; i++)
        if (!s->used[i])
            return fsdp_refuse_module("--unit-mp-policy", s->policies[i].name,
                                      "there is no such unit", root, true);
    for (size_t i = 0; i < s->n_ignored; i++)
        FSDP_TRY(allocate_ignored(s, s->ignored[i], device));
    return FSDP_OK;
}
