/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include <fsdp/comm.h>

#include "src/base/io.h"

/* The path of a directory, and what rank 0 does with the directory. Fields that are 0 or NULL have
 * their default meaning. */
typedef struct fsdp_group_place {
    const char *path; /* must be visible to all ranks */
    /* What to do if the directory exists and is not empty. Default: an error. */
    fsdp_existing existing;
    /* True: the directory exists already, as a part of a larger directory that will appear as a
     * whole. Files are written directly into it. If the call fails, the caller removes these files.
     * False: the directory appears complete or not at all. */
    bool is_there;
    /* Selects files to remove from an existing directory (fsdp_atomic_directory_drop()). NULL:
     * fsdp_is_stale_dcp_file(). */
    fsdp_is_stale_fn *is_stale;
    void *is_stale_context;
    /* Called on rank 0 after all ranks have written their files. Writes further files into `dir`.
     * NULL: there are no further files. */
    fsdp_status (*write)(void *arg, const char *dir);
    /* Called on rank 0 when the directory has its final name. May be NULL. */
    fsdp_status (*appeared)(void *arg);
    void *arg;
} fsdp_group_place;

/* Writes this rank's files into `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* Make a temporary directory on rank 0, and call `write` for it on every rank. When `write` has
 * succeeded on all ranks, give the directory its final name. If any rank fails, remove the
 * directory. Collective; if one rank fails, all fail. `write` must itself ensure that it fails on
 * all ranks if it fails on one, because this function does not compare the results of the ranks.
 * The ranks meet twice (Note [Ranks meet three times] in dcp_writer.h), not counting meetings in
 * `write`.
 *
 * @param mine  status of what this rank did before the call
 * @param group NULL: this rank writes alone */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place,
                                                 fsdp_group *group, fsdp_group_directory_fn *write,
                                                 void *arg);

/* The two steps of rank 0 in fsdp_group_directory(), for callers that do the communication between
 * the ranks themselves.
 *
 * The first step, begin(), makes a temporary directory. It sets *target to this directory, and
 * `dir` to its path. If place->is_there, begin() makes no directory. It then leaves *target
 * unchanged, and sets `dir` to place->path.
 *
 * The second step, complete(), calls place->write(), gives the directory its final name, and calls
 * place->appeared(). If a step fails and *target is not NULL, the caller must discard *target. */
FSDP_MUST_CHECK fsdp_status fsdp_group_place_begin(const fsdp_group_place *place,
                                                   fsdp_atomic_directory **target,
                                                   char dir[PATH_MAX]);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete(const fsdp_group_place *place,
                                                      const char *dir,
                                                      fsdp_atomic_directory **target);
