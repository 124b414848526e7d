/* The state that the CUDA kernels of one rank need: a device, a stream, and memory for kernels
 * while they run. The kernels are in the .cu files of this folder, one file for each operation, and
 * table.c lists them.
 *
 * This folder has more than 25 source files: one for each operation, as in src/kernels/cpu/isa. The
 * code for tensor cores is in several files, so that they are compiled in parallel.
 *
 * Note [CUDA slots]. A slot is a function in the table fsdp_kernels. It starts kernels in the
 * context's stream and returns before they have run. Note [Streams] in src/tensor/device.h requires
 * that a slot copies all its arguments in host memory: scalars are passed as arguments of the
 * kernels, and arrays are copied by fsdp_cuda_upload(). Most slots return nothing, so the context
 * keeps the first error of a launch or a copy, and fsdp_cuda_synchronize() returns it. The failure
 * of an allocation is kept only until fsdp_cuda_report() has returned it, because the card is still
 * usable. All other failures are kept until the context is closed.
 *
 * All kernels are deterministic. The division of the work and the order in which sums are added
 * depend only on shapes, never on the number of multiprocessors of the card. No kernel adds floats
 * atomically. */
#pragma once
#include <cuda_runtime_api.h>

#include "src/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fsdp_cuda_context fsdp_cuda_context;

/* Open device `device` (an ordinal of the CUDA runtime). Fails with FSDP_ERR_UNSUPPORTED if there
 * is no such device, no driver, no cublasLt, or no code for the device in this program. */
FSDP_MUST_CHECK fsdp_status fsdp_kernels_cuda_open(int device, fsdp_kernel_context **context,
                                                   const fsdp_kernels **kernels);
/* Open a device as fsdp_kernels_cuda_open() does, but without returning the table of kernels, and
 * without the data of tables.c and uploads.c in the context. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_context_open(int device, fsdp_kernel_context **context);
void fsdp_kernels_cuda_close(fsdp_kernel_context *context); /* accepts NULL */

extern const fsdp_kernels fsdp_kernels_cuda;

/* Return the kernel context `c` as an fsdp_cuda_context. Every context that is used with the CUDA
 * table of kernels is an fsdp_cuda_context. */
static inline fsdp_cuda_context *fsdp_cuda_of(fsdp_kernel_context *c)
{
    return (fsdp_cuda_context *)(void *)c;
}

cudaStream_t fsdp_cuda_stream(const fsdp_cuda_context *c);
int fsdp_cuda_device(const fsdp_cuda_context *c);
/* Return the compute capability times 10: 80 for sm_80, 90 for sm_90. */
int fsdp_cuda_capability(const fsdp_cuda_context *c);
/* Return the number of multiprocessors of the card. Use this number only to decide which block
 * computes which element, never for the order of the terms of a sum. */
int fsdp_cuda_multiprocessors(const fsdp_cuda_context *c);
/* Return the plans by which cublasLt multiplies matrices in this context (gemm_plans.h). */
struct fsdp_gemm_plans *fsdp_cuda_gemm_plans(const fsdp_cuda_context *c);
/* The kinds of data that other files (tables.c and uploads.c) store in a context. When the context
 * is closed, it waits for its kernels. Then it calls the function `destroy` of each kind, unless
 * this function is NULL. */
typedef enum fsdp_cuda_attached {
    FSDP_CUDA_TABLES,
    FSDP_CUDA_UPLOADS,
    FSDP_CUDA_N_ATTACHED
} fsdp_cuda_attached;
typedef struct fsdp_cuda_attachment {
    void *data;
    void (*destroy)(fsdp_cuda_context *c, void *data);
} fsdp_cuda_attachment;
fsdp_cuda_attachment *fsdp_cuda_attachment_of(fsdp_cuda_context *c, fsdp_cuda_attached which);
/* Allow or forbid TF32 in products of float32 matrices. Initially it is forbidden. */
void fsdp_cuda_allow_tf32(fsdp_cuda_context *c, bool allow);

/* Return true if `error` is cudaSuccess. Otherwise keep it as the context's failure, unless the
 * context already has one. `what` names the call, for example "rms_norm". */
bool fsdp_cuda_check(fsdp_cuda_context *c, cudaError_t error, const char *what);
/* Call this after a function of fsdp_kernels has launched its kernels. It passes the result of
 * cudaGetLastError() to fsdp_cuda_check(). */
bool fsdp_cuda_launched(fsdp_cuda_context *c, const char *what);
/* Keep `status` and its message (fsdp_last_error()) as the context's failure, unless the context
 * already has one. */
void fsdp_cuda_fail(fsdp_cuda_context *c, fsdp_status status);
/* Return the failure that the context keeps, with its message, or FSDP_OK. Does not wait. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_status(const fsdp_cuda_context *c);
/* Return the failure as fsdp_cuda_status() does, and forget it if it is FSDP_ERR_NOMEM. The caller
 * must pass the failure on to the code that started the kernels: their results are undefined. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_report(fsdp_cuda_context *c);
/* Wait until all kernels of the stream have run, and return the failure that the context keeps. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_synchronize(fsdp_cuda_context *c);

/* Return `bytes` bytes of device memory, aligned to 256 bytes, for the kernels that the caller is
 * about to start. The memory is valid until the next call of fsdp_cuda_scratch(), so a function of
 * fsdp_kernels that needs several arrays calls this once, for all of them. Later functions get the
 * same memory for their kernels, which is safe because these kernels run later in the stream. If
 * there is not enough memory, return NULL. The context then keeps the failure, and the caller
 * should return without starting anything. */
void *fsdp_cuda_scratch(fsdp_cuda_context *c, size_t bytes);

/* Copy `bytes` bytes of host memory to device memory, in order with the kernels of the stream,
 * unless the device already has an equal copy (Note [Uploads] in uploads.h). Return the address of
 * the copy, which is aligned to 256 bytes. The kernels that the caller starts before it returns may
 * read the copy, but must not write to it. `src` may be reused when this function returns. Return
 * NULL if `bytes` is 0 or `src` is NULL. Also return NULL on failure; the context then keeps the
 * failure. */
const void *fsdp_cuda_upload(fsdp_cuda_context *c, const void *src, size_t bytes);
/* Copy `bytes` bytes of host memory to `dst` in device memory, in order with the kernels. A small
 * array is first copied to pinned memory. For a large array, the function waits until `src` has
 * been read. */
void fsdp_cuda_from_host(fsdp_cuda_context *c, void *dst, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
