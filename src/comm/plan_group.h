/* A process group of any size without peers, for what runs on the meta device: one rank walks its
 * program, and nobody else exists (transport_plan.c).
 *
 * Collectives are checked and counted as ever, and give what there is: a reduction its own
 * contribution, an all-gather its own repeated. That is right for control flow (agreements, counts)
 * and for nothing else, so what would hold other ranks' values is an error: shared buffers, a
 * broadcast from another rank, fsdp_reduce_scatter(), a split by colors that peers would name. */
#pragma once
#include "src/comm/comm.h"

/* @param local_world_size of one host, a divisor of world_size: hosts are filled in rank order
 * @param group out: owned by the caller, ended by fsdp_destroy_process_group()
 * @return FSDP_ERR_INVALID for numbers that make no world */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_create(int rank, int world_size, int local_world_size,
                                                   fsdp_group **group);
bool fsdp_group_is_plan(const fsdp_group *group); /* accepts NULL */
/* Of a plan's group: the `ranks` that differ from this one by multiples of `stride`, of which it is
 * number `rank`: one dimension of a mesh. Not collective. */
FSDP_MUST_CHECK fsdp_status fsdp_plan_group_split(const fsdp_group *parent, int rank, int ranks,
                                                  int stride, fsdp_group **group);
