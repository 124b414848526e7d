/* The first header of every file with kernels. The compiler is nvcc or, for tests without a GPU, a
 * C++ compiler with the emulator (tests/cuda/emulator). */
#pragma once
#ifdef CUDA_EMULATED
#include "emu.h"
/* SHARED(float, sums, [2][32]) declares an array in shared memory. SHARED_DYNAMIC declares a
 * pointer to dynamic shared memory, whose size is an argument of the launch. */
#define SHARED(type, name, dims)                                                                   \
    typedef type name##_type dims;                                                                 \
    static char name##_site;                                                                       \
    name##_type &name =                                                                            \
        *(name##_type *)emu_shared(&name##_site, sizeof(name##_type), alignof(name##_type))
#define SHARED_DYNAMIC(type, name) type *const name = (type *)emu_shared_dynamic()
#define CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    emu_prepare(#kernel, kernel, grid, block, shared, stream)(__VA_ARGS__)
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#define SHARED(type, name, dims) __shared__ type name dims
#define SHARED_DYNAMIC(type, name) extern __shared__ type name[]
#define CUDA_LAUNCH(kernel, grid, block, shared, stream, ...)                                      \
    kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#endif
