/* Each instruction of src/kernels/cuda/ptx.cuh against its meaning. The products are of small whole
 * numbers, which are exact, so that a card must give the same bits as the emulator. */
#include <math.h>
#include <vector>

#include "src/kernels/cuda/ptx.cuh"
#include "tests/cuda/programs/program.h"

typedef __nv_bfloat16 bf16;
enum {
    ROWS = 64,  /* rows of A */
    DEPTH = 64, /* columns of A */
    TURNS = 2   /* the product is added this many times */
};
static int n_failed;

static void print_result(bool ok, const char *name)
{
    printf("%s %s\n", ok ? "ok" : "FAIL", name);
    n_failed += !ok;
}

/* --- matrix products --- */

/* Where a chunk of 8 elements of a tile is: panels of 64 columns, rows of 128 bytes, in which the
 * chunks are swizzled. */
__device__ static uint32_t chunk_at(int rows, int row, int chunk)
{
    return (uint32_t)((chunk >> 3) * (rows * 128) + row * 128 + (((chunk & 7) ^ (row & 7)) << 4));
}

__device__ static void load_tile(uint32_t dst, const bf16 *src, int rows, int columns)
{
    const int chunks = columns / 8;
    for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x)
        cp16(dst + chunk_at(rows, i / chunks, i % chunks), src + (size_t)i * 8, true);
    cp_commit();
    cp_wait<0>();
    fence_proxy_async();
    __syncthreads();
}

enum product_way {
    MMA,             /* mma.sync and ldmatrix */
    WGMMA_REGISTERS, /* wgmma with A in registers */
    WGMMA_SHARED     /* wgmma with A in shared memory */
};

template <int N, int TRANS_B>
__device__ static void multiply_mma(float (&c)[N / 8][4], const uint32_t (&a)[4][4], uint32_t b)
{
    const int lane = threadIdx.x & 31, rows = TRANS_B ? DEPTH : N;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int n = 0; n < N / 8; n += 2) {
            uint32_t x[4];
            if (TRANS_B)
                ldsm4t(x, b + chunk_at(rows, k * 16 + (lane & 15), n + (lane >> 4)));
            else
                ldsm4(x, b + chunk_at(rows, n * 8 + (lane >> 4) * 8 + (lane & 7),
                                      2 * k + (lane >> 3 & 1)));
            mma16816(c[n], a[k], x[0], x[1]);
            mma16816(c[n + 1], a[k], x[2], x[3]);
        }
}

template <int N, int TRANS_B, product_way WAY>
__device__ static void multiply_wgmma(float (&c)[N / 8][4], const uint32_t (&a)[4][4],
                                      uint32_t a_tile, uint32_t b_tile, bool add)
{
    wg_fence();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const uint64_t b = TRANS_B ? wg_desc(b_tile + k * 2048, DEPTH * 128, 1024)
                                   : wg_desc(b_tile + k * 32, 16, 1024);
        if constexpr (WAY == WGMMA_REGISTERS)
            wgmma<TRANS_B>(c, a[k], b, add || k > 0);
        else
            wgmma_ss(c, wg_desc(a_tile + k * 32, 16, 1024), b, add || k > 0);
    }
    wg_commit();
    wg_wait<0>();
}

/* out = TURNS A B, plus 1 for mma.sync, which always adds. A is [64, 64]; B is [N, 64] or, with
 * TRANS_B, [64, N]. */
template <int N, int TRANS_B, product_way WAY>
static __global__ void __launch_bounds__(128) product(float *out, const bf16 *a, const bf16 *b)
{
    SHARED_DYNAMIC(char, raw);
    char *aligned = (char *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
    const uint32_t a_tile = smem_addr(aligned), b_tile = a_tile + ROWS * 128;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    load_tile(a_tile, a, ROWS, DEPTH);
    load_tile(b_tile, b, TRANS_B ? DEPTH : N, TRANS_B ? N : DEPTH);
    float c[N / 8][4];
    for (int n = 0; n < N / 8; n++)
        for (int e = 0; e < 4; e++)
            c[n][e] = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        uint32_t fragments[4][4];
        for (int k = 0; k < 4 && WAY != WGMMA_SHARED; k++)
            ldsm4(fragments[k],
                  a_tile + chunk_at(ROWS, warp * 16 + (lane & 15), 2 * k + (lane >> 4)));
        if constexpr (WAY == MMA)
            multiply_mma<N, TRANS_B>(c, fragments, b_tile);
        else
            multiply_wgmma<N, TRANS_B, WAY>(c, fragments, a_tile, b_tile, turn > 0);
    }
    for (int n = 0; n < N / 8; n++)
        for (int e = 0; e < 4; e++)
            out[(warp * 16 + (lane >> 2) + 8 * (e >> 1)) * N + 8 * n + 2 * (lane & 3) + (e & 1)] =
                c[n][e];
}

static std::vector<bf16> small_numbers(size_t n, uint32_t seed)
{
    std::vector<bf16> x(n);
    for (bf16 &e : x) {
        seed = seed * 1664525u + 1013904223u;
        e = __float2bfloat16((float)((int)(seed >> 28) - 8));
    }
    return x;
}

template <typename T> static T *on_device(const std::vector<T> &host)
{
    void *p = NULL;
    CHECK_CUDA(cudaMalloc(&p, host.size() * sizeof(T)));
    CHECK_CUDA(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return (T *)p;
}

template <int N, int TRANS_B, product_way WAY> static void check_product(const char *name)
{
    const std::vector<bf16> a = small_numbers(ROWS * DEPTH, 7), b = small_numbers(DEPTH * N, 8);
    std::vector<float> out(ROWS * N);
    bf16 *device_a = on_device(a), *device_b = on_device(b);
    float *device_out = on_device(out);
    const size_t b_bytes = (size_t)(TRANS_B && N < 64 ? 64 : N) * 128;
    CUDA_LAUNCH((product<N, TRANS_B, WAY>), 1, 128, ROWS * 128 + b_bytes + 1024, 0, device_out,
                device_a, device_b);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(
        cudaMemcpy(out.data(), device_out, out.size() * sizeof out[0], cudaMemcpyDeviceToHost));
    bool ok = true;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < DEPTH; k++)
                sum += __bfloat162float(a[(size_t)(i * DEPTH + k)]) *
                       __bfloat162float(b[(size_t)(TRANS_B ? k * N + j : j * DEPTH + k)]);
            ok = ok && out[(size_t)(i * N + j)] == TURNS * sum + (WAY == MMA);
        }
    char text[100];
    snprintf(text, sizeof text, "%s_n%d_b_%s", name, N, TRANS_B ? "kn" : "nk");
    print_result(ok, text);
    for (void *p : {(void *)device_a, (void *)device_b, (void *)device_out})
        CHECK_CUDA(cudaFree(p));
}

/* --- everything else --- */

enum {
    LANES = 32,
    RESULTS = 4
};

static __global__ void lane_operations(float *exponentials, unsigned *results, const float *x)
{
    const int i = threadIdx.x;
    exponentials[i] = ex2(x[i]);
    results[i] = pack(x[i], x[i] * 3);
    results[LANES + i] = __ballot_sync(~0u, x[i] > 0);
    results[2 * LANES + i] = (unsigned)__shfl_xor_sync(~0u, i, 5) +
                             100u * (unsigned)__shfl_down_sync(~0u, i, 3, 8) +
                             10000u * (unsigned)__shfl_up_sync(~0u, i, 2, 16);
    results[3 * LANES + i] =
        __reduce_add_sync(~0u, (unsigned)i) + __umulhi(0xD2511F53u, (unsigned)i * 0x12345u);
}

static unsigned bits_of_pair(float low, float high)
{
    const bf16 pair[2] = {__float2bfloat16(low), __float2bfloat16(high)};
    unsigned bits;
    memcpy(&bits, pair, sizeof bits);
    return bits;
}

static void check_lane_operations(void)
{
    std::vector<float> x(LANES), e(LANES);
    std::vector<unsigned> r(RESULTS * LANES);
    for (int i = 0; i < LANES; i++)
        x[(size_t)i] = (float)(i - 16) * 1.37f;
    x[0] = -140; /* a denormal, which is flushed to zero */
    x[1] = -INFINITY;
    float *device_x = on_device(x), *device_e = on_device(e);
    unsigned *device_r = on_device(r);
    CUDA_LAUNCH(lane_operations, 1, LANES, 0, 0, device_e, device_r, device_x);
    CHECK_CUDA(cudaMemcpy(e.data(), device_e, LANES * sizeof e[0], cudaMemcpyDeviceToHost));
    CHECK_CUDA(
        cudaMemcpy(r.data(), device_r, RESULTS * LANES * sizeof r[0], cudaMemcpyDeviceToHost));
    bool ex2_ok = true, pack_ok = true, vote_ok = true, shuffle_ok = true, reduce_ok = true;
    for (unsigned i = 0; i < LANES; i++) {
        const double exact = i < 2 ? 0 : exp2((double)x[i]);
        const unsigned down = (i & 7) + 3 < 8 ? i + 3 : i, up = (i & 15) >= 2 ? i - 2 : i;
        ex2_ok = ex2_ok && fabs(e[i] - exact) <= exact * 3e-7;
        pack_ok = pack_ok && r[i] == bits_of_pair(x[i], x[i] * 3);
        vote_ok = vote_ok && r[LANES + i] == 0xfffe0000u;
        shuffle_ok = shuffle_ok && r[2 * LANES + i] == (i ^ 5) + 100u * down + 10000u * up;
        reduce_ok =
            reduce_ok &&
            r[3 * LANES + i] == 496u + (unsigned)((uint64_t)0xD2511F53u * (i * 0x12345u) >> 32);
    }
    print_result(ex2_ok, "ex2");
    print_result(pack_ok, "pack");
    print_result(vote_ok, "votes");
    print_result(shuffle_ok, "shuffles");
    print_result(reduce_ok, "reduce_and_umulhi");
    for (void *p : {(void *)device_x, (void *)device_e, (void *)device_r})
        CHECK_CUDA(cudaFree(p));
}

int main(void)
{
    check_product<32, 0, MMA>("mma");
    check_product<64, 0, MMA>("mma");
    check_product<128, 0, MMA>("mma");
    check_product<32, 1, MMA>("mma");
    check_product<64, 1, MMA>("mma");
    check_product<128, 1, MMA>("mma");
    check_product<32, 0, WGMMA_REGISTERS>("wgmma_registers");
    check_product<64, 0, WGMMA_REGISTERS>("wgmma_registers");
    check_product<128, 0, WGMMA_REGISTERS>("wgmma_registers");
    check_product<64, 1, WGMMA_REGISTERS>("wgmma_registers");
    check_product<128, 1, WGMMA_REGISTERS>("wgmma_registers");
    check_product<32, 0, WGMMA_SHARED>("wgmma_shared");
    check_product<64, 0, WGMMA_SHARED>("wgmma_shared");
    check_product<128, 0, WGMMA_SHARED>("wgmma_shared");
    check_lane_operations();
    return n_failed != 0;
}
