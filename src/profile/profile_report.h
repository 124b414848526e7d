/* The time in a profile: by category (fsdp_profile_row) and by name of operation
 * (fsdp_profile_name). */
#pragma once
#include <stdio.h>

#include <fsdp/profile.h>

#include "src/trace/trace.h"

enum {
    /* one row for each category, and one for the whole step */
    FSDP_PROFILE_ROWS = FSDP_TRACE_CATEGORIES + 1,
    FSDP_PROFILE_NAMES = 14
};

/* One operation: all trace entries of this rank that have the same name, detail and category. Their
 * times are summed. */
typedef struct fsdp_profile_name {
    const char *name, *detail; /* static strings; detail may be NULL */
    const char *category;      /* static string */
    /* means per step; ms is wall-clock time, cpu_ms is processor time */
    double calls, ms, cpu_ms, device_ms;
} fsdp_profile_name;

/* Set `rows` to the rows of the table of time by category. The times are means over the steps of
 * the trace and over the ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_make_rows(const fsdp_trace *trace, fsdp_group *group,
                                                   fsdp_profile_row rows[FSDP_PROFILE_ROWS]);
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_rows(const fsdp_profile_row rows[FSDP_PROFILE_ROWS],
                                                    FILE *out);
/* Set `names` to the most expensive operations on this rank, and *n to their number, which is at
 * most FSDP_PROFILE_NAMES. They are in descending order of the time on the device. If the trace has
 * no times of the device, they are in descending order of wall-clock time. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_make_names(const fsdp_trace *trace,
                                                    fsdp_profile_name names[FSDP_PROFILE_NAMES],
                                                    size_t *n);
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_names(const fsdp_trace *trace, FILE *out);
