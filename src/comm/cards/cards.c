/* See cards.h. */
#include "src/comm/cards/cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"
#include "src/comm/cards/exchange.h"
#include "src/tensor/device.h"

/* --- which ranks share a card --- */

/* What a rank says about its card. */
typedef struct card {
    char identity[64];
    int64_t process; /* pid */
} card;

static bool is_same(const card *a, const card *b)
{
    return memcmp(a->identity, b->identity, sizeof a->identity) == 0;
}

/* Return the first rank after `rank` that has the same card, or `n` if there is none. */
static int next_on_card(const card *cards, int n, int rank)
{
    int r = rank + 1;
    while (r < n && !is_same(&cards[r], &cards[rank]))
        r++;
    return r;
}

/* Set *ranks to the number of ranks on each card: all `n` ranks, or 1. */
static fsdp_status count_ranks(const fsdp_group *group, const card *cards, int *ranks)
{
    const int n = group->world_size;
    int shared = -1, other = 0;
    for (int r = n - 1; r >= 0; r--) {
        shared = next_on_card(cards, n, r) < n ? r : shared;
        other = is_same(&cards[r], &cards[0]) ? other : r;
    }
    *ranks = other ? 1 : n;
    if (!other || shared < 0)
        return FSDP_OK;
    if (is_same(&cards[shared], &cards[other]))
        other = 0;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "device cuda: ranks %d and %d use one card, and rank %d uses another card. "
                      "Either each rank has a card of its own, or all ranks share one card: start "
                      "one rank for each card (fsdp launch --nproc-per-node gpu), or use --device "
                      "cuda:0",
                      fsdp_group_world_rank(group, shared),
                      fsdp_group_world_rank(group, next_on_card(cards, n, shared)),
                      fsdp_group_world_rank(group, other));
}

/* --- how bytes get from card to card --- */

/* Check that this rank's card can write to the cards of all other ranks. */
static fsdp_status check_copy(const fsdp_group *group, const fsdp_device *device, const card *cards)
{
    for (int r = 0; r < group->world_size; r++)
        if (!device->ops->shared_memory->reaches(device->ordinal, cards[r].identity))
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "device cuda:%d: it cannot write to the memory of rank %d's card, "
                              "because the system does not connect the two cards for this, or "
                              "CUDA_VISIBLE_DEVICES hides that card",
                              device->ordinal, fsdp_group_world_rank(group, r));
    return FSDP_OK;
}

/* Check that NCCL can connect the ranks. */
static fsdp_status check_nccl(const fsdp_group *group, const fsdp_device *device, const card *cards)
{
    char reason[256] = "";
    bool one_process = true;
    for (int r = 0; r < group->world_size; r++)
        one_process &= cards[r].process == cards[0].process;
    if (device->ops->shared_memory->links->is_available(one_process, reason, sizeof reason))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "device cuda:%d: no NCCL: %s (the packages libnccl2 of CUDA and "
                      "nvidia-nccl-cu13 of PyPI have it)",
                      device->ordinal, reason);
}

/* Choose `nccl` if all ranks can use it, otherwise `copy`. Return an error if the ranks can use
 * neither. */
static fsdp_status choose_possible(fsdp_group *group, const fsdp_device *device, const card *cards,
                                   const fsdp_card_exchange **exchange)
{
    char no_nccl[512];
    fsdp_status status = fsdp_agree(group, check_nccl(group, device, cards));
    *exchange = &fsdp_card_exchange_nccl;
    if (status == FSDP_OK)
        return FSDP_OK;
    snprintf(no_nccl, sizeof no_nccl, "%s", fsdp_last_error());
    *exchange = &fsdp_card_exchange_copy;
    status = fsdp_agree(group, check_copy(group, device, cards));
    if (status != FSDP_OK)
        fsdp_error_context(status, "%s; without it", no_nccl);
    return status;
}

/* Set *exchange to the card exchange that $FSDP_CARD_EXCHANGE names. If the variable is not set, or
 * is "auto", choose_possible() chooses one. Return an error if the ranks cannot use it. */
static fsdp_status choose_exchange(fsdp_group *group, const fsdp_device *device, const card *cards,
                                   const fsdp_card_exchange **exchange)
{
    const char *name = getenv("FSDP_CARD_EXCHANGE");
    const bool is_auto = !name || !*name || strcmp(name, "auto") == 0;
    const bool is_nccl = !is_auto && strcmp(name, "nccl") == 0;
    fsdp_status status = FSDP_OK;
    if (!is_auto && !is_nccl && strcmp(name, "copy") != 0)
        status =
            fsdp_error(FSDP_ERR_INVALID,
                       "environment: FSDP_CARD_EXCHANGE is '%.100s', not auto, nccl or copy", name);
    FSDP_TRY(fsdp_agree(group, status));
    if (is_auto)
        return choose_possible(group, device, cards, exchange);
    *exchange = is_nccl ? &fsdp_card_exchange_nccl : &fsdp_card_exchange_copy;
    return fsdp_agree(group, is_nccl ? check_nccl(group, device, cards)
                                     : check_copy(group, device, cards));
}

static fsdp_status find_cards(fsdp_group *group, const fsdp_device *device, card *cards)
{
    card own = {.process = getpid()};
    int ranks = 0;
    const fsdp_card_exchange *exchange = NULL;
    FSDP_TRY(fsdp_agree_gather(group,
                               device->ops->shared_memory->identify(device->ordinal, own.identity),
                               &own, sizeof own, cards));
    FSDP_TRY(count_ranks(group, cards, &ranks));
    if (ranks < group->world_size)
        FSDP_TRY(choose_exchange(group, device, cards, &exchange));
    group->exchange = exchange;
    group->card_ranks = ranks;
    return FSDP_OK;
}

fsdp_status fsdp_group_find_cards(fsdp_group *group, const fsdp_device *device)
{
    if (!group || !device->ops->shared_memory || group->card_ranks || group->world_size == 1 ||
        fsdp_group_spans_hosts(group))
        return FSDP_OK;
    card *cards = fsdp_calloc((size_t)group->world_size, sizeof *cards);
    fsdp_status status = fsdp_agree(group, cards ? FSDP_OK : fsdp_error_nomem());
    if (status == FSDP_OK)
        status = find_cards(group, device, cards);
    fsdp_free(cards);
    return status;
}

const char *fsdp_group_card_exchange(const fsdp_group *group)
{
    return group && group->exchange ? group->exchange->name : "";
}

/* --- the ranks that share a memory --- */

/* Return true if buffers on the device are in the memory of cards, and the group's cards are known.
 * Otherwise all ranks of a host share a memory. */
static bool is_on_cards(const fsdp_group *group, const fsdp_device *device)
{
    return device->traits == &fsdp_cuda_traits && group->card_ranks;
}

int fsdp_group_memory_ranks(const fsdp_group *group, const fsdp_device *device)
{
    if (!group)
        return 1;
    return is_on_cards(group, device) ? group->card_ranks : group->local_world_size;
}

int fsdp_group_memory_rank(const fsdp_group *group, const fsdp_device *device)
{
    if (!group)
        return 0;
    return is_on_cards(group, device) ? group->rank % group->card_ranks : group->local_rank;
}

int fsdp_group_memory_root(const fsdp_group *group, const fsdp_device *device)
{
    return is_on_cards(group, device) ? group->rank - group->rank % group->card_ranks
                                      : fsdp_group_local_root(group);
}

bool fsdp_group_is_first_of_memory(const fsdp_group *group, const fsdp_device *device, int begin,
                                   int rank)
{
    return is_on_cards(group, device) ? rank == begin || rank % group->card_ranks == 0
                                      : fsdp_group_is_first_of_host(group, begin, rank);
}
