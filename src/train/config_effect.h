/* Options of `fsdp train` that were given but change nothing with the other values. They are
 * refused where the user must have meant something else. Where scripts give them routinely, a note
 * says so and --print-config lists them. */
#pragma once
#include "src/train/config.h"

/* The refused options: FSDP_ERR_INVALID, naming the option, the file that gives it, and what it
 * needs. */
FSDP_MUST_CHECK fsdp_status fsdp_train_effect_check(const fsdp_train_config *config,
                                                    const fsdp_options *options);
/* The noted options: in_vain of fsdp_options_spec. */
const char *fsdp_train_option_in_vain(const void *config, const fsdp_options *options,
                                      const char *name);
