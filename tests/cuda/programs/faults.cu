/* Faults on purpose. `faults NAME` must end with an error, and `faults NAME ok`, without the fault,
 * must not. A wrong value is exit code 1, as in a test; a report of the emulator is 66. `faults`
 * alone prints the names, and `faults build` the kind of build. */
#include <math.h>
#include <nccl.h>
#include <thread>
#include <vector>

#include "src/kernels/cuda/ptx.cuh"
#include "tests/cuda/programs/program.h"

enum {
    N = 256
};
static bool fault; /* plant it */
static bool is_wrong;

/* --- kernels --- */

static __global__ void reverse(float *out, const float *in, bool fault)
{
    SHARED(float, values, [N]);
    values[threadIdx.x] = in[threadIdx.x];
    if (!fault)
        __syncthreads();
    out[threadIdx.x] = values[N - 1 - threadIdx.x];
}

static __global__ void reverse_in_warps(float *out, const float *in, bool fault)
{
    SHARED(float, values, [N]);
    values[threadIdx.x] = in[threadIdx.x];
    if (!fault)
        __syncwarp();
    out[threadIdx.x] = values[threadIdx.x ^ 31];
}

static __global__ void reverse_with_cp_async(float *out, const float *in, bool fault)
{
    SHARED(float, values, [N]);
    cp4(smem_addr(&values[threadIdx.x]), in + threadIdx.x, true);
    cp_commit();
    if (!fault)
        cp_wait<0>();
    else
        cp_wait<1>();
    __syncthreads();
    out[threadIdx.x] = values[N - 1 - threadIdx.x];
}

static __global__ void store_up_to(float *out, int last)
{
    if ((int)threadIdx.x <= last)
        out[threadIdx.x] = (float)threadIdx.x;
}

static __global__ void store_shared_up_to(float *out, int last)
{
    SHARED(float, values, [N / 2]);
    if ((int)threadIdx.x <= last)
        values[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x / 2];
}

static __global__ void diverge(float *out, bool fault)
{
    if (threadIdx.x >= 100 || !fault)
        __syncthreads();
    out[threadIdx.x] = 1;
    __syncthreads();
}

static __global__ void sum_by_a_warp(float *out, const float *in, int n)
{
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 32)
        sum += in[i];
    for (int i = 16; i; i >>= 1)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (threadIdx.x == 0)
        *out = sum;
}

static __global__ void store_block_number(float *out)
{
    out[threadIdx.x] = (float)blockIdx.x;
}

static __global__ void add_one(float *x, int n)
{
    for (int i = threadIdx.x; i < n; i += 32)
        x[i] += 1;
}

static __global__ void copy(float *out, const float *in)
{
    out[threadIdx.x] = in[threadIdx.x];
}

struct product_faults {
    bool no_wait, no_proxy_fence, no_fence;
};
/* Store an element of A A^T, where A is 64 x 64. */
static __global__ void product(float *out, const __nv_bfloat16 *a, product_faults faults)
{
    SHARED_DYNAMIC(char, raw);
    char *tile = (char *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
    for (int i = threadIdx.x; i < 64 * 8; i += 128) {
        const int row = i / 8, chunk = i % 8;
        *(uint4 *)(tile + row * 128 + ((chunk ^ (row & 7)) << 4)) =
            *(const uint4 *)(a + row * 64 + chunk * 8);
    }
    if (!faults.no_proxy_fence)
        fence_proxy_async();
    __syncthreads();
    float c[4][4];
    if (!faults.no_fence)
        wg_fence();
    for (int k = 0; k < 4; k++) {
        const uint32_t at = smem_addr(tile) + (uint32_t)k * 32;
        wgmma_ss(c, wg_desc(at, 16, 1024), wg_desc(at, 16, 1024), k != 0);
    }
    wg_commit();
    if (!faults.no_wait)
        wg_wait<0>();
    out[threadIdx.x] = c[0][0];
    wg_wait<0>();
}

/* --- helpers of the host --- */

static float *allocate(size_t n)
{
    void *p;
    CHECK_CUDA(cudaMalloc(&p, n * sizeof(float)));
    return (float *)p;
}

/* N floats on the device: 0, 1, 2, ... */
static float *allocate_numbers(void)
{
    float host[N], *p = allocate(N);
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    CHECK_CUDA(cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice));
    return p;
}

static void expect(const float *device, int n, float (*expected)(int))
{
    std::vector<float> host((size_t)n);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(
        cudaMemcpy(host.data(), device, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (int i = 0; i < n; i++)
        is_wrong = is_wrong || host[(size_t)i] != expected(i);
}

static float reversed(int i)
{
    return (float)(N - 1 - i);
}
static float itself(int i)
{
    return (float)i;
}
static float one_more(int i)
{
    return (float)(i + 1);
}
static float zero(int)
{
    return 0;
}
static float one(int)
{
    return 1;
}

static cudaStream_t make_stream(void)
{
    cudaStream_t s;
    CHECK_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}

static cudaEvent_t record(cudaStream_t s)
{
    cudaEvent_t e;
    CHECK_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CHECK_CUDA(cudaEventRecord(e, s));
    return e;
}

static float *allocate_pinned(void)
{
    void *p;
    CHECK_CUDA(cudaMallocHost(&p, N * sizeof(float)));
    return (float *)p;
}

/* --- faults in a block --- */

static void no_syncthreads(void)
{
    float *out = allocate(N), *in = allocate_numbers();
    CUDA_LAUNCH(reverse, 1, N, 0, 0, out, in, fault);
    expect(out, N, reversed);
}

static void no_syncwarp(void)
{
    float *out = allocate(N), *in = allocate_numbers();
    CUDA_LAUNCH(reverse_in_warps, 1, N, 0, 0, out, in, fault);
    expect(out, N, [](int i) { return (float)(i ^ 31); });
}

static void no_cp_async_wait(void)
{
    float *out = allocate(N), *in = allocate_numbers();
    CUDA_LAUNCH(reverse_with_cp_async, 1, N, 0, 0, out, in, fault);
    expect(out, N, reversed);
}

static void out_of_bounds(void)
{
    float *out = allocate(N - 1);
    CUDA_LAUNCH(store_up_to, 1, N, 0, 0, out, fault ? N - 1 : N - 2);
    expect(out, N - 1, itself);
}

static void shared_out_of_bounds(void)
{
    float *out = allocate(N);
    CUDA_LAUNCH(store_shared_up_to, 1, N, 0, 0, out, fault ? N / 2 : N / 2 - 1);
    expect(out, N, one);
}

static void barrier_in_divergent_code(void)
{
    float *out = allocate(N);
    CUDA_LAUNCH(diverge, 1, N, 0, 0, out, fault);
    expect(out, N, one);
}

static void never_written(void)
{
    float *out = allocate(1), *in = allocate(100);
    CHECK_CUDA(cudaMemset(in, 0, (fault ? 99 : 100) * sizeof(float)));
    CUDA_LAUNCH(sum_by_a_warp, 1, 32, 0, 0, out, in, 100);
    expect(out, 1, zero);
}

static void blocks_write_one_place(void)
{
    float *out = allocate(N);
    CUDA_LAUNCH(store_block_number, fault ? 3 : 1, N, 0, 0, out);
    expect(out, 1, [](int) { return fault ? 2.0f : 0.0f; });
}

static void run_product(product_faults faults)
{
    const std::vector<__nv_bfloat16> ones(64 * 64, __float2bfloat16(1));
    const size_t bytes = ones.size() * sizeof ones[0];
    __nv_bfloat16 *a = (__nv_bfloat16 *)allocate(ones.size() / 2);
    float *out = allocate(128);
    CHECK_CUDA(cudaMemcpy(a, ones.data(), bytes, cudaMemcpyHostToDevice));
    CUDA_LAUNCH(product, 1, 128, 64 * 128 + 1024, 0, out, a, faults);
    expect(out, 128, [](int) { return 64.0f; });
}

static void no_wgmma_wait(void)
{
    run_product({fault, false, false});
}
static void no_proxy_fence(void)
{
    run_product({false, fault, false});
}
static void no_wgmma_fence(void)
{
    run_product({false, false, fault});
}

/* --- faults between ops --- */

static void copy_out_of_bounds(void)
{
    float *out = allocate(N), *in = allocate_numbers();
    CHECK_CUDA(cudaMemcpyAsync(out + fault, in, N * sizeof(float), cudaMemcpyDeviceToDevice, NULL));
    expect(out, N, itself);
}

static void no_event(void)
{
    cudaStream_t a = make_stream(), b = make_stream();
    float *x = allocate_numbers(), *out = allocate(N);
    CUDA_LAUNCH(add_one, 1, 32, 0, a, x, N);
    cudaEvent_t written = record(a);
    if (!fault)
        CHECK_CUDA(cudaStreamWaitEvent(b, written, 0));
    CUDA_LAUNCH(copy, 1, N, 0, b, out, x);
    CHECK_CUDA(cudaStreamSynchronize(b));
    expect(out, N, one_more);
}

/* Stream a fills the buffer again before stream b has read it. */
static void buffer_filled_too_early(void)
{
    cudaStream_t a = make_stream(), b = make_stream();
    float *x = allocate_numbers(), *out = allocate(N);
    CUDA_LAUNCH(copy, 1, N, 0, b, out, x);
    cudaEvent_t read = record(b);
    if (!fault)
        CHECK_CUDA(cudaStreamWaitEvent(a, read, 0));
    CHECK_CUDA(cudaMemsetAsync(x, 0, N * sizeof(float), a));
    CHECK_CUDA(cudaStreamSynchronize(a));
    expect(out, N, itself);
}

static void host_dereferences(void)
{
    float *x = allocate_numbers(), copied;
    CHECK_CUDA(cudaMemcpy(&copied, x + 3, sizeof copied, cudaMemcpyDeviceToHost));
    is_wrong = (fault ? x[3] : copied) != 3;
}

static void host_reads_too_early(void)
{
    cudaStream_t a = make_stream();
    float *x = allocate_numbers(), *host = allocate_pinned();
    CHECK_CUDA(cudaMemcpyAsync(host, x, N * sizeof(float), cudaMemcpyDeviceToHost, a));
    if (!fault)
        CHECK_CUDA(cudaStreamSynchronize(a));
    is_wrong = host[7] != 7;
    CHECK_CUDA(cudaDeviceSynchronize());
}

static void host_writes_too_early(void)
{
    cudaStream_t a = make_stream();
    float *x = allocate(N), *host = allocate_pinned();
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    CHECK_CUDA(cudaMemcpyAsync(x, host, N * sizeof(float), cudaMemcpyHostToDevice, a));
    if (!fault)
        CHECK_CUDA(cudaStreamSynchronize(a));
    host[5] = -1;
    expect(x, N, itself);
}

/* The same with memory that the host registered: its copies are asynchronous, too. */
static void host_writes_registered_too_early(void)
{
    cudaStream_t a = make_stream();
    std::vector<float> host(N);
    float *x = allocate(N);
    CHECK_CUDA(cudaHostRegister(host.data(), N * sizeof(float), cudaHostRegisterDefault));
    for (int i = 0; i < N; i++)
        host[(size_t)i] = (float)i;
    CHECK_CUDA(cudaMemcpyAsync(x, host.data(), N * sizeof(float), cudaMemcpyHostToDevice, a));
    if (!fault)
        CHECK_CUDA(cudaStreamSynchronize(a));
    host[5] = -1;
    expect(x, N, itself);
    CHECK_CUDA(cudaHostUnregister(host.data()));
}

static void kernel_gets_host_pointer(void)
{
    float *x = allocate_numbers(), *out = allocate(N);
    std::vector<float> host(N, 0.0f);
    CUDA_LAUNCH(copy, 1, N, 0, 0, out, fault ? host.data() : x);
    expect(out, N, fault ? zero : itself);
}

static void use_after_free(void)
{
    cudaStream_t a = make_stream();
    float *out = allocate(N);
    void *x;
    CHECK_CUDA(cudaMallocAsync(&x, N * sizeof(float), a));
    CHECK_CUDA(cudaMemsetAsync(x, 0, N * sizeof(float), a));
    if (fault)
        CHECK_CUDA(cudaFreeAsync(x, a));
    CUDA_LAUNCH(copy, 1, N, 0, a, out, (const float *)x);
    if (!fault)
        CHECK_CUDA(cudaFreeAsync(x, a));
    expect(out, N, zero);
}

static void other_device(void)
{
    CHECK_CUDA(cudaSetDevice(fault));
    float *x = allocate_numbers();
    CHECK_CUDA(cudaSetDevice(0));
    float *out = allocate(N);
    CUDA_LAUNCH(copy, 1, N, 0, 0, out, x);
    expect(out, N, itself);
}

static void run_rank(int rank, ncclUniqueId id)
{
    ncclComm_t communicator;
    CHECK_CUDA(cudaSetDevice(rank));
    ncclCommInitRank(&communicator, 2, id, rank);
    float *x = allocate_numbers();
    ncclAllReduce(x, x, rank && fault ? N / 2 : N, ncclFloat32, ncclSum, communicator, 0);
    expect(x, N, [](int i) { return 2.0f * (float)i; });
}

static void ranks_disagree(void)
{
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    std::thread other(run_rank, 1, id);
    run_rank(0, id);
    other.join();
}

/* --- main --- */

static const struct {
    const char *name;
    void (*run)(void);
} faults[] = {{"no_syncthreads", no_syncthreads},
              {"no_syncwarp", no_syncwarp},
              {"no_cp_async_wait", no_cp_async_wait},
              {"out_of_bounds", out_of_bounds},
              {"shared_out_of_bounds", shared_out_of_bounds},
              {"barrier_in_divergent_code", barrier_in_divergent_code},
              {"never_written", never_written},
              {"blocks_write_one_place", blocks_write_one_place},
              {"no_wgmma_wait", no_wgmma_wait},
              {"no_proxy_fence", no_proxy_fence},
              {"no_wgmma_fence", no_wgmma_fence},
              {"copy_out_of_bounds", copy_out_of_bounds},
              {"no_event", no_event},
              {"buffer_filled_too_early", buffer_filled_too_early},
              {"host_dereferences", host_dereferences},
              {"host_reads_too_early", host_reads_too_early},
              {"host_writes_too_early", host_writes_too_early},
              {"host_writes_registered_too_early", host_writes_registered_too_early},
              {"kernel_gets_host_pointer", kernel_gets_host_pointer},
              {"use_after_free", use_after_free},
              {"other_device", other_device},
              {"ranks_disagree", ranks_disagree}};

int main(int argc, char **argv)
{
    fault = argc < 3;
    if (argc > 1 && !strcmp(argv[1], "build")) {
        puts(BUILD_NAME);
        return 0;
    }
    for (const auto &f : faults)
        if (argc == 1) {
            puts(f.name);
        } else if (!strcmp(argv[1], f.name)) {
            f.run();
            return is_wrong;
        }
    return argc > 1 ? 2 : 0;
}
