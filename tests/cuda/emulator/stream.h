/* Streams, as the other files of the runtime see them. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <functional>

namespace emu
{
/* Enqueue an op. With `all_devices` it may touch the memory of all devices. */
cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> run,
                    bool all_devices = false);
/* Enqueue an op and wait until it has run. */
cudaError_t enqueue_and_wait(cudaStream_t stream, const char *name, std::function<void()> run,
                             bool all_devices = false);
/* Wait until all streams of the calling thread's device are idle. */
void wait_for_device(void);
int current_device(void);
/* Run a kernel; called by an op. */
struct launch;
void run_launch(const launch *l);
/* The id of the op that this thread runs; 0 for the host. */
extern thread_local uint32_t current_op;
} // namespace emu
