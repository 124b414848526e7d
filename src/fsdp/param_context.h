/* What the parameters of a param group share: device, process groups, options, and the name and
 * number for messages and phases. The param group, its gradient buffer and its parameters read it;
 * only the param group writes it.
 *
 * Note [Replicas]. Over a mesh (replicate, shard) parameters are sharded among the ranks of
 * dimension 1. Each row of the mesh has its own masters, copies and gradient buffers. A rank's sum
 * for its own rows is the partial sum of its mesh row. The ranks of dimension 0 hold the same rows.
 * They add up their partial sums through a buffer with a lane for each of them (the all-reduce), so
 * all of them have equal sums. */
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
    fsdp_pool whole;    /* Private buffers, for parameters of groups that are not sharded. */
    fsdp_pool grads;    /* Gradient buffers, shared by the ranks that reduce together. */
    fsdp_pool lanes;    /* Buffers of the all-reduce, shared by replicas. */
    struct fsdp_grad_buffer *pending; /* Posted and not reduced yet; NULL: none. */
    bool last_micro_step;             /* The latest forward with gradients is the step's last. */
} fsdp_comm_context;

typedef struct fsdp_param_context {
    char *name;      /* Path of the group's module, "" for the root; "a, b" for several. Owned. */
    uint32_t number; /* The group's place in the model, the same on every rank. */
    uint32_t step;   /* The step under way, counted from 1. */
    fsdp_device *device;
    fsdp_group *group;           /* Gradient buffers are shared by it; NULL: one rank. */
    fsdp_group *shard_group;     /* Parameters are sharded over it; NULL: whole on every rank. */
    fsdp_group *replicate_group; /* Its ranks hold the same rows; NULL: no replicas. */
    fsdp_fully_shard_options options;
    fsdp_offload_unit *offload;         /* Stages own rows in a file; NULL: they stay in memory. */
    fsdp_comm_context *comm;            /* Borrowed from the tree; NULL before the first forward. */
    const fsdp_module *module;          /* The module of the group; the first one of several. */
    const fsdp_unit_observer *observer; /* Borrowed; NULL: events are not reported. */
} fsdp_param_context;

/* Number of ranks that gradients come from. */
int fsdp_param_context_world_size(const fsdp_param_context *c);
/* Are these ranks all on one host, so that gradients cross no network? */
bool fsdp_param_context_is_on_one_host(const fsdp_param_context *c);
/* Do all ranks of `group` share memory? NULL: yes. */
bool fsdp_ranks_share_memory(const fsdp_group *group);
/* A group of more than one rank, for messages and aborts; NULL: there is only one rank. */
fsdp_group *fsdp_param_context_any_group(const fsdp_param_context *c);
/* Record for error messages that this rank is in `call` of the param group; NULL: it is in none. */
void fsdp_param_context_set_location(const fsdp_param_context *c, const char *call);
/* The phase info of a collective that moves `bytes` of `dtype` in total. */
fsdp_phase_info fsdp_param_context_phase(const fsdp_param_context *c, fsdp_phase_kind kind,
                                         fsdp_dtype dtype, uint64_t bytes);
/* Report an event to the observer. `bytes` are reported as 0 if `group` is NULL. */
void fsdp_param_context_report(const fsdp_param_context *c, fsdp_unit_event event,
                               const fsdp_group *group, uint64_t bytes);
/* The pool that unsharded parameters are taken from. */
fsdp_pool *fsdp_param_context_pool(const fsdp_param_context *c);
