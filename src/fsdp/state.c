/* Hooks around a unit's forward and backward. See Note [Order of a step] in state.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/log.h"
#include "src/fsdp/state.h"

/* --- context: made at the first forward, when the tree of units is complete --- */

static void context_destroy(fsdp_context *c)
{
    if (!c)
        return;
    fsdp_pool_fini(&c->pools.gathered);
    fsdp_pool_fini(&c->pools.whole);
    fsdp_pool_fini(&c->pools.slots);
    fsdp_free(c->states);
    fsdp_free(c->order);
    fsdp_free(c->last_order);
    fsdp_free(c->left);
    fsdp_free(c);
}

static bool same_world(const fsdp_param_group *a, const fsdp_param_group *b)
{
    return a->device == b->device && a->group == b->group;
}

static fsdp_module *outermost_unit(fsdp_module *m)
{
    fsdp_module *top = m;
    for (; m; m = m->parent)
        if (m->fsdp_state)
            top = m;
    return top;
}

typedef struct joining {
    fsdp_context *context;
    const fsdp_module *top; /* the context's outermost unit */
    uint32_t n_units;       /* of the whole model, so far: names and numbers are the model's */
} joining;

static fsdp_status join_context(const char *path, fsdp_module *m, void *arg)
{
    joining *j = arg;
    fsdp_context *c = j->context;
    fsdp_state *state = m->fsdp_state;
    if (!state)
        return FSDP_OK;
    uint32_t number = j->n_units++;
    if (outermost_unit(m) != j->top)
        return FSDP_OK;
    if (state->context)
        return fsdp_error(FSDP_ERR_STATE,
                          "'%s' ran before it became a part of this model: shard all, then run",
                          path);
    if (c->n_states && !same_world(c->states[0]->unit, state->unit))
        return fsdp_error(FSDP_ERR_INVALID,
                          "unit '%s' is over another device or group than the units around it",
                          path);
    if (!FSDP_GROW(c->states, c->cap_states, c->n_states + 1))
        return FSDP_ERR_NOMEM;
    char *name = fsdp_strdup(path);
    if (!name)
        return FSDP_ERR_NOMEM;
    fsdp_free(state->unit->name);
    state->unit->name = name;
    state->unit->number = number;
    c->states[c->n_states++] = state;
    return FSDP_OK;
}

static fsdp_status make_context(fsdp_module *module)
{
    fsdp_module *top = outermost_unit(module), *model = top;
    while (model->parent)
        model = model->parent;
    fsdp_context *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return FSDP_ERR_NOMEM;
    fsdp_status status =
        fsdp_module_visit(model, join_context, &(joining){.context = c, .top = top});
    if (status != FSDP_OK) {
        context_destroy(c);
        return status;
    }
    fsdp_state *owner = top->fsdp_state;
    const fsdp_param_group *u = owner->unit;
    c->pools.gathered = (fsdp_pool){.device = u->device, .group = u->group, .tag = FSDP_TAG_PARAM};
    c->pools.whole = (fsdp_pool){.device = u->device, .tag = FSDP_TAG_PARAM};
    c->pools.slots = (fsdp_pool){.device = u->device, .group = u->group, .tag = FSDP_TAG_GRAD};
    owner->owns_context = true;
    for (size_t i = 0; i < c->n_states; i++) {
        c->states[i]->context = c;
        c->states[i]->unit->pools = &c->pools;
    }
    return FSDP_OK;
}

/* --- forward --- */

static void at(const fsdp_state *state, const char *call)
{
    if (state->unit->group)
        fsdp_group_at(state->unit->group, state->unit->step,
                      *state->unit->name ? state->unit->name : "root", call);
}

/* The outermost unit of a forward begins it: what the whole step shares is taken from the scope. A
 * forward without gradients, between a forward and its backward, leaves the step alone. */
static void begin_forward(fsdp_state *state, const fsdp_scope *s)
{
    fsdp_context *c = state->context;
    const fsdp_scope_options *o = fsdp_scope_get_options(s);
    for (size_t i = 0; i < c->n_states; i++)
        c->states[i]->unit->step = o->step + 1; /* in messages, as people count */
    if (s->run->tape) {
        c->last_micro_step = o->micro_step + 1 >= o->n_micro_steps;
        c->to_flush = true;
        for (size_t i = 0; i < c->n_states && o->micro_step == 0; i++)
            fsdp_param_group_drop_sums(c->states[i]->unit);
    }
    fsdp_state **swap = c->last_order;
    size_t cap = c->cap_last_order;
    c->last_order = c->order;
    c->n_last_order = c->n_order;
    c->cap_last_order = c->cap_order;
    c->order = swap;
    c->cap_order = cap;
    c->n_order = c->n_left = c->cursor = 0;
}

static fsdp_status pre_forward(void *self, fsdp_scope *s, fsdp_args *in)
{
    fsdp_state *state = self;
    (void)in;
    if (!state->context)
        FSDP_TRY(make_context(state->module));
    fsdp_context *c = state->context;
    if (c->depth == 0)
        begin_forward(state, s);
    c->depth++;
    at(state, "all_gather in forward");
    FSDP_TRY(fsdp_param_group_unshard(state->unit));
    if (!FSDP_GROW(c->order, c->cap_order, c->n_order + 1))
        return FSDP_ERR_NOMEM;
    size_t i = c->n_order;
    c->order[c->n_order++] = state;
    if (i + 1 < c->n_last_order && c->last_order[i] == state)
        FSDP_TRY(fsdp_param_group_prefetch(c->last_order[i + 1]->unit));
    at(state, "forward");
    return FSDP_OK;
}

static bool keeps_after_forward(const fsdp_state *state)
{
    switch (state->unit->options.reshard_after_forward) {
    case FSDP_RESHARD_TRUE:
        return false;
    case FSDP_RESHARD_FALSE:
        return true;
    case FSDP_RESHARD_DEFAULT:
        break;
    }
    return state->owns_context; /* the root: its backward comes first */
}

/* A prefetch that guessed wrong, or a unit kept for a backward that does not come. */
static void reshard_all(fsdp_context *c)
{
    for (size_t i = 0; i < c->n_states; i++)
        if (!c->states[i]->unit->held)
            fsdp_param_group_reshard(c->states[i]->unit);
}

static void drop_prefetches(fsdp_context *c)
{
    for (size_t i = 0; i < c->n_states; i++)
        if (c->states[i]->unit->state == FSDP_UNIT_GATHERING)
            fsdp_param_group_reshard(c->states[i]->unit);
}

static fsdp_status post_forward(void *self, fsdp_scope *s, fsdp_args *out)
{
    fsdp_state *state = self;
    fsdp_context *c = state->context;
    (void)out;
    c->depth--;
    bool has_backward = s->run->tape != NULL;
    if (!state->unit->held && !(has_backward && keeps_after_forward(state)))
        fsdp_param_group_reshard(state->unit);
    if (c->depth == 0)
        drop_prefetches(c);
    if (!FSDP_GROW(c->left, c->cap_left, c->n_left + 1))
        return FSDP_ERR_NOMEM;
    c->left[c->n_left++] = state;
    c->cursor = c->n_left;
    return FSDP_OK;
}

/* --- backward --- */

/* What backward needs after `state`: what was left just before it in forward. The second round is
 * for an earlier forward of the same tape. */
static fsdp_state *next_in_backward(fsdp_context *c, const fsdp_state *state)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = c->cursor; i-- > 0;) {
            if (c->left[i] != state)
                continue;
            c->cursor = i;
            return i && c->left[i - 1]->hooks.reached ? c->left[i - 1] : NULL;
        }
        c->cursor = c->n_left;
    }
    return NULL;
}

static fsdp_status pre_backward(void *self)
{
    fsdp_state *state = self;
    at(state, "all_gather in backward");
    FSDP_TRY(fsdp_param_group_unshard(state->unit));
    fsdp_state *next = next_in_backward(state->context, state);
    if (next)
        FSDP_TRY(fsdp_param_group_prefetch(next->unit));
    at(state, "backward");
    return FSDP_OK;
}

static fsdp_status reduce_pending(fsdp_context *c)
{
    if (!c->pending)
        return FSDP_OK;
    fsdp_state *state = c->pending;
    c->pending = NULL;
    at(state, "reduce_scatter");
    return fsdp_param_group_reduce(state->unit, c->last_micro_step);
}

static fsdp_status post_backward(void *self, bool last)
{
    fsdp_state *state = self;
    fsdp_context *c = state->context;
    if (!last)
        return FSDP_OK;
    bool has_gradients;
    FSDP_TRY(fsdp_param_group_publish(state->unit, &has_gradients));
    if (!state->unit->held)
        fsdp_param_group_reshard(state->unit);
    FSDP_TRY(reduce_pending(c));
    if (has_gradients)
        c->pending = state;
    return FSDP_OK;
}

/* Called for each unit of the tape: the first one flushes for all. */
static fsdp_status end_backward(void *self)
{
    fsdp_context *c = ((fsdp_state *)self)->context;
    if (!c || !c->to_flush)
        return FSDP_OK;
    c->to_flush = false;
    FSDP_TRY(reduce_pending(c));
    for (size_t i = 0; i < c->n_states; i++) {
        /* A gradient that came outside of the unit's own backward: another unit read it. */
        bool has_gradients;
        FSDP_TRY(fsdp_param_group_publish(c->states[i]->unit, &has_gradients));
        c->pending = has_gradients ? c->states[i] : NULL;
        FSDP_TRY(reduce_pending(c));
        if (c->last_micro_step)
            fsdp_param_group_finish(c->states[i]->unit);
    }
    reshard_all(c);
    return FSDP_OK;
}

/* The step failed, for all units: none may keep a part of it for the next one. */
static void cancel(void *self)
{
    fsdp_context *c = ((fsdp_state *)self)->context;
    if (!c)
        return;
    c->pending = NULL;
    c->depth = 0;
    c->to_flush = false;
    for (size_t i = 0; i < c->n_states; i++)
        fsdp_param_group_drop_gradients(c->states[i]->unit);
    reshard_all(c);
}

/* --- states --- */

static void state_destroy(fsdp_region_hooks *hooks)
{
    fsdp_state *state = hooks->self;
    fsdp_param_group_destroy(state->unit);
    if (state->owns_context)
        context_destroy(state->context);
    state->module->fsdp_state = NULL;
    fsdp_free(state);
}

fsdp_status fsdp_state_create(fsdp_module *module, fsdp_param_group *unit)
{
    fsdp_state *state = fsdp_calloc(1, sizeof *state);
    if (!state)
        return FSDP_ERR_NOMEM;
    state->module = module;
    state->unit = unit;
    state->hooks = (fsdp_region_hooks){.pre_forward = pre_forward,
                                       .post_forward = post_forward,
                                       .pre_backward = pre_backward,
                                       .post_backward = post_backward,
                                       .end_backward = end_backward,
                                       .cancel = cancel,
                                       .self = state};
    fsdp_status status = fsdp_module_add_hooks(module, &state->hooks, state_destroy);
    if (status != FSDP_OK) {
        fsdp_free(state);
        return status;
    }
    module->fsdp_state = state;
    return FSDP_OK;
}

fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **out)
{
    fsdp_state *state = module->fsdp_state;
    if (!state)
        return fsdp_error(FSDP_ERR_INVALID, "module '%s' (%s) was not given to fsdp_fully_shard()",
                          module->name, module->class_name);
    if (!state->context)
        FSDP_TRY(make_context(module));
    *out = state;
    return FSDP_OK;
}
