/* fsdp_param_group: the parameters that are gathered, freed and reduced together (PyTorch's
 * FSDPParamGroup). What a user calls a unit is one param group with the state around it (state.h).
 *
 * Note [Memory of a param group]. It has three kinds of memory.
 *   master      what the optimizer updates, and
 *   unsharded   what operations read, in param_dtype: see Note [Param storages] in param_storage.h.
 *               Reshard empties the storages that operations read, so that reading afterwards is an
 *               error and never stale data.
 *   gradients   what backward writes: see Note [Gradient buffers] in grad_buffer.h. */
#pragma once
#include "src/fsdp/grad_buffer.h"
#include "src/fsdp/param_storage.h"

typedef enum fsdp_sharded_state {
    FSDP_STATE_SHARDED,
    FSDP_STATE_GATHERING, /* A gather has begun; it has not waited for the peers' rows. */
    FSDP_STATE_UNSHARDED,
    FSDP_STATE_HIDDEN, /* Gathered, but operations cannot read it: FSDP_RESHARD_TO_SMALLER. */
} fsdp_sharded_state;

typedef struct fsdp_param_group {
    fsdp_param_context context;
    fsdp_param *params; /* [n_params] */
    size_t n_params;
    int64_t numel; /* Elements of the whole parameters. */
    fsdp_param_memories memories;
    fsdp_grad_buffer grads;

    /* Guard of what operations read: readable only while unsharded, never writable. */
    fsdp_storage_guard read_guard;
    fsdp_sharded_state state;
    int writers;   /* Writes of own rows under way. */
    bool summoned; /* Whole copies are out: see the top of summon.c. */

    bool is_root;   /* It is not inside another unit. */
    bool held;      /* fsdp_unit_unshard() was called: hooks do not reshard. */
    bool requested; /* fsdp_unit_unshard_async() was called: the gather is kept until the next
                       forward or backward. */
    bool no_unshard_in_backward;
} fsdp_param_group;

/* Allocate memory for `parameters`, which no group owns yet, and copy their values to it. The
 * parameters do not change until fsdp_param_group_adopt(). Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **created);
/* Replace the parameters' tensors by the sharded ones. Drops their gradients. */
void fsdp_param_group_adopt(fsdp_param_group *g);
/* Parameters that outlive the group have no memory afterwards. */
void fsdp_param_group_destroy(fsdp_param_group *g);
/* Set the name for messages and phases. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_set_name(fsdp_param_group *g, const char *name);
/* Bytes that count for Note [Idle memory] in buffer.h. */
int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *g);

/* Convert the parameters to `dtypes` [n_params], in new memory. The group must be sharded and not
 * being written. Collective. A failure changes nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_store_as(fsdp_param_group *g,
                                                      const fsdp_dtype *dtypes);
/* Apply the pending dtypes of parameters that were frozen, unfrozen or are about to be loaded.
 * Collective. FSDP_ERR_STATE, with nothing changed, if this needs new memory while the group is
 * unsharded, summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_pending_dtypes(fsdp_param_group *g);
/* The same for callers that have only the local tensor. fsdp_param_group_note_load() records that
 * all of `local` will be overwritten with values of `dtype`; fsdp_param_group_apply_load() then
 * applies the pending dtypes of its group. No effect on a tensor that belongs to no group. */
void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype);
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_load(const fsdp_tensor *local);
/* Allocate the memory of a group on meta on `device`, with undefined values and no gradients. No
 * effect if the group is not on meta, or if `device` is meta. Collective. FSDP_ERR_STATE if the
 * group is in use. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_to_empty(fsdp_param_group *g, fsdp_device *device);

/* --- unshard.c --- */

/* The guards that the group gives its memories. */
fsdp_param_guards fsdp_param_group_guards(fsdp_param_group *g);
/* The group that a local tensor belongs to, found by its write guard; NULL: none. */
fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local);
/* Does the group reshard between forward and backward? */
bool fsdp_param_group_reshards_after_forward(const fsdp_param_group *g, bool is_root);
/* FSDP_ERR_STATE while the group is summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *g);
/* Begin a gather: write own rows. No effect unless the group is sharded and can be gathered. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *g);
/* Gather and wait for the peers' rows. No effect if unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *g);
/* Hide the gathered parameters from operations until the next unshard, which then waits for no
 * peer. The group must be unsharded. */
void fsdp_param_group_hide(fsdp_param_group *g);
/* Hide the gathered parameters, and give copies back to their pool unless the group keeps them.
 * Drops a prefetch and a request. No effect if sharded. */
void fsdp_param_group_reshard(fsdp_param_group *g);
/* Give back kept copies, before their memory is freed or gets another layout. */
void fsdp_param_group_drop_copies(fsdp_param_group *g);
