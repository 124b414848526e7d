/* Begins and ends phases, and compares the phases that ranks announce.
 *
 * When a rank begins phase n of a buffer, it announces the phase before it waits for its peers: it
 * stores the record of the phase in its ring and then sets `begun` to n + 1. Then it compares this
 * record with the records of all peers that have already announced their phase n.
 *
 * A rank first stores its own `begun`, and then loads the `begun` of its peers, with sequential
 * consistency. So of any two ranks, at least one sees the announcement of the other. If the two
 * records differ, the rank that sees this posts the divergence. The other rank learns of it through
 * the abort word.
 *
 * A record is overwritten FSDP_PHASE_RING phases later. By then all peers have ended phase n
 * (fsdp_phase_room()), so they have compared the record. */
#include "src/comm/phase.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/cards/exchange.h"
#include "src/comm/group_testing.h"
#include "src/comm/network_testing.h"
#include "src/trace/pace_testing.h"
#include "src/trace/trace.h"

static bool same_record(const fsdp_phase_record *a, const fsdp_phase_record *b)
{
    const fsdp_phase_info *i = &a->info, *j = &b->info;
    return i->unit == j->unit && i->kind == j->kind && i->dtype == j->dtype &&
           i->bytes == j->bytes && a->phase == b->phase && a->collective == b->collective &&
           a->detail == b->detail && (a->collective || i->step == j->step);
}

fsdp_status fsdp_phase_wait_for_all(fsdp_shared_buffer *buffer, uint64_t target, uint16_t kind)
{
    fsdp_group *group = buffer->group;
    for (int i = 1; i < group->world_size; i++)
        FSDP_TRY(fsdp_phase_wait(buffer, (group->rank + i) % group->world_size, target,
                                 &group->counters.wait_ns[kind]));
    return FSDP_OK;
}

/* Wait until the other ranks of this host have ended the phases that this rank has ended. */
static fsdp_status wait_for_host(fsdp_shared_buffer *buffer, uint16_t kind)
{
    fsdp_group *group = buffer->group;
    for (int r = 0; r < group->world_size; r++)
        if (r != group->rank && fsdp_group_is_here(group, r))
            FSDP_TRY(fsdp_phase_wait(buffer, r, buffer->ended, &group->counters.wait_ns[kind]));
    return FSDP_OK;
}

fsdp_status fsdp_phase_compare(const fsdp_shared_buffer *buffer, int peer, uint64_t n)
{
    fsdp_group *group = buffer->group;
    const fsdp_phase_lane *lanes = buffer->lanes;
    if (atomic_load(&lanes[group->rank].begun) <= n || atomic_load(&lanes[peer].begun) <= n)
        return FSDP_OK;
    const fsdp_phase_record own = lanes[group->rank].ring[n % FSDP_PHASE_RING];
    const fsdp_phase_record theirs = lanes[peer].ring[n % FSDP_PHASE_RING];
    if (same_record(&own, &theirs))
        return FSDP_OK;
    char mine[160], other[160];
    fsdp_phase_describe(&own, mine, sizeof mine);
    fsdp_phase_describe(&theirs, other, sizeof other);
    return fsdp_group_fail(
        group, fsdp_error(FSDP_ERR_COMM, "ranks diverged: rank %d begins %s, but rank %d began %s",
                          fsdp_group_world_rank(group, group->rank), mine,
                          fsdp_group_world_rank(group, peer), other));
}

static fsdp_status compare_with_peers(const fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    for (int peer = 0; peer < group->world_size; peer++)
        if (peer != group->rank)
            FSDP_TRY(fsdp_phase_compare(buffer, peer, buffer->ended));
    return FSDP_OK;
}

/* Ranks on other hosts see this rank's announcement only if it is sent to them. So send it if this
 * rank must wait. If this rank need not wait, it soon sends the end of the phase instead. */
static void announce_if_waiting(fsdp_shared_buffer *buffer, uint64_t target)
{
    const fsdp_group *group = buffer->group;
    bool waits = false;
    if (!group->ops->phase_announced || !fsdp_group_spans_hosts(group))
        return;
    for (int r = 0; r < group->world_size && !waits; r++)
        waits = r != group->rank && atomic_load(&buffer->lanes[r].ended) < target;
    if (waits)
        group->ops->phase_announced(buffer);
}

/* Return true if not all ranks of the group share the memory of the buffer. */
static bool sends_ranges(const fsdp_shared_buffer *buffer)
{
    return fsdp_group_spans_hosts(buffer->group) || fsdp_shared_buffer_has_mirrors(buffer);
}

/* Return how many phases every rank must have ended before this rank may begin `phase`. */
static uint64_t target_of(const fsdp_shared_buffer *buffer, fsdp_phase phase)
{
    return phase == FSDP_PHASE_READ ? buffer->written : buffer->ended;
}

/* Call this before a WRITE phase. If no READ phase has followed the previous WRITE phase, the bytes
 * of that phase may still be on their way to other hosts. In this case, wait until they are sent.
 */
static void flush_if_unread(fsdp_shared_buffer *buffer, fsdp_phase phase)
{
    const fsdp_group *group = buffer->group;
    if (phase == FSDP_PHASE_WRITE && buffer->ended && buffer->written == buffer->ended &&
        group->ops->buffer_flush && fsdp_group_spans_hosts(group))
        group->ops->buffer_flush(buffer);
}

/* Wait until the peers have ended the phases that must end before `phase` begins. */
static fsdp_status wait_for_peers(fsdp_shared_buffer *buffer, fsdp_phase phase, uint16_t kind)
{
    if (phase != FSDP_PHASE_READ && fsdp_group_skips_writer_wait(buffer))
        return FSDP_OK;
    if (phase == FSDP_PHASE_REWRITE && !fsdp_shared_buffer_has_mirrors(buffer))
        return wait_for_host(buffer, kind);
    announce_if_waiting(buffer, target_of(buffer, phase));
    flush_if_unread(buffer, phase);
    return fsdp_phase_wait_for_all(buffer, target_of(buffer, phase), kind);
}

/* Receive what other cards have written, unless this was done after the last WRITE phase already.
 */
static fsdp_status receive(fsdp_shared_buffer *buffer)
{
    if (!fsdp_phase_arrives_late(buffer) || buffer->received == buffer->written)
        return FSDP_OK;
    buffer->received = buffer->written;
    return buffer->group->exchange->receive(buffer);
}

static fsdp_status begin_record(fsdp_shared_buffer *buffer, const fsdp_phase_record *record)
{
    fsdp_group *group = buffer->group;
    fsdp_phase phase = (fsdp_phase)record->phase;
    FSDP_ASSERT(record->info.kind < FSDP_KIND_COUNT);
    fsdp_pace_settle();
    if (buffer->open)
        return fsdp_error(FSDP_ERR_STATE, "%s of unit %u: the buffer's last phase has not ended",
                          fsdp_comm_kind_name((fsdp_comm_kind)record->info.kind),
                          record->info.unit);
    if (buffer->lanes) {
        fsdp_phase_lane *own = &buffer->lanes[group->rank];
        fsdp_group_delay(group);
        if (fsdp_comm_control_aborted(group->control))
            return fsdp_comm_control_error(group->control);
        FSDP_TRY(fsdp_phase_wait_for_all(buffer, fsdp_phase_room(buffer), record->info.kind));
        own->ring[buffer->ended % FSDP_PHASE_RING] = *record;
        atomic_store(&own->begun, buffer->ended + 1);
        FSDP_TRY(compare_with_peers(buffer));
        FSDP_TRY(wait_for_peers(buffer, phase, record->info.kind));
        if (phase != FSDP_PHASE_REWRITE)
            fsdp_network_arrive(buffer, phase, &record->info);
        if (phase == FSDP_PHASE_READ)
            FSDP_TRY(receive(buffer));
    }
    buffer->phase = phase == FSDP_PHASE_READ ? FSDP_PHASE_READ : FSDP_PHASE_WRITE;
    buffer->open = true;
    buffer->n_ranges = 0;
    return FSDP_OK;
}

/* Consecutive calls for one reader often declare adjacent ranges. So extend the last range if
 * possible. */
void fsdp_phase_wrote_for(fsdp_shared_buffer *buffer, int reader, size_t offset, size_t to,
                          size_t bytes)
{
    if (!buffer->open || !buffer->lanes || !bytes || !sends_ranges(buffer))
        return;
    FSDP_ASSERT(buffer->phase == FSDP_PHASE_WRITE && offset <= buffer->bytes &&
                bytes <= buffer->bytes - offset && to <= buffer->bytes &&
                bytes <= buffer->bytes - to);
    fsdp_written_range *last = buffer->n_ranges ? &buffer->ranges[buffer->n_ranges - 1] : NULL;
    if (last && last->reader == reader && last->offset + last->bytes == offset &&
        last->to + last->bytes == to) {
        last->bytes += bytes;
        return;
    }
    if (!FSDP_GROW(buffer->ranges, buffer->cap_ranges, buffer->n_ranges + 1)) {
        if (!buffer->range_lost)
            fsdp_group_abort(buffer->group, FSDP_ERR_NOMEM);
        buffer->range_lost = true;
        return;
    }
    buffer->ranges[buffer->n_ranges++] =
        (fsdp_written_range){.reader = reader, .offset = offset, .bytes = bytes, .to = to};
}

void fsdp_phase_wrote(fsdp_shared_buffer *buffer, int reader, size_t offset, size_t bytes)
{
    fsdp_phase_wrote_for(buffer, reader, offset, offset, bytes);
}

bool fsdp_phase_arrives_late(const fsdp_shared_buffer *buffer)
{
    return fsdp_shared_buffer_has_mirrors(buffer) && buffer->group->exchange->receive;
}

bool fsdp_phase_send(fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    if (!buffer->open || !fsdp_shared_buffer_has_mirrors(buffer))
        return group->world_size > 1;
    if (buffer->phase == FSDP_PHASE_WRITE)
        group->exchange->send(buffer);
    return group->exchange->ends_after_kernels;
}

fsdp_status fsdp_phase_begin_record(fsdp_shared_buffer *buffer, const fsdp_phase_record *record)
{
    fsdp_trace_begin(FSDP_TRACE_SHARDING, fsdp_comm_kind_name((fsdp_comm_kind)record->info.kind),
                     "phase");
    fsdp_status status = begin_record(buffer, record);
    fsdp_trace_end();
    return status;
}

/* Return true if the statistics count a collective at this phase. An all-gather is counted at its
 * READ phase, and a reduce of gradients at its WRITE phase. The other phases belong to the same
 * collective. */
static bool is_counted(const fsdp_shared_buffer *buffer, fsdp_phase phase,
                       const fsdp_phase_info *info)
{
    const fsdp_phase other =
        info->kind == FSDP_KIND_ALL_GATHER ? FSDP_PHASE_WRITE : FSDP_PHASE_READ;
    const bool has_stages = info->kind == FSDP_KIND_ALL_GATHER || info->kind == FSDP_KIND_GRADIENT;
    return buffer->lanes && phase != FSDP_PHASE_REWRITE && !(has_stages && phase == other);
}

fsdp_status fsdp_phase_begin(fsdp_shared_buffer *buffer, fsdp_phase phase,
                             const fsdp_phase_info *info)
{
    fsdp_group *group = buffer->group;
    FSDP_TRY(fsdp_phase_begin_record(
        buffer, &(fsdp_phase_record){.info = *info, .phase = (uint16_t)phase}));
    if (is_counted(buffer, phase, info)) {
        group->counters.calls[info->kind]++;
        group->counters.logical_bytes[info->kind] += info->bytes;
    }
    return FSDP_OK;
}

void fsdp_phase_end(fsdp_shared_buffer *buffer)
{
    if (!buffer->open)
        return;
    fsdp_pace_settle();
    buffer->open = false;
    buffer->ended++;
    if (buffer->phase == FSDP_PHASE_WRITE)
        buffer->written = buffer->ended;
    if (!buffer->lanes)
        return;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "phase_end", NULL);
    fsdp_network_post(buffer);
    fsdp_phase_wake(buffer);
    if (buffer->group->ops->phase_ended && fsdp_group_spans_hosts(buffer->group))
        buffer->group->ops->phase_ended(buffer);
    buffer->n_ranges = 0;
    fsdp_trace_end();
}
