/* What `fsdp train` and `fsdp bench train` add to profiles. */
#pragma once
#include <fsdp/profile.h>

#include "src/profile/profile_report.h"

enum {
    FSDP_PROFILE_WARM_UP = 3, /* steps before the window, unless it is given */
    FSDP_PROFILE_STEPS = 3    /* in it */
};

/* "A:B" (or "A"), steps counted from 1, both in the window; FSDP_ERR_INVALID naming `flag`. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_parse_steps(const char *flag, const char *text,
                                                     int64_t *first, int64_t *last);
/* The window of a run of `total` steps, of which `begun` were taken before this process, which is
 * to take some: that of `text`, which must lie in the rest; NULL: a few steps after the warm-up, or
 * the last ones of a run that is too short for that. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_choose_steps(const char *flag, const char *text,
                                                      int64_t begun, int64_t total,
                                                      fsdp_profile_options *options);
/* What is most expensive on this rank, as fsdp_profile_print() shows it; *n 0 before the window has
 * ended. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_names(const fsdp_profile *profile,
                                               fsdp_profile_name names[FSDP_PROFILE_NAMES],
                                               size_t *n);
