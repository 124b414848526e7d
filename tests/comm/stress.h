/* The stress test of the phase protocol, as a body for ranks of any transport. */
#pragma once
#include <fsdp/comm.h>

typedef struct stress_options {
    uint64_t seed;
    int phases;
    uint32_t max_delay_us; /* before each phase, drawn by each rank for itself */
    bool skip_writer_wait; /* break the protocol: violations must then be found */
} stress_options;

/* Runs the phases and returns FSDP_ERR_STATE "N violations ..." if a read saw anything but exactly
 * the last version of any rank's part. The same on all ranks: the counts are summed. */
fsdp_status comm_stress(fsdp_group *group, void *options);

/* An fsdp_rank_fn over stress_options: `phases` collectives of drawn kinds, sizes and roots, in the
 * world and in halves of it by turns, each result checked. */
FSDP_MUST_CHECK fsdp_status comm_random_collectives(fsdp_group *group, void *options);
