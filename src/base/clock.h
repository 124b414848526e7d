/* Monotonic time. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline int64_t fsdp_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double fsdp_clock_s(void)
{
    return (double)fsdp_clock_ns() * 1e-9;
}
