/* fsdp_param_context: what the parameters of a param group share, such as the device, the process
 * groups, the options, and the name and number that messages and phases use. The param group and
 * the layers above it set the fields. The group's gradient buffer and parameters only read them.
 *
 * Note [Replicas]. Over a mesh (replicate, shard), parameters are sharded among the ranks of each
 * mesh row (dimension 1). Each mesh row has its own master weights, copies and gradient buffers. In
 * the reduce over a mesh row, each rank gets a partial sum of the gradients of the parameter rows
 * that it owns. The ranks of a mesh column (dimension 0) own the same parameter rows. In the
 * all-reduce, they add their partial sums through a buffer that has a lane for each of them. So all
 * of them get equal sums. */
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
    fsdp_pool whole;    /* Private buffers, for unpacked parameters and units without shards. */
    fsdp_pool grads;    /* Gradient buffers, shared by the ranks that reduce together. */
    fsdp_pool lanes;    /* Buffers of the all-reduce, shared by replicas. */
    struct fsdp_grad_buffer *pending; /* The posted buffer that is not reduced yet; NULL: none. */
    bool last_micro_step; /* The latest forward with gradients is in the step's last micro-step. */
} fsdp_comm_context;

typedef struct fsdp_param_context {
    char *name;      /* Path of the group's module; "" for the root; "a, b" for several. Owned. */
    uint32_t number; /* The group's number in the model, the same on every rank. */
    uint32_t step;   /* The step under way, counted from 1. */
    fsdp_device *device;
    fsdp_group *group; /* Its ranks share the gradient buffers; NULL: there is only one rank. */
    fsdp_group *shard_group;     /* Each of its ranks has a shard; NULL: there are no shards. */
    fsdp_group *replicate_group; /* Its ranks own the same rows; NULL: there are no replicas. */
    fsdp_fully_shard_options options;
    fsdp_offload_unit *offload; /* Stages this rank's rows in a file; NULL: they stay in memory. */
    fsdp_comm_context *comm;    /* Borrowed from the tree; NULL before the first forward. */
    const fsdp_module *module;  /* The module of the group; the first one if there are several. */
    const fsdp_unit_observer *observer; /* Borrowed; NULL: events are not reported. */
} fsdp_param_context;

/* Return the number of ranks whose gradients are added. */
int fsdp_param_context_world_size(const fsdp_param_context *c);
/* Are all ranks whose gradients are added on one host, so that gradients do not cross a network? */
bool fsdp_param_context_is_on_one_host(const fsdp_param_context *c);
/* Do all ranks of `group` share memory? True if `group` is NULL. */
bool fsdp_ranks_share_memory(const fsdp_group *group);
/* Return one of the groups that have several ranks, for messages and aborts; NULL if there is only
 * one rank. */
fsdp_group *fsdp_param_context_any_group(const fsdp_param_context *c);
/* Record, for error messages, that this rank is in `call` for the param group. If `call` is NULL,
 * record that it is not in any call. */
void fsdp_param_context_set_location(const fsdp_param_context *c, const char *call);
/* Return the phase info of a collective that moves `bytes` of `dtype` in total. */
fsdp_phase_info fsdp_param_context_phase(const fsdp_param_context *c, fsdp_phase_kind kind,
                                         fsdp_dtype dtype, uint64_t bytes);
/* Report an event to the observer. If `group` is NULL, 0 is reported instead of `bytes`. */
void fsdp_param_context_report(const fsdp_param_context *c, fsdp_unit_event event,
                               const fsdp_group *group, uint64_t bytes);
/* Return the pool that has the buffers of unsharded parameters. */
fsdp_pool *fsdp_param_context_pool(const fsdp_param_context *c);
