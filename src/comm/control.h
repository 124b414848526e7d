/* The control block: memory that all ranks of a world share in addition to their buffers. It
 * contains the abort word, one board per rank, and the scratch buffer of the collectives. A board
 * shows the peers what its rank is doing, what it waits for and why it has failed. In the threads
 * transport, the block is on the heap. In the shm transport, it is in a memfd that the launcher
 * creates. In the mpi transport, each host has a block, in a memfd that the first rank of the host
 * creates. The code is the same for all transports.
 *
 * Each rank writes only its own board. A rank that fails writes the failure to its board. Then it
 * tries to set the abort word to 1 + the number of this board, with a compare-and-exchange. This
 * succeeds only for the first failure, and all ranks report the first failure. If a rank dies
 * while it writes to its board, the abort word is not set, so no peer reads an incomplete failure.
 * After the boards of the ranks, there is one more board, on which the launcher reports ranks that
 * died. */
#pragma once
#include <stdatomic.h>

#include "src/comm/comm.h"

enum {
    FSDP_COMM_PAGE = 4096,
    FSDP_COMM_LINE = 64,
    FSDP_COMM_MAX_RANKS = 4096,
    /* Size of each rank's slot. Larger collectives are sent in chunks. */
    FSDP_SCRATCH_SLOT_BYTES = 1 << 18,
};

/* A location on a board. The rank of the board may write the location while a peer reads it. The
 * peer may then get a mixture of the old and the new location, but every text in the mixture ends
 * with a NUL. */
typedef struct fsdp_comm_place {
    _Atomic uint64_t words[sizeof(fsdp_comm_location) / 8];
} fsdp_comm_place;

typedef enum fsdp_comm_failure_kind {
    FSDP_FAILURE_OF_RANK, /* the message is the rank's own error */
    FSDP_FAILURE_OF_ALL,  /* the message names the ranks that diverged or waited too long */
    FSDP_FAILURE_DIED,    /* the message says how the rank died: "signal 9, Killed" */
    FSDP_FAILURE_STOPPED, /* posted by a peer of a stopped rank; its message is "has not moved
                             for 4.0 s ..." */
} fsdp_comm_failure_kind;

/* One failure. `rank` is the rank that failed. Usually this rank itself has posted the failure, on
 * its own board. In three cases, the failure is on another board. If a rank died, the launcher
 * posts the failure. If a rank is stopped, a peer posts the failure. If fsdp_agree() has returned
 * the failure of a peer, the rank that called fsdp_agree() may post this failure. */
typedef struct fsdp_comm_failure {
    int32_t rank;
    int32_t status; /* an fsdp_status */
    uint32_t kind;  /* fsdp_comm_failure_kind */
    fsdp_comm_location at;
    char message[640];
} fsdp_comm_failure;

/* Describes what a rank waits for: the rank `peer` must have ended `target` phases of the shared
 * buffer number `number`. The waiting rank writes this only after it has waited for longer
 * than one polling interval (wait.c). It then increments `sequence`. When the wait ends, it
 * increments `sequence` again. So `sequence` is odd during the wait. */
typedef struct fsdp_comm_blocked {
    _Atomic uint64_t sequence;
    _Atomic uint64_t target;
    _Atomic uint32_t number;
    _Atomic int32_t peer;
} fsdp_comm_blocked;

typedef struct fsdp_comm_board {
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t joined;
    _Atomic uint32_t left;     /* the rank has left the group and begins no more phases */
    _Atomic uint32_t recorded; /* the rank has posted `failure`; its later failures are ignored */
    /* Incremented twice a second while the rank's process runs (Note [Heartbeat] in heartbeat.h).
     * 0: the heartbeat has not started. */
    _Atomic uint32_t beat;
    fsdp_comm_blocked blocked;
    fsdp_comm_place at;
    fsdp_comm_failure failure;
} fsdp_comm_board;

typedef struct fsdp_comm_control {
    uint64_t magic;
    uint32_t world_size;
    uint32_t cores; /* number of CPUs that all ranks together may use */
    uint64_t bytes; /* size of the whole block, including scratch */
    /* The abort word: 0, or 1 + the number of the board with the first failure. */
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t abort;
    fsdp_comm_board board[]; /* [world_size + 1] */
} fsdp_comm_control;

/* Return the size of the control block in bytes, including its scratch buffer. */
size_t fsdp_comm_control_bytes(int world_size);
/* Return the position of the scratch buffer in the control block. The buffer begins with its phase
 * lanes, and the data follows. */
size_t fsdp_comm_control_scratch_offset(int world_size);
/* Copy the string `from` to `to` [size], and truncate it to fit. NULL is copied as an empty
 * string. */
void fsdp_comm_copy_text(char *to, size_t size, const char *from);

/* Initialize a control block in zero-filled memory that has fsdp_comm_control_bytes(world_size)
 * bytes. */
void fsdp_comm_control_init(fsdp_comm_control *control, int world_size);
/* Check that `control` [bytes] is a control block of this build for `world_size` ranks. If not,
 * return FSDP_ERR_FORMAT. */
FSDP_MUST_CHECK fsdp_status fsdp_comm_control_verify(const fsdp_comm_control *control, size_t bytes,
                                                     int world_size);

/* Post a failure on board number `board`. Return true if no other failure was posted before. All
 * ranks will then report this failure. */
bool fsdp_comm_control_abort(fsdp_comm_control *control, int board,
                             const fsdp_comm_failure *failure);
/* Copy the failure that was posted first to *failure. Return false if no failure was posted yet. */
bool fsdp_comm_control_failure(const fsdp_comm_control *control, fsdp_comm_failure *failure);
static inline bool fsdp_comm_control_aborted(const fsdp_comm_control *control)
{
    return atomic_load_explicit(&control->abort, memory_order_acquire) != 0;
}
void fsdp_comm_place_set(fsdp_comm_place *place, const fsdp_comm_location *at);
fsdp_comm_location fsdp_comm_place_get(const fsdp_comm_place *place);
/* Write a text such as " in step 5, unit encoder.block.0, backward" to `text`. The text is empty if
 * nothing is known. */
void fsdp_comm_location_describe(const fsdp_comm_location *at, char *text, size_t size);
/* Write one line with the rank, step, unit, call and message of the failure. Parts that are unknown
 * are left out. */
void fsdp_comm_failure_describe(const fsdp_comm_failure *failure, char *text, size_t size);
/* Return FSDP_ERR_COMM. The message is that of the first failure, with its rank, step, unit and
 * call. */
fsdp_status fsdp_comm_control_error(const fsdp_comm_control *control);
