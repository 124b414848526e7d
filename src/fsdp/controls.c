/* Implements the controls of units: the methods of PyTorch's FSDPModule, and FSDP1's no_sync().
 * Most controls only set fields that the unit's hooks read later. Unshard, reshard, and waiting for
 * a handle take effect at once. */
#include <float.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"

/* --- the units that a call applies to --- */

typedef void apply_fn(fsdp_state *state, const void *value);

typedef struct application {
    apply_fn *apply; /* NULL: the units are only counted */
    const void *value;
    size_t n;
} application;

static fsdp_status apply_to_module(const char *path, fsdp_module *m, void *arg)
{
    application *a = arg;
    (void)path;
    if (!m->fsdp_state)
        return FSDP_OK;
    a->n++;
    if (a->apply)
        a->apply(m->fsdp_state, a->value);
    return FSDP_OK;
}

static fsdp_status no_unit_error(const fsdp_module *m, bool recurse)
{
    return fsdp_error(FSDP_ERR_INVALID, "module '%s' (%s) %s", m->name, m->class_name,
                      recurse ? "is no unit and has none below it"
                              : "was not given to fsdp_fully_shard()");
}

/* Call fn(state, value) for the unit of `module`. If `recurse` is true, also call it for the units
 * of all modules below `module`. Return FSDP_ERR_INVALID if there is no unit. */
static fsdp_status apply_to_units(fsdp_module *module, bool recurse, apply_fn *fn,
                                  const void *value)
{
    application a = {.apply = fn, .value = value};
    FSDP_TRY(recurse ? fsdp_module_visit(module, apply_to_module, &a)
                     : apply_to_module("", module, &a));
    return a.n ? FSDP_OK : no_unit_error(module, recurse);
}

/* --- unshard and reshard --- */

struct fsdp_unshard_handle {
    fsdp_state *state;
};

/* Set *out to the state of the module's unit. If the unit is sharded and no backward will still
 * read its parameters (to_flush is false), first apply the unit's pending dtypes, as a forward
 * would. */
static fsdp_status current_state_of(fsdp_module *module, fsdp_state **out)
{
    fsdp_state *state;
    FSDP_TRY(fsdp_state_of(module, &state));
    if (state->param_group->state == FSDP_STATE_SHARDED && !state->context->to_flush)
        FSDP_TRY(fsdp_param_group_apply_pending_dtypes(state->param_group));
    *out = state;
    return FSDP_OK;
}

fsdp_status fsdp_unit_unshard(fsdp_module *module)
{
    fsdp_state *state;
    FSDP_TRY(current_state_of(module, &state));
    FSDP_TRY(fsdp_param_group_unshard(state->param_group));
    state->param_group->held = true;
    return FSDP_OK;
}

fsdp_status fsdp_unit_reshard(fsdp_module *module)
{
    fsdp_state *state;
    FSDP_TRY(fsdp_state_of(module, &state));
    state->param_group->held = false;
    fsdp_param_group_reshard(state->param_group);
    return FSDP_OK;
}

fsdp_status fsdp_unit_unshard_async(fsdp_module *module, fsdp_unshard_handle **handle)
{
    fsdp_state *state;
    FSDP_TRY(current_state_of(module, &state));
    FSDP_TRY(fsdp_param_group_check_gather(state->param_group));
    fsdp_unshard_handle *h = handle ? fsdp_calloc(1, sizeof *h) : NULL;
    if (handle && !h)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_param_group_prefetch(state->param_group);
    if (status != FSDP_OK) {
        fsdp_free(h);
        return status;
    }
    state->param_group->requested = true;
    if (handle) {
        h->state = state;
        *handle = h;
    }
    return FSDP_OK;
}

fsdp_status fsdp_unshard_handle_wait(fsdp_unshard_handle *handle)
{
    if (!handle)
        return FSDP_OK;
    fsdp_param_group *group = handle->state->param_group;
    fsdp_free(handle);
    return group->state == FSDP_STATE_GATHERING ? fsdp_param_group_unshard(group) : FSDP_OK;
}

/* --- explicit prefetch --- */

static fsdp_status collect(fsdp_module *module, fsdp_module *const *modules, size_t n,
                           fsdp_state_list *list)
{
    for (size_t i = 0; i < n; i++) {
        if (!modules[i] || !modules[i]->fsdp_state)
            return modules[i] ? no_unit_error(modules[i], false)
                              : fsdp_error(FSDP_ERR_INVALID, "module %zu is NULL", i);
        if (fsdp_outermost_unit(modules[i]) != fsdp_outermost_unit(module))
            return fsdp_error(FSDP_ERR_INVALID,
                              "modules '%s' and '%s' are in no common unit: shard all modules "
                              "before setting what is prefetched",
                              module->name, modules[i]->name);
        FSDP_TRY(fsdp_state_list_add(list, modules[i]->fsdp_state));
    }
    return FSDP_OK;
}

static fsdp_status set_list(fsdp_module *module, fsdp_module *const *modules, size_t n,
                            bool backward)
{
    fsdp_state *state = module->fsdp_state;
    fsdp_state_list list = {0};
    fsdp_status status = state ? collect(module, modules, n, &list) : no_unit_error(module, false);
    if (status != FSDP_OK) {
        fsdp_state_list_fini(&list);
        fsdp_error_context(status, "modules to %s prefetch", backward ? "backward" : "forward");
        return status;
    }
    fsdp_state_list *to = backward ? &state->backward_prefetch : &state->forward_prefetch;
    fsdp_state_list_fini(to);
    *to = list;
    return FSDP_OK;
}

fsdp_status fsdp_set_modules_to_forward_prefetch(fsdp_module *module, fsdp_module *const *modules,
                                                 size_t n)
{
    return set_list(module, modules, n, false);
}

fsdp_status fsdp_set_modules_to_backward_prefetch(fsdp_module *module, fsdp_module *const *modules,
                                                  size_t n)
{
    return set_list(module, modules, n, true);
}

/* --- communication of gradients --- */

static void set_sync(fsdp_state *state, const void *value)
{
    state->param_group->grads.no_gradient_sync = !*(const bool *)value;
    state->param_group->grads.no_all_reduce = !*(const bool *)value;
}

static void set_all_reduce(fsdp_state *state, const void *value)
{
    state->param_group->grads.no_all_reduce = !*(const bool *)value;
}

fsdp_status fsdp_set_requires_gradient_sync(fsdp_module *module, bool requires_gradient_sync,
                                            bool recurse)
{
    return apply_to_units(module, recurse, set_sync, &requires_gradient_sync);
}

fsdp_status fsdp_set_requires_all_reduce(fsdp_module *module, bool requires_all_reduce,
                                         bool recurse)
{
    return apply_to_units(module, recurse, set_all_reduce, &requires_all_reduce);
}

static void set_no_sync(fsdp_state *state, const void *value)
{
    state->param_group->grads.in_no_sync = *(const bool *)value;
}

static fsdp_status find_no_sync(const char *path, fsdp_module *m, void *arg)
{
    const fsdp_state *state = m->fsdp_state;
    (void)path;
    *(bool *)arg |= state && state->param_group->grads.in_no_sync;
    return FSDP_OK;
}

static fsdp_status no_sync(fsdp_module *root, bool on)
{
    bool found = false;
    for (const fsdp_module *m = root->parent; m; m = m->parent)
        if (m->fsdp_state)
            return fsdp_error(FSDP_ERR_INVALID, "no_sync: unit '%s' is around module '%s'", m->name,
                              root->name);
    FSDP_TRY(apply_to_units(root, true, NULL, NULL));
    FSDP_TRY(fsdp_module_visit(root, find_no_sync, &found));
    if (found == on)
        return fsdp_error(FSDP_ERR_STATE, "no_sync of module '%s' (%s) %s", root->name,
                          root->class_name, on ? "has begun already" : "has not begun");
    return apply_to_units(root, true, set_no_sync, &on);
}

fsdp_status fsdp_no_sync_begin(fsdp_module *root)
{
    return no_sync(root, true);
}

fsdp_status fsdp_no_sync_end(fsdp_module *root)
{
    return no_sync(root, false);
}

/* --- resharding after forward and backward --- */

static void set_reshard_after_forward(fsdp_state *state, const void *value)
{
    state->param_group->context.options.reshard_after_forward =
        *(const bool *)value ? FSDP_RESHARD_TRUE : FSDP_RESHARD_FALSE;
}

fsdp_status fsdp_set_reshard_after_forward(fsdp_module *module, bool reshard_after_forward,
                                           bool recurse)
{
    return apply_to_units(module, recurse, set_reshard_after_forward, &reshard_after_forward);
}

static void set_reshard_after_backward(fsdp_state *state, const void *value)
{
    state->keeps_after_backward = !*(const bool *)value;
}

fsdp_status fsdp_set_reshard_after_backward(fsdp_module *module, bool reshard_after_backward,
                                            bool recurse)
{
    return apply_to_units(module, recurse, set_reshard_after_backward, &reshard_after_backward);
}

static void set_unshard_in_backward(fsdp_state *state, const void *value)
{
    state->param_group->no_unshard_in_backward = !*(const bool *)value;
}

fsdp_status fsdp_set_unshard_in_backward(fsdp_module *module, bool unshard_in_backward)
{
    return apply_to_units(module, false, set_unshard_in_backward, &unshard_in_backward);
}

static void set_is_last_backward(fsdp_state *state, const void *value)
{
    state->not_last_backward = !*(const bool *)value;
}

fsdp_status fsdp_set_is_last_backward(fsdp_module *module, bool is_last_backward)
{
    if (!module->fsdp_state)
        return no_unit_error(module, false);
    return apply_to_units(fsdp_outermost_unit(module), true, set_is_last_backward,
                          &is_last_backward);
}

/* --- the divide factor and the all-reduce hook --- */

static void set_factor(fsdp_state *state, const void *value)
{
    state->param_group->grads.divide_factor = *(const double *)value;
}

fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root, double factor)
{
    if (!(factor >= 0.0 && factor <= DBL_MAX))
        return fsdp_error(FSDP_ERR_INVALID,
                          "gradient divide factor %g is neither positive nor 0 (world size)",
                          factor);
    return apply_to_units(root, true, set_factor, &factor);
}

fsdp_status fsdp_set_all_reduce_hook(fsdp_module *module, fsdp_all_reduce_hook *hook, void *arg)
{
    fsdp_state *state = module->fsdp_state;
    if (!state)
        return no_unit_error(module, false);
    state->param_group->grads.all_reduce_hook = hook;
    state->param_group->grads.all_reduce_arg = arg;
    return FSDP_OK;
}
