/* Converts a configuration for FSDP1 to FSDP2, as `accelerate to-fsdp2` does. In addition, this
 * code accepts menu numbers and old names of keys, and reports what FSDP2 cannot do. */
#pragma once
#include "src/accelerate/yaml_tree.h"

/* Called for each key that is not copied unchanged, with a message for the user. */
typedef void fsdp_to_fsdp2_say_fn(void *context, const char *message);

/* Convert `config`, which was read from the file `path`. Return FSDP_ERR_INVALID if it is not a
 * configuration for FSDP1, or if a value is wrong. After a failure, some keys of `config` may have
 * been converted already. */
FSDP_MUST_CHECK fsdp_status fsdp_to_fsdp2(fsdp_yaml *config, const char *path,
                                          fsdp_to_fsdp2_say_fn *say, void *context);
