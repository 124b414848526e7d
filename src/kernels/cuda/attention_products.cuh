/* Tiles in shared memory and products with tensor cores, for attention_tensor.cuh.
 *
 * Note [Rows in registers]. A warp computes 16 rows of a tile, and the other operand is in shared
 * memory. The product S = A B^T is an accumulator in registers, in the layout that the next product
 * needs for its operand A. So P and dS are never stored to shared memory. This is also true in the
 * kernel for d_k and d_v, because it computes S^T and dP^T, whose rows are keys.
 *
 * Note [Two ways to multiply]. The same source is compiled for two kinds of instructions. With
 * wgmma (sm_90a), a warpgroup of four warps multiplies 64 rows. Its operand A is in shared memory
 * if A is Q, K or V, and in registers if A is P or dS. With mma.sync (sm_80 and newer), each warp
 * multiplies its own 16 rows. The accumulators of a warp have the same layout in both ways.
 *
 * Fragments of the operand A of wgmma must not stay in registers from one iteration of a loop to
 * the next: ptxas 13.0 used the registers of such fragments for other fragments of the same size,
 * and did not restore them.
 *
 * Note [Tiles in shared memory]. A tile consists of panels of 64 columns. A panel has rows of 128
 * bytes, and the 16-byte chunk c of row r is stored at the position of chunk c ^ (r & 7). This is
 * the 128-byte swizzle of wgmma's descriptors, and it makes ldmatrix free of bank conflicts. Panels
 * begin at multiples of 1024 bytes. */
#pragma once
#include "src/kernels/cuda/attention.cuh"
#include "src/kernels/cuda/ptx.cuh"

/* True if products can be compiled to wgmma. In code that is compiled for cards, this depends on
 * the architecture. If HAS_WGMMA is false, kernels whose parameter WGMMA is true use mma.sync
 * instead. The emulator of the tests supports both kinds of instructions. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA false
#else
#define HAS_WGMMA true
#endif

enum {
    TENSOR_THREADS = 128, /* a warpgroup */
    TENSOR_TILE = 64,     /* number of rows of the tile whose results the block computes */
    PANEL_COLUMNS = 64,
    PANEL_ROW_BYTES = 128
};

/* --- tiles --- */

/* Return the byte offset of 16-byte chunk `chunk` of row `row` in a tile of ROWS rows. */
template <int ROWS> FSDP_DEVICE uint32_t tile_at(int row, int chunk)
{
    return (uint32_t)((chunk >> 3) * (ROWS * PANEL_ROW_BYTES) + row * PANEL_ROW_BYTES +
                      (((chunk & 7) ^ (row & 7)) << 4));
}

/* Start to copy ROWS rows of D columns to shared memory. Rows from `valid` on and columns from
 * head_dim on become zeros. Each thread copies the same chunk of every STEP-th row. So it computes
 * only one source address and one destination address, and adds constants for the other rows. */
template <int ROWS, int D, typename T>
FSDP_DEVICE void load_tile(uint32_t dst, const T *src, int64_t ld, int valid, int head_dim)
{
    constexpr int CHUNKS = D / 8, STEP = TENSOR_THREADS / CHUNKS, N = (ROWS + STEP - 1) / STEP;
    static_assert(TENSOR_THREADS % CHUNKS == 0 && STEP % 8 == 0 && ROWS % STEP == 0,
                  "all rows of a thread have the same swizzle");
    const int row = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
    const uint32_t to = dst + tile_at<ROWS>(row, chunk);
    const T *from = src + (int64_t)row * ld + chunk * 8;
    if (chunk * 8 >= head_dim)
        valid = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        cp16(to + i * STEP * PANEL_ROW_BYTES, from + (int64_t)(i * STEP) * ld,
             row + i * STEP < valid);
}

/* Multiply the warp's 16 rows of an accumulator by their factors and store them to global memory.
 * Before that, the products are stored in the warp's own rows of `tile`, which is in shared memory.
 * `dst` is the address of the first row of the block's tile, and `valid` is the number of rows of
 * the tile. */
template <int ROWS, typename T, int NF>
FSDP_DEVICE void store_rows(uint32_t tile, const float (&c)[NF][4], float factor0, float factor1,
                            T *dst, int64_t ld, int valid, int head_dim)
{
    const int warp_row = threadIdx.x / 32 * 16, lane = threadIdx.x & 31, g = lane >> 2,
              t = lane & 3;
#pragma unroll
    for (int n = 0; n < NF; n++) {
        st_shared(tile + tile_at<ROWS>(warp_row + g, n) + 4 * t,
                  pack_of<T>(c[n][0] * factor0, c[n][1] * factor0));
        st_shared(tile + tile_at<ROWS>(warp_row + g + 8, n) + 4 * t,
                  pack_of<T>(c[n][2] * factor1, c[n][3] * factor1));
    }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < 16 * NF; i += 32) {
        const int row = warp_row + i / NF, chunk = i % NF;
        const uint4 x = ld_shared16(tile + tile_at<ROWS>(row, chunk));
        if (row < valid && chunk * 8 < head_dim)
            *(uint4 *)(dst + (int64_t)row * ld + chunk * 8) = x;
    }
}

/* --- products: fragments of A are a[K / 16][4], accumulators are c[N / 8][4] --- */

template <typename E, int N> FSDP_DEVICE void pin(E (&x)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            pin(x[i][e]);
}

template <int N> FSDP_DEVICE void clear(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

/* Compute C = A B^T, where A and B are tiles in shared memory with 16 KF columns. C is the product
 * of the warp's 16 rows of A with the first 8 NF rows of B. */
template <typename T, bool WGMMA, int ROWS_B, int KF, int NF>
FSDP_DEVICE void multiply_nt(float (&c)[NF][4], uint32_t a, uint32_t b)
{
    if constexpr (WGMMA) {
#pragma unroll
        for (int kk = 0; kk < KF; kk++)
            wgmma_ss_of<T>(
                c, wg_desc(a + kk / 4 * (TENSOR_TILE * PANEL_ROW_BYTES) + kk % 4 * 32, 16, 1024),
                wg_desc(b + kk / 4 * (ROWS_B * PANEL_ROW_BYTES) + kk % 4 * 32, 16, 1024), kk != 0);
    } else {
        const int lane = threadIdx.x & 31, warp_row = threadIdx.x / 32 * 16;
        clear(c);
#pragma unroll
        for (int kk = 0; kk < KF; kk++) {
            uint32_t x[4];
            ldsm4(x, a + tile_at<TENSOR_TILE>(warp_row + (lane & 15), 2 * kk + (lane >> 4)));
#pragma unroll
            for (int n = 0; n < NF; n += 2) {
                uint32_t y[4];
                ldsm4(y, b + tile_at<ROWS_B>(n * 8 + (lane >> 4) * 8 + (lane & 7),
                                             2 * kk + (lane >> 3 & 1)));
                mma_of<T>(c[n], x, y[0], y[1]);
                mma_of<T>(c[n + 1], x, y[2], y[3]);
            }
        }
    }
}

/* Compute C += A B, where A is in registers and B is a tile of ROWS_B rows in shared memory. Each
 * element of C is a sum over the rows of B. */
template <typename T, bool WGMMA, int ROWS_B, int NF, int KF>
FSDP_DEVICE void multiply_nn(float (&c)[NF][4], const uint32_t (&a)[KF][4], uint32_t b)
{
    if constexpr (WGMMA) {
#pragma unroll
        for (int kk = 0; kk < KF; kk++)
            wgmma_of<T, 1>(c, a[kk], wg_desc(b + kk * 2048, ROWS_B * PANEL_ROW_BYTES, 1024), 1);
    } else {
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int kk = 0; kk < KF; kk++)
#pragma unroll
            for (int n = 0; n < NF; n += 2) {
                uint32_t y[4];
                ldsm4t(y, b + tile_at<ROWS_B>(kk * 16 + (lane & 15), n + (lane >> 4)));
                mma_of<T>(c[n], a[kk], y[0], y[1]);
                mma_of<T>(c[n + 1], a[kk], y[2], y[3]);
            }
    }
}

/* Call this before a group of products is started. The registers and the shared memory that the
 * products read must be ready. */
template <bool WGMMA> FSDP_DEVICE void products_begin(void)
{
    if constexpr (WGMMA)
        wg_fence();
}

/* Form a group of all products that were started since the last call of this function. */
template <bool WGMMA> FSDP_DEVICE void products_commit(void)
{
    if constexpr (WGMMA)
        wg_commit();
}

/* Wait until at most PENDING groups of products are unfinished. */
template <bool WGMMA, int PENDING> FSDP_DEVICE void products_wait(void)
{
    if constexpr (WGMMA)
        wg_wait<PENDING>();
}

/* Wait until all groups of copies, except the last PENDING ones, have arrived and are visible to
 * all threads of the block and to the tensor cores. */
template <bool WGMMA, int PENDING = 0> FSDP_DEVICE void copies_arrive(void)
{
    cp_wait<PENDING>();
    if constexpr (WGMMA)
        fence_proxy_async();
    __syncthreads();
}

/* Round an accumulator to T, in the layout of the operand A of the next product. */
template <typename T, int NF, int KF>
FSDP_DEVICE void to_operand(uint32_t (&a)[KF][4], const float (&c)[NF][4])
{
#pragma unroll
    for (int kk = 0; kk < KF; kk++) {
        a[kk][0] = pack_of<T>(c[2 * kk][0], c[2 * kk][1]);
        a[kk][1] = pack_of<T>(c[2 * kk][2], c[2 * kk][3]);
        a[kk][2] = pack_of<T>(c[2 * kk + 1][0], c[2 * kk + 1][1]);
        a[kk][3] = pack_of<T>(c[2 * kk + 1][2], c[2 * kk + 1][3]);
    }
}
