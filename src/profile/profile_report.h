/* The time in a profile, by category and by name. */
#pragma once
#include <stdio.h>

#include <fsdp/profile.h>

#include "src/trace/trace.h"

enum {
    FSDP_PROFILE_ROWS = FSDP_TRACE_CATEGORIES + 1, /* a row for each category and one for the whole
                                                      step */
    FSDP_PROFILE_NAMES = 14
};

/* The sum of all trace entries with one name on this rank. */
typedef struct fsdp_profile_name {
    const char *name, *detail; /* static; detail may be NULL */
    const char *category;      /* static */
    double calls, ms, cpu_ms;  /* per step */
} fsdp_profile_name;

/* Make the rows. They are means over the steps of the trace and over the ranks. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_make_rows(const fsdp_trace *trace, fsdp_group *group,
                                                   fsdp_profile_row rows[FSDP_PROFILE_ROWS]);
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_rows(const fsdp_profile_row rows[FSDP_PROFILE_ROWS],
                                                    FILE *out);
/* Get the names of the most expensive operations on this rank, in descending order of time. */
FSDP_MUST_CHECK fsdp_status fsdp_profile_make_names(const fsdp_trace *trace,
                                                    fsdp_profile_name names[FSDP_PROFILE_NAMES],
                                                    size_t *n);
FSDP_MUST_CHECK fsdp_status fsdp_profile_print_names(const fsdp_trace *trace, FILE *out);
