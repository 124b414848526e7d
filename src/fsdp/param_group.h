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
    FSDP_STATE_HIDDEN, /* Gathered, but not shown to operations: FSDP_RESHARD_TO_SMALLER. */
} fsdp_sharded_state;

typedef struct fsdp_param_group {
    fsdp_param_context context;
    fsdp_param *params; /* [n_params] */
    size_t n_params;
    int64_t numel; /* Of the whole parameters. */
    fsdp_param_memories memories;
    fsdp_grad_buffer grads;

    /* Guards of the memories' storages: the group's state decides what may be read and written. */
    fsdp_storage_guard read_guard;
    fsdp_sharded_state state;
    int writers;   /* Writes of own rows under way. */
    bool summoned; /* Whole copies are out: see the top of summon.c. */

    bool is_root;   /* No group is around it. */
    bool held;      /* By fsdp_unit_unshard(): hooks do not reshard. */
    bool requested; /* By fsdp_unit_unshard_async(): kept until its next forward or backward. */
    bool no_unshard_in_backward;
} fsdp_param_group;

/* Prepares memory for `parameters`, which no group has yet, with the values that they have.
 * Collective. They stay as they are until fsdp_param_group_adopt(). */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_create(fsdp_device *device, fsdp_group *group,
                                                    const fsdp_fully_shard_options *options,
                                                    const fsdp_named_parameter *parameters,
                                                    size_t n, fsdp_param_group **created);
/* The parameters are sharded from here on; gradients that they had are dropped. */
void fsdp_param_group_adopt(fsdp_param_group *g);
/* Parameters that outlive the group have no memory then. */
void fsdp_param_group_destroy(fsdp_param_group *g);
/* For messages and phases. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_set_name(fsdp_param_group *g, const char *name);
/* Bytes that count for Note [Idle memory] in buffer.h. */
int64_t fsdp_param_group_trained_bytes(const fsdp_param_group *g);

/* Store parameters in `dtypes` [n_params], in new memory, with the same values. Collective; the
 * group is sharded and not being written. A failure changes nothing. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_store_as(fsdp_param_group *g,
                                                      const fsdp_dtype *dtypes);
/* Store parameters as what was frozen, unfrozen or is about to be loaded asks for. Collective.
 * FSDP_ERR_STATE if that needs other memory while the group is unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_pending_dtypes(fsdp_param_group *g);
/* The same for callers that know local tensors only: note that all of one will be written with
 * values of `dtype`; then apply what is pending in its group. No effect on a tensor of no group. */
void fsdp_param_group_note_load(const fsdp_tensor *local, fsdp_dtype dtype);
FSDP_MUST_CHECK fsdp_status fsdp_param_group_apply_load(const fsdp_tensor *local);
/* Give a group on meta its memory on `device`: undefined values, no gradients. No effect if it is
 * not on meta, or if `device` is. Collective. FSDP_ERR_STATE if it is in use. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_to_empty(fsdp_param_group *g, fsdp_device *device);

/* --- unshard.c --- */

/* The guards that the group's memories get. */
fsdp_param_guards fsdp_param_group_guards(fsdp_param_group *g);
/* The group of a parameter's local tensor, by its write guard; NULL: none. */
fsdp_param_group *fsdp_param_group_of_local(const fsdp_tensor *local);
/* Will it reshard between forward and backward? */
bool fsdp_param_group_reshards_after_forward(const fsdp_param_group *g, bool is_root);
/* FSDP_ERR_STATE while it is summoned or being written. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_check_gather(const fsdp_param_group *g);
/* Begin to gather: write own rows. No effect unless sharded, and while it cannot be gathered. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_prefetch(fsdp_param_group *g);
/* Gather and wait for the peers' rows. No effect if unsharded. */
FSDP_MUST_CHECK fsdp_status fsdp_param_group_unshard(fsdp_param_group *g);
/* Keep what is gathered from operations until the next unshard, which then waits for no peer. Only
 * of an unsharded group. */
void fsdp_param_group_hide(fsdp_param_group *g);
/* Free what was gathered; drops a prefetch and a request. No effect if sharded. */
void fsdp_param_group_reshard(fsdp_param_group *g);
/* Give back what is kept of a gather: its memory may go, or get another layout. */
void fsdp_param_group_drop_copies(fsdp_param_group *g);
