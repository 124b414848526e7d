/* See context.h. Scratch memory is one block of device memory. It is replaced by a larger block
 * when a function of fsdp_kernels needs more. */
#include "src/kernels/cuda/context.h"

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/kernels/cuda/gemm_plans.h"

struct fsdp_cuda_context {
    int device, capability, multiprocessors;
    cudaStream_t stream;
    void *scratch;
    size_t scratch_bytes;
    fsdp_gemm_plans *gemm_plans;
    fsdp_cuda_attachment attached[FSDP_CUDA_N_ATTACHED];
    fsdp_saved_error failure;
};

cudaStream_t fsdp_cuda_stream(const fsdp_cuda_context *c)
{
    return c->stream;
}

int fsdp_cuda_device(const fsdp_cuda_context *c)
{
    return c->device;
}

int fsdp_cuda_capability(const fsdp_cuda_context *c)
{
    return c->capability;
}

int fsdp_cuda_multiprocessors(const fsdp_cuda_context *c)
{
    return c->multiprocessors;
}

struct fsdp_gemm_plans *fsdp_cuda_gemm_plans(const fsdp_cuda_context *c)
{
    return c->gemm_plans;
}

fsdp_cuda_attachment *fsdp_cuda_attachment_of(fsdp_cuda_context *c, fsdp_cuda_attached which)
{
    return &c->attached[which];
}

void fsdp_cuda_allow_tf32(fsdp_cuda_context *c, bool allow)
{
    fsdp_gemm_plans_allow_tf32(c->gemm_plans, allow);
}

/* --- failures --- */

void fsdp_cuda_fail(fsdp_cuda_context *c, fsdp_status status)
{
    if (c->failure.status == FSDP_OK)
        fsdp_error_save(status, &c->failure);
}

static fsdp_status cuda_error(const fsdp_cuda_context *c, cudaError_t error, const char *what)
{
    return fsdp_error(error == cudaErrorMemoryAllocation ? FSDP_ERR_NOMEM : FSDP_ERR_UNSUPPORTED,
                      "device cuda:%d: %s: %s", c->device, what, cudaGetErrorString(error));
}

bool fsdp_cuda_check(fsdp_cuda_context *c, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    /* Clear the runtime's last error. Otherwise the next cudaGetLastError() would return this error
     * again, as if the next kernel had failed. */
    (void)cudaGetLastError();
    fsdp_cuda_fail(c, cuda_error(c, error, what));
    return false;
}

bool fsdp_cuda_launched(fsdp_cuda_context *c, const char *what)
{
    return fsdp_cuda_check(c, cudaGetLastError(), what);
}

fsdp_status fsdp_cuda_status(const fsdp_cuda_context *c)
{
    return c->failure.status == FSDP_OK ? FSDP_OK : fsdp_error_restore(&c->failure);
}

fsdp_status fsdp_cuda_report(fsdp_cuda_context *c)
{
    const fsdp_status status = fsdp_cuda_status(c);
    if (status == FSDP_ERR_NOMEM)
        c->failure = (fsdp_saved_error){0};
    return status;
}

fsdp_status fsdp_cuda_synchronize(fsdp_cuda_context *c)
{
    fsdp_cuda_check(c, cudaStreamSynchronize(c->stream), "synchronize");
    return fsdp_cuda_status(c);
}

/* --- scratch --- */

void *fsdp_cuda_scratch(fsdp_cuda_context *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes)
        return c->scratch;
    bytes += bytes / 2;
    if (c->scratch)
        fsdp_cuda_check(c, cudaFreeAsync(c->scratch, c->stream), "scratch");
    c->scratch = NULL;
    c->scratch_bytes = 0;
    if (!fsdp_cuda_check(c, cudaMallocAsync(&c->scratch, bytes, c->stream), "scratch"))
        return NULL;
    c->scratch_bytes = bytes;
    return c->scratch;
}

/* --- opening --- */

static fsdp_status check_device(int device, int *capability, int *multiprocessors)
{
    int n = 0, major = 0, minor = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "device cuda:%d: no CUDA device: %s", device,
                          error != cudaSuccess ? cudaGetErrorString(error)
                                               : "the driver reports none");
    if (device < 0 || device >= n)
        return fsdp_error(FSDP_ERR_INVALID, "device cuda:%d: this machine has %d (cuda:0%s)",
                          device, n, n > 1 ? " and so on" : "");
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    cudaDeviceGetAttribute(multiprocessors, cudaDevAttrMultiProcessorCount, device);
    *capability = 10 * major + minor;
    if (*capability < 80)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "device cuda:%d: compute capability %d.%d, at least 8.0 is needed (Ampere "
            "or newer)",
            device, major, minor);
    return FSDP_OK;
}

/* Return the workspace size that NVIDIA recommends for cublasLt on cards of this compute
 * capability. The size is larger for Hopper cards. */
static size_t workspace_bytes(int capability)
{
    return (size_t)(capability >= 90 ? 64 : 32) << 20;
}

static fsdp_status open_gemm(fsdp_cuda_context *c)
{
    const fsdp_status status =
        fsdp_gemm_plans_create(workspace_bytes(c->capability), &c->gemm_plans);
    if (status != FSDP_OK)
        fsdp_error_context(status, "device cuda:%d", c->device);
    return status;
}

fsdp_status fsdp_cuda_context_open(int device, fsdp_kernel_context **context)
{
    int capability = 0, multiprocessors = 0;
    FSDP_TRY(check_device(device, &capability, &multiprocessors));
    fsdp_cuda_context *c = fsdp_calloc(1, sizeof *c);
    if (!c)
        return fsdp_error_nomem();
    c->device = device;
    c->capability = capability;
    c->multiprocessors = multiprocessors;
    if (fsdp_cuda_check(c, cudaSetDevice(device), "cudaSetDevice"))
        fsdp_cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                        "cudaStreamCreate");
    fsdp_status status = fsdp_cuda_status(c);
    if (status == FSDP_OK)
        status = open_gemm(c);
    if (status != FSDP_OK) {
        fsdp_kernels_cuda_close((fsdp_kernel_context *)(void *)c);
        return status;
    }
    *context = (fsdp_kernel_context *)(void *)c;
    return FSDP_OK;
}

void fsdp_kernels_cuda_close(fsdp_kernel_context *context)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    if (!c)
        return;
    if (c->stream) {
        cudaStreamSynchronize(c->stream);
        if (c->scratch)
            cudaFreeAsync(c->scratch, c->stream);
        for (int i = 0; i < FSDP_CUDA_N_ATTACHED; i++)
            if (c->attached[i].destroy)
                c->attached[i].destroy(c, c->attached[i].data);
        cudaStreamSynchronize(c->stream);
        cudaStreamDestroy(c->stream);
    }
    fsdp_gemm_plans_destroy(c->gemm_plans);
    fsdp_free(c);
}
