/* A device: kernels, their context, a stream and an allocator. Each rank has one.
 *
 * Note [Streams]. Kernels run in the order in which they were started. On the CPU they run before
 * the call returns; on other devices they may run later, as in CUDA. All code above src/kernels and
 * src/tensor/device_* assumes that they run later:
 *
 * - A call that starts a kernel copies the arguments: structs of arguments, arrays of pointers
 *   and arrays in host memory (ids, positions, labels, offsets, rows). When the call returns, the
 *   caller may change or free them.
 * - The elements of tensors belong to the device. The address that fsdp_tensor_ptr() returns is
 *   only for kernels. A device may have memory of its own, which the host cannot read or write
 *   (fsdp_device_has_own_memory()). So the host copies elements: it reads with
 *   fsdp_device_to_host(), which waits for all kernels that were started, and writes with
 *   fsdp_device_from_host() and fsdp_device_memset(), which are ordered with kernels. A host copy
 *   (host_copy.h) really copies only on devices with memory of their own. fsdp_tensor_data() is for
 *   users of the library and for tests.
 * - Memory may be returned to the allocator at any time, because the kernels that use this memory
 *   next come later in the stream. Some users of memory are outside the device: another rank (at
 *   the end of a phase, or in a collective), another thread, a file, and the heap. The stream does
 *   not order their accesses. Before memory is given to such a user, the rank waits for the device
 *   (fsdp_device_synchronize()). If the user is another thread, that thread may wait for an event
 *   instead, while the rank continues. Before and after a kernel that uses memory of another
 *   device, the rank waits for both devices: fsdp_devices_synchronize().
 * - If a kernel fails after its call has returned, the next wait and all waits after it return
 *   the error. As with CUDA, the device is then unusable: results that were computed after the
 *   failure must not be used, and fsdp_tensor_data() returns NULL. If a kernel could not be started
 *   because there was no memory for it, only the next wait (or the next kernel that returns a
 *   status) returns the error. Results that were computed before this wait must not be used, but
 *   the device is usable again.
 *
 * Results depend neither on the device's delays nor on the number of waits. */
#pragma once
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/event.h"
#include "src/kernels/kernels.h"
#include "src/tensor/allocator.h"
#include "src/tensor/shared_memory.h"
#include "src/trace/trace.h"

/* The functions that each device implements, besides its kernels. On the CPU and on meta, where
 * kernels have finished when their call returns, all functions in the group "The stream" are
 * NULL. */
typedef struct fsdp_device_ops {
    const char *name; /* the name for fsdp_device_options.name, --device and $FSDP_DEVICE */
    /* Set allocator, kernels and context of the device. options->threads is at least 1. If
     * options->isa is NULL, the best instruction set is used. If open() fails, the caller still
     * calls close(). */
    fsdp_status (*open)(fsdp_device *device, const fsdp_device_options *options);
    void (*close)(fsdp_device *device);
    bool (*is_bf16_supported)(const fsdp_device *device);
    /* Measure the best rate of a matrix product, in GFLOP/s, for fsdp_device_gemm_rate(). NULL if
     * the device cannot measure it. */
    fsdp_status (*gemm_rate)(fsdp_device *device, const fsdp_gemm_args *product, double seconds,
                             double *gflops);
    /* The stream. @{ */
    fsdp_status (*synchronize)(const fsdp_device *device);
    /* Record an event that occurs once all kernels started so far have run. If there is no memory
     * for an event, wait for these kernels instead and return NULL. */
    fsdp_event *(*event_record)(const fsdp_device *device);
    void (*from_host)(const fsdp_device *device, void *dst, const void *src, size_t bytes);
    void (*memset)(const fsdp_device *device, void *dst, int byte, size_t bytes);
    /* Wait for all kernels that were started, then copy. NULL if the host can read and write the
     * device's memory. */
    fsdp_status (*to_host)(const fsdp_device *device, void *dst, const void *src, size_t bytes);
    /* The copy for fsdp_device_peek(), which does not wait for kernels. NULL if to_host is NULL. */
    fsdp_status (*peek)(const fsdp_device *device, void *dst, const void *src, size_t bytes);
    /* Create a clock of the stream for a trace: Note [Device time] in src/trace/trace.h. The caller
     * calls clock->destroy() before it destroys the device. */
    fsdp_status (*clock_create)(const fsdp_device *device, fsdp_trace_clock *clock);
    /* @} */
    /* The functions with which ranks share memory of the device. NULL: ranks share host memory. */
    const fsdp_shared_memory_ops *shared_memory;
} fsdp_device_ops;

/* Settings that make the best use of a kind of device. Code above the devices asks for these
 * settings, not for the kind of device. The meta device has the settings of the device for which a
 * plan is made: "meta" plans for the CPU, and "meta:cuda" for a card. */
typedef struct fsdp_device_traits {
    /* The allocator's arenas grow by multiples of this number of bytes. */
    size_t growth_bytes;
    /* The logits of the loss are computed in chunks of rows. The maximum number of rows of a chunk
     * is loss_bytes divided by the bytes of a row, but at least least_loss_rows and at most
     * loss_rows. */
    int64_t loss_rows, least_loss_rows, loss_bytes;
    /* The row stride of the logits of the loss is a multiple of this number of elements. */
    int64_t loss_columns;
    /* If the result of an activation function is the input of a matrix product, this result is
     * computed in parts (src/autograd/activated_linear.h). The fields are the sizes of a part in
     * bytes. activated_bytes is for backward. If memory matters more than time,
     * small_activated_bytes is for backward, and activated_rows_bytes is for forward. */
    int64_t activated_bytes, small_activated_bytes, activated_rows_bytes;
    /* A sum over the gradients of many micro-batches is computed in parts of at most this many
     * elements, so that it needs temporary memory for only one part. */
    int64_t sum_numel;
    /* True if products with the same input are computed as one larger product: Note [Joined
     * products] in src/autograd/joined_linear.h. */
    bool joins_products;
    /* Memory that ranks share (shared_memory.h) is allocated in multiples of this number of
     * bytes. */
    size_t shared_bytes;
    /* True if starting a kernel or waiting for one takes much time. An optimizer then updates many
     * tensors by one kernel, and the host reads results late: Note [Late norm] in
     * src/optim/clip_grad.h. */
    bool joins_kernels;
    /* True if the sums over the rows of all gradients are computed by one kernel, even though this
     * takes more memory. */
    bool joins_sums;
    /* True if the kernels may be asked to multiply float8 codes of one byte
     * (float8_multiplies_codes() in src/kernels/kernels.h). False: the device multiplies only the
     * values of codes, in bfloat16. */
    bool multiplies_float8;
    /* True if memory that is unused between steps stays allocated, because the system has no other
     * use for it. */
    bool keeps_idle_memory;
} fsdp_device_traits;

extern const fsdp_device_traits fsdp_cpu_traits, fsdp_cuda_traits;

extern const fsdp_device_ops fsdp_device_cpu, fsdp_device_meta, fsdp_device_cuda;

/* The names of devices in this build, NULL-terminated, without names such as "auto" that choose a
 * device (Note [Choosing a device] in cards.h). "cuda" is always in the list. In a build without
 * CUDA, opening this device gives an error that says that CUDA is missing. */
extern const char *const fsdp_device_names[];

struct fsdp_device {
    const fsdp_device_ops *ops;
    const fsdp_device_traits *traits;
    const fsdp_kernels *kernels;  /* NULL on meta, which only computes shapes and counts memory */
    fsdp_kernel_context *context; /* NULL on meta */
    fsdp_allocator *allocator;
    int ordinal;  /* the number of the card; 0 if the device is not a card */
    void *memory; /* the source of the allocator's memory, if the device has its own; else NULL */
    /* Data that all staged units of the device share and own together (offload.h). NULL if there
     * are no staged units. */
    struct fsdp_offload *offload;
    /* Floating-point operations of all matrix products so far. Counted only on meta, for estimates
     * of time (src/plan/scale.h). */
    double product_flops;
};

/* Return true if the host can neither read nor write the device's memory. */
static inline bool fsdp_device_has_own_memory(const fsdp_device *device)
{
    return device->ops->to_host != NULL;
}
/* Wait until all kernels that were started have run, then copy `bytes` bytes from the device to
 * `dst` in host memory. */
FSDP_MUST_CHECK fsdp_status fsdp_device_to_host(const fsdp_device *device, void *dst,
                                                const void *src, size_t bytes);
/* Copy `bytes` bytes from the device to `dst` in host memory, without waiting for kernels. Any
 * thread may call this while no kernel writes these bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_device_peek(const fsdp_device *device, void *dst, const void *src,
                                             size_t bytes);
/* Copy `bytes` bytes from host memory to the device, in order with kernels. `src` may be reused
 * when the call returns. No effect for 0 bytes. */
static inline void fsdp_device_from_host(const fsdp_device *device, void *dst, const void *src,
                                         size_t bytes)
{
    if (bytes && device->ops->from_host)
        device->ops->from_host(device, dst, src, bytes);
    else if (bytes)
        memcpy(dst, src, bytes);
}
/* Set `bytes` bytes to `byte`, in order with kernels. */
static inline void fsdp_device_memset(const fsdp_device *device, void *dst, int byte, size_t bytes)
{
    if (bytes && device->ops->memset)
        device->ops->memset(device, dst, byte, bytes);
    else if (bytes)
        memset(dst, byte, bytes);
}

/* Wait until the kernels of both devices have run. Call it before and after kernels of one device
 * that use memory of the other device, because neither stream orders such accesses. No effect if a
 * == b. */
FSDP_MUST_CHECK fsdp_status fsdp_devices_synchronize(const fsdp_device *a, const fsdp_device *b);

/* Return an event that occurs once all kernels started so far have run, or NULL if they have run
 * already. The caller owns the event. */
static inline fsdp_event *fsdp_device_record(const fsdp_device *device)
{
    return device->ops->event_record ? device->ops->event_record(device) : NULL;
}

/* Measure the best rate of a matrix product of m x n x k on one thread of this device, and set
 * *gflops to it, in GFLOP/s. The product is repeated for about `seconds` seconds. Its memory comes
 * from the device's allocator. */
FSDP_MUST_CHECK fsdp_status fsdp_device_gemm_rate(fsdp_device *device, fsdp_dtype dtype, int64_t m,
                                                  int64_t n, int64_t k, double seconds,
                                                  double *gflops);

/* Add a sample to this thread's trace: the allocated memory of each tag. No effect if the thread
 * has no trace. */
static inline void fsdp_device_trace_memory(const fsdp_device *device)
{
    if (fsdp_trace_current)
        fsdp_trace_add_sample(fsdp_trace_current,
                              fsdp_allocator_stats(device->allocator)->tag_allocated,
                              FSDP_TAG_COUNT);
}
