/* The records in which each rank announces its phases, and the shared memory that contains them. */
#pragma once
#include <stdatomic.h>

#include "src/comm/group.h"

enum {
    /* Number of records that a rank keeps, and so the number of phases by which it may be ahead of
     * the slowest rank on one buffer. A READ phase does not wait for other readers. So without this
     * limit, a fast rank could overwrite a record before a slow rank has compared it. */
    FSDP_PHASE_RING = 32
};

/* What a rank announces about one phase. It must be equal on all ranks. */
typedef struct fsdp_phase_record {
    fsdp_phase_info info;
    uint16_t phase; /* fsdp_phase */
    /* 1 if info.unit is the number of a collective or of a buffer; 0 if info.unit is the number of
     * a unit. Ranks compare info.step only if this field is 0. */
    uint16_t collective;
    uint32_t detail; /* for a reduction: the operation; for a broadcast: the root; for fsdp_gather()
                        and fsdp_exchange_pieces(): a constant of collectives.c; else 0 */
} fsdp_phase_record;

/* One rank's part of the phase protocol of a buffer. Only this rank writes it, except for
 * `waiters`, `discarding` and `attached`. */
typedef struct fsdp_phase_lane {
    /* Number of phases that the rank has ended; stored with release. */
    _Alignas(FSDP_COMM_LINE) _Atomic uint64_t ended;
    _Atomic uint64_t begun; /* number of phases announced; their records are in the ring */
    _Atomic uint32_t word;  /* lower half of `ended`; peers wait on this futex */
    /* For the simulated network (network_testing.h): the times at which the rank last ended a WRITE
     * phase (item 0) and a READ phase (item 1). Release builds do not use this field, but have it,
     * so that all builds have the same layout. */
    _Atomic int64_t published_ns[2];
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t waiters;
    /* Only in the first lane: number of ranks that have begun the current
     * fsdp_shared_buffer_discard(). The last rank sets it to 0. */
    _Atomic uint32_t discarding;
    /* Number of ranks that are attached to device memory of the buffer, without the rank that
     * created the memory. If each rank has a mirror on its own card, each lane counts the ranks
     * that are attached to the mirror of its rank. Otherwise only the first lane is used. */
    _Atomic uint32_t attached;
    _Alignas(FSDP_COMM_LINE) fsdp_phase_record ring[FSDP_PHASE_RING];
} fsdp_phase_lane;

/* Return how many phases every rank must have ended before this rank may begin its next phase. The
 * ring has FSDP_PHASE_RING records. So the record of the next phase replaces the record of an old
 * phase, FSDP_PHASE_RING phases before it. A peer has compared the old record when it has ended the
 * old phase. */
static inline uint64_t fsdp_phase_room(const fsdp_shared_buffer *buffer)
{
    return buffer->ended < FSDP_PHASE_RING ? 0 : buffer->ended - FSDP_PHASE_RING + 1;
}

/* Return the size in bytes of all lanes of a buffer, rounded up to a multiple of the page size. */
size_t fsdp_phase_lanes_bytes(int world_size);

/* Write a text such as "all_gather of unit 3 (bfloat16, 1024 bytes, read) in step 5". */
void fsdp_phase_describe(const fsdp_phase_record *record, char *text, size_t size);
/* Get a copy of the record of the newest phase that `rank` has announced on the buffer. Return
 * false if there is none. */
bool fsdp_phase_latest(const fsdp_shared_buffer *buffer, int rank, fsdp_phase_record *record);
