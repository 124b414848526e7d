/* Shared by the programs of this folder, which test the emulator. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call of the runtime that must succeed. */
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) {                                                               \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
/* A condition that must hold. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Which build this is: "plain", "asan" or "check". */
#if defined(__SANITIZE_ADDRESS__)
#define BUILD_NAME "asan"
#elif defined(__SANITIZE_THREAD__)
#define BUILD_NAME "check"
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BUILD_NAME "asan"
#elif __has_feature(thread_sanitizer)
#define BUILD_NAME "check"
#else
#define BUILD_NAME "plain"
#endif
#else
#define BUILD_NAME "plain"
#endif
