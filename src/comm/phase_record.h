/* What each rank announces about its phases, and the memory in which its peers see it. */
#pragma once
#include <stdatomic.h>

#include "src/comm/group.h"

enum {
    /* How many phases a rank may be ahead of the slowest rank on one buffer. A READ waits for no
     * reader, so without a bound a fast rank could overwrite a record before a slow one has
     * compared it. */
    FSDP_PHASE_RING = 32
};

/* What a rank announces for one phase; equal on all ranks. */
typedef struct fsdp_phase_record {
    fsdp_phase_info info;
    uint16_t phase;      /* fsdp_phase */
    uint16_t collective; /* 1: from collectives.c; `step` may differ and `unit` is a number */
    uint32_t detail;     /* collectives: operation or root */
} fsdp_phase_record;

/* One rank's part of a buffer's protocol. Only that rank writes it, except for the counts that
 * others increment. */
typedef struct fsdp_phase_lane {
    _Alignas(FSDP_COMM_LINE) _Atomic uint64_t ended; /* phases ended; stored with release */
    _Atomic uint64_t begun;                          /* phases whose record is in the ring */
    _Atomic uint32_t word;                           /* futex: low half of `ended` */
    /* Time of the last end of each fsdp_phase, on the clock of network_testing.h. Release builds
     * have this field too, unused, so that both builds have one layout. It fits into the
     * padding. */
    _Atomic int64_t published_ns[2];
    _Alignas(FSDP_COMM_LINE) _Atomic uint32_t waiters;
    _Atomic uint32_t discarding; /* only in the first lane: ranks that have called discard */
    _Alignas(FSDP_COMM_LINE) fsdp_phase_record ring[FSDP_PHASE_RING];
} fsdp_phase_lane;

/* The number of phases that every rank must have ended before this one may begin its next: a place
 * in the ring is free once every rank has ended the phase whose record it holds. */
static inline uint64_t fsdp_phase_room(const fsdp_shared_buffer *buffer)
{
    return buffer->ended < FSDP_PHASE_RING ? 0 : buffer->ended - FSDP_PHASE_RING + 1;
}

/* Bytes of the lanes of a buffer, a multiple of the page size. */
size_t fsdp_phase_lanes_bytes(int world_size);

/* "all_gather of unit 3 (bfloat16, 1024 bytes) in step 5" */
void fsdp_phase_describe(const fsdp_phase_record *record, char *text, size_t size);
/* The newest record of `rank` on this buffer; false if it has begun none. */
bool fsdp_phase_latest(const fsdp_shared_buffer *buffer, int rank, fsdp_phase_record *record);
