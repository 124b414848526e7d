/* Brings a configuration up to date, as `accelerate config update` does. */
#pragma once
#include "src/accelerate/yaml_tree.h"

/* Add the keys that new files have, with their defaults, and replace those of old files: fp16 and
 * dynamo_backend. Keys without a value are removed. Returns FSDP_ERR_INVALID, and leaves the file
 * alone, if a key is not one of Accelerate's files; the message names `path`, the line and the key.
 * On failure, `config` may be changed in part. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_update(fsdp_yaml *config, const char *path);
