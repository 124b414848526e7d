/* Process groups inside the library: shared buffers with phases, and the classic collectives.
 *
 * Note [Phases]. Everything that peers read (an fp32 master, a bf16 copy, a pool buffer, gradient
 * slots) is a shared buffer. On it every rank of the group runs the same phases in the same order:
 * WRITE (the rank writes its own part) and READ (it may read all of it). READ begins when every
 * rank has ended the last WRITE; WRITE begins when every rank has ended every earlier phase. One
 * 64-bit counter per rank and buffer says so: the number of phases this rank has ended. Begin
 * waits, end publishes with release and wakes. There is no other lock.
 *
 * Every phase carries fsdp_phase_info; it is compared with the peers' for the same phase number,
 * and a difference is an error on all ranks that names both ("rank 1 is at unit 3 ..., rank 0 at
 * unit 4"). A rank that fails posts an abort word (rank, step, unit, call, message), which every
 * wait polls: the others fail at once with FSDP_ERR_COMM and that message. */
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

/* Collective: every rank creates the same buffers in the same order. `bytes` of zero-filled memory
 * that all ranks see (page aligned). World size 1: plain memory, phases cost nothing.
 * FSDP_ERR_UNSUPPORTED, on all ranks, once the group has made 65535. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_create(fsdp_group *group, size_t bytes,
                                                      fsdp_shared_buffer **buffer);
/* Not collective: unmaps this rank's view. Accepts NULL. */
void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer);
void *fsdp_shared_buffer_data(fsdp_shared_buffer *buffer);
/* Let the system have the memory of the data but for the first `keep` bytes, a multiple of the
 * page, of each of as many equal parts as there are ranks: a rank that writes one part so has as
 * many pages to touch as any. What goes is undefined until the next WRITE; the buffer stays.
 * Collective, between phases, and waits for no reader: the last rank to call it, when the others
 * have read for the last time, is the one that does it. Where ranks are threads, the heap keeps
 * what it has. No effect if nothing was written since the last time that as little was kept. */
FSDP_MUST_CHECK fsdp_status fsdp_shared_buffer_discard(fsdp_shared_buffer *buffer, size_t keep);

/* See Note [Phases]. A second begin before the end of the first is FSDP_ERR_STATE. */
FSDP_MUST_CHECK fsdp_status fsdp_phase_begin(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                             const fsdp_phase_info *info);
void fsdp_phase_end(fsdp_shared_buffer *buffer); /* no effect if none is open: begin has failed */

/* fsdp_group_get_counters() without a copy: what a group counts, as it goes. */
const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group);
/* Count a collective that FSDP2 would have made and this transport has no phase for. */
void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes);

/* Where a rank is, told with its failure. */
typedef struct fsdp_comm_location {
    _Alignas(8) uint32_t step;
    char unit[64], call[32]; /* "" where unknown */
} fsdp_comm_location;
/* Where this rank is, told with an abort or a divergence. Cheap; called by fsdp and train. */
void fsdp_group_at(fsdp_group *group, uint32_t step, const char *unit, const char *call);
/* What was said last. */
fsdp_comm_location fsdp_group_location(const fsdp_group *group);

/* This rank's last error is one of all ranks, and names them (they diverged): it is posted, and all
 * give it, or the one that came first. Returns what this rank is to return. */
FSDP_MUST_CHECK fsdp_status fsdp_group_fail(fsdp_group *group, fsdp_status status);
/* The failure that a rank has posted; FSDP_OK if there is none. What a rank posts before it ends a
 * phase, those who have waited for that phase see. NULL: FSDP_OK. */
FSDP_MUST_CHECK fsdp_status fsdp_group_check(const fsdp_group *group);
/* Will a peer do nothing any more: has it died, been stopped, or left? NULL: no. A peer that failed
 * or diverged is still there. */
bool fsdp_group_lacks_peer(const fsdp_group *group);

/* Threads that each rank computes with: waits spin only if all ranks' threads have a core each. */
void fsdp_group_set_threads(fsdp_group *group, int threads);
