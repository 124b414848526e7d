/* Agreement on success. If one rank returned early because of an error, its peers would wait for
 * that rank in the next collective. So the ranks first agree that none of them has failed. */
#pragma once
#include <fsdp/comm.h>

/* Collective. Return FSDP_OK if `mine` is FSDP_OK on every rank. Otherwise every rank returns the
 * status of the first rank, in rank order, that has failed. That rank keeps its own error message.
 * On all other ranks, the message begins with that rank: "rank 1: <its message>". If `group` is
 * NULL, return `mine`. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
/* fsdp_agree() and an all-gather in one collective: `recv` [world_size * bytes] gets `send` [bytes]
 * of each rank, in rank order. `recv` is written only if FSDP_OK is returned. */
FSDP_MUST_CHECK fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send,
                                              size_t bytes, void *recv);
