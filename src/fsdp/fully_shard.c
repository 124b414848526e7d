/* The public face: which parameters a unit takes, and the calls on a unit. */
#include <float.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"

static fsdp_status check_options(const fsdp_module *m, const fsdp_fully_shard_options *o)
{
    const fsdp_mp_policy *mp = &o->mp_policy;
    if (m->fsdp_state)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: module '%s' (%s) is a unit already",
                          m->name, m->class_name);
    if (mp->param_dtype != FSDP_DTYPE_F32 && mp->param_dtype != FSDP_DTYPE_BF16)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "fully_shard: param_dtype %s: this version computes in float32 or bfloat16",
            fsdp_dtype_name(mp->param_dtype));
    if (mp->reduce_dtype != FSDP_DTYPE_F32 && mp->reduce_dtype != FSDP_DTYPE_BF16)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "fully_shard: reduce_dtype %s: this version reduces in float32 or bfloat16",
            fsdp_dtype_name(mp->reduce_dtype));
    if (mp->master_dtype != FSDP_DTYPE_F32 && mp->master_dtype != FSDP_DTYPE_BF16)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "fully_shard: master_dtype %s: this version keeps float32 or bfloat16",
                          fsdp_dtype_name(mp->master_dtype));
    return FSDP_OK;
}

/* Units are made bottom up, before the first of them runs. */
static fsdp_status refuse_used_unit(const char *path, fsdp_module *m, void *arg)
{
    const fsdp_state *state = m->fsdp_state;
    (void)arg;
    if (state && state->context)
        return fsdp_error(FSDP_ERR_STATE,
                          "fully_shard: unit '%s' inside has run already: shard all, then run",
                          path);
    return FSDP_OK;
}

static fsdp_status check_place(fsdp_module *module)
{
    for (const fsdp_module *m = module->parent; m; m = m->parent)
        if (m->fsdp_state)
            return fsdp_error(FSDP_ERR_STATE,
                              "fully_shard: module '%s' (%s) around it is a unit already and has "
                              "its parameters: shard bottom up",
                              m->name, m->class_name);
    return fsdp_module_visit(module, refuse_used_unit, NULL);
}

fsdp_status fsdp_fully_shard(fsdp_module *module, fsdp_group *group, fsdp_device *device,
                             const fsdp_fully_shard_options *options)
{
    static const fsdp_fully_shard_options defaults = {0};
    if (!options)
        options = &defaults;
    if (!module || !device)
        return fsdp_error(FSDP_ERR_INVALID, "fully_shard: %s is NULL",
                          module ? "device" : "module");
    FSDP_TRY(check_options(module, options));
    FSDP_TRY(check_place(module));
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(module, false, &list));
    fsdp_named_parameter *own = fsdp_calloc(list.n, sizeof *own);
    fsdp_status status = own ? FSDP_OK : FSDP_ERR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        if (!list.items[i].parameter->owner)
            own[n++] = list.items[i];
    fsdp_param_group *unit = NULL;
    if (status == FSDP_OK)
        status = fsdp_param_group_create(device, group, options, own, n, &unit);
    if (status == FSDP_OK) {
        status = fsdp_state_create(module, unit);
        if (status == FSDP_OK)
            fsdp_param_group_adopt(unit);
        else
            fsdp_param_group_destroy(unit);
    }
    fsdp_error_context(status, "fully_shard of %s", module->class_name);
    fsdp_free(own);
    fsdp_parameter_list_free(&list);
    return status;
}

bool fsdp_module_is_unit(const fsdp_module *module)
{
    return module->fsdp_state != NULL;
}

fsdp_status fsdp_unit_unshard(fsdp_module *module)
{
    fsdp_state *state;
    FSDP_TRY(fsdp_state_of(module, &state));
    FSDP_TRY(fsdp_param_group_unshard(state->unit));
    state->unit->held = true;
    return FSDP_OK;
}

fsdp_status fsdp_unit_reshard(fsdp_module *module)
{
    fsdp_state *state;
    FSDP_TRY(fsdp_state_of(module, &state));
    state->unit->held = false;
    fsdp_param_group_reshard(state->unit);
    return FSDP_OK;
}

static fsdp_status set_factor(const char *path, fsdp_module *m, void *arg)
{
    (void)path;
    fsdp_state *state = m->fsdp_state;
    if (state)
        state->unit->divide_factor = *(const double *)arg;
    return FSDP_OK;
}

fsdp_status fsdp_set_gradient_divide_factor(fsdp_module *root, double factor)
{
    if (!(factor >= 0.0 && factor <= DBL_MAX))
        return fsdp_error(FSDP_ERR_INVALID,
                          "gradient divide factor %g is neither positive nor 0 (world size)",
                          factor);
    return fsdp_module_visit(root, set_factor, &factor);
}
