/**
 * @file
 * Devices, storages and tensors.
 *
 * A tensor is a typed, strided view of a storage. Tensors and storages are reference counted:
 * arguments are borrowed, whoever keeps one retains it, an `out` pointer is a new reference.
 * A storage can be emptied and refilled under its views (an unsharded parameter is), so hold the
 * tensor, never its data pointer.
 *
 * A device is what one rank computes with: kernels, threads, a caching allocator. "meta" has no
 * data: operations compute shapes and count memory, and nothing else.
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

/** What memory is for; every allocation carries one, and every report is by tag. */
typedef enum fsdp_tag {
    FSDP_TAG_PARAM,      /**< parameters: masters and unsharded copies */
    FSDP_TAG_GRAD,       /**< gradients, sharded and not yet reduced */
    FSDP_TAG_OPTIM,      /**< optimizer state */
    FSDP_TAG_ACTIVATION, /**< results of operations, what backward keeps */
    FSDP_TAG_COMM,       /**< buffers of collectives */
    FSDP_TAG_DATA,       /**< batches and other input */
    FSDP_TAG_COUNT
} fsdp_tag;

/** "param", "grad", ...; static storage. */
FSDP_API const char *fsdp_tag_name(fsdp_tag tag);

/** Zero means default. */
typedef struct fsdp_device_options {
    const char *name; /**< "cpu" or "meta"; default: $FSDP_DEVICE or "cpu" */
    int threads;      /**< threads of this rank, the caller included; default 1 */
    const char *isa;  /**< one of `fsdp --version`; default: $FSDP_ISA or the best */
} fsdp_device_options;

/**
 * @param options NULL: all defaults
 * @param device  out: owned by the caller; must outlive every tensor on it
 * @return FSDP_ERR_INVALID for an unknown name or threads < 0; FSDP_ERR_UNSUPPORTED for "cuda",
 *         which no build has yet, and if the CPU lacks the ISA asked for.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_create(const fsdp_device_options *options,
                                                        fsdp_device **device);
FSDP_API void fsdp_device_destroy(fsdp_device *device); /**< accepts NULL */
FSDP_API const char *fsdp_device_name(const fsdp_device *device);
FSDP_API bool fsdp_device_is_meta(const fsdp_device *device);
/** Does it multiply bfloat16 in hardware (AVX512-BF16 or AMX-BF16)? It works without as well, but
 * is slow: torch.cuda.is_bf16_supported(including_emulation=False). False on meta. */
FSDP_API bool fsdp_device_is_bf16_supported(const fsdp_device *device);
/**
 * Wait until all that was started on the device has run: torch.cuda.synchronize(). What reads
 * elements through this API waits by itself; this is for clocks, and for failures of kernels that
 * had not run when their call returned. Returns at once on cpu and meta.
 * @return the first failure of a kernel; from there on, always
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_device_synchronize(const fsdp_device *device);

/** Bytes. `allocated` is what tensors ask for, `reserved` what the allocator holds for them. */
typedef struct fsdp_memory_stats {
    int64_t allocated, allocated_peak;
    int64_t reserved, reserved_peak;
    int64_t tag_allocated[FSDP_TAG_COUNT];
    int64_t tag_peak[FSDP_TAG_COUNT];    /**< each tag's own peak */
    int64_t tag_at_peak[FSDP_TAG_COUNT]; /**< the tags when `allocated` peaked */
} fsdp_memory_stats;

/** Shared buffers count 1/L to each of L local ranks. */
FSDP_API void fsdp_device_memory(const fsdp_device *device, fsdp_memory_stats *stats);
/** Peaks start anew from what is allocated now. */
FSDP_API void fsdp_device_reset_peak_memory(fsdp_device *device);

/**
 * A contiguous (row-major) tensor of uninitialised memory (NaN in debug builds).
 * @param shape [ndim], each >= 0; ndim 0 is a scalar
 * @return FSDP_ERR_INVALID for a bad shape; FSDP_ERR_NOMEM.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_create(fsdp_device *device, fsdp_dtype dtype,
                                                        int ndim, const int64_t *shape,
                                                        fsdp_tag tag, fsdp_tensor **tensor);
/** The same with a copy of `data`: prod(shape) elements of dtype, contiguous. */
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
/** Does its storage have data now? False on meta, while resharded, and outside of
 * fsdp_tensor_begin_read() and _begin_write() of what lies elsewhere or in halves. */
FSDP_API bool fsdp_tensor_has_data(const fsdp_tensor *tensor);
/**
 * First element, for the host: waits until what was started on the device has run. Valid until the
 * storage is emptied or the tensor is released; ask again after an operation that writes there.
 * @return NULL, with the message set, while the storage has none or if a kernel failed.
 */
FSDP_API void *fsdp_tensor_data(const fsdp_tensor *tensor);

/** Views share the storage, not the gradient: none flows back through a view. @{ */
/** Rows [begin, end) of dimension 0. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_narrow(fsdp_tensor *tensor, int64_t begin,
                                                        int64_t end, fsdp_tensor **view);
/** Another shape of as many elements; one entry may be -1. The tensor must be contiguous. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_view(fsdp_tensor *tensor, int ndim,
                                                      const int64_t *shape, fsdp_tensor **view);
/** Swap two dimensions; not contiguous afterwards. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_transpose(fsdp_tensor *tensor, int dim0, int dim1,
                                                           fsdp_tensor **view);
/** @} */

/** A contiguous copy in `dtype`. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_to(fsdp_tensor *tensor, fsdp_dtype dtype,
                                                    fsdp_tag tag, fsdp_tensor **copy);
/**
 * Read elements as float into dst [numel], row-major, any strides and floating dtype.
 * @return FSDP_ERR_STATE while the storage has no data.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_to_floats(const fsdp_tensor *tensor, float *dst);
/** The value of a tensor of one element, as double. */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_item(const fsdp_tensor *tensor, double *value);

/**
 * Whoever changes a tensor's elements in place outside of operations (optimizer, init, load, user)
 * does it between these two: peers that read the same memory are waited for and told.
 * Collective where the memory is shared: every rank does it, in the same order. Several tensors may
 * be under way at once. FSDP_ERR_STATE for parameters that are unsharded now.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_write(fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_write(fsdp_tensor *tensor);
/**
 * Who reads elements through fsdp_tensor_data() of parameters or optimizer state that may be
 * offloaded (fsdp_offload_policy), or of a unit's float32 parameters with a param_dtype of
 * bfloat16, which lie in two halves, does it between these two: outside they have no data. No
 * effect on others. Not collective. The calls that copy (fsdp_tensor_to() ...) do it themselves.
 * @return FSDP_ERR_IO if they cannot be read back, FSDP_ERR_NOMEM without memory to read them into
 * @{
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_tensor_begin_read(const fsdp_tensor *tensor);
FSDP_API void fsdp_tensor_end_read(const fsdp_tensor *tensor);
/** @} */

#ifdef __cplusplus
}
#endif
