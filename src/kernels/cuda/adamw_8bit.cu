/* AdamW with moments in 8 bits (src/base/dynamic_map.h). See optim.cuh.
 *
 * A warp updates one block of moments at a time. A block consists of the elements that share an
 * absmax. The warp updates it in rounds, and each thread updates four elements in a round. The new
 * moments stay in registers until the warp knows their largest magnitudes. The maps of the two
 * moments are in shared memory, because each thread looks up different entries. */
extern "C" {
#include "src/base/dynamic_map.h"
}
#include "src/kernels/cuda/adamw.cuh"

enum {
    BLOCK = FSDP_MAP_BLOCK, /* elements that share an absmax */
    WARP = 32,
    WARPS = THREADS / WARP,
    ROUNDS = BLOCK / (4 * WARP),
    /* The number of blocks of moments that a thread block updates. With this number, copying the
     * maps to shared memory takes only a small part of the time. */
    CHUNK_BLOCKS = 64,
    MAP_WORDS = sizeof(fsdp_dynamic_map) / 4
};

static_assert(sizeof(fsdp_dynamic_map) % 4 == 0, "maps are copied in words of four bytes");

struct adam_8bit_tensor {
    parameter p;
    uint8_t *codes1, *codes2;
    float *absmax1, *absmax2;
    const float *grad;
    int64_t inner;         /* elements of a row of the parameter */
    int64_t blocks_of_row; /* blocks of moments in a row */
    int64_t blocks;        /* blocks of moments of all rows */
    int64_t set;
    int64_t rounds; /* 1: a parameter that is stored only as bfloat16 is rounded stochastically */
    rounding rounded;
};

FSDP_DEVICE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Return the same code for x as fsdp_dynamic_map_code(). */
FSDP_DEVICE uint8_t code_of(const fsdp_dynamic_map &map, float x)
{
    const uint32_t bits = __float_as_uint(x);
    const int least = 103 << 23, most = (127 << 23) - 1;
    int magnitude = (int)(bits & 0x7fffffffu);
    magnitude = magnitude < least ? least : magnitude > most ? most : magnitude;
    const unsigned code = map.first[bits >> 31][(magnitude - least) >> 15];
    return (uint8_t)(code + (x > map.bound[code]));
}

template <bool WHOLE>
FSDP_DEVICE void load_codes(float (&x)[4], const uint8_t *codes, const fsdp_dynamic_map &map,
                            float absmax, int64_t i, int64_t end)
{
    four_of<uint8_t> four = {};
    if (WHOLE && i + 4 <= end)
        four = *(const four_of<uint8_t> *)(codes + i);
    else
        for (int e = 0; e < 4; e++)
            if (i + e < end)
                four.at[e] = codes[i + e];
#pragma unroll
    for (int e = 0; e < 4; e++)
        x[e] = map.value[four.at[e]] * absmax;
}

template <bool WHOLE>
FSDP_DEVICE void store_codes(uint8_t *codes, const float (&x)[4], const fsdp_dynamic_map &map,
                             float absmax, int64_t i, int64_t end)
{
    /* In a block of zeros, any divisor gives the code of 0. */
    const float divisor = absmax > 0.0f ? absmax : 1.0f;
    four_of<uint8_t> four;
#pragma unroll
    for (int e = 0; e < 4; e++)
        four.at[e] = code_of(map, x[e] / divisor);
    if (WHOLE && i + 4 <= end)
        *(four_of<uint8_t> *)(codes + i) = four;
    else
        for (int e = 0; e < 4; e++)
            if (i + e < end)
                codes[i + e] = four.at[e];
}

/* Return the largest of `magnitude` and the magnitudes of x. NaN is not larger than a number. */
FSDP_DEVICE float larger_magnitude(float magnitude, const float (&x)[4], int64_t i, int64_t end)
{
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (i + e < end && fabsf(x[e]) > magnitude)
            magnitude = fabsf(x[e]);
    return magnitude;
}

FSDP_DEVICE float largest_of_warp(float x)
{
#pragma unroll
    for (int i = WARP / 2; i; i /= 2) {
        const float other = __shfl_xor_sync(~0u, x, i);
        x = other > x ? other : x;
    }
    return x;
}

template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void close_adam_param(const adam_8bit_tensor &t, const float (&x)[4], int64_t i,
                                  int64_t end)
{
    if (STORAGE == STORED_ONLY_IN_COPY && std::is_same<COPY, __nv_bfloat16>::value && t.rounds)
        store_four_rounded<WHOLE>(t.rounded, ROUND_PARAM, t.p.copy, x, i, end);
    else
        close_param<STORAGE, WHOLE, COPY>(t.p, x, i, end);
}

/* Update elements [begin, end) of a tensor, which are block `block` of its moments. */
template <stored_as STORAGE, bool WHOLE, typename COPY>
FSDP_DEVICE void adam_block(const adam_8bit_tensor &t, const adam_scalars &s,
                            const fsdp_dynamic_map (&maps)[2], int64_t block, int64_t begin,
                            int64_t end)
{
    const float absmax1 = t.absmax1[block], absmax2 = t.absmax2[block];
    const int64_t first = begin + threadIdx.x % WARP * 4;
    float m[ROUNDS][4], v[ROUNDS][4], largest1 = 0.0f, largest2 = 0.0f;
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const int64_t i = first + k * 4 * WARP;
        float p[4], g[4];
        open_param<STORAGE, WHOLE, COPY>(p, t.p, i, end);
        load_codes<WHOLE>(m[k], t.codes1, maps[0], absmax1, i, end);
        load_codes<WHOLE>(v[k], t.codes2, maps[1], absmax2, i, end);
        load_four<WHOLE>(g, t.grad, i, end);
        for (int e = 0; e < 4; e++)
            adam_element(s, p[e], m[k][e], v[k][e], g[e]);
        close_adam_param<STORAGE, WHOLE, COPY>(t, p, i, end);
        largest1 = larger_magnitude(largest1, m[k], i, end);
        largest2 = larger_magnitude(largest2, v[k], i, end);
    }
    largest1 = largest_of_warp(largest1);
    largest2 = largest_of_warp(largest2);
#pragma unroll
    for (int k = 0; k < ROUNDS; k++) {
        const int64_t i = first + k * 4 * WARP;
        store_codes<WHOLE>(t.codes1, m[k], maps[0], largest1, i, end);
        store_codes<WHOLE>(t.codes2, v[k], maps[1], largest2, i, end);
    }
    /* All threads of the warp must have read the old scales. */
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        t.absmax1[block] = largest1;
        t.absmax2[block] = largest2;
    }
}

/* maps[0] is the map of exp_avg, and maps[1] is that of exp_avg_sq. */
template <stored_as STORAGE, bool WHOLE, typename COPY>
static __global__ void __launch_bounds__(THREADS)
    adam_8bit(table_of<adam_8bit_tensor> table, sets_of<adam_scalars> sets,
              const uint32_t *signed_map, const uint32_t *unsigned_map,
              const fsdp_clip_result *clip)
{
    SHARED(fsdp_dynamic_map, maps, [2]);
    if (clip && clip->refused)
        return;
    const int at = tensor_of_block(table);
    const adam_8bit_tensor t = table.tensors[at];
    adam_scalars s = sets.at[t.set];
    if (clip)
        s.grad_scale = clip->scale;
    for (int i = (int)threadIdx.x; i < MAP_WORDS; i += THREADS) {
        ((uint32_t *)&maps[0])[i] = signed_map[i];
        ((uint32_t *)&maps[1])[i] = unsigned_map[i];
    }
    __syncthreads();
    const int64_t first = (int64_t)(blockIdx.x - table.first[at]) * CHUNK_BLOCKS;
    for (int64_t b = first + threadIdx.x / WARP; b < first + CHUNK_BLOCKS && b < t.blocks;
         b += WARPS) {
        const int64_t row = b / t.blocks_of_row, j = b % t.blocks_of_row * BLOCK;
        const int64_t n = smaller(t.inner - j, BLOCK), begin = row * t.inner + j;
        adam_block<STORAGE, WHOLE, COPY>(t, s, maps, b, begin, begin + n);
    }
}

struct adam_8bit_method {
    typedef fsdp_adamw_args ARGS;
    typedef adam_8bit_tensor TENSOR;
    typedef adam_scalars SCALARS;
    static constexpr fsdp_cuda_table TABLE = FSDP_CUDA_TABLE_ADAMW_8BIT;

    static bool is_for(const fsdp_adamw_args *a)
    {
        return a->state_dtype == FSDP_DTYPE_U8;
    }
    static int64_t blocks_of_row(const fsdp_adamw_args *a)
    {
        return (a->inner + BLOCK - 1) / BLOCK;
    }
    static int64_t chunks_of(const fsdp_adamw_args *a)
    {
        return (a->n / a->inner * blocks_of_row(a) + CHUNK_BLOCKS - 1) / CHUNK_BLOCKS;
    }
    static layout layout_of(const fsdp_adamw_args *a)
    {
        layout l = ::layout_of(a, a->grad);
        l.whole = l.whole && a->inner % 4 == 0 && array_has_fours(a->exp_avg, FSDP_DTYPE_U8) &&
                  array_has_fours(a->exp_avg_sq, FSDP_DTYPE_U8);
        return l;
    }
    static void scalars_of(adam_scalars *s, const fsdp_adamw_args *a)
    {
        set_adam_scalars(s, a);
    }
    static void fill(adam_8bit_tensor *t, const fsdp_adamw_args *a)
    {
        t->p = parameter_of(a);
        t->codes1 = (uint8_t *)a->exp_avg;
        t->codes2 = (uint8_t *)a->exp_avg_sq;
        t->absmax1 = a->absmax1;
        t->absmax2 = a->absmax2;
        t->grad = a->grad;
        t->inner = a->inner;
        t->blocks_of_row = blocks_of_row(a);
        t->blocks = a->n / a->inner * t->blocks_of_row;
        t->rounds = a->stochastic;
        if (a->stochastic)
            t->rounded = rounding_of(a);
    }
    template <stored_as STORAGE, bool WHOLE, typename COPY>
    static void launch(fsdp_cuda_context *c, unsigned blocks,
                       const table_of<adam_8bit_tensor> &table, const sets_of<adam_scalars> &sets,
                       const fsdp_clip_result *clip)
    {
        const uint32_t *maps[2] = {(const uint32_t *)fsdp_cuda_upload(c, fsdp_dynamic_map_signed(),
                                                                      sizeof(fsdp_dynamic_map)),
                                   (const uint32_t *)fsdp_cuda_upload(
                                       c, fsdp_dynamic_map_unsigned(), sizeof(fsdp_dynamic_map))};
        if (maps[0] && maps[1])
            CUDA_LAUNCH((adam_8bit<STORAGE, WHOLE, COPY>), blocks, THREADS, 0, fsdp_cuda_stream(c),
                        table, sets, maps[0], maps[1], clip);
    }
};

void fsdp_cuda_adamw_8bit(fsdp_cuda_context *c, const fsdp_adamw_args *tensors, size_t n,
                          const fsdp_clip_result *clip)
{
    update_all<adam_8bit_method>(c, tensors, n, clip);
}
