/* config.json of T5: functions that work on an open document. Functions that take a path are in
 * <fsdp/t5.h>. */
#pragma once
#include <fsdp/t5.h>

#include "src/base/json.h"

#define FSDP_T5_PRESETS                                                                            \
    "t5-small, t5-base, t5-large, t5-3b, t5-11b, t5-v1_1-small, -base, -large, -xl, -xxl, and "    \
    "the same as flan-t5-..., mt5-... and umt5-..."

/* Set *config from an open document, as fsdp_t5_config_read() does from a file. */
FSDP_MUST_CHECK fsdp_status fsdp_t5_config_parse(fsdp_json *doc, fsdp_t5_config *config);
/* Set the keys of *c in `root`, the root of a config.json. has_lm_head: see
 * fsdp_t5_config_write(). */
void fsdp_t5_config_set(fsdp_json_node root, const fsdp_t5_config *c, bool has_lm_head);
/* Do what fsdp_t5_config_preset() does, but return FSDP_ERR_NOT_FOUND without a message if `name`
 * is unknown. */
fsdp_status fsdp_t5_config_find_preset(const char *name, fsdp_t5_config *config);
