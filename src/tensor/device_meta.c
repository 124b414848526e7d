/* The meta device has no data. Operations compute shapes, the allocator counts memory, and no
 * kernel runs. */
#include "src/tensor/device.h"

static fsdp_status meta_open(fsdp_device *device, const fsdp_device_options *options)
{
    /* In some builds, each block of host memory is an allocation of its own (blocks_are_alone). In
     * these builds, plans for the CPU count memory in the same way. */
    fsdp_memory_source source = fsdp_host_memory_source();
    if (strcmp(options->name, "meta:cuda") == 0) {
        device->traits = &fsdp_cuda_traits;
        source.blocks_are_alone = false;
    }
    source.growth_bytes = device->traits->growth_bytes;
    source.meta = true;
    return fsdp_allocator_create_from(&source, &device->allocator);
}

static void meta_close(fsdp_device *device)
{
    fsdp_allocator_destroy(device->allocator);
}

static bool meta_is_bf16_supported(const fsdp_device *device)
{
    (void)device;
    return false;
}

const fsdp_device_ops fsdp_device_meta = {.name = "meta",
                                          .open = meta_open,
                                          .close = meta_close,
                                          .is_bf16_supported = meta_is_bf16_supported};
