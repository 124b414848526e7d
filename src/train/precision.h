/* --param-dtype and the options that imply it: --bf16, --fp16, --mixed-precision. */
#pragma once
#include <fsdp/fsdp.h>

#include "src/train/config.h"

/* Choices of --mixed-precision, NULL-terminated, in the order of fsdp_train_config's index. */
extern const char *const fsdp_train_precisions[];

/* Use the source with the highest precedence for each dtype: a flag, then a file, then the
 * environment. */
void fsdp_train_precision_derive(fsdp_train_config *config, const fsdp_options *options);
/* FSDP_ERR_INVALID, naming both flags, if two of equal precedence contradict each other. */
FSDP_MUST_CHECK fsdp_status fsdp_train_precision_check(const fsdp_train_config *config,
                                                       const fsdp_options *options);
fsdp_mp_policy fsdp_train_mp_policy(const fsdp_train_config *config);
/* Is some of the forward computed in float16? */
bool fsdp_train_is_in_float16(const fsdp_train_config *config);
/* Can anything overflow easily, so that losses must be scaled? */
bool fsdp_train_needs_grad_scaler(const fsdp_train_config *config);
