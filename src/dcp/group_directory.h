/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

#include "src/base/io.h"

/* The path of the directory, and what rank 0 does with it. Zero means default. */
typedef struct fsdp_group_place {
    const char *path;       /* must be visible to all ranks */
    fsdp_existing existing; /* what to do if the directory exists; default: an error */
    /* The directory exists, and the caller removes what a failure leaves in it. This is for callers
     * that make several things appear at once. Default: it appears whole or not at all. */
    bool is_there;
    /* Which files of an updated directory are removed, see fsdp_atomic_directory_drop(). Default:
     * fsdp_is_stale_dcp_file(). */
    fsdp_is_stale_fn *is_stale;
    void *is_stale_context;
    /* Called on rank 0 once all ranks have written, to write further files into `dir`. NULL:
     * none. */
    fsdp_status (*write)(void *arg, const char *dir);
    /* Called on rank 0 when the directory has its final name. NULL: nothing. */
    fsdp_status (*appeared)(void *arg);
    void *arg;
} fsdp_group_place;

/* Writes this rank's files into `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* Call `write` for a temporary directory that rank 0 makes. It gets its final name once all ranks
 * are done, or does not appear at all. Collective; if one rank fails, also in `write`, all fail.
 * The ranks meet twice, besides what `write` does.
 *
 * @param mine  what this rank's preparations returned
 * @param group NULL: this rank alone */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place,
                                                 fsdp_group *group, fsdp_group_directory_fn *write,
                                                 void *arg);

/* The part of rank 0, for callers that communicate by themselves. begin() makes *target (NULL if
 * the directory exists), whose temporary path is `dir`. complete() gives it its final name or
 * fails; *target is NULL once nothing is left to discard. */
FSDP_MUST_CHECK fsdp_status fsdp_group_place_begin(const fsdp_group_place *place,
                                                   fsdp_atomic_directory **target,
                                                   char dir[PATH_MAX]);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete(const fsdp_group_place *place,
                                                      const char *dir,
                                                      fsdp_atomic_directory **target);
