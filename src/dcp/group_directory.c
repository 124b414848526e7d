/* See group_directory.h. */
#include "src/dcp/group_directory.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/hf/stale_files.h"

/* --- what only rank 0 does --- */

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
        FSDP_TRY(place->write(place->arg, dir));
    fsdp_atomic_directory *finished = *target;
    *target = NULL;
    if (finished)
        FSDP_TRY(fsdp_atomic_directory_commit(finished));
    return place->appeared ? place->appeared(place->arg) : FSDP_OK;
}

/* --- what all ranks do together --- */

/* Make the directory on rank 0. On all ranks, `dir` is set to its temporary path. The ranks agree
 * with the length of the path, so that only as many bytes are sent. */
static fsdp_status begin_directory(fsdp_status mine, const fsdp_group_place *place,
                                   fsdp_group *group, fsdp_atomic_directory **target,
                                   char dir[PATH_MAX])
{
    int32_t own = 0;
    int32_t *lengths = fsdp_calloc((size_t)fsdp_group_world_size(group), sizeof *lengths);
    if (mine == FSDP_OK && !lengths)
        mine = FSDP_ERR_NOMEM;
    if (mine == FSDP_OK && fsdp_group_rank(group) == 0) {
        mine = fsdp_group_place_begin(place, target, dir);
        own = mine == FSDP_OK ? (int32_t)strlen(dir) : 0;
    }
    fsdp_status status = fsdp_agree_gather(group, mine, &own, sizeof own, lengths);
    if (status == FSDP_OK && fsdp_group_world_size(group) > 1)
        status = fsdp_broadcast(group, dir, (size_t)lengths[0] + 1, 0);
    fsdp_free(lengths);
    return status;
}

fsdp_status fsdp_group_directory(fsdp_status mine, const fsdp_group_place *place, fsdp_group *group,
                                 fsdp_group_directory_fn *write, void *arg)
{
    fsdp_atomic_directory *target = NULL;
    char dir[PATH_MAX];
    fsdp_status status = begin_directory(mine, place, group, &target, dir);
    if (status == FSDP_OK)
        status = write(arg, dir);
    if (status == FSDP_OK)
        status = fsdp_agree(group, fsdp_group_rank(group) == 0
                                       ? fsdp_group_place_complete(place, dir, &target)
                                       : FSDP_OK);
    fsdp_atomic_directory_discard(target);
    return status;
}
