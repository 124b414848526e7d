/* Turns the flags of an adapter (--lora-r and others) into an fsdp_lora_config. */
#pragma once
#include <fsdp/lora.h>

#include "src/train_config/config.h"

/* The configuration of the adapter that the flags describe, and the lists to which the
 * configuration points. The configuration also points to values of the flags, so do not copy the
 * struct. */
typedef struct fsdp_train_lora {
    fsdp_lora_config config;
    const char **names[3]; /* lists that end with NULL; owned */
    int64_t *layers;       /* layers_to_transform; owned */
} fsdp_train_lora;

/* Return true if the flags ask for a new adapter. */
bool fsdp_train_has_lora(const fsdp_train_config *config);
/* Set *lora to the adapter that the flags describe. The caller must free *lora with
 * fsdp_train_lora_fini(), even after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_train_lora_init(fsdp_train_lora *lora,
                                                 const fsdp_train_config *config);
void fsdp_train_lora_fini(fsdp_train_lora *lora);
/* Return FSDP_ERR_INVALID if a flag that describes a new adapter is given without --lora-r, or if
 * both --lora-r and --adapter are given. Also check --lora-alpha and the flags for weights in 4
 * bits. */
FSDP_MUST_CHECK fsdp_status fsdp_train_lora_check(const fsdp_train_config *config,
                                                  const fsdp_options *options);
/* Return FSDP_ERR_INVALID if the user gave --lora-alpha 0. In fsdp_train_config, 0 means that the
 * option was not given. In PEFT, the update of such an adapter is always zero. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_lora_alpha(const fsdp_train_config *config,
                                                        const fsdp_options *options);
