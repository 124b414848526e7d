/* fsdp_param_group: the parameters that are gathered, freed and reduced together (PyTorch's
 * FSDPParamGroup). What a user calls a unit is one param group together with its fsdp_state
 * (state.h).
 *
 * Note [Memory of a param group]. A param group has three kinds of memory.
 *   master      what the optimizer updates: see Note [Param storages] in param_storage.h
 *   unsharded   what operations read, in param_dtype: see the same note. Reshard empties this
 *               memory, so that a later read is an error and never returns stale data.
 *   gradients   what backward writes: see Note [Gradient buffers] in grad_buffer.h */
#pragma once
#include "src/fsdp/grad_buffer.h"
#include "src/fsdp/param_storage.h"

typedef enum fsdp_sharded_state {
    FSDP_STATE_SHARDED,
    FSDP_STATE_GATHERING, /* A gather has begun. This rank has not waited for its peers yet. */
    FSDP_STATE_UNSHARDED,
    FSDP_STATE_HIDDEN, /* Gathered but hidden from operations, for FSDP_RESHARD_TO_SMALLER. */
} fsdp_sharded_state;

typedef struct fsdp_param_group {
    fsdp_param_context context;
    fsdp_param *params; /* [n_params] */
    size_t n_params;
    int64_t numel; /* Sum of the elements of all whole parameters. */
    fsdp_param_memories memories;
    fsdp_grad_buffer grads;

    /* Guards the storages that operations read: they are readable only while the group is
     * unsharded, and never writable. */
    fsdp_storage_guard read_guard;
    fsdp_sharded_state state;
    int writers;   /* Number of writes of this rank's rows that are under way. */
    bool summoned; /* The user has whole copies of the parameters: see the top of summon.c. */

    bool is_root;   /* The unit is not inside another unit. */
    bool held;      /* fsdp_unit_unshard() was called, so hooks do not reshard. */
    bool requested; /* fsdp_unit_unshard_async() was called, so the gather is kept until the next
                       forward or backward. */
    bool no_unshard_in_backward;
} fsdp_param_group;

/* Allocate memory for `parameters`, which no group owns yet, and copy their values to it. The
 * parameters themselves do not change until fsdp_param_group_adopt(). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **created);
/* Replace the parameters' tensors by the sharded ones, and drop the parameters' gradients. */
void fsdp_param_group_adopt(fsdp_param_group *g);
/* Destroy the group. Parameters that outlive the group have no memory afterwards. */
void fsdp_param_group_destroy(fsdp_param_group *g);
/* Set the name for messages and phases. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_set_name(fsdp_param_group *g, const char *name);
/* Return the sum of fsdp_param_trained_bytes() over the parameters. */
int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *g);

/* Convert the parameters to `dtypes` [n_params], in new memory. The group must be in
 * FSDP_STATE_SHARDED and must not be written at the same time. Collective. A failure changes
 * nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_store_as(fsdp_param_group *g,
                                                      const fsdp_dtype *dtypes);
/* Apply the pending dtypes of parameters that were frozen or unfrozen, or are about to be loaded.
 * Collective. Changes nothing and returns FSDP_ERR_STATE if this needs new memory while the group
 * is unsharded, summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_pending_dtypes(fsdp_param_group *g);
/* The next two functions are for loaders, which have only the local tensor.
 * fsdp_param_group_note_load() records that all of `local` will be overwritten with values of
 * `dtype`. Then fsdp_param_group_apply_load() applies the pending dtypes of the group of `local`.
 * Neither has an effect if `local` does not belong to a group. */
void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype);
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_load(const fsdp_tensor *local);
/* Move a group from meta to `device`: allocate its memory there, with undefined values and without
 * gradients. No effect if the group is not on meta, or if `device` is meta. Collective. Returns
 * FSDP_ERR_STATE if the group is unsharded or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_to_empty(fsdp_param_group *g, fsdp_device *device);

/* --- unshard.c --- */

/* Return the guards that the group gives to its memories. */
fsdp_param_guards fsdp_param_group_guards(fsdp_param_group *g);
/* Find the group of a local tensor by the tensor's write guards. Return NULL if there is none. */
fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local);
/* Does the group reshard between forward and backward? */
bool fsdp_param_group_reshards_after_forward(const fsdp_param_group *g, bool is_root);
/* Return FSDP_ERR_STATE if the group is summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *g);
/* Begin a gather: write this rank's rows, or start to read them from a file. No effect unless the
 * group is in FSDP_STATE_SHARDED, not summoned and not being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *g);
/* Gather and wait for the peers' rows. No effect if the group is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *g);
/* Hide the gathered parameters from operations until the next unshard, which then need not wait for
 * peers. Reshards the group if one of its memories cannot be hidden. The group must be
 * unsharded. */
void fsdp_param_group_hide(fsdp_param_group *g);
/* Take the gathered parameters away from operations, and return copies to their pool unless the
 * group keeps them. Also drops a prefetch, and the request of fsdp_unit_unshard_async(). No effect
 * if the group is sharded. */
void fsdp_param_group_reshard(fsdp_param_group *g);
/* Return kept copies to their pool. Call this before the group's memories are freed or get another
 * layout. */
void fsdp_param_group_drop_copies(fsdp_param_group *g);
