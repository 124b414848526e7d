/* The group of a plan; see plan_group.h. It has no control block, no memory, no peers and no
 * failures. */
#include "src/comm/plan_group.h"

#include "src/base/alloc.h"
#include "src/comm/group.h"

enum {
    MAX_RANKS = 1 << 20
};

static void close_group(fsdp_group *group)
{
    (void)group;
}

static const fsdp_comm_ops fsdp_comm_plan = {
    .name = "plan",
    .without_peers = true,
    .close = close_group,
};

static fsdp_status create_group(const fsdp_comm_world *world, fsdp_group **out)
{
    fsdp_group *group = fsdp_calloc(1, sizeof *group);
    if (!group)
        return fsdp_error_nomem();
    group->rank = world->rank;
    group->world_size = world->world_size;
    group->local_rank = world->local_rank;
    group->local_world_size = world->local_world_size;
    fsdp_status status = fsdp_group_init(group, &fsdp_comm_plan);
    if (status != FSDP_OK) {
        fsdp_free(group);
        return status;
    }
    *out = group;
    return FSDP_OK;
}

fsdp_status fsdp_plan_group_create(int rank, int world_size, int local_world_size,
                                   fsdp_group **group)
{
    if (world_size < 1 || world_size > MAX_RANKS)
        return fsdp_error(FSDP_ERR_INVALID, "plan: world_size is %d, not between 1 and %d",
                          world_size, MAX_RANKS);
    if (local_world_size < 1 || world_size % local_world_size != 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "plan: %d ranks do not fill hosts of local_world_size %d", world_size,
                          local_world_size);
    if (rank < 0 || rank >= world_size)
        return fsdp_error(FSDP_ERR_INVALID, "plan: rank is %d, not one of %d", rank, world_size);
    return create_group(&(fsdp_comm_world){.rank = rank,
                                           .world_size = world_size,
                                           .local_rank = rank % local_world_size,
                                           .local_world_size = local_world_size},
                        group);
}

fsdp_status fsdp_plan_group_set_card_ranks(fsdp_group *group, int ranks)
{
    if (ranks > 1 && ranks < group->world_size)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "plan: %d of %d ranks would share a card. Either each rank has a card of "
                          "its own, or all ranks share one card: plan for as many ranks as cards, "
                          "or with --device cuda:0",
                          ranks, group->world_size);
    group->card_ranks = ranks;
    return FSDP_OK;
}

bool fsdp_group_is_plan(const fsdp_group *group)
{
    return group && group->ops->without_peers;
}

fsdp_status fsdp_plan_group_split(const fsdp_group *parent, int rank, int ranks, int stride,
                                  fsdp_group **group)
{
    const int first = parent->rank - rank * stride;
    if (rank < 0 || rank >= ranks || stride < 1 || first < 0 ||
        (int64_t)first + (int64_t)(ranks - 1) * stride >= parent->world_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "plan: rank %d of %d is not number %d of %d ranks at distance %d",
                          parent->rank, parent->world_size, rank, ranks, stride);
    fsdp_comm_world world = {.rank = rank, .world_size = ranks};
    const int host = parent->rank / parent->local_world_size;
    for (int r = 0; r < ranks; r++) {
        if ((first + r * stride) / parent->local_world_size != host)
            continue;
        world.local_rank += r < rank;
        world.local_world_size++;
    }
    FSDP_TRY(create_group(&world, group));
    (*group)->card_ranks = parent->card_ranks > 1 ? ranks : parent->card_ranks;
    return FSDP_OK;
}
