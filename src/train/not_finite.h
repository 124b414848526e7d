/* Finds out why a loss or a gradient is NaN or infinite. */
#pragma once
#include "src/train/step.h"

/* Set *found to the first parameter that has a NaN or infinite value on at least one rank. Set
 * *found to NULL if all parameters are finite. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_find_not_finite(const fsdp_train_loop *loop,
                                                 const fsdp_named_parameter **found);
/* Return FSDP_ERR_NUMERIC for step `step`, counted from 0. The message contains the step and
 * `what`, such as "the loss is NaN". If parameters have NaN or infinite values, the message also
 * contains the name of the first such parameter. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_not_finite(const fsdp_train_loop *loop, const char *what,
                                            int64_t step, double lr);
