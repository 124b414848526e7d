/* Stores offloaded parameters: this rank's rows are in a file while they are not used (Note [Staged
 * storages] in src/tensor/offload.h). A gather reads and casts them. A prefetch only starts to read
 * them. */
#include "src/fsdp/storage_copy.h"

static bool fits(const fsdp_param *p, fsdp_dtype dtype)
{
    (void)dtype;
    return p->context->offload != NULL;
}

static fsdp_status create_local(const fsdp_param_memories *memories, const fsdp_param *p,
                                const int64_t *shape, fsdp_tensor **local)
{
    return fsdp_create_private_local(memories->items[FSDP_MEMORY_COPY], p, shape, local);
}

const fsdp_param_storage fsdp_storage_offloaded = {.name = "offloaded",
                                                   .fits = fits,
                                                   .unsharded = FSDP_MEMORY_COPY,
                                                   .sharded = FSDP_MEMORY_COPY,
                                                   .create_local = create_local,
                                                   .own_rows_of_copy = fsdp_own_rows_in_copy};
