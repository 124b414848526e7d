/* fsdp_state: the hooks around the modules of one unit (PyTorch's FSDPState), and
 * fsdp_state_context: what the units of a tree share (FSDPStateContext).
 *
 * The folder has more than 25 source files, because each way to store a parameter (storage_*.c)
 * and each topic of the public calls has its own file.
 *
 * The files of src/fsdp, from the top layer down. Each file calls only files below it
 * (tools/call_cycles.sh):
 *   named_sharding.c name_patterns.c environment.c choices.c
 *                                 command-line flags and environment variables
 *   fsdp1.c default_policy.c wrap_policy.c fully_shard.c controls.c summon.c describe.c observer.c
 *                                 the public calls
 *   state.c                       hooks: the order of a step
 *   prefetch.c                    which units are gathered ahead of time
 *   mixed_precision.c             casts of inputs and outputs
 *   state_context.c               what the units of a tree share
 *   param_group.c unshard.c       what is gathered, freed and reduced together
 *   grad_buffer.c grad_own.c      what backward writes: layout, sections, posting
 *   grad_reduce.c grad_lanes.c grad_sums.c grad_hosts.c grad_rows.c grad_parts.c grad_terms.c
 *                                 sums of posted gradients over ranks
 *   pending_dtype.c param_sync.c param.c   one parameter: its shard and its tensors
 *   param_storage.c storage_*.c param_memory.c   the ways in which parameters are stored
 *   param_context.c buffer.c      process groups, names; buffers and pools
 *
 * Note [Upcalls]. Lower layers do not include the headers of src/fsdp. They call src/fsdp only
 * through these tables of functions:
 *   fsdp_region_hooks        Implemented in state.c. src/nn calls them around a module's forward.
 *                            src/autograd calls them around the module's backward and at the end
 *                            of all backwards. Both src/nn and src/autograd call `cancel` after a
 *                            failure.
 *   fsdp_grad_sink           `target` and `rows` are implemented in grad_buffer.c. src/autograd
 *                            calls them to find where to write a gradient.
 *   fsdp_parameter_owner_ops Implemented in param_group.c. src/nn calls them for loaders, which
 *                            apply pending dtypes, and for optimizers, which write this rank's
 *                            rows of a kept copy.
 *   fsdp_storage_guard       Implemented in unshard.c and, for the memory of the parameter, in
 *                            storage_*.c. src/tensor calls the guards before an operation reads
 *                            and around a write.
 *   fsdp_module.to_empty     Implemented in state.c. src/nn calls it when a module on meta gets
 *                            memory.
 * src/fsdp calls a higher layer only through the fsdp_unit_observer that the memory plan
 * (src/plan/plan.c) or a monitor (src/monitor) installs. param_context.c reports all events to it.
 * The observer changes nothing.
 *
 * Note [Order of a step]. Every rank runs the same program, so all ranks enter units in the same
 * order, and collectives happen in that order:
 *   pre_forward   unshard the unit; prefetch the units that come next (prefetch.h)
 *   post_forward  reshard the unit, unless it is kept until its backward
 *   pre_backward  unshard the unit; prefetch the unit whose forward ended just before its own
 *   post_backward post the unit's gradient buffer, unless gradients accumulate in it; reshard the
 *                 unit; then reduce the gradient buffer that the previous unit has posted.
 *                 So a reduce runs one unit later than its post, when the peers have most likely
 *                 posted their gradients, too. It always runs at the same point of the program, so
 *                 memory peaks and the order of collectives do not depend on timing. A large unit
 *                 posts its gradients in sections, several times within its backward: see
 *                 Note [Sections] in grad_buffer.h. Between post and reduce, another gradient of
 *                 the unit may arrive, from a later backward or from another unit. The posted
 *                 buffer is then reduced first.
 *   end_backward  flush: reduce the pending buffer, finish the sums of earlier micro-steps, reshard
 *                 all units. All units have this hook, not only the outermost one, because a
 *                 program may call units one by one. If more backwards will follow
 *                 (fsdp_set_is_last_backward()), there is no flush.
 *
 * If a unit is inside a checkpointed module, the unit's forward is recomputed within backward. The
 * unit is unsharded for this recomputation and stays unsharded until its own backward, which
 * follows. If the checkpointed module calls the unit several times, the unit posts its gradients
 * only after the backward of all these calls. So the gradients of all these calls are reduced
 * together.
 *
 * A unit of several modules is unsharded at the pre_forward of the first of its modules that runs.
 * It is resharded at the post_forward of the last one. If some of its modules do not run, it is
 * resharded when the forward of the outermost unit ends. In backward the tape reports which region
 * of these modules is the last one. */
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
    fsdp_region_hooks hooks; /* Called around the module's forward. */
    bool to_run;             /* The unit's forward has begun, but this member has not run yet. */
} fsdp_member;

typedef struct fsdp_state {
    fsdp_module *module;  /* The module of the first member; identifies the unit in public calls. */
    fsdp_member *members; /* [n_members] */
    size_t n_members;
    size_t refs; /* Number of live members. Their hooks own the state. */
    fsdp_param_group *param_group;
    fsdp_region_hooks hooks;     /* Called around the backward of the regions of all members. */
    fsdp_state_context *context; /* Owned by the outermost unit; NULL before the first forward. */
    bool owns_context;
    int hidden_calls; /* Number of calls of the unit that still have to be recomputed, because
                         checkpointed modules made them. */
    struct fsdp_state *after_it; /* Unit to prefetch when backward leaves this unit; NULL: none. */
    /* The control functions of fsdp.h set the fields below. By default they are zero. If a list is
     * empty, the units to prefetch are chosen automatically. */
    fsdp_state_list forward_prefetch, backward_prefetch;
    bool keeps_after_backward;
    bool not_last_backward; /* All units of a tree have the same value. */
} fsdp_state;

struct fsdp_state_context {
    fsdp_comm_context comm;
    fsdp_fully_shard_options options; /* The options of the outermost unit. */
    fsdp_state **states;              /* [n_states] Parents before children. */
    size_t n_states, cap_states;

    /* For prefetch.c. */
    fsdp_state_list order;      /* Units in the order in which this forward has entered them. */
    fsdp_state_list last_order; /* The order in which the previous forward entered units. */
    fsdp_state_list left;       /* Units in the order in which their forwards have ended. */
    size_t cursor; /* Position of backward in the list `left`. It moves towards the start of the
                      list. */
    fsdp_state_list queue;           /* Units that wait to be prefetched. */
    fsdp_state_list first_iteration; /* Units in the order of the first iteration. Only for
                                        FSDP_FORWARD_STRICT. */
    size_t n_entered;                /* Number of units that this iteration has entered. */
    bool first_iteration_ended;

    /* The progress of the step. */
    bool to_flush;  /* A forward with gradients, or a backward, has begun since the last flush. */
    bool lost_sums; /* Gradients of earlier micro-steps were dropped, so the step must restart. */
    int micro_step; /* The micro-step of the latest forward with gradients. */
};

FSDP_MUST_CHECK fsdp_status fsdp_state_list_add(fsdp_state_list *list, fsdp_state *state);
void fsdp_state_list_fini(fsdp_state_list *list);

/* Create the context that all units in the tree of `module` share. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_create(fsdp_module *module);
void fsdp_state_context_destroy(fsdp_state_context *c);
/* Trim the pools at the end of a step's backward: Note [Idle memory] in buffer.h. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_state_context_trim(fsdp_state_context *c);

/* Find the state of the unit that has `module` as a member. The first call in a tree is collective,
 * because it creates the tree's context. */
FSDP_MUST_CHECK fsdp_status fsdp_state_of(fsdp_module *module, fsdp_state **state);
FSDP_MUST_CHECK fsdp_status fsdp_state_create(fsdp_module *const *modules, size_t n,
                                              fsdp_param_group *param_group);
/* Return the module of the outermost unit that contains `m`, or `m` itself if no unit contains it.
 * If that unit has several modules, return its first module. */
fsdp_module *fsdp_outermost_unit(fsdp_module *m);
/* Return true if the unit must be unsharded for its backward. */
bool fsdp_state_unshards_in_backward(const fsdp_state *state);

/* Cast the inputs of a forward that is about to run (mixed_precision.c). */
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_inputs(const fsdp_state *state, fsdp_scope *s,
                                                   fsdp_args *in);
/* Cast the outputs of a forward that has ended. */
FSDP_MUST_CHECK fsdp_status fsdp_state_cast_outputs(const fsdp_state *state, fsdp_scope *s,
                                                    fsdp_args *out);
/* Check that each dtype in `policy` is supported for its field. If not, return FSDP_ERR_UNSUPPORTED
 * with a message that names the field. */
FSDP_MUST_CHECK fsdp_status fsdp_mp_policy_check(const fsdp_mp_policy *policy);

/* Check that `modules` can be one unit. If not, return FSDP_ERR_INVALID with a message that names
 * the modules. */
FSDP_MUST_CHECK fsdp_status fsdp_check_modules(fsdp_module *const *modules, size_t n);
/* Check fsdp_wrap_policy.joint_modules as fsdp_check_modules() does. Also check that each of these
 * modules is below `root` and has a forward. */
FSDP_MUST_CHECK fsdp_status fsdp_check_joint_modules(const fsdp_module *root,
                                                     fsdp_module *const *modules, size_t n);
/* Return true if p is one of options->ignored_params. */
bool fsdp_parameter_is_ignored(const fsdp_fully_shard_options *options, const fsdp_parameter *p);
bool fsdp_module_is_inside(const fsdp_module *m, const fsdp_module *around);
/* Return true if only `m` and modules below it use p. */
bool fsdp_parameter_is_inside(const fsdp_parameter *p, const fsdp_module *m);
/* Return the first module of the unit that has p, or NULL if p is in no unit. If several units use
 * p, it belongs to the unit around all of them, whatever its name in the list of parameters. */
const fsdp_module *fsdp_unit_of_parameter(const fsdp_parameter *p);
/* Implements fsdp_fully_shard_modules(). If `leave_shared` is true, the unit does not get
 * parameters that modules outside of the unit also use. Such a parameter is left for a larger unit,
 * which contains all modules that use it. */
FSDP_MUST_CHECK fsdp_status fsdp_make_unit(fsdp_module *const *modules, size_t n, fsdp_group *group,
                                           fsdp_device *device,
                                           const fsdp_fully_shard_options *options,
                                           bool leave_shared);
