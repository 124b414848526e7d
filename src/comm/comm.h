/* Process groups inside the library: shared buffers with phases, and the classic collectives.
 *
 * Note [Phases]. Everything that peers read (float32 master weights, a bfloat16 copy, a pool
 * buffer, a gradient buffer) is in a shared buffer. On each buffer, every rank of the group runs
 * the same phases in the same order: WRITE (the rank writes its own part) and READ (it may read all
 * of it). READ begins when every rank has ended the last WRITE. WRITE begins when every rank has
 * ended every earlier phase. The state is one 64-bit counter per rank and buffer: the number of
 * phases that this rank has ended. Begin waits for the counters of the peers. End stores the own
 * counter with release semantics and wakes waiting peers. There is no other lock.
 *
 * Every phase carries an fsdp_phase_info, which is compared with that of the peers for the same
 * phase number. A difference is an error on all ranks that names both ("rank 1 is at unit 3 ...,
 * rank 0 at unit 4"). A rank that fails posts an abort word (rank, step, unit, call, message).
 * Every wait polls it, so the other ranks fail at once with FSDP_ERR_COMM and that message. */
#pragma once
#include <fsdp/comm.h>

typedef struct fsdp_shared_buffer fsdp_shared_buffer;

typedef enum fsdp_phase {
    FSDP_PHASE_WRITE,
    FSDP_PHASE_READ
} fsdp_phase;

/* What a phase is for; equal on all ranks. */
typedef struct fsdp_phase_info {
    uint32_t unit; /* number of the FSDP unit, or of the collective */
    uint32_t step;
    uint16_t kind;  /* fsdp_comm_kind */
    uint16_t dtype; /* fsdp_dtype */
    uint64_t bytes; /* logical bytes of the whole collective */
} fsdp_phase_info;

typedef fsdp_comm_kind fsdp_phase_kind;

/* Collective: every rank creates the same buffers in the same order. A buffer has `bytes` of
 * zero-filled, page-aligned memory that all ranks see. In a world of size 1 it is plain memory, and
 * phases cost nothing. FSDP_ERR_UNSUPPORTED on all ranks once the group has created 65535
 * buffers. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes,
                                                      fsdp_shared_buffer **buffer);
/* Not collective: unmaps this rank's view. Accepts NULL. */
void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer);
void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer);
/* Return the memory of the data to the system, except for the first `keep` bytes (a multiple of the
 * page size) of each of world_size equal parts. Keeping the same amount of each part gives every
 * rank that writes one part the same number of pages to touch. The discarded data is undefined
 * until the next WRITE; the buffer itself remains. Collective, between phases, and does not wait
 * for readers: the last rank that calls it, after the others have finished reading, discards the
 * pages. Where ranks are threads, the heap keeps the memory. No effect if nothing was written since
 * the last discard that kept as little. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep);

/* See Note [Phases]. A second begin before the end of the first is FSDP_ERR_STATE. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_begin(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                             const fsdp_phase_info *info);
void fsdp_phase_end(fsdp_shared_buffer *buffer); /* no effect if begin failed */

/* fsdp_group_get_counters() without a copy: the live counters of the group. */
const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group);
/* Count a collective that FSDP2 would perform but that has no phase in this transport. */
void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes);

/* Where a rank is; reported with its failure. */
typedef struct fsdp_comm_location {
    _Alignas(8) uint32_t step;
    char unit[64], call[32]; /* "" where unknown */
} fsdp_comm_location;
/* Set where this rank is, which an abort or a divergence reports. Cheap; called by fsdp and
 * train. */
void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call);
/* The location that fsdp_group_at() set last. */
fsdp_comm_location fsdp_group_location(const fsdp_group *group);

/* Post this rank's last error as an error of all ranks whose message already names them (they
 * diverged). All ranks then report it, or the failure that was posted first. Returns the status
 * that this rank must return. */
FSDP_MUST_CHECK fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status);
/* The failure that a rank has posted; FSDP_OK if there is none. A failure that a rank posts before
 * it ends a phase is visible to all ranks that have waited for that phase. NULL: FSDP_OK. */
FSDP_MUST_CHECK fsdp_status fsdp_group_check(const fsdp_group *group);
/* Whether a peer will do nothing more because it has died, was stopped, or left. A peer that failed
 * or diverged is still there. NULL: false. */
bool fsdp_group_lacks_peer(const fsdp_group *group);

/* Set the number of threads that each rank computes with. Waits spin only if the threads of all
 * ranks have a core each. */
void fsdp_group_set_threads(fsdp_group *group, int threads);
