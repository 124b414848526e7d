/* The settings that determine what `fsdp tokenize` writes. A run goes on with the output of another
 * one only if both have the same. */
#pragma once
#include "src/tokenize/tokenize.h"

/* Make an object of texts. The caller owns *settings. */
FSDP_MUST_CHECK fsdp_status fsdp_tokenize_settings(const fsdp_tokenize_config *config,
                                                   const fsdp_tokenize_inputs *inputs,
                                                   fsdp_tokenize_format format, int width,
                                                   fsdp_json **settings);
