/* Brings a configuration up to date, as `accelerate config update` does. */
#pragma once
#include "src/accelerate/yaml_tree.h"

/* Update `config`, which was read from the file `path`. Replace the old keys fp16 and
 * dynamo_backend by new ones, remove keys without a value, and add the missing keys that Accelerate
 * always writes, with their defaults. Return FSDP_ERR_INVALID if Accelerate does not know a key, or
 * if distributed_type is missing or wrong, and FSDP_ERR_UNSUPPORTED if compute_environment is not
 * LOCAL_MACHINE. The message contains `path` and the key. After a failure, `config` may be partly
 * updated. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_update(fsdp_yaml *config, const char *path);
