/* Initializes and frees groups. A group is freed only after all its buffers are destroyed. If a
 * group was split off, its scratch buffer is a part of a buffer of its parent, and the group owns
 * this parent buffer. So the parent is freed only after the groups that were split off from it. */
#include <stdio.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/environment.h"
#include "src/comm/group_testing.h"
#include "src/comm/phase_record.h"

static const int64_t spin_limit_ns = 25000;

fsdp_status fsdp_shared_buffer_link(fsdp_group *group, fsdp_shared_buffer *buffer)
{
    buffer->group = group;
    buffer->next = group->buffers;
    buffer->place = &group->buffers;
    if (buffer->next)
        buffer->next->place = &buffer->next;
    group->buffers = buffer;
    return group->ops->buffer_attach && fsdp_group_spans_hosts(group)
               ? group->ops->buffer_attach(buffer)
               : FSDP_OK;
}

fsdp_status fsdp_group_init(fsdp_group *group, const fsdp_comm_ops *ops)
{
    FSDP_TRY(fsdp_read_limits(&group->timeout_ns, &group->stall_s));
    group->ops = ops;
    group->refs = 1;
    group->next_buffer = 1;
    if (!group->ranks_per_host)
        group->ranks_per_host = group->world_size;
    if (!group->control)
        return FSDP_OK;
    fsdp_shared_buffer *scratch = &group->scratch;
    unsigned char *base =
        (unsigned char *)group->control + fsdp_comm_control_scratch_offset(group->world_size);
    scratch->lanes = (fsdp_phase_lane *)(void *)base;
    scratch->data = base + fsdp_phase_lanes_bytes(group->world_size);
    scratch->bytes = (size_t)group->world_size * FSDP_SCRATCH_SLOT_BYTES;
    fsdp_group_set_threads(group, 1);
    FSDP_TRY(fsdp_shared_buffer_link(group, scratch));
    atomic_store(&group->control->board[group->rank].joined, 1);
    return FSDP_OK;
}

static void unlink_buffer(fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    if (group->ops->buffer_detach && fsdp_group_spans_hosts(group))
        group->ops->buffer_detach(buffer);
    *buffer->place = buffer->next;
    if (buffer->next)
        buffer->next->place = buffer->place;
}

void fsdp_group_release(fsdp_group *group)
{
    if (--group->refs > 0)
        return;
    fsdp_shared_buffers_sweep(group, true);
    if (group->exchange && group->exchange->close)
        group->exchange->close(group);
    if (group->scratch.place)
        unlink_buffer(&group->scratch);
    fsdp_free(group->scratch.ranges);
    group->ops->close(group);
    fsdp_shared_buffer_destroy(group->home);
    fsdp_group_release_hooks(group);
    fsdp_free(group->members);
    fsdp_free(group);
}

void fsdp_shared_buffer_free(fsdp_shared_buffer *buffer)
{
    if (buffer->memory.data)
        buffer->group->ops->memory_release(&buffer->memory);
    fsdp_free(buffer->ranges);
    fsdp_free(buffer);
}

static void detach_from_mirrors(fsdp_shared_buffer *buffer)
{
    fsdp_comm_device_memory *m = &buffer->on_device;
    for (int r = 0; m->mirrors && r < buffer->group->world_size; r++) {
        if (m->mirrors[r].data)
            m->ops->detach(&m->mirrors[r].handle, m->mirrors[r].data);
        if (r != buffer->group->rank)
            atomic_fetch_sub(&buffer->lanes[r].attached, 1);
    }
    fsdp_free(m->mirrors);
    m->mirrors = NULL;
}

/* Return the number of other ranks that are attached to the device memory that this rank created.
 */
static uint32_t count_attached(const fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    if (!buffer->lanes)
        return 0;
    return atomic_load(&buffer->lanes[group->exchange ? group->rank : 0].attached);
}

bool fsdp_shared_buffer_release_device(fsdp_shared_buffer *buffer)
{
    fsdp_comm_device_memory *m = &buffer->on_device;
    detach_from_mirrors(buffer);
    if (!m->data)
        return true;
    if (!m->is_owner) {
        m->ops->detach(&m->handle, m->data);
        atomic_fetch_sub(&buffer->lanes[0].attached, 1);
    } else if (count_attached(buffer)) {
        return false;
    } else {
        m->ops->destroy(m->data);
    }
    m->data = NULL;
    return true;
}

void fsdp_shared_buffers_sweep(fsdp_group *group, bool last)
{
    const int64_t limit_ns = fsdp_clock_ns() + (last ? 2000000000 : 0);
    for (fsdp_shared_buffer **at = &group->detached; *at;) {
        fsdp_shared_buffer *buffer = *at;
        bool released = fsdp_shared_buffer_release_device(buffer);
        while (!released && last && fsdp_clock_ns() < limit_ns &&
               !fsdp_comm_control_aborted(group->control)) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            released = fsdp_shared_buffer_release_device(buffer);
        }
        if (!released && !last) {
            at = &buffer->next;
            continue;
        }
        *at = buffer->next;
        fsdp_shared_buffer_free(buffer);
    }
}

void fsdp_shared_buffer_destroy(fsdp_shared_buffer *buffer)
{
    if (!buffer)
        return;
    fsdp_group *group = buffer->group;
    unlink_buffer(buffer);
    if (fsdp_shared_buffer_release_device(buffer)) {
        fsdp_shared_buffer_free(buffer);
    } else {
        buffer->next = group->detached;
        group->detached = buffer;
    }
    fsdp_shared_buffers_sweep(group, false);
    fsdp_group_release(group);
}

void fsdp_destroy_process_group(fsdp_group *group)
{
    if (!group)
        return;
    if (group->control && !group->members)
        atomic_store(&fsdp_group_board(group)->left, 1);
    fsdp_group_release(group);
}

/* ---- getters and counters ---- */

int fsdp_group_rank(const fsdp_group *group)
{
    return group ? group->rank : 0;
}

int fsdp_group_world_size(const fsdp_group *group)
{
    return group ? group->world_size : 1;
}

int fsdp_group_local_rank(const fsdp_group *group)
{
    return group ? group->local_rank : 0;
}

int fsdp_group_local_world_size(const fsdp_group *group)
{
    return group ? group->local_world_size : 1;
}

bool fsdp_group_is_on_several_hosts(const fsdp_group *group)
{
    return group && fsdp_group_spans_hosts(group) && !group->ops->without_peers;
}

bool fsdp_group_leads_host(const fsdp_group *group, int rank)
{
    return !group || fsdp_group_is_first_of_host(group, 0, rank);
}

const char *fsdp_group_host_name(const fsdp_group *group, int rank)
{
    return group && group->ops->host_name ? group->ops->host_name(fsdp_group_host(group, rank))
                                          : "";
}

fsdp_host_text fsdp_group_host_text(const fsdp_group *group, int rank)
{
    fsdp_host_text host;
    int first = -1, last = -1;
    for (int r = 0; group && r < group->world_size; r++) {
        if (fsdp_group_host(group, r) != fsdp_group_host(group, rank))
            continue;
        first = first < 0 ? r : first;
        last = r;
    }
    const char *name = fsdp_group_host_name(group, rank);
    if (first < last)
        snprintf(host.text, sizeof host.text, "host %s (ranks %d to %d)", name, first, last);
    else
        snprintf(host.text, sizeof host.text, "host %s (rank %d)", name, rank);
    return host;
}

bool fsdp_group_is_first_of_host(const fsdp_group *group, int begin, int rank)
{
    int r = begin;
    while (fsdp_group_host(group, r) != fsdp_group_host(group, rank))
        r++;
    return r == rank;
}

const char *fsdp_group_backend(const fsdp_group *group)
{
    return group->ops->name;
}

const fsdp_comm_counters *fsdp_group_counters(const fsdp_group *group)
{
    return &group->counters;
}

fsdp_comm_counters fsdp_group_get_counters(const fsdp_group *group)
{
    return group->counters;
}

int64_t fsdp_comm_counters_wait_ns(const fsdp_comm_counters *counters)
{
    int64_t sum = 0;
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        sum += counters->wait_ns[kind];
    return sum;
}

void fsdp_group_count(fsdp_group *group, fsdp_phase_kind kind, uint64_t logical_bytes)
{
    if (group->ops->without_peers)
        return; /* Without peers, phases are not counted either (phase.c). Units report their
                   collectives to their observer. */
    group->counters.calls[kind]++;
    group->counters.logical_bytes[kind] += logical_bytes;
}

void fsdp_group_set_threads(fsdp_group *group, int threads)
{
    if (group->control)
        group->spin_ns =
            (int64_t)group->ranks_per_host * threads <= group->control->cores ? spin_limit_ns : 0;
}
