/* The inside of a process group, and the table by which transports differ. */
#pragma once
#include "src/comm/control.h"
#include "src/comm/heartbeat.h"

/* Memory that all ranks see, as one rank sees it. */
typedef struct fsdp_comm_memory {
    void *data; /* page aligned, zero-filled at creation */
    size_t bytes;
    void *handle; /* the transport's */
} fsdp_comm_memory;

/* What rank 0 tells the others about memory it has created: passed through the scratch buffer. */
typedef struct fsdp_comm_offer {
    int32_t status; /* of the creation */
    char message[256];
    void *pointer; /* threads: its memory and handle in this process */
    void *handle;
    uint64_t number; /* shm: which message carries the descriptor */
} fsdp_comm_offer;

/* What the environment says about this rank; rendezvous: see rendezvous.h, NULL without. */
typedef struct fsdp_comm_world {
    int rank, world_size, local_rank, local_world_size;
    const char *rendezvous;
} fsdp_comm_world;

/* How one process group comes to share memory; everything else (phases, collectives, abort) is the
 * same code over that memory. process_group.c is the only caller; it has checked all arguments. */
typedef struct fsdp_comm_ops {
    const char *name;
    bool without_peers; /* a plan's: collectives are counted and give back what they were given */
    /* Join the job that the environment describes. NULL: not joined that way. */
    fsdp_status (*open)(const fsdp_comm_world *world, fsdp_group **group);
    /* Rank 0, in a WRITE phase: make memory, fill the offer's pointers, send what peers need. */
    fsdp_status (*memory_create)(fsdp_group *group, size_t bytes, fsdp_comm_memory *memory,
                                 fsdp_comm_offer *offer);
    /* The other ranks, in the READ phase that follows. */
    fsdp_status (*memory_attach)(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory);
    void (*memory_agreed)(fsdp_comm_memory *memory);  /* all ranks hold it; NULL: nothing */
    void (*memory_release)(fsdp_comm_memory *memory); /* one rank's view */
    /* Give pages to the system that nobody reads before they are written; NULL: they are kept. */
    void (*memory_discard)(void *pages, size_t bytes);
    /* Give the new group, whose ranks and members are set, what its memory_create and _attach need.
     * Collective over the parent; NULL: nothing. */
    fsdp_status (*connect)(fsdp_group *parent, fsdp_group *group);
    void (*close)(fsdp_group *group); /* frees group->impl and, unless it was split off, control */
} fsdp_comm_ops;

extern const fsdp_comm_ops fsdp_comm_local, fsdp_comm_threads, fsdp_comm_shm;

/* A buffer's number is its group's id and a count of so many bits, which is never used again. */
enum {
    FSDP_BUFFER_BITS = 16
};

struct fsdp_shared_buffer {
    fsdp_group *group;
    fsdp_comm_memory memory;
    struct fsdp_phase_lane *lanes; /* [world_size], at the head of memory; NULL in a world of one */
    void *data;
    size_t bytes;
    uint32_t number; /* counts creations; 0 is the collectives' scratch */
    bool open;       /* between begin and end */
    fsdp_phase phase;
    uint64_t ended;             /* phases this rank has ended */
    uint64_t written;           /* `ended` just after the last WRITE */
    uint64_t discarded;         /* `written` when its data was discarded last */
    uint64_t discard_ended;     /* `ended` after that */
    size_t kept;                /* what each part kept then */
    fsdp_shared_buffer *next;   /* in group->buffers */
    fsdp_shared_buffer **place; /* what points at this one */
};

struct fsdp_group {
    const fsdp_comm_ops *ops;
    void *impl; /* the transport's */
    int rank, world_size, local_rank, local_world_size;
    int refs; /* the owner's and one per buffer: a buffer may outlive the group */
    /* Of a group that was split off (split.c): ranks of the world by rank of this group, the memory
     * of its scratch, and who holds it. The world's own: NULL. */
    int *members;
    fsdp_shared_buffer *home;
    uint32_t id, n_split;        /* 0 for the world; how many were split off */
    fsdp_comm_control *control;  /* NULL in a world of one */
    fsdp_heartbeat *heartbeat;   /* the world's; NULL where ranks are threads */
    fsdp_shared_buffer *buffers; /* alive, scratch included */
    fsdp_shared_buffer scratch;
    uint32_t next_buffer, next_collective;
    int64_t timeout_ns;
    double stall_s;    /* how long a peer's process may be stopped */
    int64_t spin_ns;   /* 0 where ranks * threads exceed the cores */
    int futex_private; /* FUTEX_PRIVATE_FLAG where ranks are threads, else 0 */
    fsdp_comm_counters counters;
    int culprit;      /* 1 + the rank whose failure the last fsdp_agree() told; 0: it told none */
    bool has_network; /* phases take as long as a network does; only hooks of tests set it so far */
    struct fsdp_group_hooks *hooks; /* see group_testing.h; NULL in the release */
};

/* The world's rank, which boards and messages go by, of a rank of the group; and back: -1 if it is
 * none of its ranks. */
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
/* Do phases take as long as a network would? */
static inline bool fsdp_group_has_network(const fsdp_group *group)
{
    return group && group->has_network;
}
/* The board that this rank writes. */
static inline fsdp_comm_board *fsdp_group_board(const fsdp_group *group)
{
    return &group->control->board[fsdp_group_world_rank(group, group->rank)];
}

/* Fill what all transports have in common; the caller has set control, ranks and impl. */
FSDP_MUST_CHECK fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops);
void fsdp_group_release(fsdp_group *group);

/* Post a failure of this rank whose message stands in fsdp_last_error(). One of all ranks
 * (FSDP_FAILURE_OF_ALL) gets the place where this rank found it appended. Returns whether it was
 * the first of all. */
bool fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind);
/* Post that the world's rank `accused` is stopped. Returns the error that all ranks give. */
fsdp_status fsdp_group_accuse(fsdp_group *group, int accused, double silent_s);

void fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer);
