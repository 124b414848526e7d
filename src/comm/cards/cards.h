/* Which ranks of a group share the memory of a card: Note [Several cards] in exchange.h. */
#pragma once
#include "src/comm/comm.h"

/* Find out which ranks of the group are on the same card, and how bytes get from card to card
 * (FSDP_CARD_EXCHANGE). Return FSDP_ERR_UNSUPPORTED on all ranks if some ranks share a card and
 * others do not, or if the cards cannot exchange bytes. No effect if `group` is NULL, if `device`
 * is not a card, or if the group's cards are known already. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_group_find_cards(fsdp_group *group, const fsdp_device *device);
/* Return how bytes get from card to card: "copy" or "nccl". Return "" if the ranks are not on
 * different cards, or if `group` is NULL. */
const char *fsdp_group_card_exchange(const fsdp_group *group);
/* Return how many ranks of the group share one memory for the data of buffers on `device`: all
 * ranks of a host for a CPU, and all ranks on a card for a card. Return 1 if `group` is NULL. */
int fsdp_group_memory_ranks(const fsdp_group *group, const fsdp_device *device);
/* Return this rank's number among the ranks that share one memory. */
int fsdp_group_memory_rank(const fsdp_group *group, const fsdp_device *device);
/* Return the first of the ranks that share one memory with this rank. */
int fsdp_group_memory_root(const fsdp_group *group, const fsdp_device *device);
/* Return true if no rank of the group from `begin` to `rank` - 1 shares a memory with `rank`. */
bool fsdp_group_is_first_of_memory(const fsdp_group *group, const fsdp_device *device, int begin,
                                   int rank);
