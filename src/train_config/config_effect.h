/* Finds options of `fsdp train` that were given but have no effect because of the values of other
 * options. Such an option is refused if the user must have meant something else. An option that
 * scripts give routinely is accepted: a message says that it has no effect, and --print-config
 * lists it. */
#pragma once
#include "src/train_config/config.h"

/* Return FSDP_ERR_INVALID if an option was given that has no effect and must be refused. The
 * message names the option, what it needs and, if the option was given in a file, that file. */
FSDP_MUST_CHECK fsdp_status fsdp_train_effect_check(const fsdp_train_config *config,
                                                    const fsdp_options *options);
/* Return why the option `name` has no effect. Return NULL if it has an effect, or if
 * fsdp_train_effect_check() refuses it. This is the function without_effect() of the option
 * table. */
const char *fsdp_train_option_without_effect(const void *config, const fsdp_options *options,
                                             const char *name);
