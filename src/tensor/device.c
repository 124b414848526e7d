/* Devices by name. */
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/kernels/cpu/product.h"
#include "src/tensor/device.h"

const char *fsdp_tag_name(fsdp_tag tag)
{
    static const char *const names[FSDP_TAG_COUNT] = {
        [FSDP_TAG_PARAM] = "param",           [FSDP_TAG_GRAD] = "grad", [FSDP_TAG_OPTIM] = "optim",
        [FSDP_TAG_ACTIVATION] = "activation", [FSDP_TAG_COMM] = "comm", [FSDP_TAG_DATA] = "data",
    };
    return names[tag];
}

fsdp_status fsdp_device_create(const fsdp_device_options *options, fsdp_device **out)
{
    static const fsdp_device_options defaults = {0};
    if (!options)
        options = &defaults;
    const char *name = options->name ? options->name : "cpu";
    bool meta = strcmp(name, "meta") == 0;
    if (!meta && strcmp(name, "cpu") != 0)
        return fsdp_error(FSDP_ERR_INVALID, "unknown device '%s' (known: cpu, meta)", name);
    if (options->threads < 0)
        return fsdp_error(FSDP_ERR_INVALID, "threads %d is negative", options->threads);
    fsdp_device *device = fsdp_calloc(1, sizeof *device);
    if (!device)
        return FSDP_ERR_NOMEM;
    device->name = meta ? "meta" : "cpu";
    const char *isa = options->isa ? options->isa : getenv("FSDP_ISA");
    fsdp_status status = fsdp_allocator_create(meta, &device->allocator);
    if (status == FSDP_OK && !meta)
        status = fsdp_kernels_cpu_open(isa, options->threads ? options->threads : 1,
                                       &device->context, &device->kernels);
    if (status != FSDP_OK) {
        fsdp_device_destroy(device);
        return status;
    }
    *out = device;
    return FSDP_OK;
}

void fsdp_device_destroy(fsdp_device *device)
{
    if (!device)
        return;
    if (device->context)
        fsdp_kernels_cpu_close(device->context);
    fsdp_allocator_destroy(device->allocator);
    fsdp_free(device);
}

const char *fsdp_device_name(const fsdp_device *device)
{
    return device->name;
}

bool fsdp_device_is_meta(const fsdp_device *device)
{
    return !device->kernels;
}

bool fsdp_device_is_bf16_supported(const fsdp_device *device)
{
    return device->context && fsdp_cpu_multiplies_bf16(device->context);
}

void fsdp_device_memory(const fsdp_device *device, fsdp_memory_stats *stats)
{
    *stats = *fsdp_allocator_stats(device->allocator);
}

void fsdp_device_reset_peak_memory(fsdp_device *device)
{
    fsdp_allocator_reset_peak(device->allocator);
}
