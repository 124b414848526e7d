/* Code that the kernels of attention_tensor_*.cu share: the task of a block, biases and masks. */
#pragma once
#include "src/kernels/cuda/attention_products.cuh"

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

enum {
    STEP = 64, /* number of keys that forward and d_q process at a time */
};

/* Declare a pointer with the name `name` to the block's dynamic shared memory. Its address is
 * rounded up to a multiple of 1024 bytes. */
#define TENSOR_SHARED(name)                                                                        \
    SHARED_DYNAMIC(char, name##_raw);                                                              \
    char *name = (char *)(((uintptr_t)name##_raw + 1023) & ~(uintptr_t)1023)

/* The task of a block, and the part of the task that this thread computes: rows `row` and `row` + 8
 * of the tile and, for each fragment n, columns 8 n + 2 t and 8 n + 2 t + 1 of the tile. */
typedef struct tensor_task {
    attention_tile tile;
    /* index: index of the tile in the list. head: query head or, for d_k and d_v, key/value
     * head. */
    int index, head;
    int warp, lane, row, t;
} tensor_task;

FSDP_DEVICE tensor_task tensor_task_of(const attention_tile *tiles, int heads, uint32_t block)
{
    const int index = block / heads, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    return {tiles[index], index, (int)(block % heads), warp, lane, warp * 16 + (lane >> 2),
            lane & 3};
}

/* Return the number of steps, of `step` rows each, that are needed to process the range. */
FSDP_DEVICE int count_steps(attention_range range, int step)
{
    return range.end > range.begin ? (range.end - range.begin + step - 1) / step : 0;
}

/* Start to copy the biases for a tile of scores. Entry e of dst gets the bias for key - query =
 * lowest + e, or zero if there is no bias for this distance. */
template <int N>
FSDP_DEVICE void load_bias(uint32_t dst, const attention_params &p, int head, int shift, int lowest)
{
    static_assert(N <= TENSOR_THREADS, "each thread copies at most one");
    const int e = threadIdx.x;
    const int d = lowest + e - shift + p.bias_span - 1, length = 2 * p.bias_span - 1;
    const bool ok = p.bias && d >= 0 && d < length;
    if (e < N)
        cp4(dst + e * 4, ok ? p.bias + (int64_t)head * length + d : p.lse, ok);
}

/* Return true if the causal mask or the window hides at least one score of the tile. */
FSDP_DEVICE bool crosses_mask(const attention_params &p, int shift, int query, int queries, int key,
                              int keys)
{
    return (p.causal && key + keys - 1 > query + shift) ||
           (p.window > 0 && query + queries - 1 + shift - key >= p.window);
}

/* Call f(n, e, kept) for each element of the thread's two rows of a tile of scores. `kept` is true
 * if dropout keeps the element. */
template <typename F> FSDP_DEVICE void for_each_kept(const char *keep, const tensor_task &task, F f)
{
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int w = 0; w < STEP / 32; w++) {
            const uint32_t bits =
                *(const uint32_t *)(keep + (task.row + 8 * r) * (STEP / 8) + w * 4) >> 2 * task.t;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    f(4 * w + n, 2 * r + e, (bool)(bits >> (8 * n + e) & 1));
        }
}

/* Set the elements whose columns are outside the range of their row to `value`. row0 is the range
 * of the thread's first row, and row8 is the range of its second row. Column 0 of the tile is
 * column `first` of the sequence. */
template <int NF>
FSDP_DEVICE void hide_columns(float (&x)[NF][4], attention_range row0, attention_range row8,
                              int first, float value)
{
    first += 2 * (threadIdx.x & 3);
    const int begin[2] = {row0.begin - first, row8.begin - first};
    const int end[2] = {row0.end - first, row8.end - first};
#pragma unroll
    for (int n = 0; n < NF; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int column = 8 * n + (e & 1);
            if (column < begin[e >> 1] || column >= end[e >> 1])
                x[n][e] = value;
        }
}
