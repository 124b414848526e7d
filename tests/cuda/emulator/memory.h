/* Addresses and memory. Everything that a kernel may touch is in one range of addresses, the arena,
 * at a fixed place:
 *   for each device: the heap (cudaMalloc), then addresses for mappings (cuMemMap, and memory of
 *                    other processes)
 *   pinned memory    (cudaHostAlloc)
 *   the windows      (shared memory of each worker)
 *
 * Note [Device memory and the host]. A device's pages can be used while an op of the device runs.
 * At other times they are PROT_NONE, so a host that dereferences a device pointer faults. It does
 * not fault if an op happens to run; late streams make that rare, and the check build finds it
 * always. Addresses of the heap are never used again, so a stale pointer is never right by chance.
 * EMU_PROTECT=0 leaves the pages open. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <mutex>
#include <string>

#include "check.h"

namespace emu
{
/* The shadow of the check build (73 bytes for 4) has to fit between other mappings. */
constexpr uintptr_t GIB = (uintptr_t)1 << 30;
constexpr uintptr_t DEVICE_BYTES = is_check_build ? 128 * GIB : 1024 * GIB;
constexpr uintptr_t HEAP_BYTES = DEVICE_BYTES / 4;
constexpr int DEVICES = 8, WORKERS = 64;
constexpr int HOST_PINNED = -1, HOST_PAGEABLE = -2, SHARED_MEMORY = -3;
constexpr uintptr_t ARENA = 0x200000000000;
constexpr uintptr_t PINNED = ARENA + DEVICES * DEVICE_BYTES;
constexpr uintptr_t WINDOWS = PINNED + HEAP_BYTES;
constexpr uintptr_t WINDOW_BYTES = (uintptr_t)1 << 20;
constexpr uintptr_t ARENA_BYTES = WINDOWS + WORKERS * WINDOW_BYTES - ARENA;
/* Workers, with the stacks of their CUDA threads, are in a range of their own. */
constexpr uintptr_t INTERNAL = 0x300000000000, INTERNAL_SLOT = GIB;
static_assert(ARENA + ARENA_BYTES <= INTERNAL, "the ranges are disjoint");

static inline bool is_in_arena(const void *p)
{
    return (uintptr_t)p - ARENA < ARENA_BYTES;
}
/* The device whose memory p is in, or HOST_PINNED, HOST_PAGEABLE or SHARED_MEMORY. */
int device_of(const void *p);
/* True for host memory that was passed to cudaHostRegister(). */
bool is_registered(const void *p, size_t n);
/* "byte 3 of the 100 of allocation 7 (device 0), which was freed", for reports. */
std::string describe(const void *p);
/* Report n bytes at p, unless they are one allocation or adjacent mappings. */
void check_range(const void *p, size_t n, const char *what);

/* Everything below is called with the lock of the runtime. */
extern std::mutex &runtime_lock;

void map_arena(void);
/* Open or close the pages of a device: by +1 or -1, counted. */
void use_pages(int device, int by);
/* Count bytes of a device's memory; false if it has less left. */
bool take_memory(int device, size_t bytes);
void give_memory_back(int device, size_t bytes);
size_t memory_in_use(int device);
/* Find addresses for `bytes` bytes of mappings, a multiple of 4096, aligned to 2 MiB. Returns 0 if
 * there are none. */
uintptr_t reserve_addresses(int device, size_t bytes);
void free_addresses(int device, uintptr_t at);
bool is_reserved(int device, uintptr_t at, size_t bytes);
/* Map fresh memory (file -1) or a part of a file in reserved addresses. */
bool map_pages(int device, uintptr_t at, size_t bytes, int file, uint64_t offset);
void unmap_pages(int device, uintptr_t at, size_t bytes);
/* Where the allocation that begins at p is in the file of the device's heap, for other processes.
 */
bool heap_place(const void *p, int *file, uint64_t *offset, size_t *bytes);
} // namespace emu
