/* See network_testing.h. */
#include "src/comm/network_testing.h"

#include "src/comm/group_testing.h"
#include "src/comm/phase_record.h"

void fsdp_group_set_network(fsdp_group *group, fsdp_network *network)
{
    fsdp_group_get_hooks(group)->network = network;
    group->has_network = network != NULL;
}

static fsdp_network *network_of(const fsdp_group *group)
{
    return group->hooks ? group->hooks->network : NULL;
}

/* Record the time at which this rank ends a phase. There is one time for WRITE phases and one for
 * READ phases. When a peer begins a READ phase, it reads the time of this rank's last WRITE phase.
 * When a peer begins a WRITE phase, it reads the time of this rank's last READ phase. The phase
 * protocol ensures that no time is overwritten while a peer may still be reading it. */
void fsdp_network_post(fsdp_shared_buffer *buffer)
{
    const fsdp_group *group = buffer->group;
    const fsdp_network *n = network_of(group);
    if (n)
        atomic_store(&buffer->lanes[group->rank].published_ns[buffer->phase], n->now_ns);
}

/* Return the time at which the slowest rank ended its latest phase of kind `ended`. */
static int64_t published_ns(const fsdp_shared_buffer *buffer, fsdp_phase ended)
{
    int64_t latest = 0;
    for (int r = 0; r < buffer->group->world_size; r++) {
        int64_t at = atomic_load(&buffer->lanes[r].published_ns[ended]);
        latest = at > latest ? at : latest;
    }
    return latest;
}

/* Return the time at which all bytes of a phase have been sent. As in a ring, each link sends
 * (world_size - 1) / world_size of the bytes. The link begins at time `published`, or after the
 * previous collective of the same kind if that ends later. Creating a buffer sends no bytes. */
static int64_t sent_ns(const fsdp_group *group, const fsdp_phase_info *info, int64_t published)
{
    fsdp_network *n = network_of(group);
    int64_t *free_ns = &n->free_ns[info->kind];
    double bytes = (double)info->bytes * (group->world_size - 1) / group->world_size;
    if (!(n->bytes_per_ns > 0) || info->kind == FSDP_KIND_BUFFER)
        return published;
    *free_ns = (published > *free_ns ? published : *free_ns) + (int64_t)(bytes / n->bytes_per_ns);
    return *free_ns;
}

void fsdp_network_arrive(fsdp_shared_buffer *buffer, fsdp_phase phase, const fsdp_phase_info *info)
{
    fsdp_network *n = network_of(buffer->group);
    if (!n)
        return;
    int64_t visible =
        published_ns(buffer, phase == FSDP_PHASE_READ ? FSDP_PHASE_WRITE : FSDP_PHASE_READ);
    if (phase == FSDP_PHASE_READ)
        visible = sent_ns(buffer->group, info, visible) + n->latency_ns;
    if (visible <= n->now_ns)
        return;
    n->exposed_ns[info->kind] += visible - n->now_ns;
    n->exposed[info->kind]++;
    n->now_ns = visible;
}
