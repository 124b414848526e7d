/* The internals of a process group, and the table of functions in which transports differ. */
#pragma once
#include "src/comm/control.h"
#include "src/comm/heartbeat.h"

/* One rank's view of memory that all ranks share. */
typedef struct fsdp_comm_memory {
    void *data; /* page aligned, zero-filled at creation */
    size_t bytes;
    void *handle; /* private to the transport */
} fsdp_comm_memory;

/* What rank 0 passes to the other ranks about memory that it has created. It is passed through the
 * scratch buffer. */
typedef struct fsdp_comm_offer {
    int32_t status; /* result of the creation */
    char message[256];
    void *pointer; /* threads: address of the memory in this process */
    void *handle;
    uint64_t number; /* shm: number of the message that carries the descriptor */
} fsdp_comm_offer;

/* This rank as the environment describes it. rendezvous: see rendezvous.h; NULL if not set. */
typedef struct fsdp_comm_world {
    int rank, world_size, local_rank, local_world_size;
    const char *rendezvous;
} fsdp_comm_world;

/* How a process group shares memory. Everything else (phases, collectives, abort) is common code on
 * that memory. The only caller is process_group.c, which has checked all arguments. */
typedef struct fsdp_comm_ops {
    const char *name;
    bool without_peers; /* a plan's: collectives are counted and return own input */
    /* Join the job that the environment describes. NULL: this transport is not joined that way. */
    fsdp_status (*open)(const fsdp_comm_world *world, fsdp_group **group);
    /* Called on rank 0 in a WRITE phase: create memory, fill the pointers of the offer, send what
     * the peers need. */
    fsdp_status (*memory_create)(fsdp_group *group, size_t bytes, fsdp_comm_memory *memory,
                                 fsdp_comm_offer *offer);
    /* Called on the other ranks in the READ phase that follows. */
    fsdp_status (*memory_attach)(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory);
    void (*memory_agreed)(fsdp_comm_memory *memory);  /* all ranks hold it now; may be NULL */
    void (*memory_release)(fsdp_comm_memory *memory); /* release this rank's view */
    /* Return pages to the system that no rank reads before they are written again. NULL: they are
     * kept. */
    void (*memory_discard)(void *pages, size_t bytes);
    /* Set up what memory_create and memory_attach of the new group need; its ranks and members are
     * set. Collective over the parent. NULL: nothing is needed. */
    fsdp_status (*connect)(fsdp_group *parent, fsdp_group *group);
    void (*close)(fsdp_group *group); /* frees group->impl; also frees the control block unless the
                                         group was split off */
} fsdp_comm_ops;

extern const fsdp_comm_ops fsdp_comm_local, fsdp_comm_threads, fsdp_comm_shm;

/* A buffer's number is its group's id followed by a count of so many bits. Numbers are never
 * reused. */
enum {
    FSDP_BUFFER_BITS = 16
};

struct fsdp_shared_buffer {
    fsdp_group *group;
    fsdp_comm_memory memory;
    struct fsdp_phase_lane
        *lanes; /* [world_size], at the start of memory; NULL in a world of one */
    void *data;
    size_t bytes;
    uint32_t number; /* unique in the world; 0 is the scratch of its collectives */
    bool open;       /* a phase has begun and not ended */
    fsdp_phase phase;
    uint64_t ended;             /* phases this rank has ended */
    uint64_t written;           /* `ended` just after the last WRITE */
    uint64_t discarded;         /* `written` at the last discard */
    uint64_t discard_ended;     /* `ended` just after the last discard */
    size_t kept;                /* bytes of each part that the last discard kept */
    fsdp_shared_buffer *next;   /* in group->buffers */
    fsdp_shared_buffer **place; /* the pointer that points to this buffer */
};

struct fsdp_group {
    const fsdp_comm_ops *ops;
    void *impl; /* private to the transport */
    int rank, world_size, local_rank, local_world_size;
    int refs; /* one for the owner and one per buffer: a buffer may outlive the group */
    /* Only in a group that was split off (split.c), NULL in the world: the rank in the world of
     * each rank of this group. */
    int *members;
    fsdp_shared_buffer *home;
    uint32_t id, n_split;       /* id: 0 for the world; n_split: groups split off this one so far */
    fsdp_comm_control *control; /* NULL in a world of one */
    fsdp_heartbeat *heartbeat;  /* owned by the world; NULL where ranks are threads */
    fsdp_shared_buffer *buffers; /* list of live buffers, including scratch */
    fsdp_shared_buffer scratch;
    uint32_t next_buffer, next_collective;
    int64_t timeout_ns;
    double stall_s;    /* seconds that a peer's process may be stopped */
    int64_t spin_ns;   /* 0 where ranks * threads exceed the cores */
    int futex_private; /* FUTEX_PRIVATE_FLAG where ranks are threads, else 0 */
    fsdp_comm_counters counters;
    int culprit;      /* 1 + the rank whose failure the last fsdp_agree() returned; 0: none */
    bool has_network; /* phases take as long as on a network; only test hooks set it */
    struct fsdp_group_hooks *hooks; /* see group_testing.h; NULL in release builds */
};

/* The rank in the world of a rank of the group; boards and messages use it. The second function is
 * the inverse and returns -1 if the group does not have that rank. */
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
/* Whether phases take as long as they would on a network. */
static inline bool fsdp_group_has_network(const fsdp_group *group)
{
    return group && group->has_network;
}
/* The board that this rank writes. */
static inline fsdp_comm_board *fsdp_group_board(const fsdp_group *group)
{
    return &group->control->board[fsdp_group_world_rank(group, group->rank)];
}

/* Initialize the fields that all transports share. The caller has set control, ranks and impl. */
FSDP_MUST_CHECK fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops);
void fsdp_group_release(fsdp_group *group);

/* Post a failure of this rank whose message is in fsdp_last_error(). If it is a failure of all
 * ranks (FSDP_FAILURE_OF_ALL), the location where this rank found it is appended. Returns whether
 * it was the first failure posted. */
bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind);
/* Post that rank `accused` of the world is stopped. Returns the error that all ranks report. */
fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s);

void fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer);
