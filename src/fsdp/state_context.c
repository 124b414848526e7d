/* fsdp_state_context: what the units of a tree share. It is created at the first forward, when the
 * tree is complete. */
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/log.h"
#include "src/fsdp/state.h"
#include "src/tensor/device.h"

fsdp_status fsdp_state_list_add(fsdp_state_list *list, fsdp_state *state)
{
    if (!FSDP_GROW(list->items, list->cap, list->n + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->n++] = state;
    return FSDP_OK;
}

void fsdp_state_list_fini(fsdp_state_list *list)
{
    fsdp_free(list->items);
    *list = (fsdp_state_list){0};
}

void fsdp_state_context_destroy(fsdp_state_context *c)
{
    if (!c)
        return;
    fsdp_pool_fini(&c->comm.gathered);
    fsdp_pool_fini(&c->comm.whole);
    fsdp_pool_fini(&c->comm.grads);
    fsdp_pool_fini(&c->comm.lanes);
    fsdp_state_list_fini(&c->order);
    fsdp_state_list_fini(&c->last_order);
    fsdp_state_list_fini(&c->left);
    fsdp_state_list_fini(&c->queue);
    fsdp_state_list_fini(&c->first_iteration);
    fsdp_free(c->states);
    fsdp_free(c);
}

static bool same_world(const fsdp_param_context *a, const fsdp_param_context *b)
{
    return a->device == b->device && a->group == b->group &&
           a->replicate_group == b->replicate_group;
}

fsdp_module *fsdp_outermost_unit(fsdp_module *m)
{
    fsdp_module *top = m;
    for (; m; m = m->parent)
        if (m->fsdp_state)
            top = m;
    return top->fsdp_state ? ((fsdp_state *)top->fsdp_state)->module : top;
}

/* Return true if m, or a module below it, is checkpointed. Backward then recomputes the forward of
 * the checkpointed module, and needs the parameters. */
static bool runs_again(const fsdp_module *m)
{
    bool again = m->checkpointed;
    for (int i = 0; i < fsdp_module_n_children(m) && !again; i++)
        again = runs_again(fsdp_module_child(m, i));
    return again;
}

bool fsdp_state_unshards_in_backward(const fsdp_state *state)
{
    bool unshards = !state->param_group->no_unshard_in_backward;
    for (size_t i = 0; i < state->n_members && !unshards; i++)
        unshards = runs_again(state->members[i].module);
    return unshards;
}

typedef struct joining {
    fsdp_state_context *context;
    const fsdp_module *top; /* the outermost unit of the context */
    uint32_t n_units; /* number of units visited so far in the model; also the next unit's number */
} joining;

static fsdp_status append_name(fsdp_param_group *g, const char *path)
{
    char *name = fsdp_strdup_printf("%s, %s", g->context.name, path);
    if (!name)
        return FSDP_ERR_NOMEM;
    fsdp_free(g->context.name);
    g->context.name = name;
    return FSDP_OK;
}

/* Check that all modules of a unit are inside the same outermost unit. */
static fsdp_status check_members(const fsdp_state *state, const fsdp_module *top)
{
    for (size_t i = 0; i < state->n_members; i++) {
        const fsdp_module *other = fsdp_outermost_unit(state->members[i].module);
        if (other != top)
            return fsdp_error(FSDP_ERR_STATE,
                              "modules '%s' and '%s' are one unit, but inside of different ones, "
                              "'%s' and '%s': make a unit of the module around both, too",
                              state->module->name, state->members[i].module->name, top->name,
                              other->name);
    }
    return FSDP_OK;
}

static fsdp_status join_context(const char *path, fsdp_module *m, void *arg)
{
    joining *j = arg;
    fsdp_state_context *c = j->context;
    fsdp_state *state = m->fsdp_state;
    if (!state)
        return FSDP_OK;
    for (size_t i = 0; i < c->n_states; i++)
        if (c->states[i] == state)
            /* The unit joined the context when another of its modules was visited. */
            return append_name(state->param_group, path);
    uint32_t number = j->n_units++;
    if (fsdp_outermost_unit(m) != j->top)
        return FSDP_OK;
    FSDP_TRY(check_members(state, j->top));
    if (state->context)
        return fsdp_error(FSDP_ERR_STATE,
                          "'%s' ran before it became a part of this model: shard all modules first",
                          path);
    if (c->n_states &&
        !same_world(&c->states[0]->param_group->context, &state->param_group->context))
        return fsdp_error(
            FSDP_ERR_INVALID,
            "unit '%s' is over another device, group or mesh than the units around it", path);
    if (!FSDP_GROW(c->states, c->cap_states, c->n_states + 1))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_param_group_set_name(state->param_group, path));
    state->param_group->context.number = number;
    c->states[c->n_states++] = state;
    return FSDP_OK;
}

static bool has_frozen(const fsdp_state_context *c)
{
    for (size_t i = 0; i < c->n_states; i++)
        for (size_t k = 0; k < c->states[i]->param_group->n_params; k++)
            if (!fsdp_parameter_requires_grad(c->states[i]->param_group->params[k].parameter))
                return true;
    return false;
}

/* On the first rank of all, warn if the offload policy has no effect, or if it makes every rank
 * store all frozen parameters. `g` is the param group of the outermost unit. */
static void warn_about_offload(const fsdp_state_context *c, const fsdp_param_group *g)
{
    const fsdp_offload_kind kind = g->context.options.offload_policy.kind;
    if (fsdp_group_rank(g->context.group) || fsdp_group_rank(g->context.replicate_group))
        return;
    if (kind == FSDP_OFFLOAD_DIR && g->context.options.no_shard &&
        fsdp_group_world_size(g->context.group) > 1 && has_frozen(c))
        fsdp_log("fsdp", FSDP_LOG_WARN, -1, 1,
                 "NO_SHARD: each rank's offloaded file has all frozen parameters; without offload "
                 "they are stored once per host");
    if (kind == FSDP_OFFLOAD_CPU && g->context.device->traits == &fsdp_cuda_traits)
        fsdp_log(
            "fsdp", FSDP_LOG_WARN, -1, 1,
            "CPU offload changes nothing: in this version, parameters and optimizer state stay "
            "on the card; an offload folder keeps them in files between uses");
    else if (kind == FSDP_OFFLOAD_CPU)
        fsdp_log("fsdp", FSDP_LOG_WARN, -1, 1,
                 "CPU offload changes nothing: this build computes on the CPU, in whose memory "
                 "parameters and optimizer state are already");
}

/* --- trimming the pools, and creating the context --- */

fsdp_status fsdp_state_context_trim(fsdp_state_context *c)
{
    fsdp_pool *const pools[] = {&c->comm.gathered, &c->comm.whole, &c->comm.grads, &c->comm.lanes};
    int64_t shard_bytes = 0;
    for (size_t i = 0; i < c->n_states; i++)
        shard_bytes += fsdp_param_group_trained_bytes(c->states[i]->param_group);
    return fsdp_pools_trim(pools, FSDP_LENGTH(pools), shard_bytes);
}

fsdp_status fsdp_state_context_create(fsdp_module *module)
{
    fsdp_module *top = fsdp_outermost_unit(module), *model = top;
    while (model->parent)
        model = model->parent;
    fsdp_state_context *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_module_visit(model, join_context, &(joining){.context = c, .top = top});
    if (status != FSDP_OK) {
        fsdp_state_context_destroy(c);
        return status;
    }
    fsdp_state *owner = top->fsdp_state;
    const fsdp_param_group *g = owner->param_group;
    c->comm.gathered =
        (fsdp_pool){.device = g->context.device, .group = g->context.group, .tag = FSDP_TAG_PARAM};
    c->comm.whole = (fsdp_pool){.device = g->context.device, .tag = FSDP_TAG_PARAM};
    c->comm.grads =
        (fsdp_pool){.device = g->context.device, .group = g->context.group, .tag = FSDP_TAG_GRAD};
    c->comm.lanes = (fsdp_pool){
        .device = g->context.device, .group = g->context.replicate_group, .tag = FSDP_TAG_GRAD};
    c->options = g->context.options;
    c->comm.gathered.rotates = g->context.group && c->options.no_limit_all_gathers;
    warn_about_offload(c, g);
    owner->owns_context = owner->param_group->is_root = true;
    for (size_t i = 0; i < c->n_states; i++) {
        c->states[i]->context = c;
        c->states[i]->param_group->context.comm = &c->comm;
    }
    return FSDP_OK;
}
