/* fsdp_state: the hooks around the modules of one unit (PyTorch's FSDPState), and
 * fsdp_state_context: what the units of a tree share (FSDPStateContext).
 *
 * The files of src/fsdp, from the top; each calls only those below it (tools/call_cycles.sh):
 *   fsdp1.c default_policy.c wrap_policy.c fully_shard.c controls.c summon.c describe.c observer.c
 *                                 the public calls
 *   state.c                       hooks: the order of a step
 *   prefetch.c                    which units are gathered ahead of time
 *   mixed_precision.c             casts of inputs and outputs
 *   state_context.c               what the units of a tree share
 *   param_group.c unshard.c       what is gathered, freed and reduced together
 *   grad_buffer.c                 what backward writes: layout, sections, posting
 *   grad_reduce.c grad_rows.c grad_parts.c   from posted gradients to those of the shards
 *   pending_dtype.c param_sync.c param.c     one parameter: its shard and its tensors
 *   param_storage.c storage_*.c param_memory.c   the ways in which parameters are stored
 *   param_context.c buffer.c      process groups, names; buffers and pools
 *
 * The folder has more than 27 source files, because each way to store a parameter and each topic of
 * the public calls has its own. The layers above keep them apart.
 *
 * Note [Upcalls]. Lower layers do not include this one. They call it only through these tables of
 * functions:
 *   fsdp_region_hooks        src/nn calls them around a module's forward, src/autograd around its
 *                            backward and at its end, and when either fails: state.c.
 *   fsdp_grad_sink           `target` and `rows`: src/autograd asks where to write a gradient:
 *                            grad_buffer.c.
 *   fsdp_parameter_owner_ops src/nn, for loaders: apply pending dtypes; for optimizers: where own
 *                            rows of a kept copy are: param_group.c.
 *   fsdp_storage_guard       src/tensor, before an operation reads and around a write: unshard.c,
 *                            then the memory of the parameter: storage_*.c.
 *   fsdp_module.to_empty     src/nn, when a module on meta gets its memory: state.c.
 * In the other direction, param_context.c reports all events to the fsdp_unit_observer that the
 * memory plan installs (src/plan/plan.c). It changes nothing.
 *
 * Note [Order of a step]. Every rank runs the same program, so all ranks enter units in the same
 * order, and collectives happen in that order:
 *   pre_forward   unshard; write own rows of the units that come next (prefetch.h)
 *   post_forward  reshard, unless the unit is kept until its backward
 *   pre_backward  unshard; prefetch the unit that ran before it
 *   post_backward post the gradient buffer, unless gradients accumulate in it; reshard; then reduce
 *                 the unit that left before this one. So a reduce runs one unit late, when the
 *                 peers have most likely posted their gradients, and always at the same place:
 *                 peaks and order do not depend on timing. A large unit posts section by section,
 *                 several times in its backward: Note [Sections] in grad_buffer.h. (A posted buffer
 *                 that is written again before that, in a later backward or by another unit, is
 *                 reduced at that write.)
 *   end_backward  flush: reduce what is pending, fold the sums of earlier micro-steps, reshard all.
 *                 All units have this hook, not only the outermost one, since units may be called
 *                 one by one. Nothing is flushed before the last backward
 *                 (fsdp_set_is_last_backward).
 *
 * If a module around it is checkpointed, a unit runs a second time within backward. It is unsharded
 * for this run and keeps its parameters until its backward, which follows. It posts only after the
 * last of these calls, so its gradients are still reduced together.
 *
 * A unit of several modules is unsharded at the pre_forward of the first one that runs. It is
 * resharded at the post_forward of the last one, or at the end of a forward that leaves some out.
 * In backward the tape reports which of their regions is the last. */
#pragma once
#include "src/fsdp/param_group.h"

typedef struct fsdp_state_context fsdp_state_context;

/* An ordered list of units. */
typedef struct fsdp_state_list {
    struct fsdp_state **items;
    size_t n, cap;
} fsdp_state_list;

/* One module of a unit. Most units have only one. */
typedef struct fsdp_member {
    struct fsdp_state *state;
    fsdp_module *module;     /* Borrowed. */
    fsdp_region_hooks hooks; /* Around its forward. */
    bool to_run; /* Another member began the current forward, and this one has not run in it. */
} fsdp_member;

typedef struct fsdp_state {
    fsdp_module *module;  /* That of the first member; it identifies the unit in public calls. */
    fsdp_member *members; /* [n_members] */
    size_t n_members;
    size_t refs; /* Number of live members, which own the state through their hooks. */
    fsdp_param_group *param_group;
    fsdp_region_hooks hooks;     /* Around the backward of all members' regions. */
    fsdp_state_context *context; /* Owned by the outermost unit; NULL before the first forward. */
    bool owns_context;
    int hidden_calls; /* Calls in checkpointed modules that must still run a second time. */
    struct fsdp_state *after_it; /* What BACKWARD_POST gathers when backward leaves this unit. */
    /* The controls of fsdp.h; zero is their default. */
    fsdp_state_list forward_prefetch, backward_prefetch; /* Explicit ones; empty: implicit. */
    bool keeps_after_backward;
    bool not_last_backward; /* Equal in all units of a tree. */
} fsdp_state;

struct fsdp_state_context {
    fsdp_comm_context comm;
    fsdp_fully_shard_options options; /* Those of the outermost unit. */
    fsdp_state **states;              /* [n_states] Parents first. */
    size_t n_states, cap_states;

    /* For prefetch.c. */
    fsdp_state_list order;      /* Units in the order in which this forward has entered them. */
    fsdp_state_list last_order; /* The same for the forward before. */
    fsdp_state_list left;       /* Units in the order in which forward has left them. */
    size_t cursor;              /* Position in `left`, which backward walks from its end. */
    fsdp_state_list queue;      /* Units that wait to be prefetched. */
    fsdp_state_list first_iteration; /* FSDP_FORWARD_STRICT: the order of the first iteration. */
    size_t n_entered;                /* Units entered in this iteration. */
    bool first_iteration_ended;

    /* The progress of the step. */
    int depth;      /* Number of units that forward has entered and not left. */
    bool to_flush;  /* A forward with gradients, or a backward, has begun since the last flush. */
    bool lost_sums; /* Gradients of earlier micro-steps were dropped: the step must restart. */
    int micro_step; /* That of the latest forward with gradients. */
};

FSDP_MUST_CHECK fsdp_status fsdp_state_list_add(fsdp_state_list *list, fsdp_state *state);
void fsdp_state_list_fini(fsdp_state_list *list);

/* Create the context of all units of the tree that `module` is in. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_create(fsdp_module *module);
void fsdp_state_context_destroy(fsdp_state_context *c);
/* Trim the pools at the end of a step's backward: Note [Idle memory] in buffer.h. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_trim(fsdp_state_context *c);

/* The state of a unit's module. Creates its context the first time, which is collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **state);
FSDP_MUST_CHECK fsdp_status fsdp_state_create(fsdp_module *const *modules, size_t n,
                                              fsdp_param_group *param_group);
/* The module of the outermost unit that `m` is in or is; m if there is none. A unit of several
 * modules is represented by the first one. */
fsdp_module *fsdp_outermost_unit(fsdp_module *m);
/* Does the unit's backward need its parameters? */
bool fsdp_state_unshards_in_backward(const fsdp_state *state);

/* Casts at the beginning and end of a forward (mixed_precision.c). */
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_inputs(const fsdp_state *state, fsdp_scope *s,
                                                   fsdp_args *in);
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_outputs(const fsdp_state *state, fsdp_scope *s,
                                                    fsdp_args *out);
/* FSDP_ERR_UNSUPPORTED, naming the field, if one has a dtype that it cannot have. */
FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_check(const fsdp_mp_policy *policy);

/* Check that `modules` can be one unit. Otherwise FSDP_ERR_INVALID, naming the modules. */
FSDP_MUST_CHECK fsdp_status fsdp_check_modules(fsdp_module *const *modules, size_t n);
/* The same for fsdp_wrap_policy.joint_modules. They must be below `root`, each with a forward. */
FSDP_MUST_CHECK fsdp_status fsdp_check_joint_modules(const fsdp_module *root,
                                                     fsdp_module *const *modules, size_t n);
/* Is p one of options->ignored_params? */
bool fsdp_parameter_is_ignored(const fsdp_fully_shard_options *options, const fsdp_parameter *p);
bool fsdp_module_is_inside(const fsdp_module *m, const fsdp_module *around);
/* Are all uses of p in `m` or below it? */
bool fsdp_parameter_is_inside(const fsdp_parameter *p, const fsdp_module *m);
/* Implements fsdp_fully_shard_modules(). With leave_shared, parameters that modules outside of the
 * unit also use are left to the unit around all of these. */
FSDP_MUST_CHECK fsdp_status fsdp_make_unit(fsdp_module *const *modules, size_t n, fsdp_group *group,
                                           fsdp_device *device,
                                           const fsdp_fully_shard_options *options,
                                           bool leave_shared);
