/* Hooks with which tests delay phases or break the phase protocol; see Note [Hooks for tests] in
 * src/base/alloc_testing.h. Each rank sets its own hooks. A group that is split off later shares
 * the hooks of its parent. */
#pragma once
#include "src/comm/group.h"

struct fsdp_network;

/* Set the time after which a wait for a peer fails with FSDP_ERR_TIMEOUT. It replaces
 * FSDP_TIMEOUT_S. */
void fsdp_group_set_timeout_ms(fsdp_group *group, int64_t timeout_ms);
/* From now on, sleep before each phase for a pseudo-random time from 0 to `max_us` microseconds.
 * The time depends on `seed`, on the rank and on the number of earlier phases. If `max_us` is 0, do
 * not sleep. */
void fsdp_group_set_delay(fsdp_group *group, uint64_t seed, uint32_t max_us);
/* If `skip` is true, WRITE phases do not wait for readers. This breaks the protocol. Tests use it
 * to check that they notice violations. */
void fsdp_group_test_skip_writer_wait(fsdp_group *group, bool skip);
/* Return true if a READ phase of the buffer could begin now without waiting. */
bool fsdp_phase_read_ready(const fsdp_shared_buffer *buffer);

typedef struct fsdp_group_hooks {
    int refs; /* number of groups that share these hooks */
    uint64_t delay_seed, delay_count;
    uint32_t delay_max_us;
    bool skips_writer_wait;
    struct fsdp_network *network; /* see network_testing.h; NULL: none */
} fsdp_group_hooks;

/* Return the hooks of the group. The first call creates them. */
fsdp_group_hooks *fsdp_group_get_hooks(fsdp_group *group);

/* group.c, split.c and phase.c call these functions. In release builds they have no effect. */
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
