/* The settings that determine what `fsdp tokenize` writes. With --resume, a run continues the
 * output of an interrupted run only if both runs have the same settings. */
#pragma once
#include "src/tokenize/tokenize.h"

/* Return the kinds of data (FSDP_USES_* flags of src/data/rows/rows_form.h) that the setting `key`
 * can affect. A setting affects a data set only if the data set has one of these flags. If the
 * result is 0, the setting can affect every data set. */
unsigned fsdp_tokenize_setting_uses(const char *key);
/* Create a JSON object with all settings of a run. The values are strings. The caller owns
 * *settings. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                                   const fsdp_tokenize_inputs *inputs,
                                                   fsdp_tokenize_format format, int width,
                                                   fsdp_json **settings);
