/* Finds options of `fsdp train` that were given but have no effect with the other values. Such an
 * option is refused if the user must have meant something else. An option that scripts give
 * routinely is accepted: a message says that it has no effect, and --print-config lists it. */
#pragma once
#include "src/train_config/config.h"

/* Return FSDP_ERR_INVALID if an option without effect was given that must be refused. The message
 * names the option, what it needs, and the file that gives it, if any. */
FSDP_MUST_CHECK fsdp_status fsdp_train_effect_check(const fsdp_train_config *config,
                                                    const fsdp_options *options);
/* Return why the option `name` has no effect, or NULL if it has an effect or would be refused. This
 * is the function without_effect of fsdp_options_spec. */
const char *fsdp_train_option_without_effect(const void *config, const fsdp_options *options,
                                             const char *name);
