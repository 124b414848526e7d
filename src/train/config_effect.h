/* Options of `fsdp train` that were given and change nothing beside the others. Where the user must
 * have meant something else they are refused; where scripts give them in any case, a note says so
 * and --print-config lists them. */
#pragma once
#include "src/train/config.h"

/* The refused ones: FSDP_ERR_INVALID naming option, where a file gives it, and what it needs. */
FSDP_MUST_CHECK fsdp_status fsdp_train_effect_check(const fsdp_train_config *config,
                                                    const fsdp_options *options);
/* The noted ones: fsdp_options_spec's in_vain. */
const char *fsdp_train_option_in_vain(const void *config, const fsdp_options *options,
                                      const char *name);
