/* Which units are gathered ahead of time, and when.
 *
 * Note [Prefetch]. To prefetch a unit is to begin its gather: own rows are written, and the rank
 * does not wait for the peers' before it enters the unit. Forward prefetches the unit that followed
 * this one last time, while the order is that of last time; backward the one that forward has left
 * just before it; or both what fsdp_set_modules_to_*_prefetch() says. Each goes to the end of a
 * queue, from which units are taken while at most FSDP_MAX_AHEAD are gathered and not entered yet
 * (limit_all_gathers). All of this follows from the program's order, so it is the same on every
 * rank.
 */
#pragma once
#include "src/fsdp/state.h"

enum {
    FSDP_MAX_AHEAD = 2
};

/* An outermost unit begins a forward: it goes by the order of the last one. */
void fsdp_prefetch_begin_forward(fsdp_state_context *c);
/* The unit is entered, before it communicates: FSDP_ERR_STATE if FSDP_FORWARD_STRICT and it was
 * another one's turn. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_check_order(fsdp_state *state);
/* All backwards of an iteration have ended: the same error if a unit was left out. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_end_iteration(fsdp_state_context *c);

/* After the unit's own unshard in pre_forward and pre_backward; when it is left in backward. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_forward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_backward(fsdp_state *state);
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_after_backward(fsdp_state *state);

/* Free what was gathered and is not going to be entered; empty the queue. */
void fsdp_prefetch_drop(fsdp_state_context *c);
/* The step failed: the iteration begins again. */
void fsdp_prefetch_cancel(fsdp_state_context *c);
