/* Process groups inside the library: shared buffers with phases, and the classic collectives.
 *
 * Note [Phases]. Everything that peers read (float32 master weights, a bfloat16 copy, a pool
 * buffer, a gradient buffer) is in a shared buffer. On each buffer, every rank of the group runs
 * the same phases in the same order. In a WRITE phase, the rank writes its own part of the buffer.
 * In a READ phase, it may read the whole buffer. A READ begins when every rank has ended the last
 * WRITE. A WRITE begins when every rank has ended every earlier phase. The state is one 64-bit
 * counter per rank and buffer: the number of phases of the buffer that the rank has ended.
 * fsdp_phase_begin() waits for the counters of the peers. fsdp_phase_end() stores the rank's own
 * counter with release semantics and wakes waiting peers. There is no other lock.
 *
 * Every phase has an fsdp_phase_info, which is compared with the peers' infos for the same phase
 * number. If the infos of two ranks differ, all ranks return an error that says what these two
 * ranks do ("rank 1 begins ... of unit 3, but rank 0 began ... of unit 4"). A rank that fails posts
 * its failure (rank, step, unit, call, message) and sets the abort word. Every wait polls the abort
 * word, so the peers fail at once with FSDP_ERR_COMM and this message. */
#pragma once
#include <fsdp/comm.h>

typedef struct fsdp_shared_buffer fsdp_shared_buffer;

typedef enum fsdp_phase {
    FSDP_PHASE_WRITE,
    FSDP_PHASE_READ
} fsdp_phase;

/* What a phase is for; the same on all ranks. */
typedef struct fsdp_phase_info {
    uint32_t unit; /* number of the FSDP unit, of the collective, or of the shared buffer */
    uint32_t step;
    uint16_t kind;  /* fsdp_comm_kind */
    uint16_t dtype; /* fsdp_dtype */
    uint64_t bytes; /* logical bytes of the whole collective */
} fsdp_phase_info;

typedef fsdp_comm_kind fsdp_phase_kind;

/* Create a buffer with `bytes` of zero-filled, page-aligned memory that all ranks map. Collective:
 * every rank creates the same buffers in the same order. In a world of size 1, a buffer is plain
 * memory, and phases cost nothing. Returns FSDP_ERR_UNSUPPORTED on all ranks if the group has
 * already created 65535 buffers. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes,
                                                      fsdp_shared_buffer **buffer);
/* Unmap this rank's view. Not collective. Accepts NULL. */
void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer);
void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer);
/* Return pages of the buffer to the system. The data consists of world_size equal parts, and the
 * first `keep` bytes of each part are kept. So if each rank writes one part, every rank loses the
 * same number of pages. `keep` must be a multiple of the page size. The discarded data is undefined
 * until the next WRITE; the buffer itself remains. Collective; call this between phases. It does
 * not wait for readers: each rank calls it after its last read, and the rank that calls it last
 * discards the pages. If the ranks are threads, no memory is returned. No effect if nothing has
 * been written since the last discard and that discard kept at most `keep` bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep);

/* Begin or end a phase: see Note [Phases]. fsdp_phase_begin() returns FSDP_ERR_STATE if the last
 * phase of the buffer has not ended. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_begin(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                             const fsdp_phase_info *info);
void fsdp_phase_end(fsdp_shared_buffer *buffer); /* no effect if fsdp_phase_begin() failed */

/* Return the live counters of the group. fsdp_group_get_counters() returns a copy of them. */
const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group);
/* Count a collective that FSDP2 would perform but that has no phase in this transport. */
void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes);

/* Where a rank is in its program; reported with its failure. */
typedef struct fsdp_comm_location {
    _Alignas(8) uint32_t step;
    char unit[64], call[32]; /* "" where unknown */
} fsdp_comm_location;
/* Record where this rank is. An abort or a divergence reports this location. src/fsdp and src/train
 * call this function, which is cheap. */
void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call);
/* Return the location that was last recorded with fsdp_group_at(). */
fsdp_comm_location fsdp_group_location(const fsdp_group *group);

/* Post this rank's last error as an error of all ranks, for example a divergence. The message must
 * already name the ranks. All ranks then report the failure that was posted first, which may be a
 * different one. Return the status that the caller must return. */
FSDP_MUST_CHECK fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status);
/* Return the error of the failure that was posted first; FSDP_OK if there is none, or if `group` is
 * NULL. A failure that a rank posts before it ends a phase is visible to all ranks that have waited
 * for that phase. */
FSDP_MUST_CHECK fsdp_status fsdp_group_check(const fsdp_group *group);
/* Is a peer gone, because it has died, was stopped or has left the group? A peer that has only
 * failed or diverged is not gone. Returns false if `group` is NULL. */
bool fsdp_group_has_lost_peer(const fsdp_group *group);

/* Set the number of threads that each rank computes with. Waits spin only if there is a core for
 * every thread of every rank. */
void fsdp_group_set_threads(fsdp_group *group, int threads);
