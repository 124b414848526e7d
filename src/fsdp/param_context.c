/* See param_context.h. */
#include "src/fsdp/param_context.h"

#include "src/comm/cards/cards.h"
#include "src/comm/group.h"

bool fsdp_ranks_share_memory(const fsdp_param_context *c, const fsdp_group *group)
{
    return fsdp_group_memory_ranks(group, c->device) == fsdp_group_world_size(group);
}

int fsdp_param_context_world_size(const fsdp_param_context *c)
{
    return fsdp_group_world_size(c->group) * fsdp_group_world_size(c->replicate_group);
}

bool fsdp_param_context_has_one_memory(const fsdp_param_context *c)
{
    return fsdp_ranks_share_memory(c, c->group) && fsdp_ranks_share_memory(c, c->replicate_group) &&
           !fsdp_group_has_network(c->group) && !fsdp_group_has_network(c->replicate_group);
}

int fsdp_param_context_kept_ranks(const fsdp_param_context *c)
{
    const int ranks = fsdp_group_world_size(c->shard_group);
    const int local = fsdp_group_memory_ranks(c->shard_group, c->device);
    int hosts = c->options.reshard_ranks / local;
    if (c->options.reshard_after_forward != FSDP_RESHARD_TO_SMALLER)
        return 0;
    while (hosts > 1 && ranks / local % hosts)
        hosts--;
    return hosts > 1 ? hosts * local : local;
}

fsdp_group *fsdp_param_context_any_group(const fsdp_param_context *c)
{
    return c->group ? c->group : c->replicate_group;
}

void fsdp_param_context_set_location(const fsdp_param_context *c, const char *call)
{
    fsdp_group *group = fsdp_param_context_any_group(c);
    if (group && call)
        fsdp_group_at(group, c->step, *c->name ? c->name : "root", call);
    else if (group)
        fsdp_group_at(group, c->step, "", "");
}

fsdp_phase_info fsdp_param_context_phase(const fsdp_param_context *c, fsdp_phase_kind kind,
                                         fsdp_dtype dtype, uint64_t bytes)
{
    return (fsdp_phase_info){.unit = c->number,
                             .step = c->step,
                             .kind = (uint16_t)kind,
                             .dtype = (uint16_t)dtype,
                             .bytes = bytes};
}

void fsdp_param_context_report(const fsdp_param_context *c, fsdp_unit_event event,
                               const fsdp_group *group, uint64_t bytes)
{
    if (c->observer)
        c->observer->event(c->observer->self, c->module, event, group ? bytes : 0);
}

void fsdp_param_context_abort(const fsdp_param_context *c, fsdp_status status)
{
    fsdp_group *group = fsdp_group_world_size(c->group) > 1 ? c->group : c->replicate_group;
    if (fsdp_group_world_size(group) > 1)
        fsdp_group_abort(group, status);
}

fsdp_pool *fsdp_param_context_pool(const fsdp_param_context *c)
{
    return c->shard_group ? &c->comm->gathered : &c->comm->whole;
}
