/* See Note [Prefetch] in prefetch.h. */
#include "src/fsdp/prefetch.h"

/* --- the queue of units --- */

static size_t count_ahead(const fsdp_state_context *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_states; i++)
        n += c->states[i]->param_group->state == FSDP_STATE_GATHERING &&
             !c->states[i]->param_group->requested;
    return n;
}

static void remove_from(fsdp_state_list *list, const fsdp_state *state)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] != state)
            list->items[kept++] = list->items[i];
    list->n = kept;
}

static fsdp_status take_from_queue(fsdp_state_context *c)
{
    while (c->queue.n && (c->options.no_limit_all_gathers || count_ahead(c) < FSDP_MAX_AHEAD)) {
        fsdp_state *state = c->queue.items[0];
        remove_from(&c->queue, state);
        FSDP_TRY(fsdp_param_group_prefetch(state->param_group));
    }
    return FSDP_OK;
}

static fsdp_status enqueue(fsdp_state_context *c, fsdp_state *state)
{
    if (state->context != c)
        return fsdp_error(FSDP_ERR_STATE,
                          "unit '%s' cannot be prefetched by a unit of another tree",
                          state->param_group->context.name);
    const fsdp_sharded_state at = state->param_group->state;
    remove_from(&c->queue, state);
    return at == FSDP_STATE_SHARDED || at == FSDP_STATE_SECONDARY
               ? fsdp_state_list_add(&c->queue, state)
               : FSDP_OK;
}

/* --- forward --- */

void fsdp_prefetch_begin_forward(fsdp_state_context *c)
{
    fsdp_state_list swap = c->last_order;
    c->last_order = c->order;
    c->order = swap;
    c->order.n = c->left.n = c->cursor = 0;
}

fsdp_status fsdp_prefetch_check_order(fsdp_state *state)
{
    fsdp_state_context *c = state->context;
    if (c->options.forward_prefetch != FSDP_FORWARD_STRICT)
        return FSDP_OK;
    size_t i = c->n_entered++;
    if (!c->first_iteration_ended)
        return fsdp_state_list_add(&c->first_iteration, state);
    const fsdp_state *first = i < c->first_iteration.n ? c->first_iteration.items[i] : NULL;
    if (first == state)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_STATE,
        "forward_prefetch: unit '%s' is number %zu that this iteration enters, in the "
        "first iteration it was %s%s%s",
        state->param_group->context.name, i + 1, first ? "unit '" : "none",
        first ? first->param_group->context.name : "", first ? "'" : "");
}

fsdp_status fsdp_prefetch_end_iteration(fsdp_state_context *c)
{
    if (c->options.forward_prefetch != FSDP_FORWARD_STRICT)
        return FSDP_OK;
    size_t n = c->n_entered;
    c->n_entered = 0;
    if (c->first_iteration_ended && n < c->first_iteration.n)
        return fsdp_error(FSDP_ERR_STATE,
                          "forward_prefetch: unit '%s' was not entered in this iteration, in the "
                          "first one it was number %zu",
                          c->first_iteration.items[n]->param_group->context.name, n + 1);
    c->first_iteration_ended = true;
    return FSDP_OK;
}

/* Return the unit that followed `state` in the previous forward. Return NULL in three cases: no
 * unit followed, `state` was at another position in the previous forward, or FSDP_FORWARD_NONE is
 * set. */
static fsdp_state *next_in_forward(const fsdp_state_context *c, const fsdp_state *state)
{
    size_t i = c->order.n - 1;
    bool as_last_time = i + 1 < c->last_order.n && c->last_order.items[i] == state;
    if (!as_last_time || c->options.forward_prefetch == FSDP_FORWARD_NONE)
        return NULL;
    return c->last_order.items[i + 1];
}

fsdp_status fsdp_prefetch_in_forward(fsdp_state *state)
{
    fsdp_state_context *c = state->context;
    FSDP_TRY(fsdp_state_list_add(&c->order, state));
    remove_from(&c->queue, state);
    for (size_t i = 0; i < state->forward_prefetch.n; i++)
        FSDP_TRY(enqueue(c, state->forward_prefetch.items[i]));
    fsdp_state *next = state->forward_prefetch.n ? NULL : next_in_forward(c, state);
    if (next)
        FSDP_TRY(enqueue(c, next));
    return take_from_queue(c);
}

/* --- backward --- */

/* Return the unit that backward enters after `state`. This is the unit directly before `state` in
 * `left`. The first round searches `left` for `state`, from the cursor towards the start. If
 * `state` is not found, the second round searches from the end of `left`. The second round is
 * needed if the tape has several forwards: `left` has only the units of the latest forward, so
 * backward goes through `left` once for each forward. */
static fsdp_state *next_in_backward(fsdp_state_context *c, const fsdp_state *state)
{
    for (int round = 0; round < 2; round++) {
        for (size_t i = c->cursor; i-- > 0;) {
            if (c->left.items[i] != state)
                continue;
            c->cursor = i;
            return i ? c->left.items[i - 1] : NULL;
        }
        c->cursor = c->left.n;
    }
    return NULL;
}

static fsdp_status enqueue_for_backward(fsdp_state_context *c, fsdp_state *state)
{
    return state->hooks.reached && fsdp_state_unshards_in_backward(state) ? enqueue(c, state)
                                                                          : FSDP_OK;
}

fsdp_status fsdp_prefetch_in_backward(fsdp_state *state)
{
    fsdp_state_context *c = state->context;
    fsdp_state *next = next_in_backward(c, state);
    remove_from(&c->queue, state);
    for (size_t i = 0; i < state->backward_prefetch.n; i++)
        FSDP_TRY(enqueue_for_backward(c, state->backward_prefetch.items[i]));
    state->after_it = NULL;
    if (next && !state->backward_prefetch.n) {
        if (c->options.backward_prefetch == FSDP_BACKWARD_PRE)
            FSDP_TRY(enqueue_for_backward(c, next));
        if (c->options.backward_prefetch == FSDP_BACKWARD_POST)
            state->after_it = next;
    }
    return take_from_queue(c);
}

fsdp_status fsdp_prefetch_after_backward(fsdp_state *state)
{
    if (state->after_it)
        FSDP_TRY(enqueue_for_backward(state->context, state->after_it));
    state->after_it = NULL;
    return take_from_queue(state->context);
}

/* --- dropping prefetches --- */

void fsdp_prefetch_drop(fsdp_state_context *c)
{
    c->queue.n = 0;
    for (size_t i = 0; i < c->n_states; i++)
        if (c->states[i]->param_group->state == FSDP_STATE_GATHERING &&
            !c->states[i]->param_group->requested)
            fsdp_param_group_reshard(c->states[i]->param_group);
}

void fsdp_prefetch_cancel(fsdp_state_context *c)
{
    fsdp_prefetch_drop(c);
    c->n_entered = 0;
    if (!c->first_iteration_ended)
        c->first_iteration.n = 0;
}
