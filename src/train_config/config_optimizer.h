/* Checks the options of the optimizers, such as --beta1 and --momentum. */
#pragma once
#include "src/train_config/config.h"

/* Called by fsdp_train_config_check(). Return FSDP_ERR_INVALID if an option is given that the
 * optimizer of --optimizer does not have, or if options of the optimizer contradict each other. */
FSDP_MUST_CHECK fsdp_status fsdp_train_check_optimizer(const fsdp_train_config *config,
                                                       const fsdp_options *options);
