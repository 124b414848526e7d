/* The settings that determine what `fsdp tokenize` writes. A run goes on with the output of an
 * interrupted run only if both have the same settings. */
#pragma once
#include "src/tokenize/tokenize.h"

/* Return FSDP_USES_* flags. The setting `key` can affect a data set only if the data set has at
 * least one of these flags. 0: it can affect every data set. */
unsigned fsdp_tokenize_setting_uses(const char *key);
/* Make a JSON object of all settings of a run, as texts. The caller owns *settings. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                                   const fsdp_tokenize_inputs *inputs,
                                                   fsdp_tokenize_format format, int width,
                                                   fsdp_json **settings);
