/* Chooses which modules of a tree become units, as torch/distributed/fsdp/wrap.py does. All units
 * are chosen first, children before parents. Then they are made. So an error in a policy is found
 * before anything has changed. */
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/nearest.h"
#include "src/base/str.h"
#include "src/fsdp/state.h"

static const int64_t default_min_num_params = 100000000;

typedef struct chosen_unit {
    fsdp_module *module;
    fsdp_fully_shard_options options;
} chosen_unit;

typedef struct plan {
    fsdp_module *root;
    const fsdp_wrap_policy *policy;
    /* Options that the caller gave. Borrowed. */
    const fsdp_fully_shard_options *options;
    /* Options of the root. unit_options() may have changed them. */
    fsdp_fully_shard_options of_root;
    /* Options of the units below the root. For each unit, unit_options() may change a copy. */
    fsdp_fully_shard_options inside;
    /* Options of the joint unit. unit_options() may have changed them. */
    fsdp_fully_shard_options of_joint;
    chosen_unit *units; /* [n] Chosen units, children before parents, without the root. */
    size_t n, cap;
} plan;

/* `names` is a list that ends with NULL. If `names` itself is NULL, the list is empty. */
static bool is_among(const char *name, const char *const *names)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* --- modules that can be units --- */

/* A module without a forward is never called, so no hook would gather its parameters. */
static bool can_be_unit(const fsdp_module *m)
{
    return m->forward != NULL;
}

enum {
    MAX_CANDIDATES = 64
};

/* The classes of modules that can be units, among the modules below a root. They are in the order
 * of the tree. */
typedef struct candidates {
    const char *names[MAX_CANDIDATES + 1]; /* the first MAX_CANDIDATES classes, then NULL */
    size_t n;
    const char *refused; /* class that the user gave and that is refused; it is not in `names` */
} candidates;

static fsdp_status add_candidate(const char *path, fsdp_module *m, void *arg)
{
    candidates *c = arg;
    const bool is_refused = strcmp(m->class_name, c->refused) == 0;
    if (*path && can_be_unit(m) && !is_refused && c->n < MAX_CANDIDATES &&
        !is_among(m->class_name, c->names))
        c->names[c->n++] = m->class_name;
    return FSDP_OK;
}

/* Return an error whose message ends with the classes that the user may give instead. */
static fsdp_status refuse_class(fsdp_module *root, const char *name, const char *why)
{
    candidates c = {.refused = name};
    fsdp_str list = {0};
    FSDP_TRY(fsdp_module_visit(root, add_candidate, &c));
    int nearest = fsdp_nearest_name(name, c.names, c.n);
    if (nearest >= 0)
        fsdp_str_printf(&list, "; did you mean %s", c.names[nearest]);
    fsdp_str_printf(&list, "%s Units can be: ", nearest >= 0 ? "?" : ".");
    for (size_t i = 0; i < c.n; i++)
        fsdp_str_printf(&list, "%s%s", i ? ", " : "", c.names[i]);
    char *text = fsdp_str_take(&list);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_error(FSDP_ERR_INVALID, "transformer_layer_cls %s: %s%s", name, why, text);
    fsdp_free(text);
    return status;
}

/* --- checks --- */

static fsdp_status refuse_unit(const char *path, fsdp_module *m, void *arg)
{
    (void)arg;
    if (!m->fsdp_state)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: module '%s' (%s) is a unit already", path,
                      m->class_name);
}

typedef struct class_search {
    const char *name;
    bool found;
} class_search;

static fsdp_status find_class(const char *path, fsdp_module *m, void *arg)
{
    class_search *search = arg;
    (void)path;
    search->found |= strcmp(m->class_name, search->name) == 0;
    return FSDP_OK;
}

static fsdp_status check_classes(fsdp_module *root, const char *const *classes)
{
    if (!classes || !*classes)
        return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: transformer_layer_cls names no class");
    for (; *classes; classes++) {
        class_search search = {.name = *classes};
        FSDP_TRY(fsdp_module_visit(root, find_class, &search));
        if (!search.found)
            return refuse_class(root, *classes, "no module of this model is one");
    }
    return FSDP_OK;
}

static fsdp_status check_numbers(const fsdp_wrap_policy *policy)
{
    if (policy->kind == FSDP_WRAP_SIZE && policy->min_num_params < 0)
        return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: min_num_params is %lld",
                          (long long)policy->min_num_params);
    if (policy->modules_per_unit < 0)
        return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: modules_per_unit is %d",
                          policy->modules_per_unit);
    return FSDP_OK;
}

fsdp_status fsdp_check_joint_modules(const fsdp_module *root, fsdp_module *const *modules, size_t n)
{
    FSDP_TRY(fsdp_check_modules(modules, n));
    for (size_t i = 0; i < n; i++) {
        const fsdp_module *m = modules[i];
        char path[256];
        if (m == root || !fsdp_module_is_inside(m, root))
            return fsdp_error(FSDP_ERR_INVALID,
                              "a joint unit is of modules below the root, which %s is not",
                              m->class_name);
        if (!can_be_unit(m))
            return fsdp_error(FSDP_ERR_INVALID,
                              "module '%s' (%s) has no forward of its own, the module around it "
                              "reads it",
                              fsdp_module_path(m, path, sizeof path), m->class_name);
    }
    return FSDP_OK;
}

static fsdp_status check_policy(fsdp_module *root, const fsdp_wrap_policy *policy)
{
    if (policy->kind == FSDP_WRAP_CUSTOM && !policy->custom)
        return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: the custom policy has no function");
    FSDP_TRY(check_numbers(policy));
    if (policy->n_joint_modules)
        FSDP_TRY(fsdp_check_joint_modules(root, policy->joint_modules, policy->n_joint_modules));
    FSDP_TRY(fsdp_module_visit(root, refuse_unit, NULL));
    return policy->kind == FSDP_WRAP_TRANSFORMER
               ? check_classes(root, policy->transformer_layer_cls)
               : FSDP_OK;
}

/* --- choosing by class or by function --- */

/* Set *all to true if m has parameters and all of them are ignored, otherwise to false. */
static fsdp_status is_all_ignored(const fsdp_fully_shard_options *o, fsdp_module *m, bool *all)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    *all = list.n > 0;
    for (size_t i = 0; i < list.n; i++)
        *all &= fsdp_parameter_is_ignored(o, list.items[i].parameter);
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

static void append_path(fsdp_str *path, const fsdp_module *root, const fsdp_module *m)
{
    if (m->parent != root) {
        append_path(path, root, m->parent);
        fsdp_str_printf(path, ".");
    }
    fsdp_str_printf(path, "%s", m->name);
}

/* Return the path of m below the root, or NULL when out of memory. The caller owns the path. */
static char *path_of(const plan *p, const fsdp_module *m)
{
    fsdp_str text = {0};
    append_path(&text, p->root, m);
    return fsdp_str_take(&text);
}

/* Let the policy's unit_options() change the options of one unit. */
static fsdp_status ask_unit_options(const plan *p, const fsdp_module *m,
                                    fsdp_fully_shard_options *options)
{
    if (!p->policy->unit_options)
        return FSDP_OK;
    char *path = path_of(p, m);
    if (!path)
        return FSDP_ERR_NOMEM;
    p->policy->unit_options(path, m, p->policy->unit_options_arg, options);
    fsdp_free(path);
    return FSDP_OK;
}

static bool same_mp_policy(const fsdp_mp_policy *a, const fsdp_mp_policy *b)
{
    return a->param_dtype == b->param_dtype && a->reduce_dtype == b->reduce_dtype &&
           a->master_dtype == b->master_dtype && a->set_output_dtype == b->set_output_dtype &&
           (!a->set_output_dtype || a->output_dtype == b->output_dtype) &&
           a->no_cast_forward_inputs == b->no_cast_forward_inputs &&
           a->cast_root_forward_inputs == b->cast_root_forward_inputs &&
           a->buffer_dtype == b->buffer_dtype;
}

static bool same_internode_reduce_dtype(const fsdp_fully_shard_options *a,
                                        const fsdp_fully_shard_options *b)
{
    return a->set_internode_reduce_dtype == b->set_internode_reduce_dtype &&
           (!a->set_internode_reduce_dtype ||
            a->internode_reduce_dtype == b->internode_reduce_dtype);
}

static bool same_offload_policy(const fsdp_offload_policy *a, const fsdp_offload_policy *b)
{
    if (a->kind != b->kind || a->kind != FSDP_OFFLOAD_DIR)
        return a->kind == b->kind;
    return a->dir == b->dir || (a->dir && b->dir && strcmp(a->dir, b->dir) == 0);
}

/* Compare the options that a unit uses. The options that all units take from the outermost unit,
 * such as backward_prefetch, have no effect in other units, so they may differ. */
static bool same_options(const fsdp_fully_shard_options *a, const fsdp_fully_shard_options *b)
{
    return same_mp_policy(&a->mp_policy, &b->mp_policy) && same_internode_reduce_dtype(a, b) &&
           a->reshard_after_forward == b->reshard_after_forward &&
           a->reshard_ranks == b->reshard_ranks && a->no_shard == b->no_shard &&
           a->mesh == b->mesh && a->shard_placement_fn == b->shard_placement_fn &&
           a->shard_placement_arg == b->shard_placement_arg &&
           a->ignored_params == b->ignored_params && a->n_ignored_params == b->n_ignored_params &&
           a->sync_module_states == b->sync_module_states &&
           same_offload_policy(&a->offload_policy, &b->offload_policy);
}

/* Modules `first` and `m` form one unit, which has the options of `first`. Return an error if other
 * options were chosen for `m`, because they would have no effect. If the options of `m` are the
 * common options of all units below the root, they were not chosen for `m`. */
static fsdp_status check_member(const plan *p, const fsdp_module *first,
                                const fsdp_fully_shard_options *of_first, const fsdp_module *m,
                                const fsdp_fully_shard_options *options)
{
    char path[256], first_path[256];
    if (same_options(options, of_first) || same_options(options, &p->inside))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "auto_wrap: '%s' is in one unit with '%s' (--blocks-per-unit, --joint-units), "
        "whose options the unit has, so the other options of '%s' would have no "
        "effect: give both the same (--unit-mp-policy), or make them units of their "
        "own",
        fsdp_module_path(m, path, sizeof path),
        fsdp_module_path(first, first_path, sizeof first_path), path);
}

static bool is_joint(const plan *p, const fsdp_module *m)
{
    for (size_t i = 0; i < p->policy->n_joint_modules; i++)
        if (p->policy->joint_modules[i] == m)
            return true;
    return false;
}

static fsdp_status choose_unit(plan *p, fsdp_module *m, const fsdp_fully_shard_options *options)
{
    bool all_ignored = false;
    if (is_joint(p, m))
        return FSDP_OK;
    if (options->n_ignored_params)
        FSDP_TRY(is_all_ignored(options, m, &all_ignored));
    if (all_ignored)
        return FSDP_OK;
    if (!FSDP_GROW(p->units, p->cap, p->n + 1))
        return FSDP_ERR_NOMEM;
    chosen_unit *unit = &p->units[p->n++];
    *unit = (chosen_unit){.module = m, .options = *options};
    return ask_unit_options(p, m, &unit->options);
}

static fsdp_status refuse_class_of(const plan *p, const fsdp_module *m)
{
    char path[256], why[400];
    snprintf(why, sizeof why,
             "module '%s' has no forward of its own, the module around it reads it",
             fsdp_module_path(m, path, sizeof path));
    return refuse_class(p->root, m->class_name, why);
}

static fsdp_status choose_by_class(plan *p, fsdp_module *m)
{
    if (!is_among(m->class_name, p->policy->transformer_layer_cls))
        return FSDP_OK;
    if (!can_be_unit(m))
        return refuse_class_of(p, m);
    return choose_unit(p, m, &p->inside);
}

static fsdp_status choose_by_function(plan *p, fsdp_module *m)
{
    fsdp_fully_shard_options options = p->inside;
    char *path = path_of(p, m);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (p->policy->custom(path, m, p->policy->custom_arg, &options))
        status = can_be_unit(m)
                     ? choose_unit(p, m, &options)
                     : fsdp_error(FSDP_ERR_INVALID,
                                  "auto_wrap: module '%s' (%s) has no forward of its own, the "
                                  "module around it reads it",
                                  path, m->class_name);
    fsdp_free(path);
    return status;
}

static fsdp_status choose_below(plan *p, fsdp_module *m)
{
    for (size_t i = 0; i < m->n_children; i++) {
        fsdp_module *child = m->children[i];
        FSDP_TRY(choose_below(p, child));
        FSDP_TRY(p->policy->kind == FSDP_WRAP_CUSTOM ? choose_by_function(p, child)
                                                     : choose_by_class(p, child));
    }
    return FSDP_OK;
}

/* --- choosing by size --- */

/* Set *numel to the number of elements in the parameters of `m` and of all modules below `m`. Two
 * kinds of parameters are not counted: ignored parameters, and parameters that modules outside of
 * `m` also use. */
static fsdp_status count_inside(const plan *p, fsdp_module *m, int64_t *numel)
{
    fsdp_parameter_list list;
    *numel = 0;
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    for (size_t i = 0; i < list.n; i++) {
        const fsdp_parameter *parameter = list.items[i].parameter;
        if (!fsdp_parameter_is_ignored(p->options, parameter) &&
            fsdp_parameter_is_inside(parameter, m))
            *numel += fsdp_parameter_numel(parameter);
    }
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

static bool is_excluded(const plan *p, const fsdp_module *m)
{
    static const char *const lists[] = {"ModuleList", "ModuleDict", NULL};
    const char *const *given = p->policy->exclude_wrap_modules;
    return !can_be_unit(m) || is_among(m->class_name, given ? given : lists);
}

static bool is_leaf(const plan *p, const fsdp_module *m)
{
    static const char *const leaves[] = {"MultiheadAttention", NULL};
    const char *const *given = p->policy->force_leaf_modules;
    return is_among(m->class_name, given ? given : leaves);
}

/* Choose units by size, at and below m. If `is_in_leaf` is true, m is inside a leaf module, and no
 * unit is chosen. Set *wrapped to the number of elements that are in chosen units or in joint
 * modules. */
static fsdp_status choose_by_size(plan *p, fsdp_module *m, bool is_in_leaf, int64_t *wrapped)
{
    const int64_t given = p->policy->min_num_params;
    const int64_t least = given ? given : default_min_num_params;
    int64_t inside;
    *wrapped = 0;
    FSDP_TRY(count_inside(p, m, &inside));
    is_in_leaf |= is_leaf(p, m);
    for (size_t i = 0; i < m->n_children; i++) {
        int64_t below;
        FSDP_TRY(choose_by_size(p, m->children[i], is_in_leaf, &below));
        *wrapped += below;
    }
    if (is_joint(p, m))
        *wrapped = inside;
    if (m == p->root || is_in_leaf || inside - *wrapped < least || is_excluded(p, m))
        return FSDP_OK;
    *wrapped = inside;
    return choose_unit(p, m, &p->inside);
}

/* --- choosing as the policy says --- */

static fsdp_status choose_units(plan *p)
{
    int64_t wrapped;
    switch (p->policy->kind) {
    case FSDP_WRAP_TRANSFORMER:
    case FSDP_WRAP_CUSTOM:
        return choose_below(p, p->root);
    case FSDP_WRAP_SIZE:
        return choose_by_size(p, p->root, false, &wrapped);
    case FSDP_WRAP_NONE:
        break;
    }
    return FSDP_OK;
}

/* --- making units --- */

static bool is_inside_joint(const plan *p, const fsdp_module *m)
{
    for (size_t i = 0; i < p->policy->n_joint_modules; i++)
        if (fsdp_module_is_inside(m, p->policy->joint_modules[i]))
            return true;
    return false;
}

static bool are_neighbors(const fsdp_module *a, const fsdp_module *b)
{
    return a->parent == b->parent && strcmp(a->class_name, b->class_name) == 0;
}

/* Search p->units from index `at`. Return the index of the first unit whose module has the same
 * parent and class as the module of `unit`. Return p->n if there is none. */
static size_t next_neighbor(const plan *p, size_t at, const chosen_unit *unit)
{
    while (at < p->n && !are_neighbors(p->units[at].module, unit->module))
        at++;
    return at;
}

/* Each element of p->units is one chosen module. Chosen modules with the same parent and class are
 * neighbors. In the order of p->units, every modules_per_unit neighbors form one unit; the last
 * of these units may have fewer modules. If the module of p->units[last] is the last module of its
 * unit, set `members` [modules_per_unit] to all modules of the unit and return their number.
 * Otherwise return 0. The caller visits p->units in order and makes each unit at the unit's last
 * module. By then, it has made all units that are nested inside the unit's modules. */
static size_t members_until(const plan *p, size_t last, const chosen_unit **members)
{
    const size_t most = (size_t)p->policy->modules_per_unit;
    const chosen_unit *unit = &p->units[last];
    size_t n = 0;
    for (size_t i = next_neighbor(p, 0, unit); i <= last; i = next_neighbor(p, i + 1, unit)) {
        n = n == most ? 0 : n;
        members[n++] = &p->units[i];
    }
    return n == most || next_neighbor(p, last + 1, unit) == p->n ? n : 0;
}

/* Make the units that members_until() forms from neighbors. If `inside` is true, make only the
 * units that are inside joint modules. Otherwise make only the other units. Neighbors have the
 * same parent, so either all modules of a unit are inside joint modules or none is. */
static fsdp_status make_neighbors(const plan *p, bool inside, fsdp_group *group,
                                  fsdp_device *device)
{
    const size_t most = (size_t)p->policy->modules_per_unit;
    const chosen_unit **members = fsdp_calloc(most, sizeof(const chosen_unit *));
    fsdp_module **modules = fsdp_calloc(most, sizeof(fsdp_module *));
    fsdp_status status = members && modules ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < p->n && status == FSDP_OK; i++) {
        const size_t n =
            is_inside_joint(p, p->units[i].module) == inside ? members_until(p, i, members) : 0;
        for (size_t k = 0; k < n; k++)
            modules[k] = members[k]->module;
        for (size_t k = 1; k < n && status == FSDP_OK; k++)
            status =
                check_member(p, modules[0], &members[0]->options, modules[k], &members[k]->options);
        if (n && status == FSDP_OK)
            status = fsdp_make_unit(modules, n, group, device, &members[0]->options, true);
    }
    fsdp_free(members);
    fsdp_free(modules);
    return status;
}

static fsdp_status make_chosen(const plan *p, bool inside, fsdp_group *group, fsdp_device *device)
{
    if (p->policy->modules_per_unit > 1)
        return make_neighbors(p, inside, group, device);
    for (size_t i = 0; i < p->n; i++)
        if (is_inside_joint(p, p->units[i].module) == inside)
            FSDP_TRY(
                fsdp_make_unit(&p->units[i].module, 1, group, device, &p->units[i].options, true));
    return FSDP_OK;
}

/* The joint unit must be made after the units inside the joint modules, and before the units around
 * the joint modules. p->units is not in this order: a module around one joint module may come
 * before a module inside another joint module. So make the units inside the joint modules first,
 * then the joint unit, then the other units. */
static fsdp_status make_units(const plan *p, fsdp_group *group, fsdp_device *device)
{
    const fsdp_wrap_policy *policy = p->policy;
    if (policy->n_joint_modules) {
        FSDP_TRY(make_chosen(p, true, group, device));
        FSDP_TRY(fsdp_make_unit(policy->joint_modules, policy->n_joint_modules, group, device,
                                &p->of_joint, true));
    }
    FSDP_TRY(make_chosen(p, false, group, device));
    return fsdp_make_unit(&p->root, 1, group, device, &p->of_root, false);
}

static fsdp_status ask_joint_options(plan *p)
{
    fsdp_module *const *joint = p->policy->joint_modules;
    FSDP_TRY(ask_unit_options(p, joint[0], &p->of_joint));
    for (size_t i = 1; i < p->policy->n_joint_modules; i++) {
        fsdp_fully_shard_options options = p->inside;
        FSDP_TRY(ask_unit_options(p, joint[i], &options));
        FSDP_TRY(check_member(p, joint[0], &p->of_joint, joint[i], &options));
    }
    return FSDP_OK;
}

fsdp_status fsdp_auto_wrap(fsdp_module *root, const fsdp_wrap_policy *policy, fsdp_group *group,
                           fsdp_device *device, const fsdp_fully_shard_options *options)
{
    static const fsdp_wrap_policy none = {.kind = FSDP_WRAP_NONE};
    static const fsdp_fully_shard_options defaults = {0};
    if (!root || !device)
        return fsdp_error(FSDP_ERR_INVALID, "auto_wrap: %s is NULL", root ? "device" : "root");
    plan p = {
        .root = root, .policy = policy ? policy : &none, .options = options ? options : &defaults};
    p.of_root = p.inside = *p.options;
    p.inside.mp_policy.set_output_dtype = false;
    FSDP_TRY(check_policy(root, p.policy));
    if (p.policy->unit_options)
        p.policy->unit_options("", root, p.policy->unit_options_arg, &p.of_root);
    p.of_joint = p.inside;
    if (p.policy->n_joint_modules)
        FSDP_TRY(ask_joint_options(&p));
    fsdp_status status = choose_units(&p);
    if (status == FSDP_OK)
        status = make_units(&p, group, device);
    fsdp_free(p.units);
    return status;
}
