/* Turns the flags of an adapter (--lora-r and others) into an fsdp_lora_config. */
#pragma once
#include <fsdp/lora.h>

#include "src/train_config/config.h"

/* The configuration of the adapter that the flags describe, and the memory that it needs. The
 * configuration points to this struct and to lists of the flags, so do not copy the struct. */
typedef struct fsdp_train_lora {
    fsdp_lora_config config;
    const char **names[3]; /* lists that end with NULL; owned */
    int64_t *layers;       /* layers_to_transform; owned */
} fsdp_train_lora;

/* Return true if the flags ask for a new adapter. */
bool fsdp_train_has_lora(const fsdp_train_config *config);
/* Check the flags that belong together, and fill in *lora, which must be freed with
 * fsdp_train_lora_fini(), also after a failure. */
FSDP_MUST_CHECK fsdp_status fsdp_train_lora_init(fsdp_train_lora *lora,
                                                 const fsdp_train_config *config);
void fsdp_train_lora_fini(fsdp_train_lora *lora);
/* Also checks the flags of weights in 4 bits. Return FSDP_ERR_INVALID if a flag that describes an
 * adapter is given, but --lora-r is not, or if both a new adapter and --adapter are given. */
FSDP_MUST_CHECK fsdp_status fsdp_train_lora_check(const fsdp_train_config *config);
