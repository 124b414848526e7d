/* A simulated network with which tests measure how much of the communication overlaps with
 * computation; see Note [Hooks for tests] in src/base/alloc_testing.h.
 *
 * Each rank has its own simulated clock, which only the test and network_testing.c advance. Nothing
 * sleeps and no real time is measured, so the results do not depend on the load of the machine. A
 * rank records the time of its clock when it ends a phase.
 *
 * When a rank begins a READ phase, its clock advances to the time at which all bytes of the phase
 * have been sent, plus the latency. When a rank begins a WRITE phase, no bytes are sent, and its
 * clock advances to the time at which the last rank ended its READ phase. A clock that already has
 * a later time does not change. The time by which a clock advances is counted as exposed
 * communication.
 *
 * Collectives of one kind are sent one after the other. Collectives of different kinds are sent in
 * parallel, as in FSDP2's streams. */
#pragma once
#include "src/comm/comm.h"

typedef struct fsdp_network {
    int64_t latency_ns;
    double bytes_per_ns; /* bandwidth; 0: unlimited */
    int64_t now_ns;      /* this rank's clock; the test adds the time that computation takes */
    int64_t free_ns[FSDP_KIND_COUNT]; /* for each kind of collective: end of its last transfer */
    int64_t exposed_ns[FSDP_KIND_COUNT];
    uint64_t exposed[FSDP_KIND_COUNT]; /* number of phases for which the clock was advanced */
} fsdp_network;

/* Set this rank's network, which must outlive the group. Groups that are split off later share the
 * network. If `network` is NULL, no network is simulated. */
void fsdp_group_set_network(fsdp_group *group, fsdp_network *network);

/* Called by phase.c. fsdp_network_arrive() is called when a rank begins a phase, after the rank has
 * waited for all peers. fsdp_network_post() is called just before a rank ends a phase. If no
 * network is simulated, both functions have no effect. */
#ifdef FSDP_TESTING
void fsdp_network_arrive(fsdp_shared_buffer *buffer, fsdp_phase phase, const fsdp_phase_info *info);
void fsdp_network_post(fsdp_shared_buffer *buffer);
#else
static inline void fsdp_network_arrive(fsdp_shared_buffer *buffer, fsdp_phase phase,
                                       const fsdp_phase_info *info)
{
    (void)buffer, (void)phase, (void)info;
}
static inline void fsdp_network_post(fsdp_shared_buffer *buffer)
{
    (void)buffer;
}
#endif
