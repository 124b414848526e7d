/* fsdp_param_context: what the parameters of a param group share, such as the device, the process
 * groups, the options, the unit's name for messages and the unit's number for phases. The param
 * group and the layers above it set the fields. The group's gradient buffer and parameters only
 * read them.
 *
 * Note [Replicas]. A mesh (replicate, shard) has two dimensions. A mesh row is the ranks along
 * dimension 1. The parameters are sharded among the ranks of a mesh row, and each mesh row has its
 * own master weights, copies and gradient buffers. A mesh column is the ranks along dimension 0.
 * The ranks of a mesh column own the same rows of the parameters. In the reduce, each rank gets a
 * partial sum: the gradients of the rows that it owns, added over its mesh row. In the all-reduce,
 * the ranks of a mesh column add their partial sums, through a buffer that has a lane for each of
 * them. So all of them get equal sums. */
#pragma once
#include <fsdp/fsdp.h>

#include "src/fsdp/buffer.h"
#include "src/fsdp/observer.h"
#include "src/tensor/offload.h"

struct fsdp_grad_buffer;

/* What the param groups of one tree share (PyTorch's FSDPCommContext). Created at the first
 * forward. */
typedef struct fsdp_comm_context {
    fsdp_pool gathered; /* Buffers for parameters, shared by the ranks of a shard group. */
    fsdp_pool whole;    /* Private buffers, for unpacked parameters and for units without shards. */
    fsdp_pool grads;    /* Gradient buffers, shared by the ranks that reduce together. */
    fsdp_pool lanes;    /* Buffers with lanes for the all-reduce, shared by the replicas. */
    /* The gradient buffers whose posted gradients are being reduced, the oldest first. */
    struct fsdp_grad_buffer *in_flight;
    int depth;            /* Number of units whose forward has begun but not ended. */
    bool last_micro_step; /* The latest forward with gradients belongs to the last micro-step of a
                             step. */
} fsdp_comm_context;

typedef struct fsdp_param_context {
    char *name; /* Path of the group's module; "" for the root; "a, b" for two modules. Owned. */
    uint32_t number; /* The group's number in the model, the same on every rank. */
    uint32_t step;   /* Number of the current step, counted from 1. */
    fsdp_device *device;
    fsdp_group *group;           /* Ranks that share the gradient buffers; NULL: only this rank. */
    fsdp_group *shard_group;     /* Ranks that each have a shard; NULL: parameters are whole. */
    fsdp_group *replicate_group; /* Ranks that own the same rows; NULL: there are no replicas. */
    fsdp_fully_shard_options options;
    fsdp_offload_unit *offload; /* Stages this rank's rows in a file; NULL: they stay in memory. */
    fsdp_comm_context *comm;    /* Borrowed from the tree. NULL before the first forward. */
    const fsdp_module *module;  /* The module of the group; the first one if there are several. */
    const fsdp_unit_observer *observer; /* Borrowed; NULL: events are not reported. */
} fsdp_param_context;

/* Return the number of ranks over which gradients are summed, including replicas. */
int fsdp_param_context_world_size(const fsdp_param_context *c);
/* Return true if all ranks over which gradients are summed share one memory. Gradients then cross
 * neither a network nor from card to card. */
bool fsdp_param_context_has_one_memory(const fsdp_param_context *c);
/* Return true if all ranks of `group` share one memory for buffers on the context's device, or if
 * `group` is NULL. */
bool fsdp_ranks_share_memory(const fsdp_param_context *c, const fsdp_group *group);
/* Between forward and backward, several consecutive ranks of the shard group keep one copy of the
 * unit together. Return the number of these ranks. It is a multiple of the number of ranks that
 * share one memory (fsdp_group_memory_ranks()), and divides the number of shard ranks. It is at
 * most reshard_ranks, unless more ranks share one memory. Return 0 if reshard_after_forward is not
 * FSDP_RESHARD_TO_SMALLER. */
int fsdp_param_context_kept_ranks(const fsdp_param_context *c);
/* Return any group that has more than one rank, or NULL if there is only one rank. It is used to
 * record the location for error messages, and to abort. */
fsdp_group *fsdp_param_context_any_group(const fsdp_param_context *c);
/* Record what this rank does now, for error messages: it is in `call` (for example "backward") of
 * the param group. If `call` is NULL, record that the rank is in no call. */
void fsdp_param_context_set_location(const fsdp_param_context *c, const char *call);
/* Return the phase info of a collective that moves `bytes` of `dtype` in total. */
fsdp_phase_info fsdp_param_context_phase(const fsdp_param_context *c, fsdp_phase_kind kind,
                                         fsdp_dtype dtype, uint64_t bytes);
/* Report an event to the observer. `group` is the group whose ranks exchange data in this event. If
 * `group` is NULL, no ranks exchange data, and 0 is reported instead of `bytes`. */
void fsdp_param_context_report(const fsdp_param_context *c, fsdp_unit_event event,
                               const fsdp_group *group, uint64_t bytes);
/* Abort the job with the error `status` of this rank, because its peers wait for it, or will wait,
 * in a collective of the context's groups. Do nothing if `status` is FSDP_OK, or if there are no
 * peers. */
void fsdp_param_context_abort(const fsdp_param_context *c, fsdp_status status);
/* Return the pool for buffers of unsharded parameters. */
fsdp_pool *fsdp_param_context_pool(const fsdp_param_context *c);
