/* What hooks know: one state per unit, one context per tree of units.
 *
 * Note [Order of a step]. Every rank runs the same program, so the order in which units are
 * entered is the same everywhere, and everything collective happens in that order:
 *   pre_forward   unshard; write own rows of the units that come next (prefetch.h)
 *   post_forward  reshard, unless the unit is kept until its backward
 *   pre_backward  unshard; prefetch the unit that ran before it
 *   post_backward publish the gradient slot, unless it is to add up; reshard; then reduce the unit
 *                 that left before this one. A reduce so runs one unit late, when the peers have
 *                 most likely published theirs, and always at the same place: peaks and order do
 *                 not depend on timing. Of a large unit it is a section that leaves, several times
 *                 in its backward: Note [Sections] in slot.h. (A published slot that is to be
 *                 written again before, in a later backward or by another unit, is reduced at that
 *                 write.)
 *   Where a module around it is checkpointed, a unit runs a second time within backward: it is
 *   unsharded for that, keeps its parameters until its backward, which follows, and publishes only
 *   after the last of such calls, so that its gradients are reduced together all the same.
 *   A unit of several modules is unsharded at the pre_forward of the first one that runs and
 *   resharded at the post_forward of the last, or at the end of a forward that leaves some out. In
 *   backward the tape knows which of their regions is the last.
 *   end_backward  flush: reduce what is pending, fold what earlier micro-steps left, reshard all.
 *                 It does not hang on the outermost unit, since units may be called one by one.
 *                 Before the last backward (fsdp_set_is_last_backward) nothing is flushed. */
#pragma once
#include "src/fsdp/param_group.h"

typedef struct fsdp_state_context fsdp_state_context;

/* In an order that matters. */
typedef struct fsdp_state_list {
    struct fsdp_state **items;
    size_t n, cap;
} fsdp_state_list;

/* One of the modules that are a unit together; most units have one. */
typedef struct fsdp_member {
    struct fsdp_state *state;
    fsdp_module *module;     /* borrowed */
    fsdp_region_hooks hooks; /* around its forward */
    bool to_run;             /* in the forward under way, which another member has begun */
} fsdp_member;

typedef struct fsdp_state {
    fsdp_module *module;  /* the first member's: it stands for the unit */
    fsdp_member *members; /* [n_members] */
    size_t n_members;
    size_t refs; /* members that live: they own the state through their hooks */
    fsdp_param_group *param_group;
    fsdp_region_hooks hooks; /* around the backward of all members' regions */
    fsdp_state_context
        *context; /* NULL before the first forward; owned by the outermost unit's state */
    bool owns_context;
    int hidden_calls; /* within a checkpointed module, that have still to run a second time */
    struct fsdp_state *after_it; /* what BACKWARD_POST gathers when it is left in backward */
    /* The controls of fsdp.h; zero is their default. */
    fsdp_state_list forward_prefetch, backward_prefetch; /* explicit ones; empty: implicit */
    bool keeps_after_backward;
    bool not_last_backward; /* equal in all units of a tree */
} fsdp_state;

struct fsdp_state_context {
    fsdp_comm_context comm;
    fsdp_fully_shard_options options; /* the outermost unit's */
    fsdp_state **states;              /* parents first */
    size_t n_states, cap_states;
    fsdp_state_list order;      /* units in the order they were entered: this forward, */
    fsdp_state_list last_order; /* and the one before */
    fsdp_state_list
        left;      /* units in the order they were left in forward: backward's, from the end */
    size_t cursor; /* backward has come to left[cursor] */
    fsdp_state_list queue;           /* to be prefetched when it is their turn */
    fsdp_state_list first_iteration; /* FSDP_FORWARD_STRICT: the order of the first iteration */
    size_t n_entered;                /* in this iteration */
    bool first_iteration_ended;
    int depth;      /* units entered and not left in forward */
    bool to_flush;  /* a forward with gradients, or a backward, has begun since the last flush */
    bool lost_sums; /* of this step's earlier micro-steps: it can only begin anew */
    int micro_step; /* of the latest forward with gradients */
};

FSDP_MUST_CHECK fsdp_status fsdp_state_list_add(fsdp_state_list *list, fsdp_state *state);
void fsdp_state_list_fini(fsdp_state_list *list);

/* For all units of the tree that `module` is in. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_create(fsdp_module *module);
void fsdp_state_context_destroy(fsdp_state_context *c);
/* At the end of a step's backward: Note [Idle memory] in buffer.h. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_trim(fsdp_state_context *c);

/* The state of a unit's module, with its context made (collective the first time). */
FSDP_MUST_CHECK fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **state);
FSDP_MUST_CHECK fsdp_status fsdp_state_create(fsdp_module *const *modules, size_t n,
                                              fsdp_param_group *unit);
/* The unit around all other units that `m` is in, or m; m if there is none. Of a unit of several
 * modules the first stands for all. */
fsdp_module *fsdp_outermost_unit(fsdp_module *m);
/* Are its parameters there in backward? */
bool fsdp_state_unshards_in_backward(const fsdp_state *state);

/* Casts at the ends of a forward (mixed_precision.c). */
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_inputs(const fsdp_state *state, fsdp_scope *s,
                                                   fsdp_args *in);
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_outputs(const fsdp_state *state, fsdp_scope *s,
                                                    fsdp_args *out);
/* FSDP_ERR_UNSUPPORTED naming the field whose dtype it cannot be. */
FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_check(const fsdp_mp_policy *policy);

/* Can they be one unit? FSDP_ERR_INVALID naming two modules. */
FSDP_MUST_CHECK fsdp_status fsdp_check_modules(fsdp_module *const *modules, size_t n);
/* The same of fsdp_wrap_policy's joint_modules: they are below `root` and have a forward each. */
FSDP_MUST_CHECK fsdp_status fsdp_check_joint_modules(const fsdp_module *root,
                                                     fsdp_module *const *modules, size_t n);
bool fsdp_module_is_inside(const fsdp_module *m, const fsdp_module *around);
/* Does `m`, with what is below it, have every name of p? */
bool fsdp_parameter_is_inside(const fsdp_parameter *p, const fsdp_module *m);
/* fsdp_fully_shard_modules(). leave_shared: parameters that modules outside name as well are left
 * to the unit around all of them. */
FSDP_MUST_CHECK fsdp_status fsdp_make_unit(fsdp_module *const *modules, size_t n, fsdp_group *group,
                                           fsdp_device *device,
                                           const fsdp_fully_shard_options *options,
                                           bool leave_shared);
