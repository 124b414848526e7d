/* See config_device.h. */
#include "src/train_config/config_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/options/device_option.h"

void fsdp_train_derive_device(fsdp_train_config *c, const fsdp_options *options)
{
    if (c->use_cpu &&
        fsdp_options_origin(options, "use-cpu") > fsdp_options_origin(options, "device"))
        c->device = "cpu";
}

/* Set `card` to the name of the card that --device-id names: "cuda:1" for the values 1 and cuda:1.
 * Set it to "" for the values "cuda" and "cpu", and if the option was not given. */
static fsdp_status read_device_id(const fsdp_train_config *c, char card[FSDP_DEVICE_NAME_BYTES])
{
    const char *id = c->device_id;
    *card = '\0';
    if (!id || strcmp(id, "cuda") == 0 || strcmp(id, "cpu") == 0)
        return FSDP_OK;
    const int length = snprintf(card, FSDP_DEVICE_NAME_BYTES, "%s%s",
                                strncmp(id, "cuda:", 5) == 0 ? "" : "cuda:", id);
    if (length < FSDP_DEVICE_NAME_BYTES && fsdp_device_check_name(card) == FSDP_OK)
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_INVALID,
        "--device-id: '%.200s' is not allowed; it takes the number of a card, cuda:N, "
        "cuda or cpu",
        id);
}

fsdp_status fsdp_train_check_device(const fsdp_train_config *c, const fsdp_options *options)
{
    char card[FSDP_DEVICE_NAME_BYTES];
    FSDP_TRY(fsdp_check_device_option(options, c->device, true));
    FSDP_TRY(read_device_id(c, card));
    if (fsdp_cards_check_ids(c->gpu_ids.items, c->gpu_ids.count) != FSDP_OK) {
        char reason[256];
        snprintf(reason, sizeof reason, "%s", fsdp_last_error());
        return fsdp_accelerate_refuse(options, "gpu-ids", FSDP_ERR_INVALID, "%s", reason);
    }
    const bool is_cuda = fsdp_device_name_is_cuda(c->device);
    if (c->use_cpu && is_cuda &&
        fsdp_options_origin(options, "use-cpu") == fsdp_options_origin(options, "device"))
        return fsdp_error(FSDP_ERR_INVALID, "--use-cpu contradicts --device %s", c->device);
    if (*card && strncmp(c->device, "cuda:", 5) == 0 && strcmp(card, c->device) != 0)
        return fsdp_error(FSDP_ERR_INVALID, "--device-id %s contradicts --device %s", c->device_id,
                          c->device);
    return FSDP_OK;
}

/* Return the name of the device that the user gave, else the one in $FSDP_DEVICE, else "auto". */
static const char *given_name(const fsdp_train_config *c)
{
    const char *environment = getenv("FSDP_DEVICE");
    return c->device ? c->device : environment && *environment ? environment : "auto";
}

fsdp_status fsdp_train_device_name(const fsdp_train_config *c, int local_rank,
                                   char name[FSDP_DEVICE_NAME_BYTES])
{
    char card[FSDP_DEVICE_NAME_BYTES];
    FSDP_TRY(read_device_id(c, card));
    FSDP_TRY(fsdp_device_resolve(given_name(c), local_rank, name));
    if (*card && fsdp_device_name_is_cuda(name))
        strcpy(name, card);
    return FSDP_OK;
}

bool fsdp_train_uses_cards(const fsdp_train_config *c)
{
    const char *name = given_name(c);
    return fsdp_device_name_is_cuda(name) || strcmp(name, "meta:cuda") == 0 ||
           (strcmp(name, "auto") == 0 && fsdp_cards_usable() > 0);
}

int fsdp_train_ranks_per_card(const fsdp_train_config *c, int local_world_size)
{
    char card[FSDP_DEVICE_NAME_BYTES];
    if (read_device_id(c, card) == FSDP_OK && *card)
        return local_world_size;
    return fsdp_device_ranks_per_card(given_name(c), local_world_size);
}
