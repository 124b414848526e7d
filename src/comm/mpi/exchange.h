/* The messages between hosts, and the state of the thread that exchanges them. Only progress.c,
 * outgoing.c and incoming.c include this. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "src/comm/mpi/progress.h"
#include "src/comm/phase_record.h"

enum {
    FSDP_MPI_INLINE_RANGES = 16,
    FSDP_MPI_PIECE_BYTES =
        4 << 20, /* most bytes of one message; longer ranges are sent in pieces */
    FSDP_MPI_HEADER_TAG = 0,
    FSDP_MPI_LAST_TAG = 32767, /* the highest tag that every MPI library supports */
    /* A range list longer than this is an error: no buffer has so many parameters and readers. */
    FSDP_MPI_MOST_RANGES = 1 << 22
};

typedef enum fsdp_mpi_kind {
    FSDP_MPI_ANNOUNCED, /* the sender has begun phase `count` of a buffer and waits */
    FSDP_MPI_ENDED,     /* the sender has ended `count` phases of a buffer; its bytes follow */
    FSDP_MPI_BOARD,     /* what the sender is doing, a few times a second */
    FSDP_MPI_FAILURE,   /* a failure on the sender's host */
    FSDP_MPI_LEFT,      /* the sender has left the world; this is its last message */
} fsdp_mpi_kind;

typedef struct fsdp_mpi_range {
    uint64_t offset, bytes;
} fsdp_mpi_range;

typedef struct fsdp_mpi_board {
    uint32_t beat, joined, number;
    int32_t peer;
    uint64_t sequence, target; /* fields of fsdp_comm_blocked, as are `number` and `peer` */
    fsdp_comm_location at;
} fsdp_mpi_board;

typedef struct fsdp_mpi_failure {
    int32_t board; /* number of the board on which the failure was posted */
    fsdp_comm_failure failure;
} fsdp_mpi_failure;

/* A header. It has the tag FSDP_MPI_HEADER_TAG, so headers of one rank arrive in the order in which
 * they were sent. If there are more ranges than a header can hold, a message with the whole list of
 * ranges follows. Then the bytes of the ranges follow, in pieces. These later messages have the MPI
 * tag that is in the header's field `tag`. */
typedef struct fsdp_mpi_message {
    uint32_t kind;   /* fsdp_mpi_kind */
    int32_t source;  /* world rank of the sender */
    uint32_t buffer; /* number of the buffer */
    int32_t rank;    /* the sender's rank in the buffer's group */
    uint32_t tag, n_ranges;
    uint64_t count;
    fsdp_phase_record record;
    union {
        fsdp_mpi_range ranges[FSDP_MPI_INLINE_RANGES];
        fsdp_mpi_board board;
        fsdp_mpi_failure failure;
    };
} fsdp_mpi_message;

/* A buffer that this rank has. */
typedef struct fsdp_mpi_entry {
    /* The buffer. NULL after a detach that has given up waiting. Messages of the buffer
     * are then neither sent nor shown. The thread of the program changes this field only while it
     * holds the mutex fsdp_mpi_progress.round. */
    fsdp_shared_buffer *buffer;
    _Atomic int sending,
        receiving; /* number of sends and of receives that use the buffer's memory */
} fsdp_mpi_entry;

/* The number of the newest buffer of a group. A message for a buffer with a larger number is early:
 * this rank has yet to create the buffer. A message for any other buffer that does not exist is
 * late. */
typedef struct fsdp_mpi_newest {
    uint32_t group, number;
} fsdp_mpi_newest;

typedef struct fsdp_mpi_outgoing fsdp_mpi_outgoing;
typedef struct fsdp_mpi_incoming fsdp_mpi_incoming;

struct fsdp_mpi_progress {
    fsdp_mpi_world world;
    fsdp_comm_control *control;
    pthread_t thread;
    pid_t pid;             /* the process in which the thread runs */
    pthread_mutex_t round; /* the thread holds this mutex while it looks at buffers */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Protected by `lock`. */
    fsdp_mpi_outgoing *queue, **queue_end;
    fsdp_mpi_entry **entries;
    size_t n_entries, cap_entries;
    fsdp_mpi_newest *newest;
    size_t n_newest, cap_newest;
    bool is_stopping, may_run;
    int64_t stop_ns; /* the time at which the thread gives up waiting for other hosts */
    _Atomic bool leaks, has_ended;
    /* Used by the thread only. */
    fsdp_mpi_outgoing *sending, **sending_end;
    fsdp_mpi_incoming *receiving, **receiving_end;
    fsdp_mpi_message inbox;
    fsdp_mpi_handle inbox_request;
    /* is_broken: MPI has failed, and is not called any more. is_failing: memory has run out, or an
     * invalid message has arrived, and only this failure is sent. */
    bool has_inbox, is_broken, is_failing, sent_failure, sent_left;
    int n_left;   /* number of hosts on which this rank's partner has left the world */
    int n_failed; /* number of hosts on which this rank's partner has reported a failure, its own or
                     that of another rank */
    uint32_t next_tag;
    int64_t next_board_ns;
    bool was_active; /* in this round, a message has arrived, or a send or receive has completed */
    void *sink; /* [FSDP_MPI_PIECE_BYTES] memory for received bytes of buffers that do not exist any
                   more */
};

/* Return the world rank on `host` with which this rank exchanges messages that concern the whole
 * world. */
static inline int fsdp_mpi_partner(const fsdp_mpi_world *world, int host)
{
    return host * world->ranks_per_host + world->local_rank;
}

/* Post a failure of this rank with the message in fsdp_last_error(). */
void fsdp_mpi_post_failure(const fsdp_mpi_progress *p, fsdp_status status);
/* Post a failure of this rank, because memory has run out or an invalid message has arrived. The
 * thread then only sends this failure to the other hosts. */
void fsdp_mpi_give_up(fsdp_mpi_progress *p, fsdp_status status);
/* Post a failure of this rank, because a call of MPI has failed. The thread then does not call MPI
 * any more. */
void fsdp_mpi_break(fsdp_mpi_progress *p, const char *call, int code);

/* ---- outgoing.c ---- */

/* Create the messages that say what this rank has done on a buffer: one for each other host that
 * has ranks of the buffer's group. `count` is the number of the phase that this rank has begun
 * (FSDP_MPI_ANNOUNCED), or the number of phases that it has ended (FSDP_MPI_ENDED). Set *list to
 * these messages. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_create_messages(const fsdp_mpi_world *world,
                                                     fsdp_mpi_entry *entry, fsdp_mpi_kind kind,
                                                     uint64_t count, fsdp_mpi_outgoing **list);
/* Append `list` to the list of outgoing messages that ends at *end, and move *end to the new end.
 */
void fsdp_mpi_append(fsdp_mpi_outgoing ***end, fsdp_mpi_outgoing *list);
/* Send the messages in `queued`, and free the messages whose sends are complete. */
void fsdp_mpi_advance_outgoing(fsdp_mpi_progress *p, fsdp_mpi_outgoing *queued);
/* Create and send a message without a buffer to this rank's partner on every other host. */
void fsdp_mpi_notify_hosts(fsdp_mpi_progress *p, const fsdp_mpi_message *message);
void fsdp_mpi_drop_outgoing(fsdp_mpi_outgoing *list);

/* ---- incoming.c ---- */

/* Take the headers that have arrived, receive the bytes, and show the ranks of this host what ranks
 * on other hosts have done. */
void fsdp_mpi_advance_incoming(fsdp_mpi_progress *p);
/* Stop receiving headers. Return false if MPI does not complete this. */
bool fsdp_mpi_close_inbox(fsdp_mpi_progress *p);
