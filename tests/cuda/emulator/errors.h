/* Errors of the runtime's calls. */
#pragma once
#include <cuda_runtime_api.h>

namespace emu
{
/* Remember an error for cudaGetLastError(), as each call of the runtime does, and return it. */
cudaError_t fail(cudaError_t error);
/* The error of a kernel that broke the process's context, or cudaSuccess. Every later call returns
 * it, and no later op runs. */
cudaError_t broken(void);
void break_context(cudaError_t error);
/* True if EMU_FAIL_AFTER wants the launch that is being made to fail. Counts launches. */
bool this_launch_fails(void);
} // namespace emu

/* At the beginning of a call that a broken context makes fail. */
#define EMU_RETURN_IF_BROKEN()                                                                     \
    do {                                                                                           \
        emu::start();                                                                              \
        if (emu::broken() != cudaSuccess)                                                          \
            return emu::fail(emu::broken());                                                       \
    } while (0)
