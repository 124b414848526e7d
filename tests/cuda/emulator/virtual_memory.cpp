/* The driver's virtual memory management: addresses are reserved, memory is created, and memory is
 * mapped at addresses. The functions are found with cudaGetDriverEntryPointByVersion(), as on a
 * machine whose driver is loaded at run time. */
#include <cuda.h>
#include <map>
#include <mutex>

#include "emu.h"
#include "errors.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace emu
{
enum {
    GRANULARITY = 2 << 20
};

/* Memory exists until its handle is released and it is mapped nowhere. */
struct physical_memory {
    int device;
    size_t bytes;
    uintptr_t mapped_at; /* 0: nowhere */
    bool is_released;
};
static std::map<CUmemGenericAllocationHandle, physical_memory> &memories =
    *new std::map<CUmemGenericAllocationHandle, physical_memory>;
static CUmemGenericAllocationHandle n_memories;

static bool is_multiple(uint64_t n)
{
    return n % GRANULARITY == 0;
}

static CUresult address_reserve(CUdeviceptr *at, size_t bytes, size_t, CUdeviceptr,
                                unsigned long long)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    if (!bytes || !is_multiple(bytes))
        return CUDA_ERROR_INVALID_VALUE;
    *at = reserve_addresses(current_device(), bytes);
    return *at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult address_free(CUdeviceptr at, size_t bytes)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    const int device = device_of((const void *)at);
    if (device < 0 || !is_reserved(device, at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (const auto &m : memories)
        if (m.second.mapped_at >= at && m.second.mapped_at < at + bytes) {
            report("cuMemAddressFree of addresses at which memory is mapped");
            return CUDA_ERROR_INVALID_VALUE;
        }
    free_addresses(device, at);
    return CUDA_SUCCESS;
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long)
{
    const int device = properties->location.id;
    if (broken() != cudaSuccess)
        return (CUresult)broken();
    if (!bytes || !is_multiple(bytes) || device < 0 || device >= settings.n_devices ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    std::lock_guard<std::mutex> lock(runtime_lock);
    if (!take_memory(device, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++n_memories;
    memories[*handle] = {device, bytes, 0, false};
    return CUDA_SUCCESS;
}

static void drop_unused(CUmemGenericAllocationHandle handle)
{
    const physical_memory m = memories[handle];
    if (!m.is_released || m.mapped_at)
        return;
    give_memory_back(m.device, m.bytes);
    memories.erase(handle);
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    const auto i = memories.find(handle);
    if (i == memories.end() || i->second.is_released)
        return CUDA_ERROR_INVALID_VALUE;
    i->second.is_released = true;
    drop_unused(handle);
    return CUDA_SUCCESS;
}

static CUresult map_memory(CUdeviceptr at, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    const auto i = memories.find(handle);
    if (i == memories.end() || offset || bytes != i->second.bytes || !is_multiple(at))
        return CUDA_ERROR_INVALID_VALUE;
    physical_memory *m = &i->second;
    if (m->mapped_at) {
        report("cuMemMap: the emulator maps memory at one place only");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (const auto &other : memories)
        if (other.second.mapped_at < at + bytes &&
            at < other.second.mapped_at + (other.second.mapped_at ? other.second.bytes : 0))
            return CUDA_ERROR_INVALID_VALUE;
    if (device_of((const void *)at) != m->device || !is_reserved(m->device, at, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    m->mapped_at = at; /* its pages appear in set_access() */
    return CUDA_SUCCESS;
}

static CUresult unmap(CUdeviceptr at, size_t bytes)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    for (auto &i : memories)
        if (i.second.mapped_at == at && i.second.bytes == bytes) {
            unmap_pages(i.second.device, at, bytes);
            i.second.mapped_at = 0;
            drop_unused(i.first);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    for (const auto &i : memories)
        if (i.second.mapped_at == at && i.second.bytes == bytes) {
            if (n != 1 || access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
                access->location.id != i.second.device)
                return CUDA_ERROR_NOT_SUPPORTED;
            return map_pages(i.second.device, at, bytes, -1, 0) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult get_granularity(size_t *granularity, const CUmemAllocationProp *,
                                CUmemAllocationGranularity_flags)
{
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

/* The table compares each function with the driver's prototype. */
template <typename F> static void *entry(F *, F *function)
{
    return (void *)function;
}
static void *find_entry(const std::string &name)
{
#define EMU_ENTRY(driver_name, function)                                                           \
    if (name == #driver_name)                                                                      \
    return entry((decltype(&driver_name))NULL, function)
    EMU_ENTRY(cuMemAddressReserve, address_reserve);
    EMU_ENTRY(cuMemAddressFree, address_free);
    EMU_ENTRY(cuMemCreate, create);
    EMU_ENTRY(cuMemRelease, release);
    EMU_ENTRY(cuMemMap, map_memory);
    EMU_ENTRY(cuMemUnmap, unmap);
    EMU_ENTRY(cuMemSetAccess, set_access);
    EMU_ENTRY(cuMemGetAllocationGranularity, get_granularity);
#undef EMU_ENTRY
    return NULL;
}
} // namespace emu

using namespace emu;

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult *result)
{
    EMU_RETURN_IF_BROKEN();
    *function = find_entry(symbol);
    if (result)
        *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}
