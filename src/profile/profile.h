/* Additions to <fsdp/profile.h> for `fsdp train` and `fsdp bench train`. */
#pragma once
#include <fsdp/profile.h>

#include "src/profile/profile_report.h"

enum {
    FSDP_PROFILE_WARM_UP = 3, /* steps before the window, unless the user gave a window */
    FSDP_PROFILE_STEPS = 3    /* steps in the window */
};

/* Parse "A:B" or "A": the first and the last step of the window, counted from 1. For other text,
 * return FSDP_ERR_INVALID with a message that names `flag`. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_parse_steps(const char *flag, const char *text,
                                                     int64_t *first, int64_t *last);
/* Choose the window in a run of `total` steps, of which `begun` were run before this process
 * started. `text` gives the window, which must be within the remaining steps. If `text` is NULL,
 * the window is a few steps after the warm-up. If the run is too short for a full warm-up, the
 * window is its last steps. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_choose_steps(const char *flag, const char *text,
                                                      int64_t begun, int64_t total,
                                                      fsdp_profile_options *options);
/* Get the names of the most expensive operations on this rank, as fsdp_profile_print() shows them.
 * *n is 0 before the window has ended. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_names(const fsdp_profile *profile,
                                               fsdp_profile_name names[FSDP_PROFILE_NAMES],
                                               size_t *n);
