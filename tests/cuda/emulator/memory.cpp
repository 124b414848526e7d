/* The arena: which pages exist and are open, and the table of allocations; then the calls that
 * allocate. Each device's heap is a file without a name (memfd), so that other processes can map
 * parts of it (ipc.cpp). */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <deque>
#include <map>

#include "emu.h"
#include "errors.h"
#include "settings.h"
#include "stream.h"

namespace emu
{
enum {
    PAGE = 4096,
    GAP = 256,               /* bytes before each allocation of a heap that nothing may touch */
    GROWTH = 1 << 20,        /* a heap's pages are added in multiples of this */
    RESERVATION = 2 << 20,   /* alignment of addresses for mappings */
    FREED_ALLOCATIONS = 4096 /* remembered for reports */
};

struct allocation {
    size_t bytes;
    int number;
    bool is_live;
    uintptr_t reservation; /* not 0: a mapping in this range of addresses */
};

struct device_memory {
    uintptr_t heap_top, heap_end; /* end of the last allocation, and of the pages that exist */
    int file;                     /* the heap; -1: no file */
    size_t used;
    int users;                                /* ops that use the pages */
    std::map<uintptr_t, size_t> mapped;       /* pages of mappings, by address */
    std::map<uintptr_t, size_t> reservations; /* addresses for mappings */
    uintptr_t next_reservation;
};

/* None of these is destroyed when the process ends, since threads of streams may outlive main(). */
std::mutex &runtime_lock = *new std::mutex;
static std::map<uintptr_t, allocation> &allocations = *new std::map<uintptr_t, allocation>;
static std::deque<uintptr_t> &freed = *new std::deque<uintptr_t>;
static std::map<uintptr_t, size_t> &registered = *new std::map<uintptr_t, size_t>;
/* The last is pinned memory. */
static device_memory *const devices = new device_memory[DEVICES + 1]();
static int n_allocations;

static uintptr_t heap_of(int device)
{
    return ARENA + (uintptr_t)device * DEVICE_BYTES;
}

/* --- pages --- */

static int protection(int device)
{
    return devices[device].users || !settings.protect ? PROT_READ | PROT_WRITE : PROT_NONE;
}

static void map_heap(int device)
{
    device_memory *d = &devices[device];
    d->file = memfd_create("emulated device", MFD_CLOEXEC);
    if (d->file < 0 || ftruncate(d->file, (off_t)HEAP_BYTES) != 0 ||
        mmap((void *)heap_of(device), HEAP_BYTES, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             d->file, 0) == MAP_FAILED) {
        perror("== emulator: no file for a device's memory");
        exit(1);
    }
}

void map_arena(void)
{
    if (mmap((void *)ARENA, ARENA_BYTES, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
             0) == MAP_FAILED) {
        perror("== emulator: no address space");
        exit(1);
    }
    for (int i = 0; i <= DEVICES; i++) {
        device_memory *d = &devices[i];
        d->heap_top = d->heap_end = heap_of(i);
        d->next_reservation = heap_of(i) + HEAP_BYTES;
        d->file = -1;
        if (i < settings.n_devices)
            map_heap(i);
    }
    devices[DEVICES].users = 1; /* the host always uses pinned memory */
}

static void protect_range(uintptr_t from, uintptr_t to, int how)
{
    if (from < to)
        mprotect((void *)from, to - from, how);
}

static void protect_device(int device)
{
    const device_memory *d = &devices[device];
    const int how = protection(device);
    protect_range(heap_of(device), d->heap_end, how);
    uintptr_t from = 0, to = 0; /* adjacent mappings are one call */
    for (const auto &m : d->mapped) {
        if (m.first != to) {
            protect_range(from, to, how);
            from = m.first;
        }
        to = m.first + m.second;
    }
    protect_range(from, to, how);
}

void use_pages(int device, int by)
{
    device_memory *d = &devices[device];
    const bool were_open = d->users > 0;
    d->users += by;
    if (settings.protect && were_open != (d->users > 0))
        protect_device(device);
}

/* Call f while the pages of [at, at + bytes) are open. */
template <typename F> static void with_open_pages(int device, uintptr_t at, size_t bytes, F f)
{
    const uintptr_t from = at / PAGE * PAGE, to = (at + bytes + PAGE - 1) / PAGE * PAGE;
    protect_range(from, to, PROT_READ | PROT_WRITE);
    f();
    protect_range(from, to, protection(device));
}

/* --- the table of allocations --- */

int device_of(const void *p)
{
    const uintptr_t at = (uintptr_t)p;
    if (!is_in_arena(p))
        return HOST_PAGEABLE;
    if (at >= WINDOWS)
        return SHARED_MEMORY;
    return at >= PINNED ? HOST_PINNED : (int)((at - ARENA) / DEVICE_BYTES);
}

static void add_allocation(uintptr_t at, size_t bytes, uintptr_t reservation)
{
    allocations[at] = {bytes, ++n_allocations, true, reservation};
}

/* Mark an allocation as freed. It is remembered for a while. */
static void end_allocation(uintptr_t at)
{
    allocations[at].is_live = false;
    freed.push_back(at);
    if (freed.size() <= FREED_ALLOCATIONS)
        return;
    const auto oldest = allocations.find(freed.front());
    freed.pop_front();
    if (oldest != allocations.end() && !oldest->second.is_live)
        allocations.erase(oldest);
}

/* The last allocation that begins at or before p. */
static const allocation *find_allocation(const void *p, size_t *offset)
{
    auto i = allocations.upper_bound((uintptr_t)p);
    if (i == allocations.begin())
        return NULL;
    --i;
    *offset = (uintptr_t)p - i->first;
    return &i->second;
}

std::string describe(const void *p)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    char text[300];
    size_t offset = 0;
    const int device = device_of(p);
    if (device == SHARED_MEMORY) {
        snprintf(text, sizeof text, "shared memory, address %zu",
                 (size_t)(((uintptr_t)p - WINDOWS) % WINDOW_BYTES));
        return text;
    }
    const allocation *a = device == HOST_PAGEABLE ? NULL : find_allocation(p, &offset);
    if (!a || offset > a->bytes + DEVICE_BYTES / 2)
        return "no allocation";
    const std::string place = device < 0 ? "pinned" : "device " + std::to_string(device);
    snprintf(text, sizeof text, "byte %zu of the %zu of allocation %d (%s)%s", offset, a->bytes,
             a->number, place.c_str(), a->is_live ? "" : ", which was freed");
    return text;
}

static bool is_known_range(const void *p, size_t n)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    size_t offset = 0;
    uintptr_t reservation = 0;
    for (const char *at = (const char *)p; n;) {
        const allocation *a = find_allocation(at, &offset);
        if (!a || !a->is_live || offset >= a->bytes)
            return false;
        if (at != p && (!reservation || a->reservation != reservation))
            return false; /* only mappings of one range of addresses continue each other */
        reservation = a->reservation;
        const size_t here = a->bytes - offset < n ? a->bytes - offset : n;
        at += here;
        n -= here;
    }
    return true;
}

void check_range(const void *p, size_t n, const char *what)
{
    if (device_of(p) != HOST_PAGEABLE && !is_known_range(p, n))
        report("%s: %zu bytes from %s", what, n, describe(p).c_str());
}

bool is_registered(const void *p, size_t n)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    auto i = registered.upper_bound((uintptr_t)p);
    if (i == registered.begin())
        return false;
    --i;
    return (uintptr_t)p + n <= i->first + i->second;
}

/* --- the heaps --- */

bool take_memory(int device, size_t bytes)
{
    device_memory *d = &devices[device];
    if (device < DEVICES &&
        (d->used > settings.memory_bytes || bytes > settings.memory_bytes - d->used))
        return false;
    d->used += bytes;
    return true;
}

void give_memory_back(int device, size_t bytes)
{
    devices[device].used -= bytes;
}

size_t memory_in_use(int device)
{
    return devices[device].used;
}

static bool grow_heap(int device, uintptr_t end)
{
    device_memory *d = &devices[device];
    if (end <= d->heap_end)
        return true;
    const uintptr_t heap_end = (end + GROWTH - 1) / GROWTH * GROWTH;
    if (heap_end > heap_of(device) + HEAP_BYTES) {
        report("the emulator has no addresses left; it never uses an address of the heap again");
        return false;
    }
    protect_range(d->heap_end, heap_end, protection(device));
    memory_is_gone((void *)d->heap_end, heap_end - d->heap_end);
    d->heap_end = heap_end;
    return true;
}

static bool try_to_allocate(void **p, size_t bytes, int device)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    device_memory *d = &devices[device];
    const uintptr_t at = d->heap_top + GAP, end = (at + bytes + GAP - 1) / GAP * GAP;
    if (bytes > HEAP_BYTES || !take_memory(device, bytes))
        return false;
    if (!grow_heap(device, end + GAP)) {
        give_memory_back(device, bytes);
        return false;
    }
    d->heap_top = end;
    add_allocation(at, bytes, 0);
    with_open_pages(device, at, bytes, [=] { memory_is_new((void *)at, bytes); });
    *p = (void *)at;
    return true;
}

/* The number of allocations that are still to fail: emu_fail_allocations(). */
static std::atomic<int> failing_allocations;

static bool this_allocation_fails(void)
{
    int n = failing_allocations;
    while (n > 0 && !failing_allocations.compare_exchange_weak(n, n - 1))
        ;
    return n > 0;
}

static cudaError_t allocate(void **p, size_t bytes, int device)
{
    EMU_RETURN_IF_BROKEN();
    *p = NULL;
    if (bytes && this_allocation_fails())
        return fail(cudaErrorMemoryAllocation);
    if (!bytes || try_to_allocate(p, bytes, device))
        return cudaSuccess;
    wait_for_device(); /* memory that cudaFreeAsync() is to free is free then */
    return try_to_allocate(p, bytes, device) ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

NO_ASAN static void fill_unchecked(uintptr_t from, uintptr_t to)
{
    for (volatile char *p = (volatile char *)from; p < (volatile char *)to; p++)
        *p = (char)0xff;
}

/* Give the pages of an allocation back. What is left of its first and last page is NaN again. */
static void drop_contents(int device, uintptr_t at, size_t bytes)
{
    const device_memory *d = &devices[device];
    const uintptr_t from = (at + PAGE - 1) / PAGE * PAGE, to = (at + bytes) / PAGE * PAGE;
    with_open_pages(device, at, bytes, [=] {
        memory_is_gone((void *)at, bytes);
        fill_unchecked(at, from < to ? from : at + bytes);
    });
    if (from >= to)
        return;
    if (d->file < 0)
        madvise((void *)from, to - from, MADV_DONTNEED);
    else if (fallocate(d->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       (off_t)(from - heap_of(device)), (off_t)(to - from)) != 0)
        perror("== emulator: fallocate");
}

static cudaError_t release(void *p)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    const auto i = allocations.find((uintptr_t)p);
    if (i == allocations.end() || !i->second.is_live || i->second.reservation) {
        report("free of %p, which is not an allocation or was freed", p);
        return fail(cudaErrorInvalidValue);
    }
    const int device = device_of(p) == HOST_PINNED ? DEVICES : device_of(p);
    drop_contents(device, (uintptr_t)p, i->second.bytes);
    give_memory_back(device, i->second.bytes);
    end_allocation((uintptr_t)p);
    return cudaSuccess;
}

bool heap_place(const void *p, int *file, uint64_t *offset, size_t *bytes)
{
    const auto i = allocations.find((uintptr_t)p);
    if (device_of(p) < 0 || i == allocations.end() || !i->second.is_live || i->second.reservation)
        return false;
    *file = devices[device_of(p)].file;
    *offset = (uintptr_t)p - heap_of(device_of(p));
    *bytes = i->second.bytes;
    return true;
}

/* --- addresses for mappings --- */

static uintptr_t addresses_between(int device, uintptr_t from, uintptr_t end, size_t bytes)
{
    for (const auto &r : devices[device].reservations) {
        if (r.first + r.second <= from)
            continue;
        if (r.first >= end || r.first - from >= bytes)
            break;
        from = (r.first + r.second + 2 * RESERVATION - 1) / RESERVATION * RESERVATION;
    }
    return from < end && end - from >= bytes ? from : 0;
}

/* The search begins after the last reservation, so that addresses are used again late. */
uintptr_t reserve_addresses(int device, size_t bytes)
{
    device_memory *d = &devices[device];
    const uintptr_t first = heap_of(device) + HEAP_BYTES, end = heap_of(device) + DEVICE_BYTES;
    uintptr_t at = addresses_between(device, d->next_reservation, end, bytes);
    if (!at)
        at = addresses_between(device, first, end, bytes);
    if (!at)
        return 0;
    d->reservations[at] = bytes;
    /* Unused addresses follow each reservation. */
    d->next_reservation = (at + bytes + 2 * RESERVATION - 1) / RESERVATION * RESERVATION;
    return at;
}

void free_addresses(int device, uintptr_t at)
{
    device_memory *d = &devices[device];
    const size_t bytes = d->reservations[at];
    /* Other mappings may take these addresses. */
    allocations.erase(allocations.lower_bound(at), allocations.lower_bound(at + bytes));
    d->reservations.erase(at);
}

/* The reservation that contains a range, or 0. */
static uintptr_t reservation_of(int device, uintptr_t at, size_t bytes)
{
    const device_memory *d = &devices[device];
    auto i = d->reservations.upper_bound(at);
    if (i == d->reservations.begin())
        return 0;
    --i;
    return at + bytes <= i->first + i->second ? i->first : 0;
}

bool is_reserved(int device, uintptr_t at, size_t bytes)
{
    return reservation_of(device, at, bytes) != 0;
}

bool map_pages(int device, uintptr_t at, size_t bytes, int file, uint64_t offset)
{
    const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    if (mmap((void *)at, bytes, protection(device), kind | MAP_FIXED | MAP_NORESERVE, file,
             (off_t)offset) == MAP_FAILED)
        return false;
    devices[device].mapped[at] = bytes;
    /* Forget older mappings at these addresses. */
    allocations.erase(allocations.lower_bound(at), allocations.lower_bound(at + bytes));
    add_allocation(at, bytes, reservation_of(device, at, bytes));
    if (file < 0)
        with_open_pages(device, at, bytes, [=] { memory_is_new((void *)at, bytes); });
    else
        memory_is_known((void *)at, bytes);
    return true;
}

void unmap_pages(int device, uintptr_t at, size_t bytes)
{
    memory_is_gone((void *)at, bytes);
    devices[device].mapped.erase(at);
    end_allocation(at);
    mmap((void *)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
         0);
}
} // namespace emu

using namespace emu;

extern "C" void emu_fail_allocations(int n)
{
    failing_allocations = n;
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    return allocate(p, n, current_device());
}

cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return allocate(p, n, current_device());
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned)
{
    return allocate(p, n, DEVICES);
}

cudaError_t cudaMallocHost(void **p, size_t n)
{
    return allocate(p, n, DEVICES);
}

cudaError_t cudaFree(void *p)
{
    if (!p)
        return cudaSuccess;
    wait_for_device();
    const cudaError_t error = release(p);
    return broken() != cudaSuccess ? fail(broken()) : error;
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    return p ? enqueue(stream, "cudaFreeAsync", [=] { release(p); }) : cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t n, unsigned)
{
    EMU_RETURN_IF_BROKEN();
    if (!p || !n || is_in_arena(p))
        return fail(cudaErrorInvalidValue);
    if (is_registered(p, 1))
        return fail(cudaErrorHostMemoryAlreadyRegistered);
    std::lock_guard<std::mutex> lock(runtime_lock);
    registered[(uintptr_t)p] = n;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    std::lock_guard<std::mutex> lock(runtime_lock);
    return registered.erase((uintptr_t)p) ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    *device = host;
    return device_of(host) == HOST_PINNED || is_registered(host, 1) ? cudaSuccess
                                                                    : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    EMU_RETURN_IF_BROKEN();
    std::lock_guard<std::mutex> lock(runtime_lock);
    *total = settings.memory_bytes;
    *unused = settings.memory_bytes - memory_in_use(current_device());
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p)
{
    start();
    memset(attributes, 0, sizeof *attributes);
    const int device = device_of(p);
    const bool is_host = device == HOST_PINNED || is_registered(p, 1);
    attributes->type = device >= 0 ? cudaMemoryTypeDevice
                       : is_host   ? cudaMemoryTypeHost
                                   : cudaMemoryTypeUnregistered;
    attributes->device = device >= 0 ? device : -2;
    attributes->devicePointer = device >= 0 || is_host ? (void *)p : NULL;
    attributes->hostPointer = is_host ? (void *)p : NULL;
    return cudaSuccess;
}
