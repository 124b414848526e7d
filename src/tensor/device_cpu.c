/* The CPU device. When the call of a kernel returns, the kernel has run, so there is no stream. */
#include "src/kernels/cpu/product.h"
#include "src/tensor/device.h"

static fsdp_status cpu_open(fsdp_device *device, const fsdp_device_options *options)
{
    FSDP_TRY(fsdp_allocator_create(false, &device->allocator));
    return fsdp_kernels_cpu_open(options->isa, options->threads, &device->context,
                                 &device->kernels);
}

static void cpu_close(fsdp_device *device)
{
    fsdp_kernels_cpu_close(device->context);
    fsdp_allocator_destroy(device->allocator);
}

static bool cpu_is_bf16_supported(const fsdp_device *device)
{
    return fsdp_cpu_multiplies_bf16(device->context);
}

static fsdp_status cpu_gemm_rate(fsdp_device *device, const fsdp_gemm_args *product, double seconds,
                                 double *gflops)
{
    return fsdp_kernels_cpu_gemm_rate(device->context, product, seconds, gflops);
}

const fsdp_device_ops fsdp_device_cpu = {.name = "cpu",
                                         .open = cpu_open,
                                         .close = cpu_close,
                                         .is_bf16_supported = cpu_is_bf16_supported,
                                         .gemm_rate = cpu_gemm_rate};
