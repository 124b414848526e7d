/* Which units are gathered ahead of time, and when.
 *
 * Note [Prefetch]. To prefetch a unit means to begin its gather: the rank writes its own rows, and
 * waits for the peers' rows only when it enters the unit. Forward prefetches the unit that followed
 * this one in the last forward, as long as the order has not changed. Backward prefetches the unit
 * that forward left just before this one. fsdp_set_modules_to_*_prefetch() overrides both. Units to
 * prefetch are queued, and are taken from the queue while at most FSDP_MAX_AHEAD units are gathered
 * and not entered yet (limit_all_gathers). All of this follows from the program's order, so it is
 * the same on every rank. */
#pragma once
#include "src/fsdp/state.h"

enum {
    FSDP_MAX_AHEAD = 2
};

/* Call this when an outermost unit begins a forward. The order of the forward before becomes the
 * expected one. */
void fsdp_prefetch_begin_forward(fsdp_state_context *c);
/* Call this when a unit is entered, before it communicates. FSDP_ERR_STATE if FSDP_FORWARD_STRICT
 * is set and the first iteration entered another unit here. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_check_order(fsdp_state *state);
/* Call this when all backwards of an iteration have ended. The same error if the iteration left out
 * a unit. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_end_iteration(fsdp_state_context *c);

/* Prefetch the next units. Call the first two after the unit's own unshard in pre_forward and
 * pre_backward, and the third when backward leaves the unit. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_forward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_backward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_after_backward(fsdp_state *state);

/* Reshard units that were prefetched but not entered, and empty the queue. */
void fsdp_prefetch_drop(fsdp_state_context *c);
/* Drop prefetches as above, and go back to the beginning of the iteration. Call this when a step
 * failed. */
void fsdp_prefetch_cancel(fsdp_state_context *c);
