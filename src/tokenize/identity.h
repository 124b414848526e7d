/* The settings that determine what `fsdp tokenize` writes. A run goes on with the output of an
 * interrupted run only if both have the same settings. */
#pragma once
#include "src/tokenize/tokenize.h"

/* Return a set of FSDP_USES_*: the setting `key` has an effect only on rows that have one of them.
 * 0: it has an effect on all rows. */
unsigned fsdp_tokenize_setting_uses(const char *key);
/* Make a JSON object of all settings of a run, as texts. The caller owns *settings. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                                   const fsdp_tokenize_inputs *inputs,
                                                   fsdp_tokenize_format format, int width,
                                                   fsdp_json **settings);
