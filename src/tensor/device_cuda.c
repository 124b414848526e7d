/* The CUDA device. Kernels run in one stream (src/kernels/cuda/context.h). The host cannot read the
 * device's memory: Note [Streams] in device.h. */
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/kernels/cuda/context.h"
#include "src/tensor/cuda_memory.h"
#include "src/tensor/device.h"

static fsdp_cuda_context *context_of(const fsdp_device *device)
{
    return fsdp_cuda_of(device->context);
}

static fsdp_status cuda_open(fsdp_device *device, const fsdp_device_options *options)
{
    /* fsdp_device_resolve() has turned the name into "cuda:N". */
    const int ordinal = atoi(options->name + strlen("cuda:"));
    fsdp_cuda_memory *memory = NULL;
    FSDP_TRY(fsdp_kernels_cuda_open(ordinal, &device->context, &device->kernels));
    FSDP_TRY(fsdp_cuda_memory_open(ordinal, fsdp_cuda_stream(context_of(device)),
                                   fsdp_cuda_traits.growth_bytes, &memory, &device->allocator));
    device->memory = memory;
    device->traits = &fsdp_cuda_traits;
    device->ordinal = ordinal;
    return FSDP_OK;
}

static void cuda_close(fsdp_device *device)
{
    fsdp_allocator_destroy(device->allocator);
    fsdp_cuda_memory_close(device->memory);
    fsdp_kernels_cuda_close(device->context);
}

static bool cuda_is_bf16_supported(const fsdp_device *device)
{
    (void)device; /* every card that this library supports multiplies bfloat16 */
    return true;
}

/* Wait for the kernels, and return the failure that the context keeps. If the failure is
 * FSDP_ERR_NOMEM, the context then forgets it: see fsdp_cuda_report(). */
static fsdp_status wait_for_kernels(fsdp_cuda_context *c)
{
    const fsdp_status status = fsdp_cuda_synchronize(c);
    return status == FSDP_OK ? FSDP_OK : fsdp_cuda_report(c);
}

static fsdp_status cuda_synchronize(const fsdp_device *device)
{
    return wait_for_kernels(context_of(device));
}

/* --- events --- */

typedef struct cuda_event {
    fsdp_event base;
    fsdp_cuda_context *context;
    cudaEvent_t event;
} cuda_event;

/* Another thread may call this, so the context keeps the failure for the thread that started the
 * kernels. */
static fsdp_status event_synchronize(fsdp_event *event)
{
    const cuda_event *e = (const void *)event;
    fsdp_cuda_check(e->context, cudaEventSynchronize(e->event), "event");
    return fsdp_cuda_status(e->context);
}

static void event_destroy(fsdp_event *event)
{
    cuda_event *e = (void *)event;
    cudaEventDestroy(e->event);
    fsdp_free(e);
}

static fsdp_event *cuda_record(const fsdp_device *device)
{
    fsdp_cuda_context *c = context_of(device);
    cuda_event *e = fsdp_calloc(1, sizeof *e);
    if (!e || cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming) != cudaSuccess) {
        fsdp_free(e);
        (void)cudaGetLastError();
        if (fsdp_cuda_synchronize(c) != FSDP_OK)
            return NULL; /* no error is returned here, because the next wait of the device returns
                            it */
        return NULL;
    }
    e->base = (fsdp_event){event_synchronize, event_destroy};
    e->context = c;
    fsdp_cuda_check(c, cudaEventRecord(e->event, fsdp_cuda_stream(c)), "event");
    return &e->base;
}

/* --- the clock of a trace --- */

typedef struct cuda_clock {
    fsdp_cuda_context *context;
    cudaEvent_t
        *events; /* [cap] events[i] is mark i of a step; they are created once and then kept */
    size_t n, n_created, cap;
} cuda_clock;

static bool clock_mark(void *self)
{
    cuda_clock *k = self;
    if (!FSDP_GROW(k->events, k->cap, k->n + 1))
        return false;
    if (k->n == k->n_created) {
        if (cudaEventCreate(&k->events[k->n]) != cudaSuccess) {
            (void)cudaGetLastError();
            return false;
        }
        k->n_created++;
    }
    return fsdp_cuda_check(
        k->context, cudaEventRecord(k->events[k->n++], fsdp_cuda_stream(k->context)), "event");
}

static bool clock_start(void *self)
{
    cuda_clock *k = self;
    k->n = 0;
    return fsdp_cuda_synchronize(k->context) == FSDP_OK && clock_mark(k);
}

static bool clock_read(void *self, int64_t *at_ns, size_t n)
{
    const cuda_clock *k = self;
    if (!fsdp_cuda_check(k->context, cudaEventSynchronize(k->events[n - 1]), "event"))
        return false;
    for (size_t i = 0; i < n; i++) {
        float ms = 0.0f;
        if (!fsdp_cuda_check(k->context, cudaEventElapsedTime(&ms, k->events[0], k->events[i]),
                             "event"))
            return false;
        at_ns[i] = (int64_t)((double)ms * 1e6);
    }
    return true;
}

static void clock_destroy(void *self)
{
    cuda_clock *k = self;
    for (size_t i = 0; i < k->n_created; i++)
        cudaEventDestroy(k->events[i]);
    fsdp_free(k->events);
    fsdp_free(k);
}

static fsdp_status clock_create(const fsdp_device *device, fsdp_trace_clock *clock)
{
    cuda_clock *k = fsdp_calloc(1, sizeof *k);
    if (!k)
        return fsdp_error_nomem();
    k->context = context_of(device);
    *clock = (fsdp_trace_clock){.start = clock_start,
                                .mark = clock_mark,
                                .read = clock_read,
                                .destroy = clock_destroy,
                                .self = k};
    return FSDP_OK;
}

/* --- memory --- */

static void cuda_from_host(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    fsdp_cuda_from_host(context_of(device), dst, src, bytes);
}

static void cuda_memset(const fsdp_device *device, void *dst, int byte, size_t bytes)
{
    fsdp_cuda_context *c = context_of(device);
    fsdp_cuda_check(c, cudaMemsetAsync(dst, byte, bytes, fsdp_cuda_stream(c)), "memset");
}

static fsdp_status cuda_to_host(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    fsdp_cuda_context *c = context_of(device);
    if (bytes)
        fsdp_cuda_check(
            c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, fsdp_cuda_stream(c)),
            "copy to the host");
    return wait_for_kernels(c);
}

/* Any thread may call this while kernels run. cudaMemcpy() uses the legacy stream, and neither the
 * legacy stream nor the stream of the kernels waits for the other. */
static fsdp_status cuda_peek(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    cudaError_t error = cudaSetDevice(device->ordinal); /* each thread has its own current card */
    if (error == cudaSuccess && bytes)
        error = cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost);
    if (error == cudaSuccess)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_UNSUPPORTED, "device cuda:%d: copy to the host: %s", device->ordinal,
                      cudaGetErrorString(error));
}

const fsdp_device_ops fsdp_device_cuda = {.name = "cuda",
                                          .open = cuda_open,
                                          .close = cuda_close,
                                          .is_bf16_supported = cuda_is_bf16_supported,
                                          .synchronize = cuda_synchronize,
                                          .event_record = cuda_record,
                                          .clock_create = clock_create,
                                          .from_host = cuda_from_host,
                                          .memset = cuda_memset,
                                          .to_host = cuda_to_host,
                                          .peek = cuda_peek,
                                          .shared_memory = &fsdp_cuda_shared_memory};
