/* The fake device, which is for tests. It uses the CPU's kernels, but starts them late, after
 * random delays (src/kernels/fake/stream_testing.h). If the code under test lacks a wait, its
 * results differ, and ThreadSanitizer reports a data race. The fake device has memory of its own,
 * which happens to be at addresses of the host: if the host accesses these addresses directly, it
 * faults (fake_memory_testing.h). */
#include <pthread.h>

#include "src/kernels/cpu/product.h"
#include "src/kernels/fake/stream_testing.h"
#include "src/tensor/device_testing.h"
#include "src/tensor/fake_memory_testing.h"

enum {
    /* A copy from the host of at most this many bytes becomes a command in the stream, which holds
     * a copy of the source bytes. For a larger copy, the host waits for the stream and then copies
     * the bytes itself. */
    LAUNCHED_BYTES = 1 << 16
};

static fsdp_fake_stream *stream_of(const fsdp_device *device)
{
    return (fsdp_fake_stream *)(void *)device->context;
}

static void wait_for_all(void *device)
{
    if (fsdp_device_synchronize(device) != FSDP_OK)
        return; /* no error is returned here, because each later wait returns it */
}

/* The traits of the CPU, except that joins_products and joins_kernels are true, so that tests also
 * run the code for joined products and kernels. */
static fsdp_device_traits traits;
static pthread_once_t traits_once = PTHREAD_ONCE_INIT;

static void set_traits(void)
{
    traits = fsdp_cpu_traits;
    traits.joins_products = true;
    traits.joins_kernels = true;
}

static fsdp_status fake_open(fsdp_device *device, const fsdp_device_options *options)
{
    pthread_once(&traits_once, set_traits);
    device->traits = &traits;
    fsdp_fake_stream *stream;
    fsdp_fake_memory *memory;
    FSDP_TRY(fsdp_fake_memory_create(&memory));
    device->memory = memory;
    const fsdp_memory_source source = fsdp_fake_memory_source(memory);
    FSDP_TRY(fsdp_allocator_create_from(&source, &device->allocator));
    const fsdp_fake_access access = {fsdp_fake_memory_open, fsdp_fake_memory_close, memory};
    FSDP_TRY(fsdp_fake_stream_create(options->isa, options->threads, access, &stream));
    device->context = (fsdp_kernel_context *)(void *)stream;
    device->kernels = &fsdp_kernels_fake;
    fsdp_allocator_set_barrier(device->allocator, wait_for_all, device);
    return FSDP_OK;
}

static void fake_close(fsdp_device *device)
{
    fsdp_fake_stream_destroy(stream_of(device));
    fsdp_allocator_destroy(device->allocator);
    fsdp_fake_memory_destroy(device->memory);
}

/* Wait for all started kernels, and return the context of the CPU's kernels. */
static fsdp_kernel_context *idle_cpu(const fsdp_device *device)
{
    wait_for_all((void *)(uintptr_t)device);
    return fsdp_fake_stream_cpu(stream_of(device));
}

static bool fake_is_bf16_supported(const fsdp_device *device)
{
    return fsdp_cpu_multiplies_bf16(idle_cpu(device));
}

static fsdp_status fake_gemm_rate(fsdp_device *device, const fsdp_gemm_args *product,
                                  double seconds, double *gflops)
{
    fsdp_kernel_context *cpu = idle_cpu(device);
    fsdp_fake_memory_open(device->memory);
    const fsdp_status status = fsdp_kernels_cpu_gemm_rate(cpu, product, seconds, gflops);
    fsdp_fake_memory_close(device->memory);
    return status;
}

static fsdp_status fake_synchronize(const fsdp_device *device)
{
    return fsdp_fake_synchronize(stream_of(device));
}

static fsdp_event *fake_record(const fsdp_device *device)
{
    return fsdp_fake_record(stream_of(device));
}

/* --- memory --- */

typedef struct memory_args {
    void *dst;
    const void *src;
    int byte;
    size_t bytes;
} memory_args;

static fsdp_status run_copy(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                            const void *args)
{
    const memory_args *a = args;
    (void)kernels;
    (void)context;
    memcpy(a->dst, a->src, a->bytes);
    return FSDP_OK;
}

static void copy_now(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    fsdp_fake_memory_open(device->memory);
    memcpy(dst, src, bytes);
    fsdp_fake_memory_close(device->memory);
}

static void fake_from_host(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    const memory_args args = {.dst = dst, .src = src, .bytes = bytes};
    const fsdp_fake_array array = {offsetof(memory_args, src), bytes};
    if (bytes <= LAUNCHED_BYTES) {
        fsdp_fake_launch(stream_of(device), run_copy, &args, sizeof args, &array, 1);
        return;
    }
    wait_for_all((void *)(uintptr_t)device);
    copy_now(device, dst, src, bytes);
}

static fsdp_status run_memset(const fsdp_kernels *kernels, fsdp_kernel_context *context,
                              const void *args)
{
    const memory_args *a = args;
    (void)kernels;
    (void)context;
    memset(a->dst, a->byte, a->bytes);
    return FSDP_OK;
}

static void fake_memset(const fsdp_device *device, void *dst, int byte, size_t bytes)
{
    const memory_args args = {.dst = dst, .byte = byte, .bytes = bytes};
    fsdp_fake_launch(stream_of(device), run_memset, &args, sizeof args, NULL, 0);
}

static fsdp_status fake_peek(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    if (bytes)
        copy_now(device, dst, src, bytes);
    return FSDP_OK;
}

static fsdp_status fake_to_host(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    FSDP_TRY(fake_synchronize(device));
    return fake_peek(device, dst, src, bytes);
}

const fsdp_device_ops fsdp_device_fake = {.name = "fake",
                                          .open = fake_open,
                                          .close = fake_close,
                                          .is_bf16_supported = fake_is_bf16_supported,
                                          .gemm_rate = fake_gemm_rate,
                                          .synchronize = fake_synchronize,
                                          .event_record = fake_record,
                                          .from_host = fake_from_host,
                                          .memset = fake_memset,
                                          .to_host = fake_to_host,
                                          .peek = fake_peek};
