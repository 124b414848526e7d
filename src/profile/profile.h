/* Functions of the profiler that `fsdp train` and `fsdp bench train` need besides those of
 * <fsdp/profile.h>. The window is the range of steps that are profiled. */
#pragma once
#include <fsdp/profile.h>

#include "src/profile/profile_report.h"

enum {
    FSDP_PROFILE_WARM_UP = 3, /* steps before the window, if the user gave no window */
    FSDP_PROFILE_STEPS = 3    /* steps in the window, if the user gave no window */
};

/* Parse "A:B" or "A" into the first and the last step of the window, counted from 1. For any other
 * text, return FSDP_ERR_INVALID with a message that names `flag`. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_parse_steps(const char *flag, const char *text,
                                                     int64_t *first, int64_t *last);
/* Set the window in `options`. The run has `total` steps. Earlier processes have run the first
 * `begun` of these steps, and this process runs the others. `text` is "A:B" or "A", as in
 * fsdp_profile_parse_steps(). The window must be among the steps that this process runs. If `text`
 * is NULL, the window is the FSDP_PROFILE_STEPS steps after FSDP_PROFILE_WARM_UP steps of warm-up.
 * If too few steps are left for this, the warm-up is shorter, and the window is the last steps of
 * the run. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_choose_steps(const char *flag, const char *text,
                                                      int64_t begun, int64_t total,
                                                      fsdp_profile_options *options);
/* Set `names` to the most expensive operations on this rank, as fsdp_profile_print() shows them,
 * and *n to their number. *n is 0 before the window has ended. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_names(const fsdp_profile *profile,
                                               fsdp_profile_name names[FSDP_PROFILE_NAMES],
                                               size_t *n);
