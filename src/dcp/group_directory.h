/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

#include "src/base/io.h"

/* Where it goes, and what rank 0 does about it. Zero means default. */
typedef struct fsdp_group_place {
    const char *path;       /* which all ranks must see */
    fsdp_existing existing; /* what to do with a directory that is there; default: refuse it */
    /* The directory exists, and what a failure leaves in it is the caller's to remove: for those
     * who make more appear at once. Default: it appears whole or not at all. */
    bool is_there;
    /* Which files of a directory that is updated go, see fsdp_atomic_directory_drop(). Default:
     * those of fsdp_is_stale_dcp_file() */
    fsdp_is_stale_fn *is_stale;
    void *is_stale_context;
    /* Rank 0, once all ranks have written: further files for folder `dir`. NULL: none */
    fsdp_status (*write)(void *arg, const char *dir);
    /* Rank 0: it has appeared. NULL: nothing */
    fsdp_status (*appeared)(void *arg);
    void *arg;
} fsdp_group_place;

/* Writes this rank's part of what is in `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* `write` into a temporary directory that rank 0 makes, and that appears once all ranks are done:
 * whole or not at all. Collective; a failure of one rank is one of all, also of `write`. Beside
 * what `write` does the ranks meet twice.
 *
 * @param mine  what this rank's preparations returned
 * @param group NULL: this rank alone */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place,
                                                 fsdp_group *group, fsdp_group_directory_fn *write,
                                                 void *arg);

/* What rank 0 does of that, for callers whose ranks meet by themselves: begin *target (NULL if the
 * directory is there), to be written meanwhile as `dir`; and complete it: it has appeared or
 * failed, and *target is NULL once nothing is left to be discarded. */
FSDP_MUST_CHECK fsdp_status fsdp_group_place_begin(const fsdp_group_place *place,
                                                   fsdp_atomic_directory **target,
                                                   char dir[PATH_MAX]);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete(const fsdp_group_place *place,
                                                      const char *dir,
                                                      fsdp_atomic_directory **target);
