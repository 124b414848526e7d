/* See group_directory.h. */
#include "src/ckpt/group_directory.h"

#include <stdio.h>

#include "src/comm/agree.h"

fsdp_status fsdp_group_directory_begin(const char *path, fsdp_group *group, fsdp_existing existing,
                                       fsdp_atomic_directory **target, char meanwhile[PATH_MAX])
{
    fsdp_status status = FSDP_OK;
    if (!group || fsdp_group_rank(group) == 0) {
        status = fsdp_atomic_directory_begin(path, existing, target);
        if (status == FSDP_OK) /* longer paths cannot be made */
            snprintf(meanwhile, PATH_MAX, "%s", fsdp_atomic_directory_path(*target));
    }
    status = fsdp_agree(group, status);
    return status == FSDP_OK && group ? fsdp_broadcast(group, meanwhile, PATH_MAX, 0) : status;
}

fsdp_status fsdp_group_directory(const char *path, fsdp_group *group, fsdp_existing existing,
                                 fsdp_group_directory_fn *write, void *arg)
{
    fsdp_atomic_directory *target = NULL;
    char meanwhile[PATH_MAX] = {0};
    fsdp_status status = fsdp_group_directory_begin(path, group, existing, &target, meanwhile);
    if (status == FSDP_OK)
        status = write(arg, meanwhile);
    if (status != FSDP_OK) {
        fsdp_atomic_directory_discard(target);
        return status;
    }
    return fsdp_agree(group, target ? fsdp_atomic_directory_commit(target) : FSDP_OK);
}
