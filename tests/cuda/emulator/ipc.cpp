/* Memory of another process: cudaIpc*MemHandle. A handle names a part of the file of a device's
 * heap, which the other process opens through /proc. The memory has another address there. It may
 * be on another device than the current one of the process that opens it: then it is for copies.
 * Order between ops of two processes is not known to the checks. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include <map>
#include <mutex>

#include "emu.h"
#include "errors.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace emu
{
struct memory_handle { /* in cudaIpcMemHandle_t */
    uint64_t magic;
    int64_t process;
    int32_t file, device;
    uint64_t offset, bytes;
};
static_assert(sizeof(memory_handle) <= sizeof(cudaIpcMemHandle_t), "the handle fits");
constexpr uint64_t MAGIC = 0x656d75206d656d31;
constexpr uintptr_t PAGE_BYTES = 4096;

struct opened_memory {
    int device;
    uintptr_t at; /* its first page */
    size_t bytes;
};
static std::map<void *, opened_memory> &opened = *new std::map<void *, opened_memory>;

/* Map the pages that contain the memory of the handle. */
static cudaError_t map_handle(const memory_handle *h, void **p)
{
    const int device = h->device;
    const uint64_t first = h->offset / PAGE_BYTES * PAGE_BYTES;
    const uint64_t last = (h->offset + h->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)h->process, h->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return cudaErrorInvalidValue; /* the process has ended, or is another user's */
    std::lock_guard<std::mutex> lock(runtime_lock);
    const uintptr_t at = reserve_addresses(device, last - first);
    const bool is_mapped = at && map_pages(device, at, last - first, file, first);
    close(file);
    if (!is_mapped) {
        if (at)
            free_addresses(device, at);
        return cudaErrorMapBufferObjectFailed;
    }
    *p = (void *)(at + (h->offset - first));
    opened[*p] = {device, at, last - first};
    return cudaSuccess;
}
} // namespace emu

using namespace emu;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p)
{
    EMU_RETURN_IF_BROKEN();
    memory_handle h = {MAGIC, getpid(), -1, device_of(p), 0, 0};
    size_t bytes = 0;
    std::lock_guard<std::mutex> lock(runtime_lock);
    if (!heap_place(p, &h.file, &h.offset, &bytes))
        return fail(cudaErrorInvalidValue);
    h.bytes = bytes;
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned)
{
    EMU_RETURN_IF_BROKEN();
    memory_handle h;
    memcpy(&h, &handle, sizeof h);
    if (h.magic != MAGIC || h.device < 0 || h.device >= settings.n_devices)
        return fail(cudaErrorInvalidValue);
    if (h.process == getpid())
        return fail(cudaErrorDeviceUninitialized); /* as a card: not in the process that exports */
    return fail(map_handle(&h, p));
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
    start();
    wait_for_device();
    std::lock_guard<std::mutex> lock(runtime_lock);
    const auto i = opened.find(p);
    if (i == opened.end())
        return fail(cudaErrorInvalidValue);
    unmap_pages(i->second.device, i->second.at, i->second.bytes);
    free_addresses(i->second.device, i->second.at);
    opened.erase(i);
    return cudaSuccess;
}
