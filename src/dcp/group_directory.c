/* See group_directory.h. */
#include "src/dcp/group_directory.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/hf/stale_files.h"

/* --- what the leaders of disks do --- */

fsdp_status fsdp_group_place_begin(const fsdp_group_place *place, fsdp_atomic_directory **target,
                                   char dir[PATH_MAX])
{
    const char *meanwhile = place->path;
    if (!place->is_there) {
        FSDP_TRY(fsdp_atomic_directory_begin(place->path, place->existing, target));
        fsdp_atomic_directory_drop(*target,
                                   place->is_stale ? place->is_stale : fsdp_is_stale_dcp_file,
                                   place->is_stale_context);
        meanwhile = fsdp_atomic_directory_path(*target);
    }
    if (snprintf(dir, PATH_MAX, "%s", meanwhile) >= PATH_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "%s: the path is too long", place->path);
    return FSDP_OK;
}

fsdp_status fsdp_group_place_complete(const fsdp_group_place *place, const char *dir,
                                      fsdp_atomic_directory **target)
{
    if (place->write)
        FSDP_TRY(place->write(place->arg, dir, NULL));
    fsdp_atomic_directory *finished = *target;
    *target = NULL;
    if (finished)
        FSDP_TRY(fsdp_atomic_directory_commit(finished));
    return place->appeared ? place->appeared(place->arg, NULL) : FSDP_OK;
}

/* --- what all ranks do together --- */

fsdp_status fsdp_group_place_find_disks(fsdp_status mine, const fsdp_group_place *place,
                                        fsdp_group *group, fsdp_disks *disks)
{
    *disks = (fsdp_disks){.n = 1};
    if (place->is_there)
        return mine;
    mine = fsdp_disks_find(mine, place->path, group, disks);
    if (mine != FSDP_OK || disks->n == 1 || place->may_be_on_disks)
        return mine;
    mine =
        fsdp_error(FSDP_ERR_INVALID,
                   "%s: %s and %s do not see the same folder there. These files can be saved only "
                   "on a file system that all hosts share",
                   place->path, fsdp_group_host_text(group, 0).text,
                   fsdp_group_host_text(group, disks->leaders[1]).text);
    fsdp_disks_fini(disks);
    return mine;
}

/* Make the directory on the leader of each disk. On all ranks, `dir` is set to its temporary path.
 * The ranks send the length of the path together with their status, so that the broadcast of the
 * path has exactly this length. */
static fsdp_status begin_directory(fsdp_status mine, const fsdp_group_place *place,
                                   fsdp_group *group, const fsdp_disks *disks,
                                   fsdp_atomic_directory **target, char dir[PATH_MAX])
{
    int32_t own = 0;
    int32_t *lengths = fsdp_calloc((size_t)fsdp_group_world_size(group), sizeof *lengths);
    if (mine == FSDP_OK && !lengths)
        mine = FSDP_ERR_NOMEM;
    if (mine == FSDP_OK && fsdp_disks_leads(disks, fsdp_group_rank(group))) {
        mine = fsdp_group_place_begin(place, target, dir);
        own = mine == FSDP_OK ? (int32_t)strlen(dir) : 0;
    }
    fsdp_status status = fsdp_agree_gather(group, mine, &own, sizeof own, lengths);
    if (status == FSDP_OK && disks->n > 1)
        status = fsdp_disks_share_path(disks, group, dir);
    else if (status == FSDP_OK && fsdp_group_world_size(group) > 1)
        status = fsdp_broadcast(group, dir, (size_t)lengths[0] + 1, 0);
    fsdp_free(lengths);
    return status;
}

/* If `status` is an error, prepend the name of this rank's host to its message. Return `status`. */
static fsdp_status with_host(const fsdp_group *group, fsdp_status status)
{
    fsdp_error_context(status, "%s", fsdp_group_host_text(group, fsdp_group_rank(group)).text);
    return status;
}

static fsdp_status write_here(const fsdp_group *group, const char *path, const void *data,
                              size_t bytes)
{
    return with_host(group, fsdp_file_write(path, data, bytes));
}

/* Copy rank 0's file `name` in `dir` to the directories of the other leaders. Collective. */
static fsdp_status copy_to_disks(fsdp_group *group, const fsdp_disks *disks, const char *dir,
                                 const char *name)
{
    const int rank = fsdp_group_rank(group);
    fsdp_mapping map = {0};
    char *path = fsdp_path_join(dir, name), *got = NULL;
    fsdp_status status = path ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && rank == 0)
        status = fsdp_file_map(path, &map);
    uint64_t bytes = map.bytes;
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = fsdp_broadcast(group, &bytes, sizeof bytes, 0);
    if (status == FSDP_OK) {
        got = fsdp_calloc((size_t)bytes + 1, 1);
        if (got && rank == 0 && bytes)
            memcpy(got, map.data, (size_t)bytes);
        status = fsdp_agree(group, got ? FSDP_OK : FSDP_ERR_NOMEM);
    }
    if (status == FSDP_OK)
        status = fsdp_broadcast(group, got, (size_t)bytes, 0);
    if (status == FSDP_OK)
        status = fsdp_agree(group, rank != 0 && fsdp_disks_leads(disks, rank)
                                       ? write_here(group, path, got, (size_t)bytes)
                                       : FSDP_OK);
    fsdp_file_unmap(&map);
    fsdp_free(got);
    fsdp_free(path);
    return status;
}

/* Give the directory of each disk its final name. All files in it are on the disk already, so a
 * full disk or a failed write has been reported before any directory gets its name. */
static fsdp_status commit_on_disks(fsdp_group *group, fsdp_atomic_directory **target)
{
    fsdp_atomic_directory *finished = *target;
    *target = NULL;
    return fsdp_agree(group, finished ? with_host(group, fsdp_atomic_directory_commit(finished))
                                      : FSDP_OK);
}

fsdp_status fsdp_group_place_complete_on_disks(fsdp_status mine, const fsdp_group_place *place,
                                               fsdp_group *group, const fsdp_disks *disks,
                                               const char *listing, const char *dir,
                                               fsdp_atomic_directory **target)
{
    FSDP_TRY(fsdp_agree(group, mine));
    if (place->write)
        FSDP_TRY(fsdp_agree(group, place->write(place->arg, dir, disks)));
    if (listing)
        FSDP_TRY(copy_to_disks(group, disks, dir, listing));
    if (place->write)
        FSDP_TRY(copy_to_disks(group, disks, dir, place->further));
    FSDP_TRY(commit_on_disks(group, target));
    return place->appeared ? fsdp_agree(group, place->appeared(place->arg, disks)) : FSDP_OK;
}

static fsdp_status complete_directory(const fsdp_group_place *place, fsdp_group *group,
                                      const fsdp_disks *disks, const char *dir,
                                      fsdp_atomic_directory **target)
{
    if (disks->n > 1)
        return fsdp_group_place_complete_on_disks(FSDP_OK, place, group, disks, NULL, dir, target);
    return fsdp_agree(group, fsdp_group_rank(group) == 0
                                 ? fsdp_group_place_complete(place, dir, target)
                                 : FSDP_OK);
}

fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place, fsdp_group *group,
                                 fsdp_group_directory_fn *write, void *arg)
{
    fsdp_atomic_directory *target = NULL;
    fsdp_disks disks;
    char dir[PATH_MAX];
    fsdp_status status = fsdp_group_place_find_disks(mine, place, group, &disks);
    status = begin_directory(status, place, group, &disks, &target, dir);
    if (status == FSDP_OK)
        status = write(arg, dir);
    if (status == FSDP_OK)
        status = complete_directory(place, group, &disks, dir, &target);
    fsdp_atomic_directory_discard(target);
    fsdp_disks_fini(&disks);
    return status;
}
