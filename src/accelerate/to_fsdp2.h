/* Converts a configuration for FSDP1 to FSDP2, as `accelerate to-fsdp2` does. Other than there,
 * menu numbers and old names of keys are known, and what FSDP2 cannot do is said. */
#pragma once
#include "src/accelerate/yaml_tree.h"

/* Called with a line for the user about each key that is not carried over as it is. */
typedef void fsdp_to_fsdp2_say_fn(void *context, const char *message);

/* Convert `config`, which `path` holds. On failure, `config` may be changed in part. Returns
 * FSDP_ERR_INVALID if it has no FSDP1 in it, or if a value is wrong. */
FSDP_MUST_CHECK fsdp_status fsdp_to_fsdp2(fsdp_yaml *config, const char *path,
                                          fsdp_to_fsdp2_say_fn *say, void *context);
