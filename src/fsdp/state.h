/* What hooks know: one state per unit, one context per tree of units.
 *
 * Note [Order of a step]. Every rank runs the same program, so the order in which units are
 * entered is the same everywhere, and everything collective happens in that order:
 *   pre_forward   unshard; write own rows of the unit that followed last time (prefetch)
 *   post_forward  reshard, unless the unit is kept until its backward
 *   pre_backward  unshard; prefetch the unit that ran before it
 *   post_backward publish the gradient slot; reshard; then reduce the unit that left before this
 *                 one. A reduce so runs one unit late, when the peers have most likely published
 *                 theirs, and always at the same place: peaks and order do not depend on timing.
 *   end_backward  flush: reduce what is pending, fold what earlier micro-steps left, reshard all.
 *                 It does not hang on the outermost unit, since units may be called one by one. */
#pragma once
#include "src/fsdp/param_group.h"

typedef struct fsdp_context fsdp_context;

typedef struct fsdp_state {
    fsdp_module *module; /* borrowed: it owns the state through its hooks */
    fsdp_param_group *unit;
    fsdp_region_hooks hooks;
    fsdp_context *context; /* NULL before the first forward; owned by the outermost unit's state */
    bool owns_context;
} fsdp_state;

struct fsdp_context {
    fsdp_pools pools;
    fsdp_state **states; /* parents first */
    size_t n_states, cap_states;
    fsdp_state **order; /* units in the order they were entered: this forward, */
    size_t n_order, cap_order;
    fsdp_state **last_order; /* and the one before */
    size_t n_last_order, cap_last_order;
    fsdp_state **left; /* units in the order they were left in forward: backward's, from the end */
    size_t n_left, cap_left;
    size_t cursor;       /* backward has come to left[cursor] */
    int depth;           /* units entered and not left in forward */
    fsdp_state *pending; /* left in backward, its slot published, not reduced yet */
    bool to_flush;       /* a forward with gradients has begun since the last flush */
    bool last_micro_step;
};

/* The state of a unit's module, with its context made (collective the first time). */
FSDP_MUST_CHECK fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **state);
FSDP_MUST_CHECK fsdp_status fsdp_state_create(fsdp_module *module, fsdp_param_group *unit);
