/* fsdp_param_group: the parameters that are gathered, freed and reduced together (PyTorch's
 * FSDPParamGroup). What a user calls a unit is one param group together with its fsdp_state
 * (state.h).
 *
 * Note [Memory of a param group]. A param group has three kinds of memory.
 *   master      what the optimizer updates: see Note [Param storages] in param_storage.h
 *   unsharded   what operations read, in param_dtype: see the same note. Reshard empties this
 *               memory. A later read is then an error, and never returns old data.
 *   gradients   what backward writes: see Note [Gradient buffers] in grad_buffer.h */
#pragma once
#include "src/fsdp/grad_buffer.h"
#include "src/fsdp/param_storage.h"

typedef enum fsdp_sharded_state {
    FSDP_STATE_SHARDED,
    FSDP_STATE_GATHERING, /* A gather has begun. This rank has not waited for its peers yet. */
    FSDP_STATE_UNSHARDED,
    /* For FSDP_RESHARD_TO_SMALLER, between forward and backward: Note [Secondary shards] in
     * storage_copy.h. */
    FSDP_STATE_HIDDEN,    /* The group is gathered, but operations cannot read its parameters. */
    FSDP_STATE_SECONDARY, /* Each rank has a part of what was gathered. */
} fsdp_sharded_state;

typedef struct fsdp_param_group {
    fsdp_param_context context;
    fsdp_param *params; /* [n_params] */
    size_t n_params;
    int64_t numel; /* Number of elements of all parameters, unsharded. */
    fsdp_param_memories memories;
    fsdp_grad_buffer grads;

    /* The guard of the storages that operations read. It allows reads only while the group is
     * unsharded, and it refuses all writes. */
    fsdp_storage_guard read_guard;
    fsdp_sharded_state state;
    int writers;   /* Number of writes of this rank's rows that have begun and not ended. */
    bool summoned; /* The user has whole copies of the parameters (summon.c). */

    bool is_root;   /* The unit is not inside another unit. */
    bool held;      /* fsdp_unit_unshard() was called, so hooks do not reshard. */
    bool requested; /* fsdp_unit_unshard_async() was called, so the gather is kept until the next
                       forward or backward. */
    bool no_unshard_in_backward;
} fsdp_param_group;

/* Allocate memory for `parameters`, which no group owns yet, and copy their values to it. The
 * tensors of `parameters` do not change until fsdp_param_group_adopt(). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **created);
/* Replace the parameters' tensors by the sharded ones, and drop the parameters' gradients. */
void fsdp_param_group_adopt(fsdp_param_group *g);
/* Destroy the group. Parameters that outlive the group have no memory afterwards. */
void fsdp_param_group_destroy(fsdp_param_group *g);
/* Set the name of the group for messages. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_set_name(fsdp_param_group *g, const char *name);
/* Return the sum of fsdp_param_trained_bytes() over the parameters. */
int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *g);

/* Convert the parameters to `dtypes` [n_params], in new memory. The group must be in
 * FSDP_STATE_SHARDED and have no open write. Collective. A failure changes nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_store_as(fsdp_param_group *g,
                                                      const fsdp_dtype *dtypes);
/* Apply the pending dtypes of parameters that were frozen or unfrozen, or that are about to be
 * loaded. Collective. If this needs new memory while the group is unsharded, summoned or being
 * written, change nothing and return FSDP_ERR_STATE. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_pending_dtypes(fsdp_param_group *g);
/* Record that a loader will overwrite all of `local` with values of `dtype`. Loaders do not know
 * the group, so they pass the local tensor. No effect if `local` does not belong to a group. */
void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype);
/* Apply the pending dtypes of the group of `local`. Loaders call this after
 * fsdp_param_group_note_load(). No effect if `local` does not belong to a group. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_load(const fsdp_tensor *local);
/* Move a group from meta to `device`: allocate its memory there, and drop its gradients. The values
 * of the parameters are undefined afterwards. No effect if the group is not on meta, or if `device`
 * is meta. Collective. Return FSDP_ERR_STATE if the group is unsharded or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_to_empty(fsdp_param_group *g, fsdp_device *device);

/* --- unshard.c --- */

/* Return the guards that the group gives to its memories. */
fsdp_param_guards fsdp_param_group_guards(fsdp_param_group *g);
/* Return the group of a local tensor, found by the tensor's write guards. Return NULL if the tensor
 * belongs to no group. */
fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local);
/* Return true if the group reshards between forward and backward. `is_root` is true if the group
 * belongs to the outermost unit. */
bool fsdp_param_group_reshards_after_forward(const fsdp_param_group *g, bool is_root);
/* Return FSDP_ERR_STATE if the group is summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *g);
/* Begin a gather: write this rank's rows or its part, or start to read the rows from a file. No
 * effect if the group is in another state than FSDP_STATE_SHARDED or FSDP_STATE_SECONDARY, if it is
 * summoned, or if a caller is writing its local tensors (fsdp_tensor_begin_write()). */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *g);
/* Gather and wait for the peers' rows. No effect if the group is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *g);
/* Reshard to the ranks of one host or of a few hosts, as FSDP_RESHARD_TO_SMALLER asks: Note
 * [Secondary shards] in storage_copy.h. If one of the group's memories cannot do this, reshard the
 * group to all ranks. The group must be unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_reshard_to_smaller(fsdp_param_group *g);
/* Make the gathered parameters unreadable for operations. Give copies back to their pool, unless
 * the group keeps them (Note [Kept copies] in param_storage.h). Also drop a gather that a prefetch
 * has begun, and the request of fsdp_unit_unshard_async(). If the group is sharded, only the
 * request is dropped. */
void fsdp_param_group_reshard(fsdp_param_group *g);
/* Give all copies back to their pool, including kept ones. Call this before the group's memories
 * are freed or get another layout. */
void fsdp_param_group_drop_copies(fsdp_param_group *g);
