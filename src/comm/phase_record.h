/* What each rank announces about its phases, and the memory from which peers read it. */
#pragma once
#include <stdatomic.h>

#include "src/comm/group.h"

enum {
    /* The number of phases by which a rank may be ahead of the slowest rank on one buffer. A READ
     * does not wait for other readers, so without this limit a fast rank could overwrite a record
     * before a slow rank has compared it. */
    FSDP_PHASE_RING = 32
};

/* What a rank announces for one phase; the same on all ranks. */
typedef struct fsdp_phase_record {
    fsdp_phase_info info;
    uint16_t phase;      /* fsdp_phase */
    uint16_t collective; /* 1: info.unit is the number of a collective or buffer; info.step is not
                            compared */
    uint32_t detail;     /* for a collective: the operation or the root */
} fsdp_phase_record;

/* One rank's part of the protocol state of a buffer. Only this rank writes it, except for `waiters`
 * and `discarding`. */
typedef struct fsdp_phase_lane {
    _Alignas(FSDP_COMM_LINE) _Atomic uint64_t ended; /* phases ended; stored with release */
    _Atomic uint64_t begun; /* phases announced: their records are in the ring */
    _Atomic uint32_t word;  /* lower half of `ended`; peers wait on this futex */
    /* The times at which the rank last ended a WRITE (item 0) and a READ (item 1), on the clock of
     * network_testing.h. Release builds do not use this field, but contain it, so that the layout
     * is the same in all builds. It fits into the padding. */
    _Atomic int64_t published_ns[2];
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t waiters;
    _Atomic uint32_t discarding; /* in the first lane: number of ranks that have called discard */
    _Alignas(FSDP_COMM_LINE) fsdp_phase_record ring[FSDP_PHASE_RING];
} fsdp_phase_lane;

/* Return the number of phases that every rank must have ended before this rank may begin its next
 * phase. The record of the next phase overwrites the record of the phase FSDP_PHASE_RING phases
 * earlier. Once a rank has ended that earlier phase, it no longer needs the old record. */
static inline uint64_t fsdp_phase_room(const fsdp_shared_buffer *buffer)
{
    return buffer->ended < FSDP_PHASE_RING ? 0 : buffer->ended - FSDP_PHASE_RING + 1;
}

/* Return the bytes of all lanes of a buffer, rounded up to a multiple of the page size. */
size_t fsdp_phase_lanes_bytes(int world_size);

/* Write a text such as "all_gather of unit 3 (bfloat16, 1024 bytes, read) in step 5". */
void fsdp_phase_describe(const fsdp_phase_record *record, char *text, size_t size);
/* Copy the newest record of `rank` on this buffer. Return false if the rank has not begun a
 * phase. */
bool fsdp_phase_latest(const fsdp_shared_buffer *buffer, int rank, fsdp_phase_record *record);
