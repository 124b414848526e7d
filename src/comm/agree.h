/* One rank's error is the others' hang: before ranks go on together, they agree that all are well.
 */
#pragma once
#include <fsdp/comm.h>

/* Collective. FSDP_OK if `mine` is FSDP_OK on every rank. Else the first failing rank's status on
 * every rank: with its own message there, and "rank 1: <its message>" on the others.
 * group NULL: `mine`. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
/* The same, in one collective with what each rank has to say then: recv [world_size * bytes] = send
 * [bytes] of each rank, in rank order. Written only if it returns FSDP_OK. */
FSDP_MUST_CHECK fsdp_status fsdp_agree_gather(fsdp_group *group, fsdp_status mine, const void *send,
                                              size_t bytes, void *recv);
