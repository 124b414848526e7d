/* Decides which units are gathered ahead of time, and when.
 *
 * Note [Prefetch]. To prefetch a unit means to begin its gather: this rank writes its rows at once,
 * but waits for the peers' rows only when it enters the unit. In forward, a unit prefetches the
 * unit that followed it in the previous forward, as long as the order of units has not changed. In
 * backward, a unit prefetches the unit whose forward ended just before its own. The lists of
 * fsdp_set_modules_to_*_prefetch() replace these two rules. Units that will be prefetched wait in a
 * queue. A unit leaves the queue only when fewer than FSDP_MAX_AHEAD units are gathered but not
 * entered yet (PyTorch's limit_all_gathers). All of this depends only on the order of calls in the
 * program, so it is the same on every rank. */
#pragma once
#include "src/fsdp/state.h"

enum {
    FSDP_MAX_AHEAD = 2
};

/* Call this when the outermost unit begins a forward. The order in which the previous forward
 * entered units becomes the expected order. */
void fsdp_prefetch_begin_forward(fsdp_state_context *c);
/* Call this when a unit is entered, before it communicates. With FSDP_FORWARD_STRICT, later
 * iterations must enter units in the order of the first iteration. If this unit breaks that order,
 * return FSDP_ERR_STATE. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_check_order(fsdp_state *state);
/* Call this when all backwards of an iteration have ended. With FSDP_FORWARD_STRICT, return
 * FSDP_ERR_STATE if this iteration entered fewer units than the first one did. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_end_iteration(fsdp_state_context *c);

/* Prefetch the units that forward enters after this unit. Call this in pre_forward, after the unit
 * itself is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_forward(fsdp_state *state);
/* Prefetch the units that backward enters after this unit. Call this in pre_backward, after the
 * unit itself is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_in_backward(fsdp_state *state);
/* Prefetch the units that had to wait until this unit was resharded. Call this when backward leaves
 * the unit. */
FSDP_MUST_CHECK fsdp_status fsdp_prefetch_after_backward(fsdp_state *state);

/* Reshard units that were prefetched but not entered, and empty the queue. */
void fsdp_prefetch_drop(fsdp_state_context *c);
/* Do what fsdp_prefetch_drop() does, and forget which units this iteration has entered. Call this
 * when a step has failed. */
void fsdp_prefetch_cancel(fsdp_state_context *c);
