/* The settings that determine what `fsdp tokenize` writes. A run goes on with the output of another
 * one only if both have the same. */
#pragma once
#include "src/tokenize/tokenize.h"

/* Return the FSDP_USES_* of which rows have one if the setting has an effect on them; 0: on all. */
unsigned fsdp_tokenize_setting_uses(const char *key);
/* Make an object of texts. The caller owns *settings. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                                   const fsdp_tokenize_inputs *inputs,
                                                   fsdp_tokenize_format format, int width,
                                                   fsdp_json **settings);
