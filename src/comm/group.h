/* The internals of a process group, and the table of functions that each transport implements. */
#pragma once
#include "src/comm/control.h"
#include "src/comm/heartbeat.h"
#include "src/tensor/shared_memory.h"

/* One rank's view of memory that all ranks share. */
typedef struct fsdp_comm_memory {
    void *data; /* page aligned, zero-filled at creation */
    size_t bytes;
    void *handle; /* private to the transport */
} fsdp_comm_memory;

/* A message in the scratch buffer about the memory of a new buffer. The first rank of each host
 * creates the memory, and its offer describes the memory to the other ranks of the host. They
 * answer with offers in which only `status` and `message` are set. If each rank also creates memory
 * on its own card (Note [Several cards] in cards/exchange.h), every rank sets `on_device` in its
 * offer. */
typedef struct fsdp_comm_offer {
    /* The result of creating the memory. In the answer to an offer: the result of mapping it. */
    int32_t status;
    char message[256];
    void *pointer; /* set by the threads transport: address of the memory */
    void *handle;
    uint64_t number; /* set by the shm transport: number of the message that carries the memfd */
    fsdp_shared_memory_handle on_device; /* set if the buffer's data is on a device */
} fsdp_comm_offer;

/* The memory of a buffer on the card of another rank. */
typedef struct fsdp_comm_mirror {
    fsdp_shared_memory_handle handle;
    void *data; /* NULL: this rank is not attached to the memory */
} fsdp_comm_mirror;

/* The data of a shared buffer on a device. `ops` is NULL if the data is in host memory. */
typedef struct fsdp_comm_device_memory {
    const fsdp_shared_memory_ops *ops;
    const fsdp_device *device;
    fsdp_shared_memory_handle handle;
    void *data;
    bool is_owner; /* this rank created the memory */
    /* [world_size] The memories of the buffer on the cards of the other ranks. NULL if this rank
     * does not attach to them. */
    fsdp_comm_mirror *mirrors;
} fsdp_comm_device_memory;

/* This rank and its world, as the environment describes them. `rendezvous` is the value of
 * FSDP_RENDEZVOUS_ENV (rendezvous.h), or NULL. */
typedef struct fsdp_comm_world {
    int rank, world_size, local_rank, local_world_size;
    const char *rendezvous;
} fsdp_comm_world;

/* A transport: how a process group shares memory. Everything else (phases, collectives, abort) is
 * common code that uses this memory. Callers have checked all arguments. */
typedef struct fsdp_comm_ops {
    const char *name;
    /* True only for the group of a plan (plan_group.h), in which no other rank exists: collectives
     * are counted, and their results are computed from this rank's input alone. */
    bool without_peers;
    /* Join the job that `world` describes. NULL: ranks cannot join a job with this transport. */
    fsdp_status (*open)(const fsdp_comm_world *world, fsdp_group **group);
    /* Called on the first rank of each host in a WRITE phase: create memory, fill in the offer, and
     * send what the peers on this host need to map it. At least `least` of the `bytes` will be
     * written. If `least` is smaller, the system may provide pages when they are first written. */
    fsdp_status (*memory_create)(fsdp_group *group, size_t bytes, size_t least,
                                 fsdp_comm_memory *memory, fsdp_comm_offer *offer);
    /* Called on the other ranks of the host in the READ phase after that WRITE phase: map the
     * memory that the offer describes. */
    fsdp_status (*memory_attach)(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory);
    /* Called on each rank after all ranks have mapped the memory. NULL: nothing is needed. */
    void (*memory_agreed)(fsdp_comm_memory *memory);
    void (*memory_release)(fsdp_comm_memory *memory); /* release this rank's view */
    /* Return pages to the system. The caller must ensure that no rank reads these pages before they
     * are written again. NULL: the pages are kept. */
    void (*memory_discard)(void *pages, size_t bytes);
    /* The functions from buffer_attach to host_name are only for groups whose ranks are on several
     * hosts: see Note [Several hosts] in mpi/transport_mpi.c. In transports for a single host, they
     * are NULL. */
    /* buffer_attach is called after a buffer was added to group->buffers, and buffer_detach before
     * it is removed. The buffer's number, lanes, data and size are set. buffer_attach returns
     * FSDP_ERR_NOMEM if memory runs out. */
    fsdp_status (*buffer_attach)(fsdp_shared_buffer *buffer);
    void (*buffer_detach)(fsdp_shared_buffer *buffer);
    /* Called when this rank has announced phase number buffer->ended and has to wait for a peer. */
    void (*phase_announced)(fsdp_shared_buffer *buffer);
    /* Called when this rank has ended phase number buffer->ended - 1. Send what this rank has
     * written in the phase. */
    void (*phase_ended)(fsdp_shared_buffer *buffer);
    /* Wait until all sends of this rank from the buffer are complete, or until a failure is posted.
     */
    void (*buffer_flush)(fsdp_shared_buffer *buffer);
    /* Return the name of host number `host` of the world, for messages. The first host is number 0.
     */
    const char *(*host_name)(int host);
    /* Called after a split, by all ranks of `parent`. Set up what memory_create and memory_attach
     * need in the new group `group`, whose rank, world_size and members are already set. `group` is
     * NULL on a rank that is in no new group, or alone in its new group. The function pointer is
     * NULL if the transport has nothing to set up. */
    fsdp_status (*connect)(fsdp_group *parent, fsdp_group *group);
    /* Free group->impl. For the world's group, also free the control block. */
    void (*close)(fsdp_group *group);
} fsdp_comm_ops;

extern const fsdp_comm_ops fsdp_comm_local, fsdp_comm_threads, fsdp_comm_shm;

/* Bytes that this rank has written in a WRITE phase: see fsdp_phase_wrote_for(). */
typedef struct fsdp_written_range {
    int reader; /* the rank that reads the bytes; FSDP_ALL_READERS: every rank */
    size_t offset, bytes;
    size_t to; /* the offset at which the reader reads the bytes */
} fsdp_written_range;

/* A buffer's number has the id of its group in the upper bits, and a count in the lower
 * FSDP_BUFFER_BITS bits. Numbers are never reused. */
enum {
    FSDP_BUFFER_BITS = 16
};

struct fsdp_shared_buffer {
    fsdp_group *group;
    fsdp_comm_memory memory;
    struct fsdp_phase_lane *lanes; /* [world_size]; NULL in a world of one */
    fsdp_comm_device_memory on_device;
    void *data;
    size_t bytes;
    uint32_t number;  /* unique in the world; 0: the scratch of the world's collectives */
    bool open;        /* this rank has begun a phase and not ended it */
    fsdp_phase phase; /* kind of the phase in which this rank is; WRITE also for a REWRITE phase */
    uint64_t ended;   /* number of phases that this rank has ended */
    uint64_t written; /* the value that `ended` had after the last WRITE phase */
    uint64_t discarded;     /* the value that `written` had at the last discard */
    uint64_t discard_ended; /* the value that `ended` had after the last discard */
    size_t kept;            /* bytes of each part that the last discard kept */
    void *exchange_memory;  /* the host memory that `exchange` has asked for; NULL: none */
    uint64_t received;      /* the value of `written` when `exchange` last received bytes */
    /* What this rank has written in the open WRITE phase. Empty if all ranks of the group share
     * the memory of the buffer. */
    fsdp_written_range *ranges;
    size_t n_ranges, cap_ranges;
    bool range_lost;            /* memory ran out for `ranges`, and the failure was posted */
    fsdp_shared_buffer *next;   /* in group->buffers */
    fsdp_shared_buffer **place; /* address of the pointer to this buffer: &group->buffers, or &next
                                   of the previous buffer */
};

struct fsdp_group {
    const fsdp_comm_ops *ops;
    void *impl; /* private to the transport */
    int rank, world_size, local_rank, local_world_size;
    /* World ranks [h * ranks_per_host, (h + 1) * ranks_per_host) are on host h. */
    int ranks_per_host;
    int refs; /* one for the owner, and one per buffer: buffers may outlive the owner's reference */
    /* [world_size] For a group that was split off (split.c): the world rank of each rank of the
     * group. NULL for the world's group. */
    int *members;
    /* For a group that was split off: the buffer of its parent that contains the group's scratch
     * buffer. NULL for the world's group. */
    fsdp_shared_buffer *home;
    /* id is 0 for the world's group. n_split is the number of times that this group has been
     * split. */
    uint32_t id, n_split;
    fsdp_comm_control *control;  /* NULL in a world of one and in a plan */
    fsdp_heartbeat *heartbeat;   /* owned by the world's group; NULL if ranks are threads */
    fsdp_shared_buffer *buffers; /* list of live buffers, including `scratch` */
    /* Buffers that this rank has destroyed, but whose device memory peers may still use. */
    fsdp_shared_buffer *detached;
    fsdp_shared_buffer scratch;
    uint32_t next_buffer, next_collective;
    /* The number of ranks of the group that share the memory of one card: world_size, or 1 if each
     * rank has its own card. 0: fsdp_group_find_cards() was not called yet. */
    int card_ranks;
    /* How bytes get from card to card. NULL if the ranks are not on different cards. */
    const struct fsdp_card_exchange *exchange;
    void *exchange_state; /* private to `exchange` */
    int64_t timeout_ns;
    double stall_s;    /* limit on how long the process of a peer may be stopped; 0: none */
    int64_t spin_ns;   /* how long a wait spins; 0 if there are more threads than cores */
    int futex_private; /* FUTEX_PRIVATE_FLAG if ranks are threads, else 0 */
    fsdp_comm_counters counters;
    /* If the last fsdp_agree() returned the failure of a rank: 1 + the world rank of that rank.
     * Otherwise 0. */
    int culprit;
    bool has_network;               /* tests simulate a network (network_testing.h) */
    struct fsdp_group_hooks *hooks; /* see group_testing.h; NULL in release builds */
};

/* Return the world rank of rank `rank` of the group. Boards and messages use world ranks. */
static inline int fsdp_group_world_rank(const fsdp_group *group, int rank)
{
    return group->members ? group->members[rank] : rank;
}
/* Return the rank in the group of a world rank, or -1 if that rank is not in the group. */
static inline int fsdp_group_rank_of_world(const fsdp_group *group, int world_rank)
{
    for (int r = 0; group->members && r < group->world_size; r++)
        if (group->members[r] == world_rank)
            return r;
    return !group->members && world_rank >= 0 && world_rank < group->world_size ? world_rank : -1;
}
/* Return the number of the host of rank `rank` of the group. */
static inline int fsdp_group_host(const fsdp_group *group, int rank)
{
    return fsdp_group_world_rank(group, rank) / group->ranks_per_host;
}
static inline bool fsdp_group_is_here(const fsdp_group *group, int rank)
{
    return fsdp_group_host(group, rank) == fsdp_group_host(group, group->rank);
}
/* Return the first rank of the group that is on this rank's host. It creates shared memory. */
static inline int fsdp_group_local_root(const fsdp_group *group)
{
    int r = 0;
    while (!fsdp_group_is_here(group, r))
        r++;
    return r;
}
static inline bool fsdp_group_spans_hosts(const fsdp_group *group)
{
    return group->local_world_size < group->world_size;
}
/* Return true if each rank of the buffer's group has its own memory for the buffer's data, on its
 * own card. */
static inline bool fsdp_shared_buffer_has_mirrors(const fsdp_shared_buffer *buffer)
{
    return buffer->on_device.ops && buffer->group->exchange;
}
/* Return true if tests simulate a network for the group (network_testing.h). */
static inline bool fsdp_group_has_network(const fsdp_group *group)
{
    return group && group->has_network;
}
/* Return the board that this rank writes. */
static inline fsdp_comm_board *fsdp_group_board(const fsdp_group *group)
{
    return &group->control->board[fsdp_group_world_rank(group, group->rank)];
}

/* Initialize the fields that all transports share. The caller has set `control`, `impl`, and the
 * ranks and world sizes. */
FSDP_MUST_CHECK fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops);
void fsdp_group_release(fsdp_group *group);

/* Post a failure of this rank with the message in fsdp_last_error(). If `kind` is
 * FSDP_FAILURE_OF_ALL, append the location of this rank. Return true if no other failure was posted
 * before. */
bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind);
/* Post a failure: the process of world rank `accused` seems to be stopped, because it has been
 * silent for `silent_s` seconds. No effect if another failure was posted before. Return the error
 * of the first failure, which all ranks report. */
fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s);
/* If the process of world rank `peer` seems to be stopped, or its host cannot be reached, return
 * true. Set *stopped to the rank that the error message must name, and *silent_s to the time for
 * which that rank has been silent. */
bool fsdp_group_is_stopped(const fsdp_group *group, int peer, int *stopped, double *silent_s);

FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer);
/* Detach this rank from the buffer's memories on devices, and free the memory that this rank
 * created. Return false, and do not free it, if peers still use it. The caller must then call this
 * again. */
bool fsdp_shared_buffer_release_device(fsdp_shared_buffer *buffer);
/* Free the buffer and this rank's view of its host memory. */
void fsdp_shared_buffer_free(fsdp_shared_buffer *buffer);
/* Free the device memory of destroyed buffers that no peer uses any more. If `last` is true, the
 * group is about to be freed: wait up to two seconds for peers, and do not free memory that they
 * still use after that. */
void fsdp_shared_buffers_sweep(fsdp_group *group, bool last);
