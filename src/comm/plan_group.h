/* A process group of any size without peers, for programs on the meta device: one rank runs its
 * program, and no other rank exists (transport_plan.c).
 *
 * Collectives are checked and counted as usual and return what this rank has: a reduction returns
 * this rank's contribution, and an all-gather repeats it. These results are correct only for
 * control flow (agreements, counts). A call that would need values of other ranks returns an error:
 * creating a shared buffer, a broadcast from another rank, fsdp_reduce_scatter(), and
 * fsdp_group_split(), which needs the colors of the other ranks. */
#pragma once
#include "src/comm/comm.h"

/* @param local_world_size number of ranks per host, a divisor of world_size; hosts are filled in
 * rank order
 * @param group out: owned by the caller, destroyed by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID if the numbers do not describe a world */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_create(int rank, int world_size, int local_world_size,
                                                   fsdp_group **group);
bool fsdp_group_is_plan(const fsdp_group *group); /* accepts NULL */
/* Create the group of one dimension of a mesh from a plan's group. The new group has `ranks` ranks,
 * which are `stride` apart in the parent. This rank is rank `rank` of the new group. Not
 * collective. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_split(const fsdp_group *parent, int rank, int ranks,
                                                  int stride, fsdp_group **group);
