/* Memory of a card that several ranks use. One of the ranks allocates it by cudaMalloc(). Ranks
 * that are threads use the same pointer; ranks that are processes open the memory through CUDA's
 * interprocess handles. */
#include <cuda_runtime_api.h>
#include <string.h>
#include <unistd.h>

#include "src/kernels/cuda/context.h"
#include "src/tensor/cuda_memory.h"
#include "src/tensor/device.h"

/* cudaIpcGetMemHandle() gives other processes access to the driver's whole block, not only to the
 * bytes of one cudaMalloc(). So the size of each buffer is rounded up to whole blocks. Then no
 * other buffer is in these blocks. */
#define BLOCK_BYTES (fsdp_cuda_traits.shared_bytes)

static fsdp_status cuda_error(int device, const char *call, cudaError_t error)
{
    (void)cudaGetLastError(); /* forget the error, so that the next kernel does not report it */
    return fsdp_error(error == cudaErrorMemoryAllocation ? FSDP_ERR_NOMEM : FSDP_ERR_UNSUPPORTED,
                      "device cuda:%d: %s: %s", device, call, cudaGetErrorString(error));
}

/* The identity of a card is its UUID. */
static fsdp_status identify(int device, char identity[64])
{
    _Static_assert(sizeof(cudaUUID_t) <= 64, "a UUID fits into the handle");
    struct cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess)
        return cuda_error(device, "cudaGetDeviceProperties", error);
    memset(identity, 0, 64);
    memcpy(identity, &properties.uuid, sizeof properties.uuid);
    return FSDP_OK;
}

static fsdp_status create(int device, size_t bytes, void **data, fsdp_shared_memory_handle *handle)
{
    const size_t rounded = (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    cudaIpcMemHandle_t ipc;
    _Static_assert(sizeof ipc <= sizeof handle->ipc, "an interprocess handle fits");
    *handle = (fsdp_shared_memory_handle){.process = getpid()};
    FSDP_TRY(identify(device, handle->device));
    cudaError_t error = cudaSetDevice(device); /* each thread has its own current card */
    if (error != cudaSuccess)
        return cuda_error(device, "cudaSetDevice", error);
    error = cudaMalloc(data, rounded ? rounded : BLOCK_BYTES);
    if (error != cudaSuccess)
        return cuda_error(device, "a shared buffer", error);
    error = cudaMemset(*data, 0, bytes);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cudaStreamLegacy);
    if (error != cudaSuccess) {
        cudaFree(*data);
        *data = NULL;
        return cuda_error(device, "a shared buffer", error);
    }
    handle->pointer = *data;
    /* Only other processes need an interprocess handle, and some systems cannot create one. So if
     * this call fails, only has_ipc becomes false, and no error is returned. */
    handle->has_ipc = cudaIpcGetMemHandle(&ipc, *data) == cudaSuccess;
    if (handle->has_ipc)
        memcpy(handle->ipc, &ipc, sizeof ipc);
    else
        (void)cudaGetLastError();
    return FSDP_OK;
}

static bool is_of_this_process(const fsdp_shared_memory_handle *handle)
{
    return handle->process == getpid();
}

static fsdp_status open_handle(int device, const fsdp_shared_memory_handle *handle, void **data)
{
    cudaIpcMemHandle_t ipc;
    if (is_of_this_process(handle)) {
        *data = handle->pointer;
        return FSDP_OK;
    }
    if (!handle->has_ipc)
        return fsdp_error(
            FSDP_ERR_UNSUPPORTED,
            "device cuda:%d: this system has no interprocess handles for memory of the "
            "card, so ranks that are processes cannot share it",
            device);
    memcpy(&ipc, handle->ipc, sizeof ipc);
    const cudaError_t error = cudaIpcOpenMemHandle(data, ipc, cudaIpcMemLazyEnablePeerAccess);
    return error == cudaSuccess ? FSDP_OK : cuda_error(device, "cudaIpcOpenMemHandle", error);
}

static fsdp_status attach(int device, const fsdp_shared_memory_handle *handle, void **data)
{
    char identity[64];
    FSDP_TRY(identify(device, identity));
    if (memcmp(identity, handle->device, sizeof identity) != 0)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "device cuda:%d: the memory is on another card, but the buffers of this "
                          "group are on one card",
                          device);
    return open_handle(device, handle, data);
}

/* Set *ordinal to the number of the card that has the identity. Return false if this process does
 * not see the card, for example because CUDA_VISIBLE_DEVICES hides it. */
static bool find_card(const char identity[64], int *ordinal)
{
    char other[64];
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess)
        n = 0;
    for (int i = 0; i < n; i++)
        if (identify(i, other) == FSDP_OK && memcmp(other, identity, sizeof other) == 0) {
            *ordinal = i;
            return true;
        }
    return false;
}

static bool reaches(int device, const char identity[64])
{
    int other, can = 0;
    if (!find_card(identity, &other))
        return false;
    if (other == device)
        return true;
    if (cudaDeviceCanAccessPeer(&can, device, other) == cudaSuccess)
        return can;
    (void)cudaGetLastError();
    return false;
}

static void copy_to_other(const fsdp_device *device, void *dst, const void *src, size_t bytes)
{
    fsdp_cuda_context *c = fsdp_cuda_of(device->context);
    fsdp_cuda_check(c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, fsdp_cuda_stream(c)),
                    "copy to another card");
}

static void detach(const fsdp_shared_memory_handle *handle, void *data)
{
    if (!is_of_this_process(handle))
        cudaIpcCloseMemHandle(data);
}

static void destroy(void *data)
{
    cudaFree(data);
}

const fsdp_shared_memory_ops fsdp_cuda_shared_memory = {.identify = identify,
                                                        .reaches = reaches,
                                                        .create = create,
                                                        .attach = attach,
                                                        .attach_other = open_handle,
                                                        .copy_to_other = copy_to_other,
                                                        .detach = detach,
                                                        .destroy = destroy,
                                                        .links = &fsdp_cuda_links};
