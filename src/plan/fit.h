/* `fsdp plan --fit SIZE`: finds changes of a run with which a rank needs at most SIZE bytes.
 *
 * The candidates are in a table in fit.c, in the order of what they cost: first those that cost
 * little time, then those that change the numbers of the run, and last those that change what is
 * trained or that make steps as slow as a disk. The cheapest candidate that saves memory is added,
 * again and again, until the run fits. Then each added candidate, the most costly first, is removed
 * again if the run fits without it. If a candidate contradicts a cheaper one that was added before,
 * it replaces the cheaper one. At the end, the cheaper one is chosen again if the run also fits
 * with it. Sets that the command line would refuse are not tried (fsdp_remedy_is_accepted()). A
 * plan (plan.h) is made for every set of candidates that is tried, so nothing is estimated. */
#pragma once
#include <stdio.h>

#include "src/plan/plan.h"

/* A set of candidates that was tried. */
typedef struct fsdp_fit_row {
    char *flags;           /* the flags that these candidates add to the command line; owned */
    fsdp_plan_memory peak; /* memory of one rank's tensors at the peak */
    int64_t rank_bytes;    /* fsdp_plan_rank_bytes() of the plan with these flags */
} fsdp_fit_row;

enum {
    FSDP_FIT_CANDIDATES = 14 /* candidates in the table of fit.c */
};

typedef struct fsdp_fit {
    int64_t limit; /* bytes that a rank may have */
    bool fits;
    /* The first row is the run as it was given, with empty flags. Each of the next rows has the
     * candidates of the row before it, and one more. */
    fsdp_fit_row *rows;
    size_t n_rows, cap_rows;
    /* The set of candidates that is proposed: one with which the run fits or, if there is none, the
     * one that needs the least memory. `flags` has all flags that are to be added to the run; "":
     * the run fits as it was given. */
    fsdp_fit_row proposal;
    fsdp_plan *plan; /* the plan of the proposal */
    /* [n_costs] what the candidates of the proposal cost: static texts that begin with a flag */
    const char *costs[FSDP_FIT_CANDIDATES];
    int n_costs;
} fsdp_fit;

/* Find a set of changes with which a rank of the run needs at most `limit` bytes.
 *
 * @param fit out: owned by the caller
 * @return the errors of fsdp_plan_create() for the run as it was given */
FSDP_MUST_CHECK fsdp_status fsdp_fit_create(const fsdp_train_config *config, int world_size,
                                            int local_world_size, int64_t limit, fsdp_fit **fit);
void fsdp_fit_destroy(fsdp_fit *fit); /* accepts NULL */

/* Print the rows as a table, and below it the proposal and what it costs. */
FSDP_MUST_CHECK fsdp_status fsdp_fit_print(const fsdp_fit *fit, FILE *out);
/* Print the rows and the proposal as one JSON object. */
FSDP_MUST_CHECK fsdp_status fsdp_fit_print_json(const fsdp_fit *fit, FILE *out);
/* Return FSDP_ERR_NOMEM if the run fits with no set of candidates. The message contains the set
 * that needs the least memory. */
FSDP_MUST_CHECK fsdp_status fsdp_fit_check(const fsdp_fit *fit);
