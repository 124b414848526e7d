/* The inside of a process group, and the table by which transports differ. */
#pragma once
#include "src/comm/control.h"

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
    /* Join the job that the environment describes. NULL: not joined that way. */
    fsdp_status (*open)(const fsdp_comm_world *world, fsdp_group **group);
    /* Rank 0, in a WRITE phase: make memory, fill the offer's pointers, send what peers need. */
    fsdp_status (*memory_create)(fsdp_group *group, size_t bytes, fsdp_comm_memory *memory,
                                 fsdp_comm_offer *offer);
    /* The other ranks, in the READ phase that follows. */
    fsdp_status (*memory_attach)(fsdp_group *group, size_t bytes, const fsdp_comm_offer *offer,
                                 fsdp_comm_memory *memory);
    void (*memory_release)(fsdp_comm_memory *memory); /* one rank's view */
    void (*close)(fsdp_group *group);                 /* frees group->impl and group->control */
} fsdp_comm_ops;

extern const fsdp_comm_ops fsdp_comm_local, fsdp_comm_threads, fsdp_comm_shm;

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
    fsdp_shared_buffer *next;   /* in group->buffers */
    fsdp_shared_buffer **place; /* what points at this one */
};

struct fsdp_group {
    const fsdp_comm_ops *ops;
    void *impl; /* the transport's */
    int rank, world_size, local_rank, local_world_size;
    int refs;                   /* the owner's and one per buffer: a buffer may outlive the group */
    fsdp_comm_control *control; /* NULL in a world of one */
    fsdp_shared_buffer *buffers; /* alive, scratch included */
    fsdp_shared_buffer scratch;
    uint32_t next_buffer, next_collective;
    int64_t timeout_ns;
    int64_t spin_ns;   /* 0 where ranks * threads exceed the cores */
    int futex_private; /* FUTEX_PRIVATE_FLAG where ranks are threads, else 0 */
    fsdp_comm_counters counters;
    fsdp_comm_location at; /* of a world of one; else the board's is used */
    int culprit; /* 1 + the rank whose failure the last fsdp_agree() told; 0: it told none */
    uint64_t delay_seed, delay_count;
    uint32_t delay_max_us;
    bool test_skip_writer_wait;
};

/* Fill what all transports have in common; the caller has set control, ranks and impl. */
FSDP_MUST_CHECK fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops);
void fsdp_group_release(fsdp_group *group);

/* Post a failure of this rank whose message stands in fsdp_last_error(). One of all ranks
 * (FSDP_FAILURE_OF_ALL) gets the place where this rank found it appended. */
void fsdp_group_post(fsdp_group *group, fsdp_status status, fsdp_comm_failure_kind kind);

void fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer);
