/* The transport "local", for a world of one: plain memory and no peers. */
#include "src/base/alloc.h"
#include "src/comm/heap.h"

static fsdp_status memory_create(fsdp_group *group, size_t bytes, size_t least,
                                 fsdp_comm_memory *memory, fsdp_comm_offer *offer)
{
    (void)group, (void)least, (void)offer;
    memory->handle = fsdp_heap_alloc_pages(bytes, &memory->data);
    memory->bytes = bytes;
    return memory->handle ? FSDP_OK : fsdp_error_nomem();
}

static void memory_release(fsdp_comm_memory *memory)
{
    fsdp_free(memory->handle);
}

static void close_group(fsdp_group *group)
{
    (void)group;
}

static fsdp_status open_group(const fsdp_comm_world *world, fsdp_group **out)
{
    (void)world;
    fsdp_group *group = fsdp_calloc(1, sizeof *group);
    if (!group)
        return fsdp_error_nomem();
    group->world_size = group->local_world_size = 1;
    fsdp_status status = fsdp_group_init(group, &fsdp_comm_local);
    if (status != FSDP_OK) {
        fsdp_free(group);
        return status;
    }
    *out = group;
    return FSDP_OK;
}

const fsdp_comm_ops fsdp_comm_local = {
    .name = "local",
    .open = open_group,
    .memory_create = memory_create,
    .memory_release = memory_release,
    .close = close_group,
};
