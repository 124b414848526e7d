/* One unit: the parameters that are gathered, freed and reduced together.
 *
 * Note [Three memories of a unit].
 * master: what the optimizer updates. Parameters that are stored as compute reads them ("zero
 *   copy") lie whole in one buffer that all ranks see, each contiguous, and a rank's local tensor
 *   is a view of its own rows: unshard is a READ phase and moves nothing. Of the others each rank
 *   has its rows to itself.
 *   Note [Halved masters]. A float32 parameter that is computed with in bfloat16 is zero-copy, too:
 *   in that buffer lie the upper halves of its values, rounded, which is what a cast would make of
 *   them; the lower halves of its own rows each rank has to itself (Note [Halved storages] in
 *   src/tensor/halved.h). The optimizer's store is the all-gather, and nothing else ever moves.
 * gathered: what operations read, in param_dtype: the master itself, or a pool buffer into which
 *   each rank casts its own rows (WRITE), which all then read (READ). Reshard empties the storages'
 *   pointers, so that reading afterwards is an error and never stale data.
 *   Note [Kept copies]. Where a unit keeps what was gathered from forward to backward, it keeps it
 *   for good: that is the same memory. Then whoever writes a local opens a WRITE of the copy, which
 *   ends at the next gather: an optimizer that is at it writes its rows of the copy, too
 *   (fsdp_parameter_mirror()), and its store is the all-gather. If somebody wrote a local without,
 *   gather casts all own rows; if nobody wrote, it writes nothing.
 * slot: where backward writes this rank's whole gradient, float32, of an embedding the rows that
 *   were looked up (Note [Gradients by row] in grad_rows.h), of a large unit a part at a time (Note
 *   [Sections] in slot.h); a pool buffer of world_size slots, which hold what trains. After its
 *   WRITE each rank sums its own rows over all slots (READ). A byte for each parameter and
 *   rank says whether it has a gradient: that differs between ranks only if they ran different
 *   code, and would otherwise add up what an earlier unit left there.
 * A unit may have parameters that are zero-copy and others (Note [Frozen parameters] in
 *   frozen.c) and a third kind with an extension (Note [All-gather extensions] in extension.h).
 *
 * Note [Replicas]. Over a mesh (replicate, shard) all of this is among the ranks of dimension 1:
 *   each row of the mesh has its own master, copies and slots. What a rank has summed of its own
 *   rows is the partial sum of its mesh row; the ranks of dimension 0, which hold the same rows,
 *   add these up through a buffer of a lane for each (the all-reduce), and go on with equal sums.
 */
#pragma once
#include <fsdp/fsdp.h>

#include "src/fsdp/buffer.h"
#include "src/fsdp/observer.h"
#include "src/nn/module.h"
#include "src/tensor/offload.h"

enum {
    FSDP_MAX_TREE = 32
};

typedef struct fsdp_param_group fsdp_param_group;

/* Of a parameter whose gradient is a table in the slot: Note [Gradients by row] in grad_rows.h. */
typedef struct fsdp_row_table {
    int64_t most;      /* rows that it has room for, beside row 0; 0: there is no table */
    int64_t n;         /* touched so far, which are */
    int32_t *ids;      /* [most], in rows 1 to n of */
    fsdp_tensor *rows; /* [1 + most, D] float32, over the slot */
    int32_t *place;    /* [V]: the row of each id, 0: not touched. Kept from step to step */
    bool is_over;      /* the sweep for whose lookups it has room */
} fsdp_row_table;

typedef struct fsdp_param {
    fsdp_parameter *parameter; /* borrowed: the module's */
    char *name;                /* within the unit's module */
    fsdp_dtype dtype;          /* it is stored in */
    bool zero_copy;            /* operations read what is stored, */
    bool halved;               /* or the upper halves of it: Note [Halved masters] */
    bool on_host;              /* Note [Once per host]: whole, in the unit's `host`, at */
    size_t host_offset;        /* bytes there */
    fsdp_storage_guard host_guard;
    int host_writers;
    void *unwanted; /* where a rank that is not the first writes to now */
    struct fsdp_param_group *unit;
    int dim; /* this rank has entries [begin, end) of it, */
    int64_t begin, end;
    fsdp_slice slice;          /* which lie so in the whole parameter */
    bool trains;               /* requires_grad when its memory was made, or looked at last */
    size_t offset;             /* elements of param_dtype, of the whole parameter, in the unit's
                                  master if zero_copy, else in gathered */
    fsdp_tensor *data, *local; /* the parameter's tensors, kept here too: it may die first */
    fsdp_tensor *grad_slot;    /* whole, float32, over the unit's slot_storage; its place there is
                                  chosen when the slot is opened */
    size_t lane_offset;        /* elements, of the own rows in a lane of replicas; when that is */
    bool in_slot;              /* it has a place there, when its gradient comes at the latest, */
    fsdp_row_table table;      /* or in there, of the rows that were looked up */
    bool placed;               /* it has that place now, */
    int order;                 /* given as this one in a section, else 0 */
    bool touched;              /* the slot has a gradient of this micro-step */
    bool published;            /* the published slot has one, at its place, */
    bool published_rows;       /* as a table */
    fsdp_tensor *partial;      /* own rows summed over the shard group, not over replicas yet */
    /* Sharded partial sums of earlier micro-steps: the stack of an aligned binary tree. */
    fsdp_tensor *tree[FSDP_MAX_TREE];
    int tree_level[FSDP_MAX_TREE];
    int n_tree;
} fsdp_param;

typedef enum fsdp_unit_state {
    FSDP_UNIT_SHARDED,
    FSDP_UNIT_GATHERING, /* own rows are written, the peers' not yet waited for */
    FSDP_UNIT_UNSHARDED,
    FSDP_UNIT_HIDDEN, /* gathered, but not shown to operations: FSDP_RESHARD_TO_SMALLER */
} fsdp_unit_state;

/* The zero-copy parameters of a unit, or the others. */
typedef struct fsdp_unit_part {
    int64_t numel;         /* elements of param_dtype in their buffer, alignment included */
    int64_t logical_numel; /* without it */
} fsdp_unit_part;

/* What the units of one tree share; see state.h. */
typedef struct fsdp_pools {
    fsdp_pool gathered; /* shared by the ranks that a unit is sharded over */
    fsdp_pool whole;    /* likewise for units that are not: private to the rank */
    fsdp_pool slots;
    fsdp_pool lanes;           /* shared by replicas */
    fsdp_param_group *pending; /* whose slot is published and not reduced yet; NULL: none */
    bool last_micro_step;      /* of the latest forward with gradients */
} fsdp_pools;

struct fsdp_param_group {
    char *name; /* path of the unit's module; "" for the root */
    uint32_t number;
    fsdp_device *device;
    fsdp_group *group;           /* slots are shared by it; NULL: one rank */
    fsdp_group *shard_group;     /* parameters are sharded over it; NULL: whole on every rank */
    fsdp_group *replicate_group; /* holds the same rows, Note [Replicas]; NULL: none does */
    fsdp_fully_shard_options options;
    fsdp_param *params;
    size_t n_params;
    int64_t logical_numel; /* of its parameters */
    fsdp_unit_part zero_copy, copied;
    fsdp_offload_unit *offload; /* that locals are staged with, none zero-copy; NULL: in memory */
    int64_t slot_numel;         /* of what trains, or a section of it, alignment included; */
    int64_t section_numel;      /* of its matrices, which come first, */
    int64_t slot_used;          /* whose places are given up to here */
    bool in_sections;           /* it is a section; how many places were given in its order */
    int n_placed;
    int64_t least_in_sections;    /* elements: a unit of fewer is whole in its slot */
    fsdp_buffer *master;          /* zero-copy parameters; NULL: there are none */
    fsdp_storage *master_storage; /* which their locals lie in, and */
    fsdp_storage *view_storage;   /* the same as operations read it */
    fsdp_buffer *host;       /* Note [Once per host] in once_per_host.h; NULL: there are none */
    fsdp_storage *host_view; /* as operations read it */
    fsdp_storage *gathered_storage, *slot_storage;
    int64_t extended_numel; /* elements of parameters with an extension, alignment included; */
    fsdp_storage *unpacked_storage;         /* where operations read them, */
    fsdp_buffer *packed, *unpacked;         /* as they travel, and unpacked */
    fsdp_storage_guard guard, master_guard; /* of locals: their own memory, the master */
    fsdp_storage_guard gathered_guard;
    int writers;          /* locals being written now, */
    bool summoned;        /* whole copies are out: Note at the top of summon.c */
    int master_writers;   /* those in the master: one WRITE phase for all of them */
    const void **sources; /* [largest group]: scratch of the reduce */
    fsdp_pools *pools;    /* borrowed from the context; NULL before the first forward */
    fsdp_buffer *gathered, *slot;
    bool copy_is_open; /* gathered is kept and in a WRITE phase, Note [Kept copies] */
    int unmirrored;    /* writes to locals that it does not have yet */
    bool is_root;      /* the outermost unit */
    fsdp_unit_state state;
    bool announced; /* gathering, offloaded: own rows are on their way, not written yet */
    bool held;      /* by fsdp_unit_unshard: hooks do not reshard */
    bool requested; /* fsdp_unit_unshard_async: kept until its own next forward or backward */
    bool no_unshard_in_backward;
    double divide_factor;
    fsdp_buffer *published;  /* a slot that is to be reduced; NULL: none */
    int64_t published_numel; /* of a part of it */
    bool published_section;  /* it is no whole slot */
    bool published_is_last;  /* of the last micro-step */
    bool no_gradient_sync;   /* gradients add up in the slot, which is not published; */
    bool in_no_sync;         /* the same */
    bool no_all_reduce;      /* over the replicas; they are added by a later reduce */
    fsdp_all_reduce_hook *all_reduce_hook;
    void *all_reduce_arg;
    uint32_t step;                      /* for phase infos and messages */
    const fsdp_module *module;          /* the unit's, of several the first */
    const fsdp_unit_observer *observer; /* borrowed; NULL: nobody listens */
};

/* What the buffer of a part takes. */
static inline size_t fsdp_unit_part_bytes(const fsdp_param_group *u, const fsdp_unit_part *part)
{
    return (size_t)part->numel * fsdp_dtype_size(u->options.mp_policy.param_dtype);
}

/* See observer.h. `bytes` are of a collective over `group`; none is needed where that is NULL. */
static inline void fsdp_param_group_tell(const fsdp_param_group *u, fsdp_unit_event event,
                                         const fsdp_group *group, uint64_t bytes)
{
    if (u->observer)
        u->observer->event(u->observer->self, u->module, event, group ? bytes : 0);
}

/* Values that a parameter had before: `slice` of its whole tensor, or all of the unit's own rows in
 * another dtype. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_take_values(const fsdp_tensor *old,
                                                         const fsdp_slice *slice,
                                                         fsdp_tensor *local);
/* Likewise those that rank 0 had of p, if it had any (sync.c). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_sync_values(const fsdp_param_group *unit,
                                                         const fsdp_param *p);
/* sync.c: note in which dtype rank 0 loaded the parameter: a frozen one is stored in that. Before
 * its memory is made; collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_sync_dtype(const fsdp_param_group *unit,
                                                        fsdp_parameter *parameter);

/* Are gradients to be communicated at the end of its backward? */
static inline bool fsdp_param_group_syncs(const fsdp_param_group *u)
{
    return !u->no_gradient_sync && !u->in_no_sync;
}

/* What fails from here on fails in `call` of the unit; NULL: it is no unit's. */
void fsdp_param_group_at(const fsdp_param_group *unit, const char *call);

/* Prepares memory for `parameters`, which no unit has yet, with the values that they have.
 * Collective. They stay as they are until fsdp_param_group_adopt(). */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **unit);
/* Elements of p on the rank that has most of them, the first: the same on all. */
int64_t fsdp_param_most_numel(const fsdp_param_group *unit, const fsdp_param *p);
/* What such rows of what trains leave for idle memory, Note [Idle memory] in buffer.h: as much as
 * they take, less the marks of halves. */
int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *unit);
/* The ranks that a unit's gradients come from. */
int fsdp_param_group_world_size(const fsdp_param_group *unit);
/* Are they all on one host, where gradients have no way to go? */
bool fsdp_param_group_is_on_one_host(const fsdp_param_group *unit);
/* Over some rank of which messages and aborts go; NULL: a world of one. */
fsdp_group *fsdp_param_group_any_group(const fsdp_param_group *unit);
/* Give a tensor of this rank's rows of p the spec of the unit's mesh. No effect if p is whole. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_place(const fsdp_param_group *unit,
                                                   const fsdp_param *p, fsdp_tensor *rows);
/* The unit's parameters are sharded from here on; gradients of before are dropped. */
void fsdp_param_group_adopt(fsdp_param_group *unit);
/* Parameters that outlive the unit have no memory then. */
void fsdp_param_group_destroy(fsdp_param_group *unit);
/* NULL if it is not the unit's. */
fsdp_param *fsdp_param_group_find(const fsdp_param_group *unit, const fsdp_parameter *parameter);
/* For messages and phases. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_set_name(fsdp_param_group *unit, const char *name);

/* Make anew the memory of parameters that are stored otherwise than `dtypes` [n_params] says, with
 * the same values. Collective; the unit is sharded, nothing of it is being written. A failure
 * changes nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_store_as(fsdp_param_group *unit,
                                                      const fsdp_dtype *dtypes);
/* Make all memory of a unit on meta anew on `device`: undefined values, no gradients. No effect on
 * one that is not on meta, or if `device` is. Collective. FSDP_ERR_STATE if it is in use. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_to_empty(fsdp_param_group *unit, fsdp_device *device);
/* Have memory follow what was frozen, unfrozen or is about to be loaded since. Collective.
 * FSDP_ERR_STATE if that needs other memory while the unit is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_settle(fsdp_param_group *unit);
/* The same for who knows local tensors only: note that all of one will be written with values of
 * `dtype`; then settle its unit. Neither has an effect on a tensor of no unit. */
void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype);
FSDP_MUST_CHECK fsdp_status fsdp_param_group_settle_load(const fsdp_tensor *local);
/* Room that a tensor of so many elements takes in a buffer. */
int64_t fsdp_param_group_aligned(int64_t numel);
/* The dtype that p is to be stored in when its unit is made. */
fsdp_dtype fsdp_param_group_dtype_of(const fsdp_param_group *unit, const fsdp_parameter *p);

/* --- gathering (gather.c) --- */

/* Of the unit's storages: a write of locals is a phase of the master, and an error while the unit
 * is gathered; nobody writes to what operations read. */
void fsdp_param_group_set_guards(fsdp_param_group *unit);
/* The unit that guards writes of a parameter's local tensor; NULL: none does. */
fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local);
/* FSDP_ERR_STATE while it is summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *unit);
/* Begin to gather: write own rows. No effect unless sharded, and while it cannot be gathered. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *unit);
/* Gather and wait for the peers' rows. No effect if unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *unit);
/* Keep what is gathered from operations until the next unshard, which then waits for nobody. Only
 * of an unsharded unit. */
void fsdp_param_group_hide(fsdp_param_group *unit);
/* Empty the gathered storage; drops a prefetch and a request. No effect if sharded. */
void fsdp_param_group_reshard(fsdp_param_group *unit);
/* Its memory may go, or is to be laid out otherwise: give back what is kept of a gather. */
void fsdp_param_group_drop_copy(fsdp_param_group *unit);
/* See fsdp_parameter_mirror(): own rows of what is kept, if they lie there in one piece. */
void *fsdp_param_group_mirror(fsdp_parameter *parameter, fsdp_dtype *dtype);

/* --- gradients (slot.c, gradients.c) --- */

/* The sink's target of every trainable parameter of a unit. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
/* Its rows, of parameters with a table. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_target_rows(fsdp_grad_sink *sink, const int32_t *ids,
                                                         int64_t n, int32_t padding_idx,
                                                         fsdp_grad_rows *out);
/* Backward has left the unit, or a section of it: publish the slot. No effect if none is open. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_publish(fsdp_param_group *unit);
/* Reduce the unit that was left before; if this one has published something, that is next. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_follow(fsdp_param_group *unit);
/* Sum own rows over all ranks' slots, then over replicas (unless that is left to a later one), and
 * fold them with those of earlier micro-steps; at the last micro-step divide, and make the result
 * the parameters' gradient. No effect unless published. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_reduce(fsdp_param_group *unit);
/* After the last micro-step: fold what parameters hold that only earlier micro-steps used; if the
 * unit syncs, also what was summed over the shard group alone. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_finish(fsdp_param_group *unit);
/* Does the unit hold gradients that are not the parameters' yet? */
bool fsdp_param_group_has_sums(const fsdp_param_group *unit);
/* Drop what earlier micro-steps of a step that never ended have left. */
void fsdp_param_group_drop_sums(fsdp_param_group *unit);
/* The step failed: drop the slot and partial sums. */
void fsdp_param_group_drop_gradients(fsdp_param_group *unit);
/* The same when the unit goes: nothing is told to its parameters, which may have gone before. */
void fsdp_param_group_free_gradients(fsdp_param_group *unit);
