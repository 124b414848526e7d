/* What the kernels of attention_tensor_*.cuh have in common: a block's task, biases and masks. */
#pragma once
#include "src/kernels/cuda/attention_products.cuh"

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

enum {
    STEP = 64, /* keys that forward and d_q visit at a time */
};

/* The dynamic shared memory, from a multiple of 1024 bytes on. */
#define TENSOR_SHARED(name)                                                                        \
    SHARED_DYNAMIC(char, name##_raw);                                                              \
    char *name = (char *)(((uintptr_t)name##_raw + 1023) & ~(uintptr_t)1023)

/* What a block knows about its task. `row` is the thread's first row in the tile; it also has row
 * + 8. In fragments, its columns are 8 n + 2 t and 8 n + 2 t + 1. */
typedef struct tensor_task {
    attention_tile tile;
    int index, head; /* of the list; of the queries, or of keys and values */
    int warp, lane, row, t;
} tensor_task;

FSDP_DEVICE tensor_task tensor_task_of(const attention_tile *tiles, int heads)
{
    const int index = blockIdx.x / heads, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    return {tiles[index], index, (int)(blockIdx.x % heads), warp, lane, warp * 16 + (lane >> 2),
            lane & 3};
}

/* Return the number of tiles of `step` rows in a range. */
FSDP_DEVICE int count_steps(attention_range range, int step)
{
    return range.end > range.begin ? (range.end - range.begin + step - 1) / step : 0;
}

/* Start to copy the biases for a tile of scores: entry e is for key - query = lowest + e. Entries
 * without a bias become zeros. */
template <int N>
FSDP_DEVICE void load_bias(uint32_t dst, const attention_params &p, int head, int shift, int lowest)
{
    for (int e = threadIdx.x; e < N; e += TENSOR_THREADS) {
        const int d = lowest + e - shift + p.bias_span - 1, length = 2 * p.bias_span - 1;
        const bool ok = p.bias && d >= 0 && d < length;
        cp4(dst + e * 4, ok ? p.bias + (int64_t)head * length + d : p.lse, ok);
    }
}

/* True if the causal mask, the window or the ends of the sequence hide a score of the tile. */
FSDP_DEVICE bool has_hidden(const attention_params &p, const attention_tile &tile, int query,
                            int queries, int key, int keys)
{
    return key + keys > tile.n_keys || (p.causal && key + keys - 1 > query + tile.shift) ||
           (p.window > 0 && query + queries - 1 + tile.shift - key >= p.window);
}

/* Call f(n, e, kept) for each element of the thread's rows of a tile of scores. */
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
