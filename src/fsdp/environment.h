/* Reads the variables that Accelerate's launcher sets, for callers in other folders. */
#pragma once
#include <fsdp/fsdp.h>

/* Do what fsdp_options_from_environment() does. If `has_precision` is true, the caller gets the
 * precision from an argument. In this case, do not read ACCELERATE_MIXED_PRECISION, and set
 * mp_policy to {0}. */
FSDP_MUST_CHECK fsdp_status fsdp_environment_read(bool has_precision,
                                                  fsdp_environment_options *environment);
