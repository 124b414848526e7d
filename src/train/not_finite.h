/* Finds out why a loss or a gradient is NaN or infinite. */
#pragma once
#include "src/train/step.h"

/* The first parameter that is not finite on any rank; NULL if all are finite. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_find_not_finite(const fsdp_train_loop *loop,
                                                 const fsdp_named_parameter **found);
/* FSDP_ERR_NUMERIC for step `step` (from 0). The message begins with `what` ("the loss is NaN") and
 * names the first parameter that is not finite, if any. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_not_finite(const fsdp_train_loop *loop, const char *what,
                                            int64_t step, double lr);
