/* The stress test of the phase protocol, as a body for ranks of any transport. */
#pragma once
#include <fsdp/comm.h>

typedef struct stress_options {
    uint64_t seed;
    int phases;
    uint32_t max_delay_us; /* maximum delay before each phase; each rank draws its own */
    bool skip_writer_wait; /* break the protocol, so that violations must be found */
} stress_options;

/* Runs the phases and returns FSDP_ERR_STATE "N violations ..." if a read saw anything but exactly
 * the last version of any rank's part. The result is the same on all ranks, since the counts are
 * summed. */
fsdp_status comm_stress(fsdp_group *group, void *options);

/* An fsdp_rank_fn with stress_options: runs `phases` collectives of drawn kinds, sizes and roots,
 * alternately in the world and in halves of it, and checks each result. */
FSDP_MUST_CHECK fsdp_status comm_random_collectives(fsdp_group *group, void *options);
