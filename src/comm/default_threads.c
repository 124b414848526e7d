/* Chooses the number of threads per rank. Ranks whose affinity masks are equal share the cores of
 * this mask. The CPU quota of a container may allow fewer threads. */
#include <string.h>

#include <fsdp/comm.h>

#include "src/base/alloc.h"
#include "src/base/cpus.h"
#include "src/comm/group.h"

fsdp_status fsdp_default_threads(fsdp_group *group, int *threads)
{
    int world_size = fsdp_group_world_size(group);
    fsdp_cpu_mask mine, *all = fsdp_calloc((size_t)world_size, sizeof *all);
    if (!all)
        return FSDP_ERR_NOMEM;
    fsdp_cpu_mask_get(&mine);
    all[0] = mine;
    fsdp_status status = FSDP_OK;
    if (world_size > 1)
        status = fsdp_all_gather(group, &mine, sizeof mine, all);
    int sharing = 0;
    for (int r = 0; r < world_size; r++)
        sharing +=
            memcmp(&all[r], &mine, sizeof mine) == 0 && (!group || fsdp_group_is_here(group, r));
    fsdp_free(all);
    if (status != FSDP_OK)
        return status;
    int share = fsdp_cpu_mask_count(&mine) / (sharing > 0 ? sharing : 1);
    const int quota =
        fsdp_cpu_quota(""); /* the ranks of a host are in one cgroup and share its quota */
    const int local = fsdp_group_local_world_size(group);
    if (quota > 0 && quota / local < share)
        share = quota / local;
    *threads = share > 1 ? share : 1;
    if (group)
        fsdp_group_set_threads(group, *threads);
    return FSDP_OK;
}
