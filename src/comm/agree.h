/* If only one rank returns because of an error, its peers wait for it. So before ranks continue
 * together, they agree that none of them has failed. */
#pragma once
#include <fsdp/comm.h>

/* Collective. Returns FSDP_OK if `mine` is FSDP_OK on every rank. Otherwise every rank returns the
 * status of the first failing rank. The failing rank keeps its own message. The other ranks get
 * this message with the rank in front, as in "rank 1: <message>". Returns `mine` if `group` is
 * NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
/* fsdp_agree() and an all-gather in one collective: `recv` [world_size * bytes] gets `send` [bytes]
 * of each rank, in rank order. `recv` is written only if FSDP_OK is returned. */
FSDP_MUST_CHECK fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send,
                                              size_t bytes, void *recv);
