/* See agree.h. */
#include <stdio.h>

#include "src/base/alloc.h"
#include "src/comm/agree.h"
#include "src/comm/group.h"

typedef struct outcome {
    int status;
    char message[508];
} outcome;

fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine)
{
    int world_size = fsdp_group_world_size(group);
    if (world_size == 1)
        return mine;
    outcome own = {.status = (int)mine}, *all;
    if (mine != FSDP_OK)
        snprintf(own.message, sizeof own.message, "%s", fsdp_last_error());
    all = fsdp_calloc((size_t)world_size, sizeof *all);
    if (!all) { /* this rank cannot even ask */
        fsdp_group_abort(group, FSDP_ERR_NOMEM);
        return FSDP_ERR_NOMEM;
    }
    fsdp_status status = fsdp_all_gather(group, &own, sizeof own, all);
    group->culprit = 0;
    /* A peer that has all answers may abort the group before this rank has. */
    if (status != FSDP_OK && mine != FSDP_OK) {
        fsdp_free(all);
        return fsdp_error(mine, "%s", own.message);
    }
    for (int r = 0; status == FSDP_OK && r < world_size; r++) {
        if (all[r].status == FSDP_OK)
            continue;
        status = (fsdp_status)all[r].status;
        group->culprit = 1 + fsdp_group_world_rank(group, r);
        if (r == fsdp_group_rank(group))
            break;
        fsdp_error(status, "rank %d: %s", group->culprit - 1, all[r].message);
        break;
    }
    fsdp_free(all);
    return status;
}
