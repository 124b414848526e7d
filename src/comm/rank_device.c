/* Creates the device of a rank of a group. */
#include <stdlib.h>

#include "src/comm/agree.h"
#include "src/comm/cards/cards.h"
#include "src/comm/comm.h"
#include "src/tensor/device.h"

fsdp_status fsdp_rank_device_create(fsdp_group *group, const fsdp_device_options *options,
                                    fsdp_device **device)
{
    fsdp_device_options own = *options;
    const char *environment = getenv("FSDP_DEVICE");
    fsdp_device *created = NULL;
    if (!own.name && !(environment && *environment))
        own.name = "auto";
    if (own.threads == 0)
        FSDP_TRY(fsdp_default_threads(group, &own.threads));
    own.local_rank = fsdp_group_local_rank(group);
    fsdp_status status = fsdp_agree(group, fsdp_device_create(&own, &created));
    if (status == FSDP_OK)
        status = fsdp_group_find_cards(group, created);
    if (status == FSDP_OK)
        *device = created;
    else
        fsdp_device_destroy(created);
    return status;
}
