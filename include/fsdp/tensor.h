/**
 * @file
 * Devices, storages and tensors.
 *
 * A tensor is a typed, strided view of a storage. Tensors and storages are reference counted.
 * Arguments are borrowed, a callee that keeps an argument retains it, and a tensor that is returned
 * through a pointer is a new reference. A storage can be emptied and refilled while views refer to
 * it (for example, a parameter's storage), so keep the tensor, not its data pointer.
 *
 * A device is the compute resource of one rank: kernels, threads, a caching allocator. Tensors on
 * the device "meta" have no data: operations on them only compute shapes and count memory.
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
    FSDP_TAG_GRAD,       /**< gradients, sharded and unreduced */
    FSDP_TAG_OPTIM,      /**< optimizer state */
    FSDP_TAG_ACTIVATION, /**< results of operations, and tensors kept for backward */
    FSDP_TAG_COMM,       /**< buffers for collectives */
    FSDP_TAG_DATA,       /**< batches and other input */
    FSDP_TAG_COUNT
} fsdp_tag;

/** "param", "grad", ...; static storage. */
FSDP_API const char *fsdp_tag_name(fsdp_tag tag);

/** Zero means default. */
typedef struct fsdp_device_options {
    const char *name; /**< "cpu" or "meta"; default: $FSDP_DEVICE or "cpu" */
    int threads;      /**< threads of this rank, including the caller; default 1 */
    const char *isa;  /**< an instruction set that `fsdp --version` lists; default: $FSDP_ISA or the
                           best one */
} fsdp_device_options;

/**
 * @param options NULL: all defaults
 * @param device  out: owned by the caller; must outlive every tensor on it
 * @return FSDP_ERR_INVALID for an unknown name or threads < 0; FSDP_ERR_UNSUPPORTED for "cuda",
 *         which no build has yet, or if the CPU does not have the requested instruction set.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_create(const fsdp_device_options *options,
                                                        fsdp_device **device);
FSDP_API void fsdp_device_destroy(fsdp_device *device); /**< accepts NULL */
FSDP_API const char *fsdp_device_name(const fsdp_device *device);
FSDP_API bool fsdp_device_is_meta(const fsdp_device *device);
/** torch.cuda.is_bf16_supported(including_emulation=False): does the device multiply bfloat16 in
 * hardware (AVX512-BF16 or AMX-BF16)? Other CPUs emulate bfloat16 slowly. False on meta. */
FSDP_API bool fsdp_device_is_bf16_supported(const fsdp_device *device);
/**
 * torch.cuda.synchronize(): wait until all work started on the device has run. Functions that read
 * elements through this API wait by themselves; call this to measure time, or to get failures of
 * kernels that had not run when their call returned. Returns immediately on cpu and meta.
 * @return the first failure of a kernel; all later calls return it too
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_synchronize(const fsdp_device *device);

/** Amounts of memory in bytes. `allocated` is what tensors requested; `reserved` is what the
 * allocator has reserved for them.
 */
typedef struct fsdp_memory_stats {
    int64_t allocated, allocated_peak;
    int64_t reserved, reserved_peak;
    int64_t tag_allocated[FSDP_TAG_COUNT];
    int64_t tag_peak[FSDP_TAG_COUNT];    /**< each tag's own peak */
    int64_t tag_at_peak[FSDP_TAG_COUNT]; /**< memory of each tag when `allocated` peaked */
} fsdp_memory_stats;

/** Get the memory of this rank. If L ranks of a host share a buffer, each of them counts 1/L of its
 * bytes. */
FSDP_API void fsdp_device_memory(const fsdp_device *device, fsdp_memory_stats *stats);
/** Reset the peaks to what is allocated now. */
FSDP_API void fsdp_device_reset_peak_memory(fsdp_device *device);

/**
 * Create a contiguous (row-major) tensor of uninitialised memory (NaN in debug builds).
 * @param shape [ndim], each >= 0; ndim 0 is a scalar
 * @return FSDP_ERR_INVALID for a bad shape; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_create(fsdp_device *device, fsdp_dtype dtype,
                                                        int ndim, const int64_t *shape,
                                                        fsdp_tag tag, fsdp_tensor **tensor);
/** Create a contiguous tensor with a copy of `data`: prod(shape) elements of `dtype`, row-major. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_from_data(fsdp_device *device, fsdp_dtype dtype,
                                                           int ndim, const int64_t *shape,
                                                           const void *data, fsdp_tag tag,
                                                           fsdp_tensor **tensor);
FSDP_API fsdp_tensor *fsdp_tensor_retain(fsdp_tensor *tensor); /**< returns it; accepts NULL */
FSDP_API void fsdp_tensor_release(fsdp_tensor *tensor);        /**< accepts NULL */

FSDP_API fsdp_dtype fsdp_tensor_dtype(const fsdp_tensor *tensor);
FSDP_API fsdp_device *fsdp_tensor_device(const fsdp_tensor *tensor);
FSDP_API int fsdp_tensor_ndim(const fsdp_tensor *tensor);
/** [ndim], borrowed. */
FSDP_API const int64_t *fsdp_tensor_shape(const fsdp_tensor *tensor);
FSDP_API int64_t fsdp_tensor_size(const fsdp_tensor *tensor, int dim);
FSDP_API int64_t fsdp_tensor_numel(const fsdp_tensor *tensor);
FSDP_API bool fsdp_tensor_is_contiguous(const fsdp_tensor *tensor);
/** Does the tensor's storage have data now? False on meta and while the tensor is resharded. Data
 * that is offloaded or stored as two halves counts only between fsdp_tensor_begin_read() or
 * fsdp_tensor_begin_write() and the matching end. */
FSDP_API bool fsdp_tensor_has_data(const fsdp_tensor *tensor);
/**
 * Get a host pointer to the first element. Waits until all work started on the device has run. The
 * pointer is valid until the storage is emptied or the tensor is released; call the function again
 * after an operation that writes the tensor.
 * @return NULL, with the message set, if the storage has no data or a kernel failed.
 */
FSDP_API void *fsdp_tensor_data(const fsdp_tensor *tensor);

/** Views share the storage but not the gradient: gradients do not flow through a view. @{ */
/** Create a view of rows [begin, end) of dimension 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_narrow(fsdp_tensor *tensor, int64_t begin,
                                                        int64_t end, fsdp_tensor **view);
/** Create a view with another shape and the same number of elements; one entry of `shape` may be
 * -1. The tensor must be contiguous. */
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
 * @return FSDP_ERR_STATE if the storage has no data.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_to_floats(const fsdp_tensor *tensor, float *dst);
/** Get the value of a tensor of one element, as double. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_item(const fsdp_tensor *tensor, double *value);

/**
 * Outside of operations, a tensor's elements may be changed in place only between these two calls
 * (by an optimizer, by initialisation, by a loader, by user code). The calls wait for peers that
 * still read the same memory, and inform the peers of the change. Collective if the memory is
 * shared: every rank must make the same calls in the same order. Several tensors may be open for
 * writing at the same time. FSDP_ERR_STATE for parameters that are currently unsharded.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_write(fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_write(fsdp_tensor *tensor);
/**
 * Code that reads elements through fsdp_tensor_data() must do so between these two calls in two
 * cases: if the tensor is a parameter or optimizer state that may be offloaded
 * (fsdp_offload_policy), or if it is a float32 parameter, stored as two halves, of a unit whose
 * param_dtype is bfloat16. Outside of the calls, these tensors have no data. No effect on other
 * tensors. Not collective. Calls that copy (fsdp_tensor_to(), ...) do this themselves.
 * @return FSDP_ERR_IO if the elements cannot be read back; FSDP_ERR_NOMEM
 * @{
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_read(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_read(const fsdp_tensor *tensor);
/** @} */

#ifdef __cplusplus
}
#endif
