/* A network that tests imagine, to see what overlaps with computing and what does not; see
 * Note [Hooks for tests] in src/base/alloc_testing.h.
 *
 * Each rank has a clock of its own, which nothing but the test and this file advances; nobody
 * sleeps and nothing is timed, so a busy machine changes no number. What a rank publishes carries
 * the time of its clock. Whoever reads it waits until the bytes have left and the latency has
 * passed: its clock advances to that moment, and by how much is counted as exposed. What was
 * published long enough ago costs nothing. Collectives of one kind leave one after the other, those
 * of another kind beside them, as in FSDP2's streams. Giving a buffer back to its writers moves no
 * bytes. */
#pragma once
#include "src/comm/comm.h"

typedef struct fsdp_network {
    int64_t latency_ns;
    double bytes_per_ns;              /* 0: as many as there are */
    int64_t now_ns;                   /* this rank's clock: the test adds what it calls computing */
    int64_t free_ns[FSDP_KIND_COUNT]; /* when the last collective's bytes have left */
    int64_t exposed_ns[FSDP_KIND_COUNT];
    uint64_t exposed[FSDP_KIND_COUNT]; /* phases that had to wait */
} fsdp_network;

/* Each rank calls it for itself, with a network of its own that outlives the group and those split
 * off later, which share it. NULL: none. */
void fsdp_group_set_network(fsdp_group *group, fsdp_network *network);

/* For phase.c: after a phase has waited for all peers, and before it publishes its end. No effect
 * without a network. */
#ifdef FSDP_TESTING
void fsdp_network_arrive(fsdp_shared_buffer *buffer, fsdp_phase phase, const fsdp_phase_info *info);
void fsdp_network_publish(fsdp_shared_buffer *buffer);
#else
static inline void fsdp_network_arrive(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                       const fsdp_phase_info *info)
{
    (void)buffer, (void)phase, (void)info;
}
static inline void fsdp_network_publish(fsdp_shared_buffer *buffer)
{
    (void)buffer;
}
#endif
