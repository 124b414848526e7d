/* The internals of a process group, and the table of functions that each transport implements. */
#pragma once
#include "src/comm/control.h"
#include "src/comm/heartbeat.h"

/* One rank's view of memory that all ranks share. */
typedef struct fsdp_comm_memory {
    void *data; /* page aligned, zero-filled at creation */
    size_t bytes;
    void *handle; /* private to the transport */
} fsdp_comm_memory;

/* What rank 0 sends to the other ranks through the scratch buffer when it has created memory. The
 * others answer with offers in which only `status` and `message` are set. */
typedef struct fsdp_comm_offer {
    int32_t status; /* result of creating or mapping the memory */
    char message[256];
    void *pointer; /* threads: address of the memory in this process */
    void *handle;
    uint64_t number; /* shm: number of the message that carries the descriptor */
} fsdp_comm_offer;

/* This rank as the environment describes it. `rendezvous` is the value of FSDP_RENDEZVOUS_ENV
 * (rendezvous.h), or NULL. */
typedef struct fsdp_comm_world {
    int rank, world_size, local_rank, local_world_size;
    const char *rendezvous;
} fsdp_comm_world;

/* A transport: how a process group shares memory. Everything else (phases, collectives, abort) is
 * common code that uses this memory. Callers have checked all arguments. */
typedef struct fsdp_comm_ops {
    const char *name;
    bool without_peers; /* for plans: collectives are counted, and their results are made from this
                           rank's input */
    /* Join the job that the environment describes. NULL: ranks cannot join a job with this
     * transport. */
    fsdp_status (*open)(const fsdp_comm_world *world, fsdp_group **group);
    /* Called on rank 0 in a WRITE phase: create memory, fill in the offer, send what the peers
     * need. */
    fsdp_status (*memory_create)(fsdp_group *group, size_t bytes, fsdp_comm_memory *memory,
                                 fsdp_comm_offer *offer);
    /* Called on the other ranks in the READ phase that follows: map the memory of the offer. */
    fsdp_status (*memory_attach)(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory);
    /* Called when all ranks have mapped the memory. NULL: nothing is needed. */
    void (*memory_agreed)(fsdp_comm_memory *memory);
    void (*memory_release)(fsdp_comm_memory *memory); /* release this rank's view */
    /* Return pages to the system. The caller ensures that no rank reads these pages before they are
     * written again. NULL: the pages are kept. */
    void (*memory_discard)(void *pages, size_t bytes);
    /* Set up what memory_create and memory_attach need in `group`, which was split off from
     * `parent` and whose rank, world_size and members are set. `group` is NULL on ranks that are
     * not in a new group of several ranks. Collective over the parent. NULL: nothing is needed. */
    fsdp_status (*connect)(fsdp_group *parent, fsdp_group *group);
    void (*close)(fsdp_group *group); /* frees group->impl; also frees the control block unless the
                                         group was split off */
} fsdp_comm_ops;

extern const fsdp_comm_ops fsdp_comm_local, fsdp_comm_threads, fsdp_comm_shm;

/* A buffer's number consists of its group's id and of a count in the lower FSDP_BUFFER_BITS bits.
 * Numbers are never reused. */
enum {
    FSDP_BUFFER_BITS = 16
};

struct fsdp_shared_buffer {
    fsdp_group *group;
    fsdp_comm_memory memory;
    struct fsdp_phase_lane *lanes; /* [world_size]; NULL in a world of one */
    void *data;
    size_t bytes;
    uint32_t number; /* unique in the world; 0: the scratch of the world's collectives */
    bool open;       /* a phase has begun and not ended */
    fsdp_phase phase;
    uint64_t ended;             /* phases this rank has ended */
    uint64_t written;           /* value of `ended` after the last WRITE */
    uint64_t discarded;         /* value of `written` at the last discard */
    uint64_t discard_ended;     /* value of `ended` after the last discard */
    size_t kept;                /* bytes of each part that the last discard kept */
    fsdp_shared_buffer *next;   /* in group->buffers */
    fsdp_shared_buffer **place; /* the pointer that points to this buffer */
};

struct fsdp_group {
    const fsdp_comm_ops *ops;
    void *impl; /* private to the transport */
    int rank, world_size, local_rank, local_world_size;
    int refs; /* one for the owner and one per buffer; buffers may outlive the owner's reference */
    /* NULL unless the group was split off (split.c). `members` has the world rank of each rank of
     * the group. `home` is the parent's buffer that contains the group's scratch. */
    int *members;
    fsdp_shared_buffer *home;
    uint32_t id, n_split;        /* id: 0 for the world; n_split: number of splits so far */
    fsdp_comm_control *control;  /* NULL in a world of one */
    fsdp_heartbeat *heartbeat;   /* owned by the world's group; NULL if ranks are threads */
    fsdp_shared_buffer *buffers; /* list of live buffers, including scratch */
    fsdp_shared_buffer scratch;
    uint32_t next_buffer, next_collective;
    int64_t timeout_ns;
    double stall_s;    /* a peer's process may be stopped for this many seconds */
    int64_t spin_ns;   /* how long a wait spins; 0 if there are more threads than cores */
    int futex_private; /* FUTEX_PRIVATE_FLAG if ranks are threads, else 0 */
    fsdp_comm_counters counters;
    int culprit;      /* 1 + the world rank whose failure the last fsdp_agree() returned; 0: none */
    bool has_network; /* phases take as long as on a network; only test hooks set it */
    struct fsdp_group_hooks *hooks; /* see group_testing.h; NULL in release builds */
};

/* Return the world rank of rank `rank` of the group. Boards and messages use world ranks.
 * fsdp_group_rank_of_world() is the inverse and returns -1 if the world rank is not in the
 * group. */
static inline int fsdp_group_world_rank(const fsdp_group *group, int rank)
{
    return group->members ? group->members[rank] : rank;
}
static inline int fsdp_group_rank_of_world(const fsdp_group *group, int world_rank)
{
    for (int r = 0; group->members && r < group->world_size; r++)
        if (group->members[r] == world_rank)
            return r;
    return !group->members && world_rank >= 0 && world_rank < group->world_size ? world_rank : -1;
}
/* Do phases of the group take as long as they would on a network? */
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

/* Post a failure with the message in fsdp_last_error(). If `kind` is FSDP_FAILURE_OF_ALL, append
 * the location of this rank, which detected the failure. Return true if it is the first failure of
 * the world. */
bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind);
/* Post that world rank `accused` is stopped and has been silent for `silent_s` seconds. Return the
 * error that all ranks report. */
fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s);

void fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer);
