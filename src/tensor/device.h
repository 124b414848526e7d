/* A device: kernels, their context, a stream and an allocator. One per rank.
 *
 * Note [Streams]. Kernels run in the order in which they were started. On the CPU they run before
 * the call returns; on other devices they may run later, as in CUDA. All code above src/kernels and
 * src/tensor/device_* is written for "later":
 *
 * - The arguments of a kernel belong to the caller again when the call returns: structs of
 *   arguments, arrays of pointers and arrays in host memory (ids, positions, labels, offsets, rows)
 *   have been copied.
 * - The elements of tensors belong to the device. fsdp_tensor_ptr() is an address for kernels
 *   alone. The host reads through fsdp_tensor_data(), which waits for all that was started. (The
 *   memory of every device has one address on both sides.) That pointer is valid until the next
 *   kernel that writes there. Scalars and sums of rows are copied out by fsdp_device_to_host(). The
 *   host copies data in by fsdp_device_from_host() and fsdp_device_memset(), which are ordered with
 *   kernels.
 * - Memory may be returned to the allocator at any time, since its next user comes later in the
 *   stream. Nothing else has that order. Before memory is given to another rank (the end of a
 *   phase, a collective), to a thread, to a file or to the heap, there must be a wait. Either the
 *   rank itself waits, fsdp_device_synchronize(), or the other thread waits for an event while the
 *   rank continues. Before and after a kernel that uses memory of another device, both devices
 *   wait: fsdp_devices_meet().
 * - If a kernel fails later, the next wait and all waits after it return the error. As with CUDA,
 *   the device is unusable from then on: results computed in between must not be used, and
 *   fsdp_tensor_data() returns NULL.
 *
 * Results depend neither on the device's delays nor on the number of waits. */
#pragma once
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/event.h"
#include "src/trace/trace.h"
#include "src/kernels/kernels.h"
#include "src/tensor/allocator.h"

/* What differs between devices besides their kernels. The functions of the stream are all NULL if
 * kernels have run when their call returns. */
typedef struct fsdp_device_ops {
    const char *name; /* for fsdp_device_options, --device and $FSDP_DEVICE */
    /* Sets allocator, kernels and context. threads is at least 1; isa NULL is the best one. close()
     * accepts what a failed open() left. */
    fsdp_status (*open)(fsdp_device *device, int threads, const char *isa);
    void (*close)(fsdp_device *device);
    bool (*is_bf16_supported)(const fsdp_device *device);
    /* Best rate of a matrix product, GFLOP/s: fsdp_device_gemm_rate(). NULL: not measured. */
    fsdp_status (*gemm_rate)(fsdp_device *device, const fsdp_gemm_args *product, double seconds,
                             double *gflops);
    /* The stream. @{ */
    fsdp_status (*synchronize)(const fsdp_device *device);
    /* Records an event that is reached when all that was started so far has run. If there is no
     * memory for one, it waits instead and returns NULL. */
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
    struct fsdp_offload *offload; /* borrowed from its units, offload.h; NULL if there are none */
};

/* Wait for all that was started, then copy `bytes` bytes to `dst` in host memory. */
FSDP_MUST_CHECK fsdp_status fsdp_device_to_host(const fsdp_device *device, void *dst,
                                                const void *src, size_t bytes);
/* Copy from host memory, in the order of kernels. `src` may be reused on return. No effect for 0
 * bytes. */
static inline void fsdp_device_from_host(const fsdp_device *device, void *dst, const void *src,
                                         size_t bytes)
{
    if (bytes && device->ops->from_host)
        device->ops->from_host(device, dst, src, bytes);
    else if (bytes)
        memcpy(dst, src, bytes);
}
/* Also in the order of kernels. */
static inline void fsdp_device_memset(const fsdp_device *device, void *dst, int byte, size_t bytes)
{
    if (bytes && device->ops->memset)
        device->ops->memset(device, dst, byte, bytes);
    else if (bytes)
        memset(dst, byte, bytes);
}

/* Call before and after kernels of one device that use memory of the other: neither stream orders
 * such accesses. No effect if both are the same device. */
FSDP_MUST_CHECK fsdp_status fsdp_devices_meet(const fsdp_device *a, const fsdp_device *b);

/* An event that is reached when all that was started so far has run, owned by the caller; NULL if
 * it has run already. */
static inline fsdp_event *fsdp_device_record(const fsdp_device *device)
{
    return device->ops->event_record ? device->ops->event_record(device) : NULL;
}

/* Best rate of matrix products on one thread of this device, GFLOP/s. It is measured on an m x n x
 * k product for about `seconds`, in memory of the device's allocator. */
FSDP_MUST_CHECK fsdp_status fsdp_device_gemm_rate(fsdp_device *device, fsdp_dtype dtype, int64_t m,
                                                  int64_t n, int64_t k, double seconds,
                                                  double *gflops);

/* Add memory by purpose to the thread's trace, if there is one. */
static inline void fsdp_device_trace_memory(const fsdp_device *device)
{
    if (fsdp_trace_current)
        fsdp_trace_add_sample(fsdp_trace_current,
                              fsdp_allocator_stats(device->allocator)->tag_allocated,
                              FSDP_TAG_COUNT);
}
