/* One unit: the parameters that are gathered, freed and reduced together.
 *
 * Note [Three memories of a unit].
 * master: what the optimizer updates. Where compute reads the master's own dtype ("zero copy"),
 *   it lies whole in one buffer that all ranks see, each parameter contiguous, and a rank's local
 *   tensor is a view of its own rows: unshard is a READ phase and moves nothing. Otherwise each
 *   rank has its rows to itself.
 * gathered: what operations read, in param_dtype: the master itself, or a pool buffer into which
 *   each rank casts its own rows (WRITE), which all then read (READ). Reshard empties the storage's
 *   pointer, so that reading afterwards is an error and never stale data.
 * slot: where backward writes this rank's whole gradient, float32; a pool buffer of world_size
 *   slots. After its WRITE each rank sums its own rows over all slots (READ). A byte for each
 *   parameter at the end of a slot says whether it has a gradient: that differs between ranks only
 *   if they ran different code, and would otherwise add up what an earlier unit left there. */
#pragma once
#include <fsdp/fsdp.h>

#include "src/fsdp/buffer.h"
#include "src/nn/module.h"

enum {
    FSDP_MAX_TREE = 32
};

typedef struct fsdp_param_group fsdp_param_group;

typedef struct fsdp_param {
    fsdp_parameter *parameter; /* borrowed: the module's */
    char *name;                /* within the unit's module */
    size_t offset;             /* elements, of the whole parameter in the unit's buffers */
    fsdp_tensor *data, *local; /* the parameter's tensors, kept here too: it may die first */
    fsdp_tensor *grad_slot;    /* whole, float32, over the unit's slot_storage */
    bool touched;              /* the slot has a gradient of this micro-step */
    /* Sharded partial sums of earlier micro-steps: the stack of an aligned binary tree. */
    fsdp_tensor *tree[FSDP_MAX_TREE];
    int tree_level[FSDP_MAX_TREE];
    int n_tree;
} fsdp_param;

typedef enum fsdp_unit_state {
    FSDP_UNIT_SHARDED,
    FSDP_UNIT_GATHERING, /* own rows are written, the peers' not yet waited for */
    FSDP_UNIT_UNSHARDED,
} fsdp_unit_state;

/* What the units of one tree share; see state.h. */
typedef struct fsdp_pools {
    fsdp_pool gathered; /* shared by the ranks that a unit is sharded over */
    fsdp_pool whole;    /* likewise for units that are not: private to the rank */
    fsdp_pool slots;
} fsdp_pools;

struct fsdp_param_group {
    char *name; /* path of the unit's module; "" for the root */
    uint32_t number;
    fsdp_device *device;
    fsdp_group *group;       /* gradients are reduced over it; NULL: a world of one */
    fsdp_group *shard_group; /* parameters are sharded over it; NULL: every rank has them whole */
    fsdp_fully_shard_options options;
    fsdp_param *params;
    size_t n_params;
    int64_t numel;         /* of the unit's buffers, alignment included */
    int64_t logical_numel; /* of its parameters */
    bool zero_copy;
    fsdp_buffer *master; /* zero copy only; else locals have memory of their own */
    fsdp_storage *master_storage, *gathered_storage, *slot_storage;
    fsdp_storage_guard guard; /* of what locals lie in */
    fsdp_storage_guard gathered_guard;
    int writers;          /* locals being written now: one WRITE phase for all of them */
    const void **sources; /* [world size]: scratch of the reduce */
    fsdp_pools *pools;    /* borrowed from the context; NULL before the first forward */
    fsdp_buffer *gathered, *slot;
    fsdp_unit_state state;
    bool held; /* by fsdp_unit_unshard: hooks do not reshard */
    double divide_factor;
    uint32_t step; /* for phase infos and messages */
};

/* Prepares memory for `parameters`, which no unit has yet, with the values that they have.
 * Collective. They stay as they are until fsdp_param_group_adopt(). */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **unit);
/* The unit's parameters are sharded from here on; gradients of before are dropped. */
void fsdp_param_group_adopt(fsdp_param_group *unit);
void fsdp_param_group_destroy(fsdp_param_group *unit);

/* Begin to gather: write own rows. No effect unless sharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *unit);
/* Gather and wait for the peers' rows. No effect if unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *unit);
/* Empty the gathered storage. No effect if sharded; drops a prefetch. */
void fsdp_param_group_reshard(fsdp_param_group *unit);

/* --- gradients (gradients.c) --- */

/* The sink's target of every trainable parameter of a unit. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_target(fsdp_grad_sink *sink, fsdp_tensor *leaf,
                                                    fsdp_tensor **dst, float *beta);
/* Backward has left the unit: publish the slot. True if there is something to reduce. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_publish(fsdp_param_group *unit, bool *pending);
/* Sum own rows over all ranks' slots and fold them with those of earlier micro-steps; at the last
 * micro-step divide, and make the result the parameters' gradient. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_reduce(fsdp_param_group *unit, bool last);
/* After the last micro-step: fold what parameters hold that only earlier micro-steps used. */
void fsdp_param_group_finish(fsdp_param_group *unit);
/* Drop what earlier micro-steps of a step that never ended have left. */
void fsdp_param_group_drop_sums(fsdp_param_group *unit);
/* The step failed: drop the slot and partial sums. */
void fsdp_param_group_drop_gradients(fsdp_param_group *unit);
