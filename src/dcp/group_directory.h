/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

#include "src/base/io.h"

/* The path of the directory, and what rank 0 does with it. A field that is zero has its default. */
typedef struct fsdp_group_place {
    const char *path;       /* must be visible to all ranks */
    fsdp_existing existing; /* what to do if the directory exists; default: an error */
    /* The directory exists already. Files are written directly into it, and if the call fails, the
     * caller removes them. This is for a directory inside a larger one that appears as a whole.
     * Default: the directory appears complete or not at all. */
    bool is_there;
    /* Selects the files that are removed from an existing directory (fsdp_atomic_directory_drop()).
     * Default: fsdp_is_stale_dcp_file(). */
    fsdp_is_stale_fn *is_stale;
    void *is_stale_context;
    /* Writes further files into `dir`. Called on rank 0 after all ranks have written. NULL: there
     * are no further files. */
    fsdp_status (*write)(void *arg, const char *dir);
    /* Called on rank 0 when the directory has its final name. May be NULL. */
    fsdp_status (*appeared)(void *arg);
    void *arg;
} fsdp_group_place;

/* Writes this rank's files into `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* Make a temporary directory on rank 0, and call `write` for it on every rank. The directory gets
 * its final name after all ranks are done, or does not appear at all. Collective; if one rank
 * fails, all fail. `write` must fail on all ranks or on none, because the ranks do not compare its
 * results. The ranks meet twice, in addition to meetings in `write`.
 *
 * @param mine  status of this rank's preparations
 * @param group NULL: this rank writes alone */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place,
                                                 fsdp_group *group, fsdp_group_directory_fn *write,
                                                 void *arg);

/* The work of rank 0, for callers that communicate by themselves. begin() makes the directory
 * *target, whose temporary path is `dir`. If place->is_there, it makes no directory, and *target
 * does not change. complete() calls place->write(), gives the directory its final name and calls
 * place->appeared(). If *target is not NULL after a failure, the caller must discard it. */
FSDP_MUST_CHECK fsdp_status fsdp_group_place_begin(const fsdp_group_place *place,
                                                   fsdp_atomic_directory **target,
                                                   char dir[PATH_MAX]);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete(const fsdp_group_place *place,
                                                      const char *dir,
                                                      fsdp_atomic_directory **target);
