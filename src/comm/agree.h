/* If one rank fails alone, the others wait for it. Before ranks continue together, they therefore
 * agree that none has failed. */
#pragma once
#include <fsdp/comm.h>

/* Collective. Returns FSDP_OK if `mine` is FSDP_OK on every rank. Otherwise every rank returns the
 * status of the first failing rank. The message is that rank's own there, and "rank 1: <its
 * message>" on the others. group NULL: returns `mine`. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
/* fsdp_agree() and an all-gather in one collective: recv [world_size * bytes] = send [bytes] of
 * each rank, in rank order. `recv` is written only if FSDP_OK is returned. */
FSDP_MUST_CHECK fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send,
                                              size_t bytes, void *recv);
