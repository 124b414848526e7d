/* The text that is put before each source text of a model, such as "summarize: ". In config.json it
 * has the key `prefix`, which is a key of transformers' PretrainedConfig. */
#pragma once
#include <fsdp/base.h>

/* Read the key `prefix` of `path`, a config.json. *prefix is NULL if the key is missing or null.
 * The caller frees *prefix with fsdp_free().
 *
 * @return FSDP_ERR_FORMAT if the value is not a text */
FSDP_MUST_CHECK fsdp_status fsdp_text_prefix_read(const char *path, char **prefix);

/* Set the key `prefix` of `path`, a config.json. All other keys stay. On failure the file is not
 * changed. */
FSDP_MUST_CHECK fsdp_status fsdp_text_prefix_write(const char *path, const char *prefix);

/* Return FSDP_ERR_INVALID if `prefix` is not UTF-8, which a config.json must be. */
FSDP_MUST_CHECK fsdp_status fsdp_text_prefix_check(const char *prefix);
