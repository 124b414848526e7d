/* Memory of a card, for an allocator. The allocator's arenas are ranges of virtual addresses. When
 * an arena grows, it gets more memory through the driver's virtual memory management
 * (cuMemAddressReserve, cuMemCreate, cuMemMap). So it grows in place, as an arena of host memory
 * does. The driver's functions are looked up at run time, because a machine without a card has no
 * driver to link with. */
#include "src/tensor/cuda_memory.h"

#include <cuda.h>

#include "src/base/alloc.h"

#if defined(FSDP_CUDA_BLOCKS_ARE_ALONE)
#define BLOCKS_ARE_ALONE 1
#else
#define BLOCKS_ARE_ALONE 0
#endif

typedef struct driver {
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*address_free)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver;

struct fsdp_cuda_memory {
    driver driver;
    int device;
    cudaStream_t stream;
    struct mapping {
        CUdeviceptr at;
        size_t bytes;
    } * mappings;
    size_t n_mappings, cap_mappings;
};

static fsdp_status out_of_memory(const fsdp_cuda_memory *m, const char *call, size_t bytes)
{
    size_t unused = 0, total = 0;
    cudaMemGetInfo(&unused, &total);
    return fsdp_error(
        FSDP_ERR_NOMEM,
        "device cuda:%d: %s of %zu bytes failed: %.2f of the card's %.2f GiB are free", m->device,
        call, bytes, (double)unused * 0x1p-30, (double)total * 0x1p-30);
}

static fsdp_status reserve(void *self, size_t bytes, void **base)
{
    const fsdp_cuda_memory *m = self;
    CUdeviceptr at = 0;
    if (m->driver.reserve(&at, bytes, 0, 0, 0) != CUDA_SUCCESS)
        return out_of_memory(m, "reserving addresses", bytes);
    *base = (void *)(uintptr_t)at;
    return FSDP_OK;
}

static CUresult map_memory(const fsdp_cuda_memory *m, CUdeviceptr at, size_t bytes)
{
    const CUmemAllocationProp kind = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = m->device}};
    const CUmemAccessDesc access = {.location = kind.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle memory;
    CUresult result = m->driver.create(&memory, bytes, &kind, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = m->driver.map(at, bytes, 0, memory, 0);
    if (result == CUDA_SUCCESS) {
        result = m->driver.set_access(at, bytes, &access, 1);
        if (result != CUDA_SUCCESS)
            m->driver.unmap(at, bytes);
    }
    /* the mapping has its own reference, so the memory stays allocated */
    m->driver.release(memory);
    return result;
}

static fsdp_status commit(void *self, void *at, size_t bytes)
{
    fsdp_cuda_memory *m = self;
    if (!FSDP_GROW(m->mappings, m->cap_mappings, m->n_mappings + 1))
        return FSDP_ERR_NOMEM;
    const CUdeviceptr address = (CUdeviceptr)(uintptr_t)at;
    if (map_memory(m, address, bytes) != CUDA_SUCCESS)
        return out_of_memory(m, "allocation", bytes);
    m->mappings[m->n_mappings++] = (struct mapping){address, bytes};
    return FSDP_OK;
}

static void release(void *self, void *base, size_t bytes)
{
    fsdp_cuda_memory *m = self;
    const CUdeviceptr first = (CUdeviceptr)(uintptr_t)base;
    cudaStreamSynchronize(m->stream);
    size_t kept = 0;
    for (size_t i = 0; i < m->n_mappings; i++) {
        const struct mapping *x = &m->mappings[i];
        if (x->at >= first && x->at < first + bytes)
            m->driver.unmap(x->at, x->bytes);
        else
            m->mappings[kept++] = *x;
    }
    m->n_mappings = kept;
    m->driver.address_free(first, bytes);
}

static fsdp_status alloc_alone(void *self, size_t bytes, void **data)
{
    const fsdp_cuda_memory *m = self;
    if (cudaMallocAsync(data, bytes, m->stream) == cudaSuccess)
        return FSDP_OK;
    (void)cudaGetLastError(); /* forget the error, so that the next kernel does not report it */
    return out_of_memory(m, "allocation", bytes);
}

static void free_alone(void *self, void *data)
{
    const fsdp_cuda_memory *m = self;
    cudaFreeAsync(data, m->stream);
}

static bool find(const char *name, void *function)
{
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, &found);
#else
    const cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &found);
#endif
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess;
}

static fsdp_status find_driver(int device, driver *d)
{
    if (find("cuMemAddressReserve", &d->reserve) && find("cuMemAddressFree", &d->address_free) &&
        find("cuMemCreate", &d->create) && find("cuMemRelease", &d->release) &&
        find("cuMemMap", &d->map) && find("cuMemUnmap", &d->unmap) &&
        find("cuMemSetAccess", &d->set_access))
        return FSDP_OK;
    return fsdp_error(
        FSDP_ERR_UNSUPPORTED,
        "device cuda:%d: the driver has no virtual memory management; it is older than "
        "CUDA 12",
        device);
}

fsdp_status fsdp_cuda_memory_open(int device, cudaStream_t stream, size_t growth_bytes,
                                  fsdp_cuda_memory **memory, fsdp_allocator **allocator)
{
    fsdp_cuda_memory *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return fsdp_error_nomem();
    m->device = device;
    m->stream = stream;
    const fsdp_memory_source source = {.reserve = reserve,
                                       .commit = commit,
                                       .release = release,
                                       .alloc = alloc_alone,
                                       .free = free_alone,
                                       .growth_bytes = growth_bytes,
                                       .blocks_are_alone = BLOCKS_ARE_ALONE,
                                       .self = m};
    fsdp_status status = source.blocks_are_alone ? FSDP_OK : find_driver(device, &m->driver);
    if (status == FSDP_OK)
        status = fsdp_allocator_create_from(&source, allocator);
    if (status != FSDP_OK)
        fsdp_free(m);
    else
        *memory = m;
    return status;
}

void fsdp_cuda_memory_close(fsdp_cuda_memory *m)
{
    if (!m)
        return;
    fsdp_free(m->mappings);
    fsdp_free(m);
}
