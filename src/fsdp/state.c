/* Hooks around a unit's forward and backward. See Note [Order of a step] in state.h. */
#include "src/base/alloc.h"
#include "src/fsdp/grad_reduce.h"
#include "src/fsdp/grad_rows.h"
#include "src/fsdp/prefetch.h"

/* --- forward --- */

static void set_location(const fsdp_state *state, const char *call)
{
    fsdp_param_context_set_location(&state->param_group->context, call);
}

static void clear_location(const fsdp_state *state)
{
    fsdp_param_context_set_location(&state->param_group->context, NULL);
}

/* Begin a step. Called when a forward with gradients begins, if its micro_step is 0. If to_flush is
 * set, an earlier forward of this micro-step has run, and the gradients of that forward are still
 * needed. In this case, drop nothing. If to_flush is not set, drop the partial sums of a previous
 * step that did not end. If n_micro_steps is above 1, also drop the gradients that have accumulated
 * without communication. Otherwise keep them, because they may belong to the current step: a
 * program that does not set micro-steps passes micro_step 0 in every forward of a step. */
static void begin_step(fsdp_state_context *c, const fsdp_scope_options *o)
{
    c->lost_sums = false;
    for (size_t i = 0; i < c->n_states && !c->to_flush; i++) {
        fsdp_grad_buffer_drop_sums(&c->states[i]->param_group->grads);
        if (o->n_micro_steps > 1)
            fsdp_grad_buffer_drop(&c->states[i]->param_group->grads);
    }
}

/* Return FSDP_ERR_STATE if gradients of earlier micro-steps of this step were dropped. The
 * remaining micro-steps would produce the gradient of only a part of the batch. */
static fsdp_status check_step(const fsdp_state_context *c, int micro_step)
{
    if (!c->lost_sums || micro_step == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE,
                      "micro-step %d: gradients of the micro-steps before it were dropped when the "
                      "step failed: begin it again with micro_step 0",
                      micro_step);
}

/* Called when the outermost unit begins a forward. Record the number of the step. If the forward
 * has gradients, also record the micro-step. A forward without gradients may run between a forward
 * with gradients and the backward of that forward. So a forward without gradients does not change
 * the micro-step. */
static fsdp_status begin_forward(fsdp_state *state, const fsdp_scope *s)
{
    fsdp_state_context *c = state->context;
    const fsdp_scope_options *o = fsdp_scope_get_options(s);
    if (fsdp_scope_has_backward(s))
        FSDP_TRY(check_step(c, o->micro_step));
    for (size_t i = 0; i < c->n_states; i++) {
        c->states[i]->param_group->context.step = o->step + 1; /* Messages count steps from 1. */
        if (!c->to_flush) /* If to_flush is set, a backward may still read the parameters. */
            FSDP_TRY(fsdp_param_group_apply_pending_dtypes(c->states[i]->param_group));
    }
    if (fsdp_scope_has_backward(s)) {
        if (o->micro_step == 0)
            begin_step(c, o);
        c->micro_step = o->micro_step;
        c->comm.last_micro_step = o->micro_step + 1 >= o->n_micro_steps;
        c->to_flush = true;
    }
    fsdp_prefetch_begin_forward(c);
    return FSDP_OK;
}

static fsdp_status unshard(fsdp_state *state)
{
    state->param_group->requested = false;
    return fsdp_param_group_unshard(state->param_group);
}

/* Begin a recomputation: the unit is inside a checkpointed module, whose forward runs again in
 * backward. A recomputation does not change the recorded order of units. Checkpointed modules may
 * be nested. If s->run->tape is NULL, the outer module is being recomputed, and this unit is inside
 * the inner module. In this case, the unit's forward will run once more, when the inner module is
 * recomputed. */
static fsdp_status pre_recomputation(fsdp_state *state, const fsdp_scope *s)
{
    if (s->run->tape && state->hidden_calls)
        state->hidden_calls--;
    set_location(state, "all_gather in recomputation");
    return unshard(state);
}

static void post_recomputation(fsdp_state *state, const fsdp_scope *s)
{
    if (!s->run->tape && !state->param_group->held)
        fsdp_param_group_reshard(state->param_group);
}

static bool any_to_run(const fsdp_state *state)
{
    for (size_t i = 0; i < state->n_members; i++)
        if (state->members[i].to_run)
            return true;
    return false;
}

static void set_to_run(fsdp_state *state, bool on)
{
    for (size_t i = 0; i < state->n_members; i++)
        state->members[i].to_run = on;
}

/* Return an error if the unit is on meta but the run is not. Call this before the context is
 * created, because the pools of the context will be on the device of the units. */
static fsdp_status check_device(const fsdp_state *state, const fsdp_scope *s)
{
    if (!fsdp_device_is_meta(state->param_group->context.device) ||
        fsdp_device_is_meta(s->run->device))
        return FSDP_OK;
    return fsdp_module_meta_error(state->module);
}

static fsdp_status unshard_for_forward(fsdp_state *state, fsdp_scope *s)
{
    FSDP_TRY(check_device(state, s));
    if (!state->context)
        FSDP_TRY(fsdp_state_context_create(state->module));
    fsdp_state_context *c = state->context;
    if (s->run->recomputing)
        return pre_recomputation(state, s);
    if (c->comm.depth == 0)
        FSDP_TRY(begin_forward(state, s));
    state->hidden_calls += s->run->hidden_tape != NULL;
    c->comm.depth++;
    if (any_to_run(state))
        return unshard(state);
    set_to_run(state, true);
    if (fsdp_scope_has_backward(s))
        FSDP_TRY(fsdp_prefetch_check_order(state));
    set_location(state, "all_gather in forward");
    FSDP_TRY(unshard(state));
    FSDP_TRY(fsdp_prefetch_in_forward(state));
    set_location(state, "forward");
    return FSDP_OK;
}

static fsdp_status cast_inputs(void *self, fsdp_scope *s, fsdp_args *in)
{
    const fsdp_member *member = self;
    return fsdp_state_cast_inputs(member->state, s, in);
}

static fsdp_status pre_forward(void *self, fsdp_scope *s, fsdp_args *in)
{
    const fsdp_member *member = self;
    FSDP_TRY(unshard_for_forward(member->state, s));
    return cast_inputs(self, s, in);
}

/* Reshard all units, even units that wait for a backward, because that backward will not run. Units
 * that the caller holds (fsdp_unit_unshard()) are not resharded. Kept units are resharded only if
 * `also_kept` is true. A unit is kept if it was requested (fsdp_unit_unshard_async()) or if
 * keeps_after_backward is set. */
static void reshard_all(fsdp_state_context *c, bool also_kept)
{
    fsdp_prefetch_drop(c);
    for (size_t i = 0; i < c->n_states; i++) {
        fsdp_state *state = c->states[i];
        bool kept = state->param_group->requested || state->keeps_after_backward;
        if (state->param_group->held || (kept && !also_kept))
            continue;
        fsdp_param_group_reshard(state->param_group);
    }
}

static fsdp_status leave_forward(fsdp_state *state, bool has_backward)
{
    fsdp_state_context *c = state->context;
    fsdp_param_group *g = state->param_group;
    if (!g->held &&
        (!has_backward || fsdp_param_group_reshards_after_forward(g, state->owns_context))) {
        if (has_backward && g->context.options.reshard_after_forward == FSDP_RESHARD_TO_SMALLER)
            FSDP_TRY(fsdp_param_group_reshard_to_smaller(g));
        else
            fsdp_param_group_reshard(g);
    }
    FSDP_TRY(fsdp_state_list_add(&c->left, state));
    c->cursor = c->left.n;
    return FSDP_OK;
}

/* Usually, a unit's forward ends when all its modules have run. But if one of the modules did not
 * run, the unit's forward has not ended yet. End the forward of all such units. */
static fsdp_status end_forward(fsdp_state_context *c, bool has_backward)
{
    fsdp_prefetch_drop(c);
    for (size_t i = 0; i < c->n_states; i++) {
        if (!any_to_run(c->states[i]))
            continue;
        set_to_run(c->states[i], false);
        FSDP_TRY(leave_forward(c->states[i], has_backward));
    }
    return FSDP_OK;
}

static fsdp_status post_forward(void *self, fsdp_scope *s, fsdp_args *out)
{
    fsdp_member *member = self;
    fsdp_state *state = member->state;
    fsdp_state_context *c = state->context;
    FSDP_TRY(fsdp_state_cast_outputs(state, s, out));
    if (s->run->recomputing) {
        post_recomputation(state, s);
        return FSDP_OK;
    }
    const bool has_backward = s->run->tape != NULL;
    c->comm.depth--;
    member->to_run = false;
    if (!any_to_run(state))
        FSDP_TRY(leave_forward(state, has_backward));
    if (c->comm.depth)
        return FSDP_OK;
    FSDP_TRY(end_forward(c, has_backward));
    clear_location(state);
    return FSDP_OK;
}

/* --- backward --- */

static fsdp_status pre_backward(void *self)
{
    fsdp_state *state = self;
    fsdp_state_context *c = state->context;
    FSDP_TRY(check_step(c, c->micro_step));
    /* The forward of this tape set to_flush. But if the backward of another tape has ended after
     * that forward, this backward has cleared to_flush. So set to_flush again. */
    c->to_flush = true;
    set_location(state, "all_gather in backward");
    if (fsdp_state_unshards_in_backward(state))
        FSDP_TRY(unshard(state));
    FSDP_TRY(fsdp_prefetch_in_backward(state));
    set_location(state, "backward");
    return FSDP_OK;
}

/* Post the unit's gradients. No effect if they must not be communicated yet. */
static fsdp_status post_gradients(const fsdp_state *state)
{
    if (!fsdp_grad_buffer_syncs(&state->param_group->grads) || state->hidden_calls)
        return FSDP_OK;
    return fsdp_grad_buffer_post(&state->param_group->grads);
}

static fsdp_status post_backward(void *self, bool last)
{
    fsdp_state *state = self;
    if (!last)
        return FSDP_OK;
    FSDP_TRY(post_gradients(state));
    if (!state->param_group->held && !state->keeps_after_backward)
        fsdp_param_group_reshard(state->param_group);
    FSDP_TRY(fsdp_prefetch_after_backward(state));
    return state->hidden_calls ? FSDP_OK
                               : fsdp_grad_buffer_reduce_previous(&state->param_group->grads);
}

/* Post and reduce all gradients that are not reduced yet. Some gradients may not even be posted
 * yet. One unit may read a parameter that another unit owns. The gradient of this parameter may
 * then arrive after backward has left the owner, which posted its other gradients at that time. */
static fsdp_status flush(fsdp_state_context *c)
{
    for (size_t i = 0; i < c->n_states; i++) {
        c->states[i]->hidden_calls = 0;
        FSDP_TRY(post_gradients(c->states[i]));
        FSDP_TRY(fsdp_grad_buffer_reduce_previous(&c->states[i]->param_group->grads));
    }
    FSDP_TRY(fsdp_grad_buffer_reduce_all(&c->comm));
    for (size_t i = 0; i < c->n_states && c->comm.last_micro_step; i++)
        FSDP_TRY(fsdp_grad_reduce_finish(&c->states[i]->param_group->grads));
    return FSDP_OK;
}

static fsdp_status flush_and_reshard(fsdp_state_context *c)
{
    c->to_flush = false;
    FSDP_TRY(fsdp_prefetch_end_iteration(c));
    FSDP_TRY(flush(c));
    reshard_all(c, false);
    return c->comm.last_micro_step ? fsdp_state_context_trim(c) : FSDP_OK;
}

/* Called at the end of a backward, once for each unit on the tape. The first of these calls flushes
 * all units. */
static fsdp_status end_backward(void *self)
{
    const fsdp_state *state = self;
    fsdp_state_context *c = state->context;
    fsdp_grad_rows_end_backward(&state->param_group->grads);
    if (c && c->to_flush && !c->states[0]->not_last_backward)
        FSDP_TRY(flush_and_reshard(c));
    clear_location(state);
    return FSDP_OK;
}

/* Drop the gradients of a failed step in all units, so none of them reaches the next step. */
static void drop_step(fsdp_state_context *c)
{
    c->comm.in_flight = NULL;
    c->to_flush = false;
    fsdp_prefetch_cancel(c);
    for (size_t i = 0; i < c->n_states; i++) {
        c->states[i]->hidden_calls = 0;
        c->lost_sums |= fsdp_grad_buffer_has_sums(&c->states[i]->param_group->grads);
        fsdp_grad_buffer_drop(&c->states[i]->param_group->grads);
    }
}

/* Called when a forward or a backward has failed. Return all units to their idle state. */
static void cancel(void *self, bool has_backward)
{
    fsdp_state_context *c = ((fsdp_state *)self)->context;
    if (!c)
        return;
    c->comm.depth = 0;
    for (size_t i = 0; i < c->n_states; i++)
        set_to_run(c->states[i], false);
    if (has_backward)
        drop_step(c);
    reshard_all(c, has_backward);
}

/* --- creating and destroying --- */

static void state_destroy(fsdp_region_hooks *hooks)
{
    fsdp_state *state = hooks->self;
    if (--state->refs > 0)
        return;
    fsdp_param_group_destroy(state->param_group);
    fsdp_state_list_fini(&state->forward_prefetch);
    fsdp_state_list_fini(&state->backward_prefetch);
    if (state->owns_context)
        fsdp_state_context_destroy(state->context);
    fsdp_free(state->members);
    fsdp_free(state);
}

/* Move this unit from meta to `device`. The first unit that moves also moves the pools. A pool can
 * be moved only while none of its buffers is in use, and a kept copy occupies a buffer. So first
 * drop the kept copies of all units. */
static fsdp_status to_empty(void *self, fsdp_device *device)
{
    const fsdp_state *state = self;
    const fsdp_state_context *c = state->context;
    const bool moves =
        fsdp_device_is_meta(state->param_group->context.device) && !fsdp_device_is_meta(device);
    for (size_t i = 0; moves && c && i < c->n_states; i++)
        if (c->states[i]->param_group->state == FSDP_STATE_SHARDED)
            fsdp_param_group_drop_copies(c->states[i]->param_group);
    return fsdp_param_group_to_empty(state->param_group, device);
}

static fsdp_status add_member(fsdp_state *state, fsdp_module *module)
{
    fsdp_member *member = &state->members[state->n_members++];
    *member = (fsdp_member){.state = state, .module = module};
    member->hooks = (fsdp_region_hooks){.pre_forward = pre_forward,
                                        .cast_inputs = cast_inputs,
                                        .post_forward = post_forward,
                                        .self = member};
    FSDP_TRY(fsdp_module_add_hooks(module, &state->hooks, state_destroy));
    module->fsdp_state = state;
    module->to_empty = to_empty;
    state->refs++;
    return fsdp_module_add_hooks(module, &member->hooks, NULL);
}

/* Return an error if a module has no room for the unit's hooks. Call this before any hook is added,
 * so that either all hooks are added or none. */
static fsdp_status check_hooks(fsdp_module *const *modules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (modules[i]->n_hooks + 2 > FSDP_MAX_HOOKS)
            return fsdp_error(FSDP_ERR_STATE, "module %s has %d hooks already", modules[i]->name,
                              modules[i]->n_hooks);
    return FSDP_OK;
}

fsdp_status fsdp_state_create(fsdp_module *const *modules, size_t n, fsdp_param_group *group)
{
    FSDP_TRY(check_hooks(modules, n));
    fsdp_state *state = fsdp_calloc(1, sizeof *state);
    fsdp_member *members = fsdp_calloc(n, sizeof *members);
    if (!state || !members) {
        fsdp_free(state);
        fsdp_free(members);
        return FSDP_ERR_NOMEM;
    }
    state->module = modules[0];
    group->context.module = modules[0];
    state->members = members;
    state->param_group = group;
    state->hooks = (fsdp_region_hooks){.pre_backward = pre_backward,
                                       .post_backward = post_backward,
                                       .end_backward = end_backward,
                                       .cancel = cancel,
                                       .self = state};
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(add_member(state, modules[i]));
    return FSDP_OK;
}

fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **out)
{
    fsdp_state *state = module->fsdp_state;
    if (!state)
        return fsdp_error(FSDP_ERR_INVALID, "module '%s' (%s) was not given to fsdp_fully_shard()",
                          module->name, module->class_name);
    if (!state->context)
        FSDP_TRY(fsdp_state_context_create(module));
    *out = state;
    return FSDP_OK;
}
