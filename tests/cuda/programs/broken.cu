/* A kernel that fails (EMU_FAIL_AFTER=2) breaks the context, and a launch that is impossible does
 * not. */
#include "src/kernels/cuda/device.cuh"
#include "tests/cuda/programs/program.h"

static __global__ void set(int *p, int value)
{
    *p = value;
}

static void check_impossible_launches(int *p)
{
    CUDA_LAUNCH(set, 1, 2048, 0, 0, p, 1);
    EXPECT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);
    EXPECT(cudaGetLastError() == cudaSuccess);
    CUDA_LAUNCH(set, 1, 1, 60000, 0, p, 1); /* more shared memory than without the attribute */
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK_CUDA(cudaFuncSetAttribute((const void *)set, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    60000));
    EXPECT(cudaFuncSetAttribute((const void *)set, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                1 << 20) == cudaErrorInvalidValue);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
}

int main(void)
{
    void *p, *q;
    int host = 0;
    cudaStream_t s;
    CHECK_CUDA(cudaMalloc(&p, sizeof(int)));
    CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    check_impossible_launches((int *)p);
    CUDA_LAUNCH(set, 1, 1, 60000, s, (int *)p, 1); /* the first launch that is possible */
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpyAsync(&host, p, sizeof host, cudaMemcpyDeviceToHost, s));
    EXPECT(host == 1);
    CUDA_LAUNCH(set, 1, 1, 0, s, (int *)p, 2);
    EXPECT(cudaGetLastError() == cudaSuccess); /* it has not run yet */
    EXPECT(cudaStreamSynchronize(s) == cudaErrorIllegalAddress);
    for (int i = 0; i < 2; i++)
        EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaMemcpy(&host, p, sizeof host, cudaMemcpyDeviceToHost) == cudaErrorIllegalAddress);
    EXPECT(host == 1);
    EXPECT(cudaMalloc(&q, 4) == cudaErrorIllegalAddress);
    CUDA_LAUNCH(set, 1, 1, 0, s, (int *)p, 3);
    EXPECT(cudaGetLastError() == cudaErrorIllegalAddress);
    EXPECT(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    EXPECT(cudaStreamDestroy(s) == cudaErrorIllegalAddress);
    EXPECT(cudaFree(p) == cudaErrorIllegalAddress);
    return 0;
}
