/* The emulated runtime, from host code in C: `runtime NAME` runs one test, `runtime` prints their
 * names. tests/cuda/test_runtime.sh sets the environment that a test needs. */
#include "tests/cuda/programs/program.h"

#include <cuda.h>
#include <stdint.h>

enum {
    MIB = 1 << 20,
    CHUNK = 2 * MIB
};

/* --- the driver's virtual memory management --- */

static __typeof__(&cuMemAddressReserve) reserve;
static __typeof__(&cuMemAddressFree) address_free;
static __typeof__(&cuMemCreate) create;
static __typeof__(&cuMemRelease) release;
static __typeof__(&cuMemMap) map;
static __typeof__(&cuMemUnmap) unmap;
static __typeof__(&cuMemSetAccess) set_access;

static void find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &found));
    EXPECT(found == cudaDriverEntryPointSuccess);
}

static void find_driver(void)
{
    find("cuMemAddressReserve", &reserve);
    find("cuMemAddressFree", &address_free);
    find("cuMemCreate", &create);
    find("cuMemRelease", &release);
    find("cuMemMap", &map);
    find("cuMemUnmap", &unmap);
    find("cuMemSetAccess", &set_access);
}

static CUresult map_fresh(CUdeviceptr at, size_t bytes)
{
    const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = kind.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    const CUresult result = create(&handle, bytes, &kind, 0);
    if (result != CUDA_SUCCESS)
        return result;
    EXPECT(map(at, bytes, 0, handle, 0) == CUDA_SUCCESS);
    EXPECT(set_access(at, bytes, &access, 1) == CUDA_SUCCESS);
    EXPECT(release(handle) == CUDA_SUCCESS);
    return CUDA_SUCCESS;
}

static size_t unused_memory(void)
{
    size_t unused, total;
    CHECK_CUDA(cudaMemGetInfo(&unused, &total));
    return unused;
}

static void *address(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

/* Copies cross from one mapping to the next, and fresh memory is 0xff. */
static void mappings(void)
{
    CUdeviceptr at, other;
    const size_t unused = unused_memory();
    static unsigned char bytes[CHUNK];
    find_driver();
    EXPECT(reserve(&at, 64 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(reserve(&other, 64 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(map_fresh(at, CHUNK) == CUDA_SUCCESS);
    EXPECT(map_fresh(at + CHUNK, 2 * CHUNK) == CUDA_SUCCESS);
    EXPECT(unused_memory() == unused - 3 * CHUNK);
    CHECK_CUDA(cudaMemset(address(at + CHUNK - 10), 7, 20));
    CHECK_CUDA(cudaMemcpy(bytes, address(at + CHUNK - 100), 200, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 200; i++)
        EXPECT(bytes[i] == (i >= 90 && i < 110 ? 7 : 0xff));
    EXPECT(unmap(at, CHUNK) == CUDA_SUCCESS);
    EXPECT(unused_memory() == unused - 2 * CHUNK);
    /* The same addresses get fresh memory. */
    EXPECT(map_fresh(at, CHUNK) == CUDA_SUCCESS);
    CHECK_CUDA(cudaMemcpy(bytes, address(at), CHUNK, cudaMemcpyDeviceToHost));
    for (int i = 0; i < CHUNK; i++)
        EXPECT(bytes[i] == 0xff);
    EXPECT(unmap(at, CHUNK) == CUDA_SUCCESS);
    EXPECT(unmap(at + CHUNK, 2 * CHUNK) == CUDA_SUCCESS);
    EXPECT(address_free(at, 64 * CHUNK) == CUDA_SUCCESS);
    EXPECT(address_free(other, 64 * CHUNK) == CUDA_SUCCESS);
    EXPECT(unused_memory() == unused);
}

/* Addresses that were given back are used again, so they do not run out. */
static void many_reservations(void)
{
    find_driver();
    for (int i = 0; i < 200; i++) {
        CUdeviceptr at;
        EXPECT(reserve(&at, (size_t)16 << 30, 0, 0, 0) == CUDA_SUCCESS);
        EXPECT(map_fresh(at, CHUNK) == CUDA_SUCCESS);
        EXPECT(unmap(at, CHUNK) == CUDA_SUCCESS);
        EXPECT(address_free(at, (size_t)16 << 30) == CUDA_SUCCESS);
    }
}

/* Mapped memory and cudaMalloc() share the memory of the device. EMU_MEMORY_MB is 16. */
static void out_of_memory(void)
{
    CUdeviceptr at;
    void *p, *q;
    find_driver();
    EXPECT(reserve(&at, 64 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(map_fresh(at, 8 * MIB) == CUDA_SUCCESS);
    EXPECT(map_fresh(at + 8 * MIB, 10 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(cudaMalloc(&p, 9 * MIB) == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError() == cudaSuccess);
    CHECK_CUDA(cudaMallocAsync(&p, 7 * MIB, NULL));
    /* Memory that is freed later in a stream is enough. */
    CHECK_CUDA(cudaFreeAsync(p, NULL));
    CHECK_CUDA(cudaMallocAsync(&q, 7 * MIB, NULL));
    CHECK_CUDA(cudaFree(q));
    EXPECT(unmap(at, 8 * MIB) == CUDA_SUCCESS);
    EXPECT(unused_memory() == 16 * MIB);
}

/* Must end with a fault or a report: memset runs past the mapped memory. */
static void fault_past_mapping(void)
{
    CUdeviceptr at;
    find_driver();
    EXPECT(reserve(&at, 64 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(map_fresh(at, CHUNK) == CUDA_SUCCESS);
    CHECK_CUDA(cudaMemset(address(at), 0, CHUNK + 1));
}

/* Must fault: the host writes mapped memory. */
static void fault_host_writes_mapping(void)
{
    CUdeviceptr at;
    find_driver();
    EXPECT(reserve(&at, 64 * CHUNK, 0, 0, 0) == CUDA_SUCCESS);
    EXPECT(map_fresh(at, CHUNK) == CUDA_SUCCESS);
    *(volatile char *)address(at) = 1;
}

/* --- errors --- */

/* Errors that leave the device usable; broken.cu has the others. */
static void wrong_arguments(void)
{
    void *p;
    cudaStream_t s;
    char host[4] = {0};
    EXPECT(cudaSetDevice(99) == cudaErrorInvalidDevice);
    EXPECT(cudaGetLastError() == cudaErrorInvalidDevice);
    EXPECT(cudaMemset(host, 0, 4) == cudaErrorInvalidValue);
    CHECK_CUDA(cudaMalloc(&p, 4));
    EXPECT(cudaMemcpy(p, host, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK_CUDA(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -5));
    CHECK_CUDA(cudaMemsetAsync(p, 0, 4, s));
    EXPECT(cudaStreamQuery(s) == cudaErrorNotReady);
    CHECK_CUDA(cudaStreamSynchronize(s));
    EXPECT(cudaStreamQuery(s) == cudaSuccess);
    CHECK_CUDA(cudaStreamDestroy(s));
    CHECK_CUDA(cudaFree(p));
}

/* --- copies, host memory, attributes --- */

static void rows(void)
{
    enum {
        WIDTH = 3,
        HEIGHT = 4,
        PITCH = 8
    };
    unsigned char host[HEIGHT * WIDTH], back[HEIGHT * PITCH];
    void *p;
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        host[i] = (unsigned char)(i + 1);
    CHECK_CUDA(cudaMalloc(&p, sizeof back));
    CHECK_CUDA(cudaMemset(p, 0, sizeof back));
    CHECK_CUDA(
        cudaMemcpy2DAsync(p, PITCH, host, WIDTH, WIDTH, HEIGHT, cudaMemcpyHostToDevice, NULL));
    memset(host, 0, sizeof host); /* pageable memory was read before the call returned */
    CHECK_CUDA(cudaMemcpy(back, p, sizeof back, cudaMemcpyDeviceToHost));
    for (int i = 0; i < HEIGHT; i++)
        for (int j = 0; j < PITCH; j++)
            EXPECT(back[i * PITCH + j] == (j < WIDTH ? i * WIDTH + j + 1 : 0));
    CHECK_CUDA(cudaFree(p));
}

static void registered_memory(void)
{
    static char host[4096];
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, host));
    EXPECT(attributes.type == cudaMemoryTypeUnregistered);
    CHECK_CUDA(cudaHostRegister(host, sizeof host, cudaHostRegisterDefault));
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, host + 5));
    EXPECT(attributes.type == cudaMemoryTypeHost);
    EXPECT(cudaHostRegister(host, sizeof host, 0) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK_CUDA(cudaHostUnregister(host));
    EXPECT(cudaHostUnregister(host) == cudaErrorHostMemoryNotRegistered);
}

static void attributes(void)
{
    int major, minor, threads, shared;
    struct cudaDeviceProp properties;
    CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 1));
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 1));
    EXPECT(major == 9 && minor == 0 && threads == 1024 && shared == 232448);
    EXPECT(properties.sharedMemPerBlockOptin == (size_t)shared && properties.major == major);
    EXPECT(cudaDeviceGetAttribute(&major, cudaDevAttrWarpSize, 2) == cudaErrorInvalidDevice);
}

/* Long runs need no memory for ops that have ended. */
static void many_ops(void)
{
    void *p;
    CHECK_CUDA(cudaMalloc(&p, 64));
    for (int i = 0; i < 20000; i++) {
        CHECK_CUDA(cudaMemsetAsync(p, i, 64, NULL));
        if (i % 100 == 0)
            CHECK_CUDA(cudaStreamSynchronize(NULL));
    }
    CHECK_CUDA(cudaFree(p));
}

static const struct {
    const char *name;
    void (*run)(void);
} tests[] = {{"mappings", mappings},
             {"many_reservations", many_reservations},
             {"out_of_memory", out_of_memory},
             {"fault_past_mapping", fault_past_mapping},
             {"fault_host_writes_mapping", fault_host_writes_mapping},
             {"wrong_arguments", wrong_arguments},
             {"rows", rows},
             {"registered_memory", registered_memory},
             {"attributes", attributes},
             {"many_ops", many_ops}};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (argc == 1) {
            puts(tests[i].name);
        } else if (!strcmp(argv[1], tests[i].name)) {
            tests[i].run();
            return 0;
        }
    return argc > 1 ? 2 : 0;
}
