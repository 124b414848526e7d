/* The elements of a tensor as the host sees them.
 *
 * If the host can read the device's memory, a host copy is the tensor's memory itself, and nothing
 * is copied. Otherwise it is a buffer in host memory. So code that uses a host copy is the same for
 * all devices, and on the CPU it needs neither memory nor time. */
#pragma once
#include "src/tensor/tensor.h"

typedef struct fsdp_host_copy {
    const fsdp_tensor *tensor; /* borrowed; contiguous, and has data while the copy is open */
    size_t bytes;
    void *data;   /* in host memory: [numel] elements of the tensor's dtype; NULL on meta */
    void *buffer; /* owned: equals `data`, or NULL if `data` is the tensor's memory */
} fsdp_host_copy;

/* Create a host copy. Its elements are undefined until fsdp_host_copy_read(). Return FSDP_ERR_STATE
 * if the tensor has no data now. On meta, set copy->data to NULL and return FSDP_OK. */
FSDP_MUST_CHECK fsdp_status fsdp_host_copy_create(fsdp_host_copy *copy, const fsdp_tensor *tensor);
/* Free the copy's buffer. Accepts a copy that is all zeros or whose creation has failed. */
void fsdp_host_copy_destroy(fsdp_host_copy *copy);
/* Wait for all kernels that were started, and copy bytes [offset, offset + bytes) from the tensor
 * to the host copy. */
FSDP_MUST_CHECK fsdp_status fsdp_host_copy_read_part(const fsdp_host_copy *copy, size_t offset,
                                                     size_t bytes);
static inline FSDP_MUST_CHECK fsdp_status fsdp_host_copy_read(const fsdp_host_copy *copy)
{
    return fsdp_host_copy_read_part(copy, 0, copy->bytes);
}
/* Copy bytes [offset, offset + bytes) from the host copy to the tensor, in order with kernels. When
 * the call returns, the caller may change the buffer. (If the host copy is the tensor's memory
 * itself, the host may change this memory only while no kernel uses it.) */
void fsdp_host_copy_write_part(const fsdp_host_copy *copy, size_t offset, size_t bytes);
static inline void fsdp_host_copy_write(const fsdp_host_copy *copy)
{
    fsdp_host_copy_write_part(copy, 0, copy->bytes);
}
/* Create a host copy and read the whole tensor into it. */
FSDP_MUST_CHECK fsdp_status fsdp_host_copy_of(fsdp_host_copy *copy, const fsdp_tensor *tensor);
/* Set *copy to a tensor that has the elements of `tensor` and that kernels of `device` can read.
 * This is `tensor` itself, with a new reference, if it is on `device` or if both devices use host
 * memory. Otherwise it is a copy on `device`. `tensor` must be contiguous and have data. */
FSDP_MUST_CHECK fsdp_status fsdp_tensor_for_device(const fsdp_tensor *tensor, fsdp_device *device,
                                                   fsdp_tensor **copy);
/* `data` points into copy->data. Return the address of the same element in the device's memory. */
static inline void *fsdp_host_copy_on_device(const fsdp_host_copy *copy, const void *data)
{
    return (char *)fsdp_tensor_ptr(copy->tensor) + ((const char *)data - (const char *)copy->data);
}
