/* The dtypes of a run: --param-dtype and similar options, and the options that imply them (--bf16,
 * --fp16, --mixed-precision). */
#pragma once
#include <fsdp/fsdp.h>

#include "src/train_config/config.h"

/* The choices of --mixed-precision, NULL-terminated. fsdp_train_config.mixed_precision is an index
 * into this array. */
extern const char *const fsdp_train_precisions[];

/* Set each dtype from the options that set it. A flag takes precedence over a file, and a file over
 * the environment. */
void fsdp_train_precision_derive(fsdp_train_config *config, const fsdp_options *options);
/* Return FSDP_ERR_INVALID if two options of equal precedence set the same dtype field to different
 * dtypes; the message contains both. Return FSDP_ERR_INVALID or FSDP_ERR_UNSUPPORTED for a dtype
 * that its field cannot have. */
FSDP_MUST_CHECK fsdp_status fsdp_train_precision_check(const fsdp_train_config *config,
                                                       const fsdp_options *options);
/* Return true for --mixed-precision fp8. */
bool fsdp_train_precision_is_fp8(const fsdp_train_config *config);
fsdp_mp_policy fsdp_train_mp_policy(const fsdp_train_config *config);
/* Return true if any part of the forward is computed in float16. */
bool fsdp_train_is_in_float16(const fsdp_train_config *config);
/* Return true if gradients are computed or reduced in float16, so that losses must be scaled. */
bool fsdp_train_needs_grad_scaler(const fsdp_train_config *config);
