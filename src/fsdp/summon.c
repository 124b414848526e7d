/* Implements summon_full_params: between steps, gives the user whole parameters in the dtype of
 * their master weights.
 *
 * Each rank has private copies. (In FSDP1, the copies are private, too: they are views of a
 * gathered flat parameter.) Other ranks do not see this rank's changes to its copies. At the end,
 * each rank writes its own rows of the copies back to its master weights. Until then, units refuse
 * to gather, and master weights cannot be written. So the values change only through the copies. */
#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/fsdp/state.h"

typedef fsdp_summon_full_params_options summon_options;

typedef struct summoned {
    fsdp_param *param; /* borrowed */
    /* Copies of the whole parameter and of its whole gradient. Both are NULL if this rank gets no
     * copies. `grad` is also NULL if there is no gradient or the user does not want it. */
    fsdp_tensor *whole, *grad;
} summoned;

struct fsdp_full_params {
    summon_options options;
    fsdp_param_group **groups; /* borrowed */
    size_t n_groups, cap_groups;
    summoned *items;
    size_t n_items, cap_items;
};

static bool has_group(const fsdp_full_params *f, const fsdp_param_group *g)
{
    for (size_t i = 0; i < f->n_groups; i++)
        if (f->groups[i] == g)
            return true;
    return false;
}

/* Return an error on all ranks if `mine` is an error on any rank. If only the failed rank returned
 * an error, the other ranks would wait for it in the next collective. */
static fsdp_status agree(const fsdp_param_group *g, fsdp_status mine)
{
    return fsdp_agree(g->context.replicate_group, fsdp_agree(g->context.group, mine));
}

/* Return the param group of the first unit at or below `m`; NULL: there is none. */
static const fsdp_param_group *first_group(const fsdp_module *m)
{
    const fsdp_state *state = m->fsdp_state;
    if (state)
        return state->param_group;
    const fsdp_param_group *first = NULL;
    for (size_t i = 0; i < m->n_children && !first; i++)
        first = first_group(m->children[i]);
    return first;
}

/* Add the units at and below `m` to f->groups. If no_recurse is set, add only the outermost ones.
 */
static fsdp_status collect_groups(fsdp_full_params *f, const fsdp_module *m)
{
    const fsdp_state *state = m->fsdp_state;
    if (state && !has_group(f, state->param_group)) {
        if (!FSDP_GROW(f->groups, f->cap_groups, f->n_groups + 1))
            return FSDP_ERR_NOMEM;
        f->groups[f->n_groups++] = state->param_group;
    }
    for (size_t i = 0; i < m->n_children && !(state && f->options.no_recurse); i++)
        FSDP_TRY(collect_groups(f, m->children[i]));
    return FSDP_OK;
}

static fsdp_status check_idle(const fsdp_param_group *g)
{
    if (g->state >= FSDP_STATE_UNSHARDED || g->writers || g->summoned)
        return fsdp_error(FSDP_ERR_STATE, "summon_full_params: unit '%s' is %s", g->context.name,
                          g->summoned  ? "summoned already"
                          : g->writers ? "being written"
                                       : "unsharded: not within forward or backward");
    if (!g->context.device->kernels)
        return fsdp_error(FSDP_ERR_STATE, "summon_full_params: unit '%s' is on meta",
                          g->context.name);
    for (size_t i = 0; i < g->n_params; i++)
        if (g->params[i].parameter->quantized)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "summon_full_params: '%s' of unit '%s' is stored in NF4 "
                              "(--load-in-4bit), so it cannot be written",
                              g->params[i].name, g->context.name);
    return FSDP_OK;
}

/* Apply the pending dtypes of all groups, and drop prefetches. Collective. */
static fsdp_status make_current(const fsdp_full_params *f)
{
    for (size_t i = 0; i < f->n_groups; i++) {
        FSDP_TRY(fsdp_param_group_apply_pending_dtypes(f->groups[i]));
        fsdp_param_group_reshard(f->groups[i]);
    }
    return FSDP_OK;
}

/* --- gathering --- */

static bool is_first_rank(const fsdp_param_group *g)
{
    return (!g->context.group || fsdp_group_rank(g->context.group) == 0) &&
           (!g->context.replicate_group || fsdp_group_rank(g->context.replicate_group) == 0);
}

/* `local` is this rank's part of a tensor. Set *whole to a copy of the whole tensor; on ranks that
 * get no copies because of rank0_only, set it to NULL. Collective. */
static fsdp_status gather_whole(const fsdp_full_params *f, const fsdp_param_group *g,
                                fsdp_tensor *local, fsdp_tensor **whole)
{
    fsdp_tensor *full = NULL;
    fsdp_status status = fsdp_full_tensor(local, &full);
    if (status != FSDP_OK)
        *whole = NULL;
    else if (f->options.rank0_only && !is_first_rank(g))
        *whole = NULL;
    else if (full == local)
        status = fsdp_tensor_to(full, full->dtype, FSDP_TAG_PARAM, whole);
    else
        *whole = fsdp_tensor_retain(full);
    fsdp_tensor_release(full);
    return agree(g, status);
}

static fsdp_status summon_param(fsdp_full_params *f, const fsdp_param_group *g, fsdp_param *p)
{
    summoned *item = &f->items[f->n_items++];
    *item = (summoned){.param = p};
    FSDP_TRY(gather_whole(f, g, p->local, &item->whole));
    fsdp_tensor *grad = fsdp_parameter_grad(p->parameter);
    return f->options.with_grads && grad ? gather_whole(f, g, grad, &item->grad) : FSDP_OK;
}

static fsdp_status summon(fsdp_full_params *f)
{
    for (size_t i = 0; i < f->n_groups; i++)
        for (size_t k = 0; k < f->groups[i]->n_params; k++)
            FSDP_TRY(summon_param(f, f->groups[i], &f->groups[i]->params[k]));
    for (size_t i = 0; i < f->n_groups; i++)
        f->groups[i]->summoned = true;
    return FSDP_OK;
}

static void destroy(fsdp_full_params *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n_items; i++) {
        fsdp_tensor_release(f->items[i].whole);
        fsdp_tensor_release(f->items[i].grad);
    }
    fsdp_free(f->items);
    fsdp_free(f->groups);
    fsdp_free(f);
}

static fsdp_status check_options(const summon_options *o)
{
    if (o->rank0_only && !o->no_writeback)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "summon_full_params: rank0_only with writeback: other ranks have nothing "
                          "to write back");
    return FSDP_OK;
}

/* Do the steps of summoning that can fail but do not communicate. *full is set even after a
 * failure; the caller destroys it. */
static fsdp_status prepare_summon(const fsdp_module *module, const summon_options *o,
                                  fsdp_full_params **full)
{
    fsdp_full_params *f = *full = fsdp_calloc(1, sizeof *f);
    if (!f)
        return FSDP_ERR_NOMEM;
    f->options = *o;
    FSDP_TRY(collect_groups(f, module));
    size_t n = 0;
    for (size_t i = 0; i < f->n_groups; i++) {
        FSDP_TRY(check_idle(f->groups[i]));
        n += f->groups[i]->n_params;
    }
    return FSDP_GROW(f->items, f->cap_items, n) ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_summon_full_params_begin(fsdp_module *module, const summon_options *options,
                                          fsdp_full_params **full)
{
    const summon_options o = options ? *options : (summon_options){0};
    FSDP_TRY(check_options(&o));
    const fsdp_param_group *first = first_group(module);
    if (!first)
        return fsdp_error(FSDP_ERR_INVALID, "summon_full_params: module '%s' (%s) has no unit",
                          module->name, module->class_name);
    fsdp_full_params *f = NULL;
    fsdp_status status = agree(first, prepare_summon(module, &o, &f));
    if (status == FSDP_OK)
        status = make_current(f);
    if (status == FSDP_OK)
        status = summon(f);
    if (status != FSDP_OK) {
        destroy(f);
        return status;
    }
    *full = f;
    return FSDP_OK;
}

/* --- access --- */

static const summoned *find_param(const fsdp_full_params *f, const fsdp_parameter *parameter)
{
    for (size_t i = 0; i < f->n_items; i++)
        if (f->items[i].param->parameter == parameter)
            return &f->items[i];
    return NULL;
}

fsdp_tensor *fsdp_full_params_get(const fsdp_full_params *f, const fsdp_parameter *parameter)
{
    const summoned *item = find_param(f, parameter);
    return item ? item->whole : NULL;
}

fsdp_tensor *fsdp_full_params_grad(const fsdp_full_params *f, const fsdp_parameter *parameter)
{
    const summoned *item = find_param(f, parameter);
    return item ? item->grad : NULL;
}

/* --- writing back --- */

static fsdp_status write_back(const summoned *item)
{
    const fsdp_param *p = item->param;
    FSDP_TRY(fsdp_tensor_take_values(item->whole, &p->slice, p->local));
    fsdp_tensor *grad = fsdp_parameter_grad(p->parameter);
    return item->grad && grad ? fsdp_tensor_take_values(item->grad, &p->slice, grad) : FSDP_OK;
}

fsdp_status fsdp_summon_full_params_end(fsdp_full_params *f)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < f->n_groups; i++)
        f->groups[i]->summoned = false;
    for (size_t i = 0; i < f->n_items && !f->options.no_writeback && status == FSDP_OK; i++)
        status = write_back(&f->items[i]);
    destroy(f);
    return status;
}
