/* Creates devices by name, and implements the functions that all devices share. */
#include <stdio.h>
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/cards.h"
#include "src/tensor/device_testing.h"

static const fsdp_device_ops *const devices[] = {
    &fsdp_device_cpu,
    &fsdp_device_meta,
#ifdef FSDP_HAVE_CUDA
    &fsdp_device_cuda,
#endif
#ifdef FSDP_TESTING
    &fsdp_device_fake,
#endif
};

/* Set *ops to the functions of the device with this resolved name. */
static fsdp_status find_device(const char *name, const fsdp_device_ops **ops)
{
    int n;
    /* compare only the part before the colon of names such as cuda:1 and meta:cuda */
    const size_t bytes = strcspn(name, ":");
    for (size_t i = 0; i < FSDP_LENGTH(devices); i++) {
        if (strlen(devices[i]->name) == bytes && memcmp(name, devices[i]->name, bytes) == 0) {
            *ops = devices[i];
            return FSDP_OK;
        }
    }
    /* Only cuda can be missing. fsdp_cards_count() then returns an error that says why. */
    return fsdp_cards_count(&n);
}

/* Set *ops to the functions of the device that `name` means on this rank, and write the device's
 * name to `resolved`. If `name` is NULL, $FSDP_DEVICE gives the name; its default is cpu. */
static fsdp_status choose_device(const char *name, int local_rank,
                                 char resolved[FSDP_DEVICE_NAME_BYTES], const fsdp_device_ops **ops)
{
    const char *given = name ? name : getenv("FSDP_DEVICE");
    fsdp_status status = fsdp_device_resolve(given && *given ? given : "cpu", local_rank, resolved);
    if (status == FSDP_OK)
        status = find_device(resolved, ops);
    if (!name)
        fsdp_error_context(status, "environment: FSDP_DEVICE");
    return status;
}

fsdp_status fsdp_device_create(const fsdp_device_options *options, fsdp_device **out)
{
    fsdp_device_options all = options ? *options : (fsdp_device_options){0};
    const fsdp_device_ops *ops = NULL;
    char name[FSDP_DEVICE_NAME_BYTES];
    if (all.threads < 0)
        return fsdp_error(FSDP_ERR_INVALID, "threads %d is negative", all.threads);
    if (all.local_rank < 0)
        return fsdp_error(FSDP_ERR_INVALID, "local_rank %d is negative", all.local_rank);
    FSDP_TRY(choose_device(all.name, all.local_rank, name, &ops));
    all.name = name;
    if (all.threads == 0)
        all.threads = 1;
    if (!all.isa)
        all.isa = getenv("FSDP_ISA");
    fsdp_device *device = fsdp_calloc(1, sizeof *device);
    if (!device)
        return FSDP_ERR_NOMEM;
    device->ops = ops;
    device->traits = &fsdp_cpu_traits;
    fsdp_status status = ops->open(device, &all);
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
    device->ops->close(device);
    fsdp_free(device);
}

const char *fsdp_device_name(const fsdp_device *device)
{
    return device->ops->name;
}

bool fsdp_device_is_meta(const fsdp_device *device)
{
    return !device->kernels;
}

bool fsdp_device_is_bf16_supported(const fsdp_device *device)
{
    return device->ops->is_bf16_supported(device);
}

/* --- the stream --- */

fsdp_status fsdp_device_synchronize(const fsdp_device *device)
{
    return device->ops->synchronize ? device->ops->synchronize(device) : FSDP_OK;
}

fsdp_status fsdp_devices_synchronize(const fsdp_device *a, const fsdp_device *b)
{
    if (a == b)
        return FSDP_OK;
    FSDP_TRY(fsdp_device_synchronize(a));
    return fsdp_device_synchronize(b);
}

fsdp_status fsdp_device_to_host(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    if (device->ops->to_host)
        return device->ops->to_host(device, dst, src, bytes);
    FSDP_TRY(fsdp_device_synchronize(device));
    if (bytes)
        memcpy(dst, src, bytes);
    return FSDP_OK;
}

fsdp_status fsdp_device_peek(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    if (device->ops->peek)
        return device->ops->peek(device, dst, src, bytes);
    if (bytes)
        memcpy(dst, src, bytes);
    return FSDP_OK;
}

/* --- the rate of matrix products, and memory statistics --- */

fsdp_status fsdp_device_gemm_rate(fsdp_device *device, fsdp_dtype dtype, int64_t m, int64_t n,
                                  int64_t k, double seconds, double *gflops)
{
    FSDP_ASSERT(device->ops->gemm_rate);
    const size_t size = fsdp_dtype_size(dtype),
                 bytes[] = {(size_t)(m * k) * size, (size_t)(n * k) * size, (size_t)(m * n) * size};
    fsdp_block *block[3] = {0};
    void *x[3];
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < 3 && status == FSDP_OK; i++) {
        status = fsdp_allocator_alloc(device->allocator, bytes[i], FSDP_TAG_ACTIVATION, &block[i],
                                      &x[i]);
        /* Fill the matrices with ordinary numbers. An element whose bytes are all 0x3c is about
         * 0.01 in float32 and bfloat16, and 1.06 in float16. */
        if (status == FSDP_OK)
            fsdp_device_memset(device, x[i], 0x3c, bytes[i]);
    }
    if (status == FSDP_OK)
        status = device->ops->gemm_rate(device,
                                        &(fsdp_gemm_args){.m = m,
                                                          .n = n,
                                                          .k = k,
                                                          .a = x[0],
                                                          .b = x[1],
                                                          .c = x[2],
                                                          .lda = k,
                                                          .ldb = k,
                                                          .ldc = n,
                                                          .trans_b = true,
                                                          .ab_dtype = dtype,
                                                          .c_dtype = dtype},
                                        seconds, gflops);
    for (int i = 3; i-- > 0;)
        fsdp_allocator_free(device->allocator, block[i]);
    return status;
}

void fsdp_device_memory(const fsdp_device *device, fsdp_memory_stats *stats)
{
    *stats = *fsdp_allocator_stats(device->allocator);
}

void fsdp_device_reset_peak_memory(fsdp_device *device)
{
    fsdp_allocator_reset_peak(device->allocator);
}
