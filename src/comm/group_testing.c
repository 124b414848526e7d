/* See group_testing.h. */
#include "src/comm/group_testing.h"

#include <time.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/philox.h"
#include "src/comm/phase_record.h"

fsdp_group_hooks *fsdp_group_get_hooks(fsdp_group *group)
{
    if (!group->hooks) {
        group->hooks = fsdp_calloc(1, sizeof *group->hooks);
        FSDP_ASSERT(group->hooks);
        group->hooks->refs = 1;
    }
    return group->hooks;
}

void fsdp_group_share_hooks(fsdp_group *group, const fsdp_group *parent)
{
    group->has_network = parent->has_network;
    group->hooks = parent->hooks;
    if (group->hooks)
        group->hooks->refs++;
}

void fsdp_group_release_hooks(fsdp_group *group)
{
    if (group->hooks && --group->hooks->refs == 0)
        fsdp_free(group->hooks);
}

void fsdp_group_set_timeout_ms(fsdp_group *group, int64_t timeout_ms)
{
    group->timeout_ns = timeout_ms * 1000000;
}

void fsdp_group_set_delay(fsdp_group *group, uint64_t seed, uint32_t max_us)
{
    fsdp_group_hooks *hooks = fsdp_group_get_hooks(group);
    hooks->delay_seed = fsdp_mix64(seed);
    hooks->delay_count = 0;
    hooks->delay_max_us = max_us;
}

/* Each rank has its own sequence of random delays. So events happen in orders that are rare without
 * delays. */
void fsdp_group_delay(fsdp_group *group)
{
    fsdp_group_hooks *hooks = group->hooks;
    if (!hooks || !hooks->delay_max_us)
        return;
    uint64_t draw = fsdp_mix64(hooks->delay_seed ^ fsdp_mix64((uint64_t)group->rank + 1) ^
                               fsdp_mix64(++hooks->delay_count << 20));
    int64_t ns = (int64_t)(draw % ((uint64_t)hooks->delay_max_us * 1000 + 1));
    struct timespec delay = {ns / 1000000000, ns % 1000000000};
    nanosleep(&delay, NULL);
}

void fsdp_group_test_skip_writer_wait(fsdp_group *group, bool skip)
{
    fsdp_group_get_hooks(group)->skips_writer_wait = skip;
}

/* Return true if a WRITE phase of the buffer must not wait, because a test breaks the protocol. On
 * the world's scratch buffer (number 0), WRITE phases always wait. */
bool fsdp_group_skips_writer_wait(const fsdp_shared_buffer *buffer)
{
    const fsdp_group_hooks *hooks = buffer->group->hooks;
    return hooks && hooks->skips_writer_wait && buffer->number != 0;
}

bool fsdp_phase_read_ready(const fsdp_shared_buffer *buffer)
{
    if (!buffer->lanes)
        return true;
    uint64_t room = fsdp_phase_room(buffer);
    uint64_t target = buffer->written > room ? buffer->written : room;
    for (int peer = 0; peer < buffer->group->world_size; peer++)
        if (peer != buffer->group->rank && atomic_load(&buffer->lanes[peer].ended) < target)
            return false;
    return true;
}
