/**
 * @file
 * Devices, storages and tensors.
 *
 * A tensor is a typed, strided view of a storage. Tensors and storages are reference counted. A
 * function borrows its arguments. If the function keeps an argument, it adds a reference to the
 * argument. A tensor that a function returns through a pointer is a new reference, which the caller
 * must release. A storage, for example that of a parameter, may lose its memory and get other
 * memory later. So keep the tensor, not its data pointer.
 *
 * A device has all that one rank needs to compute: kernels, threads, a caching allocator. Tensors
 * on the device "meta" have no data. Operations on such tensors only compute shapes and count
 * memory.
 */
#pragma once
#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_device fsdp_device;
typedef struct fsdp_storage fsdp_storage;
typedef struct fsdp_tensor fsdp_tensor;

enum {
    FSDP_MAX_DIMS = 6
};

/** What memory is used for. Every allocation has a tag, and reports list memory by tag. */
typedef enum fsdp_tag {
    FSDP_TAG_PARAM,      /**< parameters: master weights and unsharded copies */
    FSDP_TAG_GRAD,       /**< gradients, before and after they are reduced */
    FSDP_TAG_OPTIM,      /**< optimizer state */
    FSDP_TAG_ACTIVATION, /**< results of operations, and other tensors that backward needs */
    FSDP_TAG_COMM,       /**< buffers for collectives */
    FSDP_TAG_DATA,       /**< batches and other input */
    FSDP_TAG_COUNT
} fsdp_tag;

/** Return the name of a tag: "param", "grad", ...; static storage. */
FSDP_API const char *fsdp_tag_name(fsdp_tag tag);

/** Options of a device. A field that is 0 or NULL gets its default. */
typedef struct fsdp_device_options {
    /** "cpu"; "cuda": the GPU of this rank, which is GPU `local_rank` modulo the number of GPUs;
     * "cuda:N": GPU N; "auto": a GPU if there is one that this library can use, else the CPU;
     * "meta": computes shapes only. Default: $FSDP_DEVICE if it is set, else "cpu".
     * CUDA_VISIBLE_DEVICES chooses and orders the GPUs, as in all programs with CUDA. */
    const char *name;
    int threads; /**< number of threads that compute for this rank, including the calling thread;
                    default 1 */
    const char *isa; /**< one of the instruction sets that `fsdp --version` lists; default:
                        $FSDP_ISA if it is set, else the best one of this CPU */
    int local_rank;  /**< number of this rank among the ranks of its host, for "cuda" and "auto" */
} fsdp_device_options;

/**
 * Create the device of a rank. For a rank of a group, fsdp_default_device() is simpler.
 * @param options NULL: all defaults
 * @param device  out: owned by the caller; must outlive every tensor on it
 * @return FSDP_ERR_INVALID if the name is unknown, if there is no GPU N, or if a number is
 *         negative. FSDP_ERR_UNSUPPORTED for "cuda" if this build has no CUDA, if there is no GPU
 *         or no driver, or if the GPU is too old; also if the CPU does not have the instruction set
 *         `isa`.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_create(const fsdp_device_options *options,
                                                        fsdp_device **device);
FSDP_API void fsdp_device_destroy(fsdp_device *device); /**< accepts NULL */
/** torch.cuda.device_count(): return the number of GPUs. Return 0 if this build has no CUDA, or if
 * there is no driver. */
FSDP_API int fsdp_cuda_device_count(void);
FSDP_API const char *fsdp_device_name(const fsdp_device *device);
FSDP_API bool fsdp_device_is_meta(const fsdp_device *device);
/** torch.cuda.is_bf16_supported(including_emulation=False): return true if the device multiplies
 * bfloat16 in hardware (on a CPU, with AVX512-BF16 or AMX-BF16). Other CPUs emulate bfloat16
 * slowly. On meta, return false. */
FSDP_API bool fsdp_device_is_bf16_supported(const fsdp_device *device);
/**
 * torch.cuda.synchronize(): wait until all work that was started on the device has ended. Functions
 * of this library that read elements wait by themselves. So a program needs this function only to
 * measure time, or to find out whether a kernel that ran in the background has failed. Returns
 * immediately on cpu and meta.
 * @return the first failure of a kernel; later calls return it again
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_synchronize(const fsdp_device *device);

/** Amounts of memory in bytes. `allocated` is the memory that tensors have now. `reserved` is the
 * memory that the allocator has got from the system, including free memory that it keeps. */
typedef struct fsdp_memory_stats {
    int64_t allocated, allocated_peak;
    int64_t reserved, reserved_peak;
    int64_t tag_allocated[FSDP_TAG_COUNT];
    int64_t tag_peak[FSDP_TAG_COUNT];    /**< the largest tag_allocated so far; different tags may
                                            have reached their peaks at different times */
    int64_t tag_at_peak[FSDP_TAG_COUNT]; /**< tag_allocated at the time of allocated_peak */
} fsdp_memory_stats;

/** Set *stats to the amounts of memory that this rank uses. If L ranks of a host share a buffer,
 * the amounts of each of these ranks include 1/L of the buffer's bytes. */
FSDP_API void fsdp_device_memory(const fsdp_device *device, fsdp_memory_stats *stats);
/** Set each peak to the current amount. */
FSDP_API void fsdp_device_reset_peak_memory(fsdp_device *device);

/**
 * Create a contiguous (row-major) tensor of uninitialized memory (NaN in debug builds).
 * @param shape [ndim], each >= 0; ndim 0 is a scalar
 * @return FSDP_ERR_INVALID if `shape` is not allowed; FSDP_ERR_NOMEM
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_create(fsdp_device *device, fsdp_dtype dtype,
                                                        int ndim, const int64_t *shape,
                                                        fsdp_tag tag, fsdp_tensor **tensor);
/** Create a contiguous tensor with a copy of `data`: prod(shape) elements of `dtype`, row-major. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_from_data(fsdp_device *device, fsdp_dtype dtype,
                                                           int ndim, const int64_t *shape,
                                                           const void *data, fsdp_tag tag,
                                                           fsdp_tensor **tensor);
/** Add a reference to `tensor`, and return `tensor`. Accepts NULL. */
FSDP_API fsdp_tensor *fsdp_tensor_retain(fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_release(fsdp_tensor *tensor); /**< accepts NULL */

FSDP_API fsdp_dtype fsdp_tensor_dtype(const fsdp_tensor *tensor);
FSDP_API fsdp_device *fsdp_tensor_device(const fsdp_tensor *tensor);
FSDP_API int fsdp_tensor_ndim(const fsdp_tensor *tensor);
/** Return the shape [ndim]. It is borrowed from the tensor. */
FSDP_API const int64_t *fsdp_tensor_shape(const fsdp_tensor *tensor);
FSDP_API int64_t fsdp_tensor_size(const fsdp_tensor *tensor, int dim);
FSDP_API int64_t fsdp_tensor_numel(const fsdp_tensor *tensor);
FSDP_API bool fsdp_tensor_is_contiguous(const fsdp_tensor *tensor);
/** Return true if the tensor's elements are in memory now. The result is false on meta, and while
 * the tensor is resharded. If the elements are offloaded or stored as two halves, the result is
 * true only within a read or a write (fsdp_tensor_begin_read(), fsdp_tensor_begin_write()). */
FSDP_API bool fsdp_tensor_has_data(const fsdp_tensor *tensor);
/**
 * Return a host pointer to the first element. This works only on a device whose memory the host can
 * read and write, such as cpu. On cuda, copy instead: fsdp_tensor_copy_to_host(),
 * fsdp_tensor_copy_from_host(), fsdp_tensor_to_floats(). Waits until all work that was started on
 * the device has ended. The pointer is valid until the storage loses its memory or the tensor is
 * released. After an operation that writes the tensor, call this function again before reading the
 * elements.
 * @return NULL if the storage has no data, if a kernel failed, or if the device has memory of its
 *         own; fsdp_last_error() then says which
 */
FSDP_API void *fsdp_tensor_data(const fsdp_tensor *tensor);

/** The following functions create views. A view shares the tensor's storage, but backward does not
 * pass gradients from a view to the tensor. @{ */
/** Create a view of rows [begin, end) of dimension 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_narrow(fsdp_tensor *tensor, int64_t begin,
                                                        int64_t end, fsdp_tensor **view);
/** Create a view with another shape and the same number of elements. One entry of `shape` may be
 * -1: this entry is computed from the others. The tensor must be contiguous. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_view(fsdp_tensor *tensor, int ndim,
                                                      const int64_t *shape, fsdp_tensor **view);
/** Create a view with two dimensions swapped; it is not contiguous. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_transpose(fsdp_tensor *tensor, int dim0, int dim1,
                                                           fsdp_tensor **view);
/** @} */

/** Create a contiguous copy in `dtype`. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_to(fsdp_tensor *tensor, fsdp_dtype dtype,
                                                    fsdp_tag tag, fsdp_tensor **copy);
/**
 * Copy the elements as float into dst [numel], row-major. The tensor may have any strides and any
 * floating dtype.
 * @return FSDP_ERR_STATE if the storage has no data
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_to_floats(const fsdp_tensor *tensor, float *dst);
/**
 * Copy all elements as they are, row-major, to host memory: numel elements of the tensor's dtype.
 * The tensor must be contiguous. Waits until all work that was started on the device has ended.
 * @return FSDP_ERR_INVALID if `bytes` is not the size of the elements, or if the tensor is not
 *         contiguous; FSDP_ERR_STATE if the storage has no data
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_copy_to_host(const fsdp_tensor *tensor, void *dst,
                                                              size_t bytes);
/**
 * Copy numel elements of the tensor's dtype from host memory at `src` to the tensor, which must be
 * contiguous. `src` may be reused when the call returns. Call this within a write:
 * fsdp_tensor_begin_write().
 * @return the same errors as fsdp_tensor_copy_to_host()
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_copy_from_host(fsdp_tensor *tensor,
                                                                const void *src, size_t bytes);
/** Set *value to the only element of a tensor that has exactly one. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_item(const fsdp_tensor *tensor, double *value);

/**
 * Begin a write, which fsdp_tensor_end_write() ends. Optimizers, initialization, loaders and user
 * code may change a tensor's elements in place only within a write. The operations of
 * <fsdp/autograd.h> need no write for their results. Other ranks may read the memory of the tensor,
 * so fsdp_tensor_begin_write() waits until they have finished, and fsdp_tensor_end_write() informs
 * them of the change. Collective if ranks share the memory: every rank must make the same calls in
 * the same order. Writes of several tensors may overlap.
 * @return FSDP_ERR_STATE for a parameter that is unsharded now
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_write(fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_write(fsdp_tensor *tensor);
/**
 * Begin a read, which fsdp_tensor_end_read() ends. Code that calls fsdp_tensor_data() needs a read
 * for two kinds of tensors, which have no data otherwise:
 * 1. parameters and optimizer state that may be offloaded (fsdp_offload_policy);
 * 2. float32 parameters that are stored as two halves, in a unit whose param_dtype is bfloat16.
 *
 * For other tensors a read has no effect. Functions that copy elements (fsdp_tensor_to(), ...)
 * begin and end a read themselves. Not collective.
 * @return FSDP_ERR_IO if offloaded elements cannot be read from the file; FSDP_ERR_NOMEM
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_read(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_read(const fsdp_tensor *tensor);

#ifdef __cplusplus
}
#endif
