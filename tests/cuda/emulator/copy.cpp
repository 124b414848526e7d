/* Copies and memset. A copy from pageable host memory takes its source before the call returns, and
 * a copy to pageable host memory ends before the call returns, as with the real runtime. */
#include <vector>

#include "emu.h"
#include "errors.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace emu
{
/* A copy of `rows` rows of `bytes` bytes each. */
struct copy_request {
    char *dst;
    const char *src;
    size_t dst_pitch, src_pitch, bytes, rows;
    cudaMemcpyKind kind;
    cudaStream_t stream;
    bool wait;
};

static const char *name_of_kind(cudaMemcpyKind kind)
{
    static const char *const names[] = {"memcpy host to host", "memcpy host to device",
                                        "memcpy device to host", "memcpy device to device",
                                        "memcpy"};
    return names[kind];
}

static bool matches_kind(cudaMemcpyKind kind, bool to_device, bool from_device)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    default:
        return true;
    }
}

static bool is_pageable(const void *p, size_t n)
{
    return device_of(p) == HOST_PAGEABLE && !is_registered(p, n);
}

/* The rows of the source, one after the other. */
static std::vector<char> stage_rows(const copy_request &c)
{
    std::vector<char> staged(c.rows * c.bytes);
    for (size_t i = 0; i < c.rows; i++)
        memcpy(&staged[i * c.bytes], c.src + i * c.src_pitch, c.bytes);
    return staged;
}

static cudaError_t copy(const copy_request &c)
{
    EMU_RETURN_IF_BROKEN();
    const int to = device_of(c.dst), from = device_of(c.src);
    const char *name = name_of_kind(c.kind);
    if (!matches_kind(c.kind, to >= 0, from >= 0) || c.dst_pitch < c.bytes || c.src_pitch < c.bytes)
        return fail(cudaErrorInvalidValue);
    if (!c.bytes || !c.rows)
        return cudaSuccess;
    const size_t dst_bytes = (c.rows - 1) * c.dst_pitch + c.bytes;
    const size_t src_bytes = (c.rows - 1) * c.src_pitch + c.bytes;
    check_range(c.dst, dst_bytes, name);
    check_range(c.src, src_bytes, name);
    std::function<void()> run;
    if (is_pageable(c.src, src_bytes))
        run = [c, staged = stage_rows(c)] {
            for (size_t i = 0; i < c.rows; i++)
                copy_bytes(c.dst + i * c.dst_pitch, &staged[i * c.bytes], c.bytes);
        };
    else
        run = [c] {
            for (size_t i = 0; i < c.rows; i++)
                copy_bytes(c.dst + i * c.dst_pitch, c.src + i * c.src_pitch, c.bytes);
        };
    const bool both_devices = to >= 0 && from >= 0 && to != from;
    if (c.wait || is_pageable(c.dst, dst_bytes))
        return enqueue_and_wait(c.stream, name, std::move(run), both_devices);
    return enqueue(c.stream, name, std::move(run), both_devices);
}

static cudaError_t set(void *p, int value, size_t n, cudaStream_t stream, bool wait)
{
    EMU_RETURN_IF_BROKEN();
    if (device_of(p) == HOST_PAGEABLE)
        return fail(cudaErrorInvalidValue);
    if (!n)
        return cudaSuccess;
    check_range(p, n, "memset");
    const auto run = [=] {
        touch(p, n, WRITE);
        memset(p, value, n);
    };
    return wait ? enqueue_and_wait(stream, "memset", run) : enqueue(stream, "memset", run);
}
} // namespace emu

using namespace emu;

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return copy({(char *)dst, (const char *)src, n, n, n, 1, kind, stream, false});
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, cudaMemcpyKind kind)
{
    return copy({(char *)dst, (const char *)src, n, n, n, 1, kind, NULL, true});
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy(
        {(char *)dst, (const char *)src, dst_pitch, src_pitch, width, height, kind, stream, false});
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind)
{
    return copy(
        {(char *)dst, (const char *)src, dst_pitch, src_pitch, width, height, kind, NULL, true});
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int, const void *src, int, size_t n, cudaStream_t stream)
{
    return cudaMemcpyAsync(dst, src, n, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream)
{
    return set(p, value, n, stream, false);
}

cudaError_t cudaMemset(void *p, int value, size_t n)
{
    return set(p, value, n, NULL, true);
}
