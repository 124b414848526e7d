/* The control block: what the ranks of one group on one host share in addition to their buffers. It
 * contains the abort word, one board per rank, and then the scratch buffer of the collectives. In
 * the threads transport, the block is on the heap. In the shm transport, it is in a memfd that the
 * launcher creates. The code is the same for both transports.
 *
 * Each rank writes only its own board. It first writes a failure to the board. Then a single
 * compare-and-exchange of the abort word makes this the failure that all ranks report. So if a rank
 * dies while it writes, its peers do not read an incomplete failure. After the boards of the ranks,
 * there is one more board, on which the launcher reports ranks that died. */
#pragma once
#include <stdatomic.h>

#include "src/comm/comm.h"

enum {
    FSDP_COMM_PAGE = 4096,
    FSDP_COMM_LINE = 64,
    FSDP_COMM_MAX_RANKS = 1024,
    FSDP_SCRATCH_SLOT_BYTES = 1 << 18, /* per rank; larger collectives are cut into chunks */
};

/* A location on a board. Peers may read it while its rank writes it. They may then get a mixture of
 * two locations, but the texts in it always end with a NUL. */
typedef struct fsdp_comm_place {
    _Atomic uint64_t words[sizeof(fsdp_comm_location) / 8];
} fsdp_comm_place;

typedef enum fsdp_comm_failure_kind {
    FSDP_FAILURE_OF_RANK, /* the message is the rank's own error */
    FSDP_FAILURE_OF_ALL,  /* the message already names the ranks: divergence, timeout */
    FSDP_FAILURE_DIED,    /* the message says how the rank died: "signal 9, Killed" */
    FSDP_FAILURE_STOPPED, /* posted by a peer: "has not moved for 4.0 s" */
} fsdp_comm_failure_kind;

/* One failure. `rank` is the rank that failed, which need not be the one that wrote this board: the
 * launcher's board names a rank that died, and a peer's board may name a rank that is stopped. */
typedef struct fsdp_comm_failure {
    int32_t rank;
    int32_t status; /* fsdp_status of `rank` */
    uint32_t kind;  /* fsdp_comm_failure_kind */
    fsdp_comm_location at;
    char message[640];
} fsdp_comm_failure;

/* A wait that has lasted longer than one polling interval (wait.c): the rank of the board waits
 * until `peer` has ended `target` phases of buffer `number`. `sequence` is odd during the wait and
 * changes with every wait. */
typedef struct fsdp_comm_blocked {
    _Atomic uint64_t sequence;
    _Atomic uint64_t target;
    _Atomic uint32_t number;
    _Atomic int32_t peer;
} fsdp_comm_blocked;

typedef struct fsdp_comm_board {
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t joined;
    _Atomic uint32_t left;     /* the rank has left the group and begins no more phases */
    _Atomic uint32_t recorded; /* `failure` is in use, and later failures of the rank are ignored */
    _Atomic uint32_t beat;     /* increases while the rank's process runs; 0: not started */
    fsdp_comm_blocked blocked;
    fsdp_comm_place at;
    fsdp_comm_failure failure;
} fsdp_comm_board;

typedef struct fsdp_comm_control {
    uint64_t magic;
    uint32_t world_size;
    uint32_t cores; /* available to all ranks together */
    uint64_t bytes; /* size of the whole block, including scratch */
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t
        abort;               /* 0, or 1 + the number of the board with the first failure */
    fsdp_comm_board board[]; /* [world_size + 1] */
} fsdp_comm_control;

/* Return the size of the whole block in bytes. fsdp_comm_control_scratch_offset() returns where in
 * the block the scratch buffer begins. This buffer consists of the phase lanes followed by the
 * data. */
size_t fsdp_comm_control_bytes(int world_size);
size_t fsdp_comm_control_scratch_offset(int world_size);
/* Copy the string `from` to `to` [size], and truncate it to fit. NULL is copied as an empty
 * string. */
void fsdp_comm_copy_text(char *to, size_t size, const char *from);

/* Initialize a control block in zero-filled memory of fsdp_comm_control_bytes(). */
void fsdp_comm_control_init(fsdp_comm_control *control, int world_size);
/* Return FSDP_ERR_FORMAT unless `control` [bytes] is a control block of this build and world
 * size. */
FSDP_MUST_CHECK fsdp_status fsdp_comm_control_verify(const fsdp_comm_control *control, size_t bytes,
                                                     int world_size);

/* Post a failure on board `board`. Return true if it is the first failure of the world, which all
 * ranks will report. */
bool fsdp_comm_control_abort(fsdp_comm_control *control, int board,
                             const fsdp_comm_failure *failure);
/* Copy the failure that was posted first. Return false if there is none yet. */
bool fsdp_comm_control_failure(const fsdp_comm_control *control, fsdp_comm_failure *failure);
static inline bool fsdp_comm_control_aborted(const fsdp_comm_control *control)
{
    return atomic_load_explicit(&control->abort, memory_order_acquire) != 0;
}
void fsdp_comm_place_set(fsdp_comm_place *place, const fsdp_comm_location *at);
fsdp_comm_location fsdp_comm_place_get(const fsdp_comm_place *place);
/* Write a text such as " in step 5, unit encoder.block.0, backward", or an empty text if nothing is
 * known. */
void fsdp_comm_location_describe(const fsdp_comm_location *at, char *text, size_t size);
/* Write one line that names rank, step, unit and call, leaving out those that are unknown. */
void fsdp_comm_failure_describe(const fsdp_comm_failure *failure, char *text, size_t size);
/* Return FSDP_ERR_COMM, with a message that names rank, step, unit and call of the first
 * failure. */
fsdp_status fsdp_comm_control_error(const fsdp_comm_control *control);
