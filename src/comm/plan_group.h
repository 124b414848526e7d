/* A process group of any size without peers, for programs on the meta device: one rank runs its
 * program, and no other rank exists (transport_plan.c).
 *
 * Collectives are checked and counted as usual. Their results come from this rank alone: an
 * all-reduce returns this rank's contribution, and an all-gather repeats this rank's data. Such
 * results are correct only for control flow (agreements, counts). Calls that need data of other
 * ranks return an error: fsdp_shared_buffer_create(), fsdp_broadcast() from another rank,
 * fsdp_reduce_scatter(), fsdp_exchange_pieces() and fsdp_group_split(). */
#pragma once
#include "src/comm/comm.h"

/* Create the group of a plan.
 * @param local_world_size number of ranks per host, a divisor of world_size; consecutive ranks
 * share a host
 * @param group out: owned by the caller, destroyed by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID if a number is out of range */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_create(int rank, int world_size, int local_world_size,
                                                   fsdp_group **group);
/* Plan for ranks on cards. Each card has `ranks` of them: 1, or all ranks of the plan. Return
 * FSDP_ERR_UNSUPPORTED for another number. Call this before the group is split. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_set_card_ranks(fsdp_group *group, int ranks);
bool fsdp_group_is_plan(const fsdp_group *group); /* accepts NULL */
/* Create the group of one dimension of a mesh from a plan's group. The new group has `ranks` ranks,
 * which are `stride` apart in the parent. This rank is rank `rank` of the new group. Not
 * collective. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_split(const fsdp_group *parent, int rank, int ranks,
                                                  int stride, fsdp_group **group);
