/* Launches of kernels, with the limits of a card, and what the runtime knows of each kernel. */
#include <map>
#include <memory>
#include <mutex>

#include "block.h"
#include "errors.h"
#include "settings.h"
#include "stream.h"

namespace emu
{
constexpr size_t DEFAULT_SHARED_LIMIT = 48 << 10;

static std::mutex &lock = *new std::mutex;
/* What cudaFuncSetAttribute() allowed, in bytes. */
static std::map<const void *, size_t> &shared_limits = *new std::map<const void *, size_t>;

static size_t shared_limit(const void *kernel)
{
    std::lock_guard<std::mutex> held(lock);
    const auto i = shared_limits.find(kernel);
    return i == shared_limits.end() ? DEFAULT_SHARED_LIMIT : i->second;
}

static bool is_possible(dim3 grid, dim3 block)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    return threads && threads <= MOST_THREADS && block.z <= 64 && grid.x && grid.y && grid.z &&
           grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
}
} // namespace emu

using namespace emu;

void emu_enqueue_kernel(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared,
                        cudaStream_t stream, void (*run)(const void *), const void *call,
                        size_t bytes)
{
    start();
    if (shared > shared_limit(kernel)) {
        fail(cudaErrorInvalidValue);
        return;
    }
    if (!is_possible(grid, block)) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    const std::shared_ptr<launch> l = std::make_shared<launch>();
    l->name = name;
    l->grid = grid;
    l->block = block;
    l->shared = shared;
    l->run = run;
    memcpy(l->call, call, bytes);
    if (this_launch_fails())
        enqueue(stream, name, [] { break_context(cudaErrorIllegalAddress); });
    else
        enqueue(stream, name, [l] { run_launch(l.get()); });
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute attribute, int value)
{
    EMU_RETURN_IF_BROKEN();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess;
    if (value < 0 || (size_t)value > SHARED_LIMIT)
        return fail(cudaErrorInvalidValue);
    std::lock_guard<std::mutex> held(lock);
    shared_limits[kernel] = (size_t)value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel)
{
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = MOST_THREADS;
    attributes->maxDynamicSharedSizeBytes = (int)shared_limit(kernel);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int, size_t)
{
    *n = 1;
    return cudaSuccess;
}
