/* Implements FullyShardedDataParallel: translates FSDP1's arguments to the options of units. */
#include "src/base/alloc.h"
#include "src/fsdp/state.h"

typedef fsdp_fully_sharded_data_parallel_options fsdp1_options;

/* --- ignored parameters --- */

typedef struct ignored {
    fsdp_parameter **items;
    size_t n, cap;
} ignored;

static fsdp_status add_ignored(ignored *list, fsdp_parameter *p)
{
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = p;
    return FSDP_OK;
}

static fsdp_status add_ignored_below(const char *path, fsdp_module *m, void *arg)
{
    (void)path;
    for (size_t i = 0; i < m->n_params; i++)
        FSDP_TRY(add_ignored(arg, m->params[i].parameter));
    return FSDP_OK;
}

static fsdp_status collect_ignored(const fsdp1_options *o, ignored *list)
{
    for (size_t i = 0; i < o->n_ignored_modules; i++)
        FSDP_TRY(fsdp_module_visit(o->ignored_modules[i], add_ignored_below, list));
    for (size_t i = 0; i < o->n_ignored_states; i++)
        FSDP_TRY(add_ignored(list, o->ignored_states[i]));
    return FSDP_OK;
}

/* --- options --- */

static bool is_hybrid(const fsdp1_options *o)
{
    return o->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD ||
           o->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
}

static fsdp_status check_options(const fsdp1_options *o)
{
    const int ndim = o->device_mesh ? fsdp_device_mesh_ndim(o->device_mesh) : 0;
    if (is_hybrid(o) && ndim == 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "FullyShardedDataParallel: a hybrid sharding_strategy needs a "
                          "device_mesh of two dimensions (replicate, shard), not of one");
    if (!is_hybrid(o) && ndim > 1)
        return fsdp_error(FSDP_ERR_INVALID,
                          "FullyShardedDataParallel: a device_mesh of %d dimensions needs a hybrid "
                          "sharding_strategy",
                          ndim);
    if (o->offload_dir && !o->cpu_offload)
        return fsdp_error(FSDP_ERR_INVALID,
                          "FullyShardedDataParallel: offload_dir '%s' without cpu_offload",
                          o->offload_dir);
    return FSDP_OK;
}

static fsdp_offload_policy offload_of(const fsdp1_options *o)
{
    if (!o->cpu_offload)
        return (fsdp_offload_policy){.kind = FSDP_OFFLOAD_NONE};
    return o->offload_dir ? (fsdp_offload_policy){.kind = FSDP_OFFLOAD_DIR, .dir = o->offload_dir}
                          : (fsdp_offload_policy){.kind = FSDP_OFFLOAD_CPU};
}

static fsdp_status translate(const fsdp1_options *o, const ignored *list,
                             fsdp_fully_shard_options *to)
{
    const bool keeps = o->sharding_strategy == FSDP_SHARDING_SHARD_GRAD_OP ||
                       o->sharding_strategy == FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    *to = (fsdp_fully_shard_options){
        .reshard_after_forward = keeps ? FSDP_RESHARD_FALSE : FSDP_RESHARD_DEFAULT,
        .no_shard = o->sharding_strategy == FSDP_SHARDING_NO_SHARD,
        .mesh = o->device_mesh,
        .ignored_params = list->items,
        .n_ignored_params = list->n,
        .sync_module_states = o->sync_module_states,
        .backward_prefetch = o->backward_prefetch,
        .forward_prefetch = o->forward_prefetch ? FSDP_FORWARD_STRICT : FSDP_FORWARD_IMPLICIT,
        .no_limit_all_gathers = o->no_limit_all_gathers,
        .offload_policy = offload_of(o)};
    const fsdp_mixed_precision nothing = {0};
    return fsdp_mp_policy_from_fsdp1(o->mixed_precision ? o->mixed_precision : &nothing,
                                     FSDP_DTYPE_F32, &to->mp_policy);
}

/* --- checks and initialization of the finished units --- */

/* Check that all parameters of a unit have the same requires_grad. FSDP1 flattens them into one
 * parameter, which has a single requires_grad. */
static fsdp_status check_uniform(const char *path, fsdp_module *m, void *arg)
{
    const fsdp_state *state = m->fsdp_state;
    (void)arg;
    for (size_t i = 1; state && i < state->param_group->n_params; i++) {
        const fsdp_param *first = &state->param_group->params[0],
                         *p = &state->param_group->params[i];
        if (fsdp_parameter_requires_grad(p->parameter) !=
            fsdp_parameter_requires_grad(first->parameter))
            return fsdp_error(FSDP_ERR_INVALID,
                              "FullyShardedDataParallel: '%s' and '%s' of unit '%s' differ in "
                              "requires_grad, which needs use_orig_params",
                              first->name, p->name, path);
    }
    return FSDP_OK;
}

/* The modules for which param_init_fn will be called, in the order of fsdp_module_visit(). The next
 * call is for modules[next]. */
typedef struct initialization {
    const fsdp1_options *options;
    const fsdp_module **modules;
    size_t n, cap, next;
} initialization;

/* Return true if `m` itself (not a module below it) has a sharded parameter without values. A
 * parameter has values if they were loaded, or if rank 0 has broadcast them (sync_module_states).
 */
static bool lacks_values(const fsdp_module *m)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (m->params[i].parameter->owner && !m->params[i].parameter->local->has_values)
            return true;
    return false;
}

static fsdp_status collect_uninitialized(const char *path, fsdp_module *m, void *arg)
{
    initialization *to = arg;
    (void)path;
    if (!lacks_values(m))
        return FSDP_OK;
    if (!FSDP_GROW(to->modules, to->cap, to->n + 1))
        return FSDP_ERR_NOMEM;
    to->modules[to->n++] = m;
    return FSDP_OK;
}

static fsdp_status init_collected(const char *path, fsdp_module *m, void *arg)
{
    initialization *to = arg;
    const fsdp1_options *o = to->options;
    if (to->next == to->n || to->modules[to->next] != m)
        return FSDP_OK;
    to->next++;
    return o->param_init_fn(path, m, o->param_init_arg);
}

/* Call param_init_fn for each module that lacks values. All these modules are listed before the
 * first call, because a call for one of them may also give values to modules below it. */
static fsdp_status init_modules(fsdp_module *module, const fsdp1_options *o)
{
    initialization to = {.options = o};
    fsdp_status status = fsdp_module_visit(module, collect_uninitialized, &to);
    if (status == FSDP_OK)
        status = fsdp_module_visit(module, init_collected, &to);
    fsdp_free(to.modules);
    return status;
}

static fsdp_status wrap(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                        fsdp1_options *o, const ignored *list)
{
    fsdp_fully_shard_options options;
    FSDP_TRY(translate(o, list, &options));
    FSDP_TRY(fsdp_auto_wrap(module, o->auto_wrap_policy, group, device, &options));
    if (!o->use_orig_params)
        FSDP_TRY(fsdp_module_visit(module, check_uniform, NULL));
    return o->param_init_fn ? init_modules(module, o) : FSDP_OK;
}

fsdp_status fsdp_fully_sharded_data_parallel(fsdp_module *module, fsdp_group *group,
                                             fsdp_device *device, const fsdp1_options *options)
{
    fsdp1_options o = options ? *options : (fsdp1_options){0};
    ignored list = {0};
    FSDP_TRY(check_options(&o));
    fsdp_status status = collect_ignored(&o, &list);
    if (status == FSDP_OK)
        status = wrap(module, group, device, &o, &list);
    fsdp_free(list.items);
    return status;
}
