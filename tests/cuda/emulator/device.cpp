/* What the devices are: two cards (EMU_DEVICES) of compute capability 9.0 (EMU_CAPABILITY=90) with
 * four multiprocessors and the limits of an H100. */
#include <stdio.h>
#include <stdlib.h>

#include "block.h"
#include "errors.h"
#include "settings.h"

using namespace emu;

namespace emu
{
enum {
    MULTIPROCESSORS = 4,
    SHARED_PER_BLOCK = 48 << 10,
    SHARED_PER_MULTIPROCESSOR = 228 << 10,
    REGISTERS = 65536,
    L2_BYTES = 50 << 20
};

/* 90 for sm_90. It is read at each call, so that one process can test several. */
static int capability(void)
{
    const char *text = getenv("EMU_CAPABILITY");
    return text ? atoi(text) : 90;
}

static bool is_device(int device)
{
    return device >= 0 && device < settings.n_devices;
}
} // namespace emu

cudaError_t cudaGetDeviceCount(int *n)
{
    start();
    *n = settings.n_devices;
    return settings.n_devices ? fail(broken()) : fail(cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    EMU_RETURN_IF_BROKEN();
    if (!is_device(device))
        return fail(cudaErrorInvalidDevice);
    memset((void *)p, 0, sizeof *p);
    strcpy(p->name, "emulated");
    strcpy(p->uuid.bytes, "emulated 0");
    p->uuid.bytes[9] = (char)('0' + device);
    p->totalGlobalMem = settings.memory_bytes;
    p->sharedMemPerBlock = SHARED_PER_BLOCK;
    p->sharedMemPerBlockOptin = SHARED_LIMIT;
    p->sharedMemPerMultiprocessor = SHARED_PER_MULTIPROCESSOR;
    p->regsPerBlock = REGISTERS;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = MOST_THREADS;
    p->maxThreadsDim[2] = 64;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->multiProcessorCount = MULTIPROCESSORS;
    p->l2CacheSize = L2_BYTES;
    p->unifiedAddressing = 1;
    p->pciBusID = device + 1;
    return cudaSuccess;
}

static int attribute_value(cudaDeviceAttr attribute, int device)
{
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        return MOST_THREADS;
    case cudaDevAttrMaxBlockDimZ:
        return 64;
    case cudaDevAttrMaxGridDimX:
        return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return 65535;
    case cudaDevAttrWarpSize:
        return 32;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrMultiProcessorCount:
        return MULTIPROCESSORS;
    case cudaDevAttrComputeCapabilityMajor:
        return capability() / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return capability() % 10;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return SHARED_PER_BLOCK;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return (int)SHARED_LIMIT;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return SHARED_PER_MULTIPROCESSOR;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return REGISTERS;
    case cudaDevAttrL2CacheSize:
        return L2_BYTES;
    case cudaDevAttrPciBusId:
        return device + 1;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrAsyncEngineCount:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
        return 1;
    default:
        return 0;
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device)
{
    EMU_RETURN_IF_BROKEN();
    if (!is_device(device))
        return fail(cudaErrorInvalidDevice);
    *value = attribute_value(attribute, device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    EMU_RETURN_IF_BROKEN();
    if (!is_device(device))
        return fail(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}

/* The pool of cudaMallocAsync() has no settings here. */
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
    *pool = NULL;
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
