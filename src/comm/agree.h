/* Agreement on success. If one rank returned early because of an error, its peers would wait for it
 * in the next collective. So the ranks first agree that none of them has failed. */
#pragma once
#include <fsdp/comm.h>

/* Collective. Returns FSDP_OK if `mine` is FSDP_OK on every rank. Otherwise every rank returns the
 * status of the first failing rank. That rank keeps its own error message. All others get the same
 * message with the rank in front, as in "rank 1: <message>". Returns `mine` if `group` is NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
/* fsdp_agree() and an all-gather in one collective: `recv` [world_size * bytes] gets `send` [bytes]
 * of each rank, in rank order. `recv` is written only if FSDP_OK is returned. */
FSDP_MUST_CHECK fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send,
                                              size_t bytes, void *recv);
