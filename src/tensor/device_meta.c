/* The meta device has no data. Operations compute shapes, the allocator counts memory, and no
 * kernel runs. */
#include "src/tensor/device.h"

static fsdp_status meta_open(fsdp_device *device, const fsdp_device_options *options)
{
    (void)options;
    return fsdp_allocator_create(true, &device->allocator);
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
