/* See context.h. Scratch is one block of device memory that grows. Uploads go through a ring of
 * pinned host memory and an equally large ring of device memory: a copy in the stream moves each
 * array to the same offset of the other ring. The device's side needs no waits, since a later copy
 * is ordered behind the kernels that read the older array. The host's side is divided into
 * segments; before the host writes a segment again, it waits for the event that follows the last
 * copy out of it. */
#include "src/kernels/cuda/context.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/error.h"
#include "src/kernels/cuda/gemm_plans.h"

enum {
    ALIGNMENT = 256,
    SEGMENTS = 4,
    SEGMENT_BYTES = 1 << 20,
    /* A copy from the host of at most this many bytes goes through the ring. */
    STAGED_BYTES = 1 << 16
};

typedef struct upload_ring {
    char *host, *device;
    size_t segment_bytes;
    size_t used; /* bytes of the current segment */
    int segment;
    cudaEvent_t copied[SEGMENTS]; /* recorded when the host leaves the segment */
} upload_ring;

struct fsdp_cuda_context {
    int device, capability, multiprocessors;
    cudaStream_t stream;
    void *scratch;
    size_t scratch_bytes;
    upload_ring ring;
    fsdp_gemm_plans *gemm_plans;
    fsdp_cuda_attachment tables;
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

fsdp_cuda_attachment *fsdp_cuda_tables(fsdp_cuda_context *c)
{
    return &c->tables;
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

fsdp_status fsdp_cuda_synchronize(fsdp_cuda_context *c)
{
    fsdp_cuda_check(c, cudaStreamSynchronize(c->stream), "synchronize");
    return fsdp_cuda_status(c);
}

/* --- scratch and uploads --- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *fsdp_cuda_scratch(fsdp_cuda_context *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes)
        return c->scratch;
    bytes = aligned(bytes + bytes / 2);
    if (c->scratch)
        fsdp_cuda_check(c, cudaFreeAsync(c->scratch, c->stream), "scratch");
    c->scratch = NULL;
    c->scratch_bytes = 0;
    if (!fsdp_cuda_check(c, cudaMallocAsync(&c->scratch, bytes, c->stream), "scratch"))
        return NULL;
    c->scratch_bytes = bytes;
    return c->scratch;
}

static void ring_free(fsdp_cuda_context *c)
{
    upload_ring *r = &c->ring;
    for (int i = 0; i < SEGMENTS; i++)
        if (r->copied[i])
            cudaEventDestroy(r->copied[i]);
    if (r->device)
        cudaFreeAsync(r->device, c->stream);
    if (r->host)
        cudaFreeHost(r->host);
    *r = (upload_ring){0};
}

/* Make a ring whose segments have at least `bytes` bytes. The caller has waited for the stream. */
static bool ring_create(fsdp_cuda_context *c, size_t bytes)
{
    upload_ring *r = &c->ring;
    const size_t segment = bytes > SEGMENT_BYTES ? aligned(bytes) : SEGMENT_BYTES;
    bool ok = fsdp_cuda_check(c, cudaHostAlloc((void **)&r->host, SEGMENTS * segment, 0), "upload");
    ok = ok &&
         fsdp_cuda_check(c, cudaMallocAsync((void **)&r->device, SEGMENTS * segment, c->stream),
                         "upload");
    for (int i = 0; ok && i < SEGMENTS; i++)
        ok = fsdp_cuda_check(c, cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming),
                             "upload");
    if (!ok)
        ring_free(c);
    r->segment_bytes = ok ? segment : 0;
    return ok;
}

/* Make room for `bytes` bytes in the current segment, or go to the next one. */
static bool ring_reserve(fsdp_cuda_context *c, size_t bytes)
{
    upload_ring *r = &c->ring;
    if (bytes > r->segment_bytes) {
        if (fsdp_cuda_synchronize(c) != FSDP_OK)
            return false;
        ring_free(c);
        return ring_create(c, bytes);
    }
    if (bytes <= r->segment_bytes - r->used)
        return true;
    if (!fsdp_cuda_check(c, cudaEventRecord(r->copied[r->segment], c->stream), "upload"))
        return false;
    r->segment = (r->segment + 1) % SEGMENTS;
    r->used = 0;
    return fsdp_cuda_check(c, cudaEventSynchronize(r->copied[r->segment]), "upload");
}

const void *fsdp_cuda_upload(fsdp_cuda_context *c, const void *src, size_t bytes)
{
    if (!src || !bytes || !ring_reserve(c, bytes))
        return NULL;
    upload_ring *r = &c->ring;
    const size_t at = (size_t)r->segment * r->segment_bytes + r->used;
    r->used += aligned(bytes);
    if (r->used > r->segment_bytes)
        r->used = r->segment_bytes;
    memcpy(r->host + at, src, bytes);
    return fsdp_cuda_check(c,
                           cudaMemcpyAsync(r->device + at, r->host + at, bytes,
                                           cudaMemcpyHostToDevice, c->stream),
                           "upload")
               ? r->device + at
               : NULL;
}

void fsdp_cuda_from_host(fsdp_cuda_context *c, void *dst, const void *src, size_t bytes)
{
    if (!bytes)
        return;
    if (bytes <= STAGED_BYTES) {
        if (!ring_reserve(c, bytes))
            return;
        upload_ring *r = &c->ring;
        char *staged = r->host + (size_t)r->segment * r->segment_bytes + r->used;
        r->used += aligned(bytes) < r->segment_bytes - r->used ? aligned(bytes)
                                                               : r->segment_bytes - r->used;
        memcpy(staged, src, bytes);
        fsdp_cuda_check(c, cudaMemcpyAsync(dst, staged, bytes, cudaMemcpyHostToDevice, c->stream),
                        "copy");
        return;
    }
    if (fsdp_cuda_check(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, c->stream),
                        "copy"))
        fsdp_cuda_check(c, cudaStreamSynchronize(c->stream), "copy");
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

/* cublasLt's kernels for Hopper need more workspace. These are NVIDIA's recommendations. */
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
    if (fsdp_cuda_check(c, cudaSetDevice(device), "cudaSetDevice") &&
        fsdp_cuda_check(c, cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking),
                        "cudaStreamCreate"))
        ring_create(c, 0);
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
        ring_free(c);
        if (c->scratch)
            cudaFreeAsync(c->scratch, c->stream);
        if (c->tables.destroy)
            c->tables.destroy(c, c->tables.data);
        cudaStreamSynchronize(c->stream);
        cudaStreamDestroy(c->stream);
    }
    fsdp_gemm_plans_destroy(c->gemm_plans);
    fsdp_free(c);
}
