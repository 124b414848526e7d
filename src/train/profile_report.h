/* Time of a profile by category and by name. */
#pragma once
#include <stdio.h>

#include <fsdp/profile.h>

#include "src/base/trace.h"

enum {
    FSDP_PROFILE_ROWS = FSDP_TRACE_CATEGORIES + 1 /* and the step */
};

/* Means over the steps of the trace and the ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_make_rows(const fsdp_trace *trace, fsdp_group *group,
                                                   fsdp_profile_row rows[FSDP_PROFILE_ROWS]);
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_rows(const fsdp_profile_row rows[FSDP_PROFILE_ROWS],
                                                    FILE *out);
/* This rank's most expensive names. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_names(const fsdp_trace *trace, FILE *out);
