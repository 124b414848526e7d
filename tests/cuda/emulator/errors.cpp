/* Errors: each thread's last one, and one that breaks the process's context for good. */
#include "errors.h"

#include <atomic>

#include "settings.h"

namespace emu
{
static thread_local cudaError_t last_error;
static std::atomic<cudaError_t> context_error;
static std::atomic<int64_t> n_launches;

cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

cudaError_t broken(void)
{
    return context_error;
}

void break_context(cudaError_t error)
{
    cudaError_t none = cudaSuccess;
    context_error.compare_exchange_strong(none, error);
}

bool this_launch_fails(void)
{
    return ++n_launches == settings.fail_after;
}

struct error_text {
    cudaError_t error;
    const char *name, *text;
};
static const error_text texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed",
     "mapping of buffer object failed"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
};

static const error_text *find_text(cudaError_t error)
{
    static const error_text unknown = {cudaErrorUnknown, "cudaErrorUnknown",
                                       "an error that the emulator has no text for"};
    for (const error_text &t : texts)
        if (t.error == error)
            return &t;
    return &unknown;
}
} // namespace emu

using namespace emu;

cudaError_t cudaPeekAtLastError(void)
{
    return broken() != cudaSuccess ? broken() : last_error;
}

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return find_text(error)->text;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return find_text(error)->name;
}
