/* A directory that the ranks of a group write together. */
#pragma once
#include <limits.h>

#include "src/base/io.h"
#include "src/dcp/disks.h"

/* The path of a directory, and what rank 0 does with the directory. Fields that are 0 or NULL have
 * their default meaning. */
typedef struct fsdp_group_place {
    const char *path;
    /* False: the directory must be the same for all ranks; if hosts see different ones, saving
     * fails. True: each host may have a directory of its own (Note [Hosts' own disks] in
     * disks.h). */
    bool may_be_on_disks;
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
    /* Writes one further file into `dir` on rank 0, after all ranks have written their files. If
     * all ranks see the same directory, only rank 0 calls write(), and `disks` is NULL. If hosts
     * have disks of their own, write() is collective: all ranks call it, and `disks` describes the
     * disks. NULL: there is no further file. */
    fsdp_status (*write)(void *arg, const char *dir, const fsdp_disks *disks);
    const char *further; /* name of the file that write() writes; not used if `write` is NULL */
    /* Called when the directory has its final name. If all ranks see the same directory, only rank
     * 0 calls appeared(), and `disks` is NULL. If hosts have disks of their own, appeared() is
     * collective: all ranks call it when the directories of all hosts have their final names. May
     * be NULL. */
    fsdp_status (*appeared)(void *arg, const fsdp_disks *disks);
    void *arg;
} fsdp_group_place;

/* Write this rank's files into `dir`. Collective. */
typedef fsdp_status fsdp_group_directory_fn(void *arg, const char *dir);
/* Make a temporary directory on rank 0, or on the leader of each disk if hosts have disks of their
 * own, and call `write` for it on every rank. When `write` has succeeded on all ranks, give the
 * directory its final name. If any rank fails, remove the directory. Collective; if one rank fails,
 * all fail. `write` must itself ensure that it fails on all ranks if it fails on one, because this
 * function does not compare the results of the ranks. The ranks meet twice (Note [Ranks meet three
 * times] in dcp_writer.h), not counting meetings in `write`.
 *
 * @param mine  status of what this rank did before the call
 * @param group NULL: this rank writes alone */
FSDP_MUST_CHECK fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place,
                                                 fsdp_group *group, fsdp_group_directory_fn *write,
                                                 void *arg);

/* The steps of fsdp_group_directory(), for callers that do other communication between them.
 *
 * fsdp_group_place_find_disks() finds out which ranks see the same directory (fsdp_disks_find()),
 * and fails if they see different directories and place->may_be_on_disks is false. It is collective
 * if the ranks are on several hosts and place->is_there is false. In all other cases, it only
 * returns `mine`, and all ranks are taken to see the same directory.
 *
 * fsdp_group_place_begin() is called on the leaders of the disks. It makes a temporary directory,
 * sets *target to it, and sets `dir` to its path. If place->is_there, it makes no directory: it
 * leaves *target unchanged, and sets `dir` to place->path. fsdp_disks_share_path() then gives the
 * path to the other ranks.
 *
 * fsdp_group_place_complete() is called on rank 0 if all ranks see the same directory. It calls
 * place->write(), gives the directory its final name, and calls place->appeared(). If it fails and
 * *target is not NULL, the caller must discard *target.
 *
 * fsdp_group_place_complete_on_disks() does the same on all ranks if there are several disks. It is
 * collective, and fails on all ranks if `mine` is an error or a step fails on one rank. Rank 0's
 * file `listing` (NULL: none) is in `dir` already, and is copied to the other disks together with
 * place->further. @{ */
FSDP_MUST_CHECK fsdp_status fsdp_group_place_find_disks(fsdp_status mine,
                                                        const fsdp_group_place *place,
                                                        fsdp_group *group, fsdp_disks *disks);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_begin(const fsdp_group_place *place,
                                                   fsdp_atomic_directory **target,
                                                   char dir[PATH_MAX]);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete(const fsdp_group_place *place,
                                                      const char *dir,
                                                      fsdp_atomic_directory **target);
FSDP_MUST_CHECK fsdp_status fsdp_group_place_complete_on_disks(
    fsdp_status mine, const fsdp_group_place *place, fsdp_group *group, const fsdp_disks *disks,
    const char *listing, const char *dir, fsdp_atomic_directory **target);
/* @} */
