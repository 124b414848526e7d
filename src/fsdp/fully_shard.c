/* Implements fully_shard(): checks the options and chooses the parameters of a unit. */
#include "src/base/alloc.h"
#include "src/fsdp/state.h"

static fsdp_status check_prefetch(const fsdp_fully_shard_options *o)
{
    if ((unsigned)o->backward_prefetch > FSDP_BACKWARD_NONE)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: backward_prefetch %d",
                          (int)o->backward_prefetch);
    if ((unsigned)o->forward_prefetch > FSDP_FORWARD_NONE)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: forward_prefetch %d",
                          (int)o->forward_prefetch);
    return FSDP_OK;
}

static fsdp_status check_offload(const fsdp_offload_policy *policy)
{
    if ((unsigned)policy->kind > FSDP_OFFLOAD_DIR)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: offload_policy %d", (int)policy->kind);
    if (policy->kind == FSDP_OFFLOAD_DIR && (!policy->dir || !*policy->dir))
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: offload_policy: no folder is given");
    return FSDP_OK;
}

static fsdp_status check_internode_dtype(const fsdp_fully_shard_options *o)
{
    if (!o->set_internode_reduce_dtype || o->internode_reduce_dtype == FSDP_DTYPE_F32 ||
        o->internode_reduce_dtype == FSDP_DTYPE_BF16)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "fully_shard: internode_reduce_dtype %s: sums of gradients are sent to other "
                      "hosts in float32 or bfloat16",
                      fsdp_dtype_name(o->internode_reduce_dtype));
}

static fsdp_status check_options(const fsdp_module *m, const fsdp_fully_shard_options *o)
{
    if (m->fsdp_state)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: module '%s' (%s) is a unit already",
                          m->name, m->class_name);
    fsdp_status status = fsdp_mp_policy_check(&o->mp_policy);
    fsdp_error_context(status, "fully_shard");
    FSDP_TRY(status);
    FSDP_TRY(check_offload(&o->offload_policy));
    FSDP_TRY(check_internode_dtype(o));
    return check_prefetch(o);
}

static fsdp_status check_mesh(const fsdp_module *m, const fsdp_group *group,
                              const fsdp_device_mesh *mesh)
{
    const int ndim = mesh ? fsdp_device_mesh_ndim(mesh) : 1;
    if (!mesh)
        return FSDP_OK;
    if (ndim > 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "fully_shard: module '%s' (%s): a mesh of %d dimensions: 1 is FSDP, 2 "
                          "(replicate, shard) are HSDP",
                          m->name, m->class_name, ndim);
    const int ranks = fsdp_device_mesh_size(mesh, 0) * fsdp_device_mesh_size(mesh, 1);
    if (group && fsdp_group_world_size(group) != ranks)
        return fsdp_error(FSDP_ERR_INVALID,
                          "fully_shard: module '%s' (%s): the mesh is of %d ranks, the group of %d",
                          m->name, m->class_name, ranks, fsdp_group_world_size(group));
    return FSDP_OK;
}

static int shard_ranks(const fsdp_group *group, const fsdp_fully_shard_options *o)
{
    if (o->no_shard)
        return 1;
    if (o->mesh)
        return fsdp_device_mesh_size(o->mesh, fsdp_device_mesh_ndim(o->mesh) - 1);
    return group ? fsdp_group_world_size(group) : 1;
}

/* Simplify FSDP_RESHARD_TO_SMALLER, as FSDP2's _get_post_forward_mesh_info() does. If reshard_ranks
 * is 1, replace it by FSDP_RESHARD_FALSE. If reshard_ranks is the number of shard ranks, replace it
 * by FSDP_RESHARD_TRUE. */
static void simplify_reshard(const fsdp_group *group, fsdp_fully_shard_options *o)
{
    if (o->reshard_after_forward != FSDP_RESHARD_TO_SMALLER)
        return;
    if (o->reshard_ranks == 1)
        o->reshard_after_forward = FSDP_RESHARD_FALSE;
    else if (o->reshard_ranks == shard_ranks(group, o))
        o->reshard_after_forward = FSDP_RESHARD_TRUE;
}

static fsdp_status check_reshard_ranks(const fsdp_module *m, const fsdp_group *group,
                                       const fsdp_fully_shard_options *o)
{
    const int ranks = shard_ranks(group, o);
    char path[256];
    if (o->reshard_after_forward != FSDP_RESHARD_TO_SMALLER)
        return FSDP_OK;
    if (o->reshard_ranks > 0 && ranks % o->reshard_ranks == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "fully_shard: module '%s' (%s): reshard_after_forward to %d ranks of the %d "
                      "that it is sharded over: this must be a divisor",
                      m->parent ? fsdp_module_path(m, path, sizeof path) : m->name, m->class_name,
                      o->reshard_ranks, ranks);
}

/* Return an error if `m` is a unit that has already run. All units must be made, from the bottom of
 * the tree up, before any of them runs. */
static fsdp_status refuse_used_unit(const char *path, fsdp_module *m, void *arg)
{
    const fsdp_state *state = m->fsdp_state;
    (void)arg;
    if (state && state->context)
        return fsdp_error(
            FSDP_ERR_STATE,
            "fully_shard: unit '%s' inside it has run already: shard all modules first", path);
    return FSDP_OK;
}

static fsdp_status check_nesting(fsdp_module *module)
{
    for (const fsdp_module *m = module->parent; m; m = m->parent)
        if (m->fsdp_state)
            return fsdp_error(FSDP_ERR_STATE,
                              "fully_shard: module '%s' (%s) around it is a unit already and has "
                              "its parameters: shard bottom up",
                              m->name, m->class_name);
    return fsdp_module_visit(module, refuse_used_unit, NULL);
}

static int count_names(const fsdp_module *m, const fsdp_parameter *p)
{
    int n = 0;
    for (size_t i = 0; i < m->n_params; i++)
        n += m->params[i].parameter == p;
    for (size_t i = 0; i < m->n_children; i++)
        n += count_names(m->children[i], p);
    return n;
}

bool fsdp_parameter_is_inside(const fsdp_parameter *p, const fsdp_module *m)
{
    return p->refs == 1 || count_names(m, p) == p->refs;
}

/* --- the parameters of a unit --- */

typedef struct unit_plan {
    fsdp_module *const *modules;
    size_t n_modules;
    const fsdp_fully_shard_options *options;
    bool leave_shared;
    fsdp_parameter_list own;
    size_t cap_own;
} unit_plan;

bool fsdp_parameter_is_ignored(const fsdp_fully_shard_options *o, const fsdp_parameter *p)
{
    for (size_t i = 0; i < o->n_ignored_params; i++)
        if (o->ignored_params[i] == p)
            return true;
    return false;
}

static bool is_added(const unit_plan *plan, const fsdp_parameter *p)
{
    for (size_t i = 0; i < plan->own.n; i++)
        if (plan->own.items[i].parameter == p)
            return true;
    return false;
}

bool fsdp_module_is_inside(const fsdp_module *m, const fsdp_module *around)
{
    while (m && m != around)
        m = m->parent;
    return m != NULL;
}

/* Return true if p is used only by the modules of the unit and by modules below them. */
static bool is_own(const unit_plan *plan, const fsdp_parameter *p)
{
    int n = 0;
    for (size_t i = 0; i < plan->n_modules; i++)
        n += count_names(plan->modules[i], p);
    return n == p->refs;
}

/* Return true if `m`, or a module below it, belongs to the unit of `param_group`. */
static bool has_unit(const fsdp_module *m, const fsdp_param_group *param_group)
{
    const fsdp_state *state = m->fsdp_state;
    if (state && state->param_group == param_group)
        return true;
    for (size_t i = 0; i < m->n_children; i++)
        if (has_unit(m->children[i], param_group))
            return true;
    return false;
}

/* Return an error if the parameter already belongs to a unit that has no module at or below
 * `module`. Two units side by side must not share a parameter: one unit would read it after the
 * other unit has freed it. */
static fsdp_status check_owner(const fsdp_module *module, const fsdp_named_parameter *item)
{
    const fsdp_param_group *owner =
        item->parameter->owner ? fsdp_param_of(item->parameter)->group : NULL;
    if (!owner || has_unit(module, owner))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "its parameter '%s' is shared with unit '%s' (%s), which owns it: make both "
                      "one unit, or make only the module around both a unit",
                      item->name, owner->context.module->name, owner->context.module->class_name);
}

/* Add a parameter to the unit. If the unit has several modules, put the name of `module` in front
 * of the parameter's name. */
static fsdp_status add_param(unit_plan *plan, const fsdp_module *module,
                             const fsdp_named_parameter *item)
{
    const bool one = plan->n_modules == 1;
    if (!FSDP_GROW(plan->own.items, plan->cap_own, plan->own.n + 1))
        return FSDP_ERR_NOMEM;
    char *name = fsdp_strdup_printf("%s%s%s", one ? "" : module->name, one ? "" : ".", item->name);
    if (!name)
        return FSDP_ERR_NOMEM;
    plan->own.items[plan->own.n++] =
        (fsdp_named_parameter){.name = name, .parameter = item->parameter};
    return FSDP_OK;
}

static fsdp_status add_params_of(unit_plan *plan, fsdp_module *module)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(module, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        const fsdp_parameter *p = list.items[i].parameter;
        if (fsdp_parameter_is_ignored(plan->options, p) || is_added(plan, p))
            continue;
        status = check_owner(module, &list.items[i]);
        if (status == FSDP_OK && !p->owner && (!plan->leave_shared || is_own(plan, p)))
            status = add_param(plan, module, &list.items[i]);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status create_unit(const unit_plan *plan, fsdp_group *group, fsdp_device *device)
{
    fsdp_param_group *param_group;
    fsdp_fully_shard_options options = *plan->options;
    simplify_reshard(group, &options);
    FSDP_TRY(fsdp_param_group_create(device, group, &options, plan->own.items, plan->own.n,
                                     &param_group));
    fsdp_status status = fsdp_state_create(plan->modules, plan->n_modules, param_group);
    if (status == FSDP_OK)
        fsdp_param_group_adopt(param_group);
    else
        fsdp_param_group_destroy(param_group);
    return status;
}

static fsdp_status make_unit(unit_plan *plan, fsdp_group *group, fsdp_device *device)
{
    for (size_t i = 0; i < plan->n_modules; i++) {
        fsdp_module *module = plan->modules[i];
        FSDP_TRY(check_options(module, plan->options));
        FSDP_TRY(check_mesh(module, group, plan->options->mesh));
        FSDP_TRY(check_reshard_ranks(module, group, plan->options));
        FSDP_TRY(check_nesting(module));
    }
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < plan->n_modules && status == FSDP_OK; i++)
        status = add_params_of(plan, plan->modules[i]);
    if (status == FSDP_OK)
        status = create_unit(plan, group, device);
    fsdp_error_context(status, "fully_shard of %s", plan->modules[0]->class_name);
    fsdp_parameter_list_free(&plan->own);
    return status;
}

fsdp_status fsdp_make_unit(fsdp_module *const *modules, size_t n, fsdp_group *group,
                           fsdp_device *device, const fsdp_fully_shard_options *options,
                           bool leave_shared)
{
    unit_plan plan = {
        .modules = modules, .n_modules = n, .options = options, .leave_shared = leave_shared};
    return make_unit(&plan, group, device);
}

static const fsdp_fully_shard_options default_options;

fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                             const fsdp_fully_shard_options *options)
{
    if (!module || !device)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: %s is NULL",
                          module ? "device" : "module");
    return fsdp_make_unit(&module, 1, group, device, options ? options : &default_options, false);
}

static const fsdp_module *root_of(const fsdp_module *m)
{
    while (m->parent)
        m = m->parent;
    return m;
}

fsdp_status fsdp_check_modules(fsdp_module *const *modules, size_t n)
{
    if (!n)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: no module is given");
    for (size_t i = 0; i < n; i++) {
        if (!modules[i])
            return fsdp_error(FSDP_ERR_INVALID, "fully_shard: module %zu of %zu is NULL", i, n);
        if (root_of(modules[i]) != root_of(modules[0]))
            return fsdp_error(FSDP_ERR_INVALID,
                              "fully_shard: modules '%s' and '%s' are of different trees",
                              modules[0]->name, modules[i]->name);
        for (size_t k = 0; k < n; k++)
            if (k != i && fsdp_module_is_inside(modules[k], modules[i]))
                return fsdp_error(FSDP_ERR_INVALID,
                                  "fully_shard: module '%s' (%s) %s '%s' (%s), which is given too",
                                  modules[k]->name, modules[k]->class_name,
                                  modules[k] == modules[i] ? "is" : "is inside", modules[i]->name,
                                  modules[i]->class_name);
    }
    return FSDP_OK;
}

fsdp_status fsdp_fully_shard_modules(fsdp_module *const *modules, size_t n, fsdp_group *group,
                                     fsdp_device *device, const fsdp_fully_shard_options *options)
{
    if (!device)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: device is NULL");
    FSDP_TRY(fsdp_check_modules(modules, n));
    return fsdp_make_unit(modules, n, group, device, options ? options : &default_options, false);
}

bool fsdp_module_is_unit(const fsdp_module *module)
{
    return module->fsdp_state != NULL;
}
