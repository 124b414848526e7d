/* See cards.h. */
#include "src/tensor/cards.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_card_number(const char *digits)
{
    char *end;
    const long n = strtol(digits, &end, 10);
    return digits[0] >= '0' && digits[0] <= '9' && !*end && n <= 1023;
}

/* --- the cards of this machine --- */

fsdp_status fsdp_cards_count(int *n)
{
    const fsdp_card_ops *cards = fsdp_card_functions();
    if (!cards)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "device cuda: this build has none, because it was compiled without CUDA "
                          "(docs/cuda.md says how to compile it); cpu computes on the CPU");
    return cards->count(n);
}

int fsdp_cuda_device_count(void)
{
    int n = 0;
    return fsdp_cards_count(&n) == FSDP_OK ? n : 0;
}

fsdp_status fsdp_card_describe(int ordinal, fsdp_card *card)
{
    return fsdp_card_functions()->describe(ordinal, card);
}

static bool is_usable(int ordinal)
{
    fsdp_card card;
    return fsdp_card_describe(ordinal, &card) == FSDP_OK &&
           card.capability >= FSDP_CARD_CAPABILITY && *card.code;
}

/* Suppose that the usable cards (is_usable) are numbered from 0. Set *ordinal to the number that
 * CUDA has for usable card `index`. Return false if there is no such card. */
static bool find_usable(int n, int index, int *ordinal)
{
    for (int i = 0; i < n; i++) {
        if (is_usable(i) && index-- == 0) {
            *ordinal = i;
            return true;
        }
    }
    return false;
}

int fsdp_cards_usable(void)
{
    const fsdp_card_ops *cards = fsdp_card_functions();
    int n = 0, usable = 0;
    if (!cards || cards->is_emulated || cards->count(&n) != FSDP_OK)
        return 0;
    for (int i = 0; i < n; i++)
        usable += is_usable(i);
    return usable;
}

/* --- names --- */

bool fsdp_device_name_is_cuda(const char *name)
{
    return strcmp(name, "cuda") == 0 || strncmp(name, "cuda:", 5) == 0;
}

static bool is_name_of_this_build(const char *name)
{
    for (const char *const *known = fsdp_device_names; *known; known++)
        if (strcmp(name, *known) == 0)
            return true;
    return strcmp(name, "meta:cuda") == 0 || strcmp(name, "auto") == 0;
}

/* Write the names of devices that a user may give, for an error message. */
static void list_names(char text[128])
{
    size_t length = 0;
    for (const char *const *known = fsdp_device_names; *known; known++)
        length += (size_t)snprintf(text + length, 128 - length, "%s, %s", *known,
                                   strcmp(*known, "cuda") == 0 ? "cuda:N, " : "");
    snprintf(text + length, 128 - length, "auto");
}

fsdp_status fsdp_device_check_name(const char *name)
{
    char known[128];
    if (strncmp(name, "cuda:", 5) == 0) {
        if (is_card_number(name + 5))
            return FSDP_OK;
        return fsdp_error(
            FSDP_ERR_INVALID,
            "device '%s': the part after the colon is the number of a card, as in cuda:1", name);
    }
    if (is_name_of_this_build(name))
        return FSDP_OK;
    list_names(known);
    return fsdp_error(FSDP_ERR_INVALID, "unknown device '%s' (known: %s)", name, known);
}

/* Return the number of the card that the device name `auto` means, or -1 if it means the CPU. */
static int choose_card(int local_rank)
{
    const int usable = fsdp_cards_usable();
    int n = 0, ordinal = -1;
    if (usable == 0 || fsdp_cards_count(&n) != FSDP_OK ||
        !find_usable(n, local_rank % usable, &ordinal))
        return -1;
    return ordinal;
}

/* Return an error if this machine has no card `ordinal`. */
static fsdp_status check_card(int ordinal)
{
    int n = 0;
    FSDP_TRY(fsdp_cards_count(&n));
    if (ordinal < n)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "device cuda:%d: this machine has %d card%s, cuda:0%s; 'fsdp env' lists them",
                      ordinal, n, n == 1 ? "" : "s", n == 1 ? "" : " and so on");
}

fsdp_status fsdp_device_resolve(const char *name, int local_rank,
                                char resolved[FSDP_DEVICE_NAME_BYTES])
{
    int n = 0;
    FSDP_TRY(fsdp_device_check_name(name));
    if (strcmp(name, "auto") == 0) {
        const int card = choose_card(local_rank);
        if (card < 0)
            strcpy(resolved, "cpu");
        else
            snprintf(resolved, FSDP_DEVICE_NAME_BYTES, "cuda:%d", card);
    } else if (strcmp(name, "cuda") == 0) {
        FSDP_TRY(fsdp_cards_count(&n));
        snprintf(resolved, FSDP_DEVICE_NAME_BYTES, "cuda:%d", local_rank % n);
    } else {
        if (strncmp(name, "cuda:", 5) == 0)
            FSDP_TRY(check_card(atoi(name + 5)));
        snprintf(resolved, FSDP_DEVICE_NAME_BYTES, "%s", name);
    }
    return FSDP_OK;
}

int fsdp_device_ranks_per_card(const char *name, int local_world_size)
{
    if (strncmp(name, "cuda:", 5) == 0)
        return local_world_size;
    const int n = strcmp(name, "auto") == 0 ? fsdp_cards_usable() : fsdp_cuda_device_count();
    return n ? (local_world_size + n - 1) / n : 1;
}

void fsdp_device_describe(const fsdp_device *device, char text[256])
{
    fsdp_card card;
    if (fsdp_device_name_is_cuda(device->ops->name) &&
        fsdp_card_describe(device->ordinal, &card) == FSDP_OK)
        snprintf(text, 256, "%s:%d (%s, %.1f GiB)", device->ops->name, device->ordinal, card.name,
                 (double)card.bytes * 0x1p-30);
    else
        snprintf(text, 256, "%s", device->ops->name);
}
