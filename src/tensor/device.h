/* A device: kernels, their context, a stream and an allocator. One per rank.
 *
 * Note [Streams]. Kernels are started in the order of the calls and run in that order, but when
 * they run is the device's business: on the CPU before the call returns, on others later, as in
 * CUDA. The whole program above src/kernels and src/tensor/device_* is written for "later":
 *
 * - What a kernel is told belongs to the caller again when the call returns: structs of arguments,
 *   arrays of pointers and arrays in host memory (ids, positions, labels, offsets, rows) have been
 *   copied.
 * - Elements of tensors are the device's. fsdp_tensor_ptr() is an address for kernels alone. The
 *   host looks through fsdp_tensor_data(), which waits for all that was started (every device's
 *   memory has one address on both sides), and what it got is good until the next kernel that
 *   writes there. Scalars and sums of rows come by fsdp_device_to_host(); what the host has goes in
 *   by fsdp_device_from_host() and fsdp_device_memset(), which are in the order of kernels.
 * - Memory may go back to the allocator at any time: who gets it next is behind in the stream, too.
 *   But nothing else is in that order. Before memory is given to another rank (the end of a phase,
 *   a collective), to a thread, to a file or to the heap, there is a wait: the rank's own,
 *   fsdp_device_synchronize(), or an event, for which that thread waits while the rank goes on.
 *   Around kernels that take memory of another device both wait: fsdp_devices_meet().
 * - A kernel that fails later is told by the next wait, and by all after it: as with CUDA, the
 *   device is of no use from there on. What was computed in between is not to be looked at, and
 *   fsdp_tensor_data() gives NULL.
 *
 * Results depend neither on the device's delays nor on how many waits there are. */
#pragma once
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/event.h"
#include "src/trace/trace.h"
#include "src/kernels/kernels.h"
#include "src/tensor/allocator.h"

/* What differs between devices, beside their kernels. Slots of the stream may be NULL, together:
 * kernels have run when they return. */
typedef struct fsdp_device_ops {
    const char *name; /* of fsdp_device_options, --device and $FSDP_DEVICE */
    /* Sets allocator, kernels and context; close() accepts what a failed open() left behind.
     * threads is at least 1, isa may be NULL: the best. */
    fsdp_status (*open)(fsdp_device *device, int threads, const char *isa);
    void (*close)(fsdp_device *device);
    bool (*is_bf16_supported)(const fsdp_device *device);
    /* Best rate of a product, GFLOP/s: fsdp_device_gemm_rate(). NULL: it has none. */
    fsdp_status (*gemm_rate)(fsdp_device *device, const fsdp_gemm_args *product, double seconds,
                             double *gflops);
    /* The stream. @{ */
    fsdp_status (*synchronize)(const fsdp_device *device);
    /* Behind all that was started so far. Where memory is short it waits, and returns NULL. */
    fsdp_event *(*event_record)(const fsdp_device *device);
    void (*from_host)(const fsdp_device *device, void *dst, const void *src, size_t bytes);
    void (*memset)(const fsdp_device *device, void *dst, int byte, size_t bytes);
    /* @} */
} fsdp_device_ops;

extern const fsdp_device_ops fsdp_device_cpu, fsdp_device_meta;

/* What --device takes, NULL-terminated: the names of this build's devices, and "cuda", which is
 * refused by a message of its own. */
extern const char *const fsdp_device_names[];

struct fsdp_device {
    const fsdp_device_ops *ops;
    const fsdp_kernels *kernels;  /* NULL on meta: shapes and memory are counted, nothing runs */
    fsdp_kernel_context *context; /* NULL on meta */
    fsdp_allocator *allocator;
    struct fsdp_offload
        *offload; /* borrowed from the units in it: offload.h; NULL: there are none */
};

/* Copy out once all that was started has run; dst has the bytes on return. */
FSDP_MUST_CHECK fsdp_status fsdp_device_to_host(const fsdp_device *device, void *dst,
                                                const void *src, size_t bytes);
/* Copy in, behind what was started; src is the caller's again on return. No effect for 0 bytes. */
static inline void fsdp_device_from_host(const fsdp_device *device, void *dst, const void *src,
                                         size_t bytes)
{
    if (bytes && device->ops->from_host)
        device->ops->from_host(device, dst, src, bytes);
    else if (bytes)
        memcpy(dst, src, bytes);
}
/* In the order of kernels, too. */
static inline void fsdp_device_memset(const fsdp_device *device, void *dst, int byte, size_t bytes)
{
    if (bytes && device->ops->memset)
        device->ops->memset(device, dst, byte, bytes);
    else if (bytes)
        memset(dst, byte, bytes);
}

/* Before and after kernels of one device that take the other's memory, which is in the order of
 * neither stream. No effect if they are the same. */
FSDP_MUST_CHECK fsdp_status fsdp_devices_meet(const fsdp_device *a, const fsdp_device *b);

/* The caller's; behind all that was started so far. */
static inline fsdp_event *fsdp_device_record(const fsdp_device *device)
{
    return device->ops->event_record ? device->ops->event_record(device) : NULL;
}

/* Best rate of matrix products for one thread of this device, GFLOP/s, measured on an m x n x k
 * product for about `seconds`, in memory of the device's allocator. */
FSDP_MUST_CHECK fsdp_status fsdp_device_gemm_rate(fsdp_device *device, fsdp_dtype dtype, int64_t m,
                                                  int64_t n, int64_t k, double seconds,
                                                  double *gflops);

/* Memory by purpose into the thread's trace, if there is one. */
static inline void fsdp_device_trace_memory(const fsdp_device *device)
{
    if (fsdp_trace_current)
        fsdp_trace_add_sample(fsdp_trace_current,
                              fsdp_allocator_stats(device->allocator)->tag_allocated,
                              FSDP_TAG_COUNT);
}
