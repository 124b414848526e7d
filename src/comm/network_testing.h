/* A simulated network with which tests measure what overlaps with computation; see Note [Hooks for
 * tests] in src/base/alloc_testing.h.
 *
 * Each rank has a clock of its own, which only the test and this file advance. Nothing sleeps and
 * nothing is timed, so the load of the machine changes no number. The end of a phase records the
 * time of the rank's clock. A reader waits until the bytes have been sent and the latency has
 * passed: its clock advances to that time, and the difference is counted as exposed. Data that was
 * written long enough ago costs nothing. Collectives of one kind are sent one after the other;
 * those of different kinds are sent in parallel, as in FSDP2's streams. Returning a buffer to its
 * writers moves no bytes. */
#pragma once
#include "src/comm/comm.h"

typedef struct fsdp_network {
    int64_t latency_ns;
    double bytes_per_ns; /* bandwidth; 0: unlimited */
    int64_t now_ns;      /* this rank's clock; the test adds the time of its computation */
    int64_t free_ns[FSDP_KIND_COUNT]; /* when the last collective has been sent */
    int64_t exposed_ns[FSDP_KIND_COUNT];
    uint64_t exposed[FSDP_KIND_COUNT]; /* number of phases that had to wait */
} fsdp_network;

/* Each rank sets its own network, which must outlive the group. Groups that are split off later
 * share it. NULL: none. */
void fsdp_group_set_network(fsdp_group *group, fsdp_network *network);

/* Called by phase.c after a phase has waited for all peers, and before a phase ends. No effect
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
