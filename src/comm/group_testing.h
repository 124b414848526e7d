/* Delays and a broken protocol for tests; see Note [Hooks for tests] in src/base/alloc_testing.h.
 * Each rank sets its own hooks. A group that is split off later shares them. */
#pragma once
#include "src/comm/group.h"

struct fsdp_network;

/* A wait for a peer that lasts longer is FSDP_ERR_TIMEOUT. Overrides FSDP_TIMEOUT_S. */
void fsdp_group_set_timeout_ms(fsdp_group *group, int64_t timeout_ms);
/* Before each phase, sleep for 0 to max_us, drawn by (seed, rank, count). 0: off. */
void fsdp_group_set_delay(fsdp_group *group, uint64_t seed, uint32_t max_us);
/* WRITE no longer waits for the readers, to check that the tests of phases detect it. */
void fsdp_group_test_skip_writer_wait(fsdp_group *group, bool skip);
/* Whether fsdp_phase_begin(buffer, READ) would return without waiting. */
bool fsdp_phase_read_ready(const fsdp_shared_buffer *buffer);

typedef struct fsdp_group_hooks {
    int refs; /* number of groups that share these hooks */
    uint64_t delay_seed, delay_count;
    uint32_t delay_max_us;
    bool skips_writer_wait;
    struct fsdp_network *network; /* see network_testing.h; NULL: none */
} fsdp_group_hooks;

/* The hooks of the group, created at the first call. */
fsdp_group_hooks *fsdp_group_get_hooks(fsdp_group *group);

/* For group.c, split.c and phase.c. */
#ifdef FSDP_TESTING
void fsdp_group_share_hooks(fsdp_group *group, const fsdp_group *parent);
void fsdp_group_release_hooks(fsdp_group *group);
void fsdp_group_delay(fsdp_group *group);
bool fsdp_group_skips_writer_wait(const fsdp_shared_buffer *buffer);
#else
static inline void fsdp_group_share_hooks(fsdp_group *group, const fsdp_group *parent)
{
    (void)group, (void)parent;
}
static inline void fsdp_group_release_hooks(fsdp_group *group)
{
    (void)group;
}
static inline void fsdp_group_delay(fsdp_group *group)
{
    (void)group;
}
static inline bool fsdp_group_skips_writer_wait(const fsdp_shared_buffer *buffer)
{
    (void)buffer;
    return false;
}
#endif
