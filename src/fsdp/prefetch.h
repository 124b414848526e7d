/* Which units are gathered ahead of time, and when.
 *
 * Note [Prefetch]. To prefetch a unit means to begin its gather: the rank writes its own rows, and
 * waits for the peers' rows only when it enters the unit. In forward, a unit prefetches the unit
 * that followed it in the last forward, as long as the order of units has not changed. In backward,
 * a unit prefetches the unit that forward left just before it. fsdp_set_modules_to_*_prefetch()
 * overrides these two rules. The units that will be prefetched wait in a queue. A unit leaves the
 * queue only when fewer than FSDP_MAX_AHEAD units are gathered but not entered yet (PyTorch's
 * limit_all_gathers). All of this depends only on the order of calls in the program, so it is the
 * same on every rank. */
#pragma once
#include "src/fsdp/state.h"

enum {
    FSDP_MAX_AHEAD = 2
};

/* Call this when an outermost unit begins a forward. The order of units in the previous forward
 * becomes the expected order. */
void fsdp_prefetch_begin_forward(fsdp_state_context *c);
/* Call this when a unit is entered, before it communicates. Returns FSDP_ERR_STATE if
 * FSDP_FORWARD_STRICT is set and the order differs from that of the first iteration, which entered
 * another unit (or none) at this point. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_check_order(fsdp_state *state);
/* Call this when all backwards of an iteration have ended. Returns FSDP_ERR_STATE if
 * FSDP_FORWARD_STRICT is set and the iteration entered fewer units than the first one. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_end_iteration(fsdp_state_context *c);

/* Prefetch the next units. Call fsdp_prefetch_in_forward() and fsdp_prefetch_in_backward() after
 * the unit's own unshard in pre_forward and pre_backward, and fsdp_prefetch_after_backward() when
 * backward leaves the unit. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_forward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_backward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_after_backward(fsdp_state *state);

/* Reshard units that were prefetched but not entered, and empty the queue. */
void fsdp_prefetch_drop(fsdp_state_context *c);
/* Do what fsdp_prefetch_drop() does, and forget which units this iteration has entered. Call this
 * when a step failed. */
void fsdp_prefetch_cancel(fsdp_state_context *c);
