/* The nested maps of Accelerate's configuration files, such as fsdp_config, for the option tables
 * of `fsdp launch` and `fsdp train`. */
#pragma once
#include <fsdp/options.h>

enum {
    FSDP_ACCELERATE_SECTIONS = 7
};
extern const fsdp_options_section fsdp_accelerate_sections[FSDP_ACCELERATE_SECTIONS];
