/* Determines the device of a run from --device and from the options of other tools. Accelerate's
 * --use-cpu and transformers' --no-cuda mean --device cpu. FSDP1's --device-id N selects the card
 * if the run uses one, and has no effect otherwise. */
#pragma once
#include "src/tensor/cards.h"
#include "src/train_config/config.h"

/* Set config->device from --use-cpu. A flag takes precedence over a file, and a file over the
 * environment. */
void fsdp_train_derive_device(fsdp_train_config *config, const fsdp_options *options);
/* Check the names of devices, and that no two options of equal precedence contradict each other. Do
 * not check whether this build supports the device or this machine has it, because 'fsdp plan'
 * needs neither. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_device(const fsdp_train_config *config,
                                                    const fsdp_options *options);

/* Set `name` to the device of the rank `local_rank` of this machine, as fsdp_device_resolve()
 * does. */
FSDP_MUST_CHECK fsdp_status fsdp_train_device_name(const fsdp_train_config *config, int local_rank,
                                                   char name[FSDP_DEVICE_NAME_BYTES]);
/* Return true if the run uses cards. If the device is auto, this depends on the machine. */
bool fsdp_train_uses_cards(const fsdp_train_config *config);
/* Return the largest number of ranks that share a card (see fsdp_device_ranks_per_card()). */
int fsdp_train_ranks_per_card(const fsdp_train_config *config, int local_world_size);
