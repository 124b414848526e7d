/* Finds options of `fsdp train` that were given but change nothing together with the other values.
 * An option is refused if the user must have meant something else. If scripts give the option
 * routinely, a note says that it has no effect, and --print-config lists it. */
#pragma once
#include "src/train_config/config.h"

/* Check the options that are refused. FSDP_ERR_INVALID names the option, the file that gives it,
 * and what it needs. */
FSDP_MUST_CHECK fsdp_status fsdp_train_effect_check(const fsdp_train_config *config,
                                                    const fsdp_options *options);
/* Return why the option `name` changes nothing, or NULL if it has an effect or is refused. This is
 * the function without_effect of fsdp_options_spec. */
const char *fsdp_train_option_without_effect(const void *config, const fsdp_options *options,
                                             const char *name);
