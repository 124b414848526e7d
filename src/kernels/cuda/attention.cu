/* The functions of fsdp_kernels for attention; see Note [Attention in tiles] in attention.cuh. This
 * file makes the lists of tiles, chooses the kernels, and adds up the rows of bias_parts to get the
 * gradient of the bias. */
#include "src/kernels/cuda/attention.cuh"

#include <string.h>

#include <algorithm>

#include "src/base/philox.h"
#include "src/kernels/cuda/uploads.h"
extern "C" {
#include "src/base/alloc.h"
}

/* --- the gradient of the bias --- */

enum {
    BIAS_COLUMNS = 32,
    /* The list of tiles is cut into this many slices. The terms of each slice are added in order,
     * and then the sums of the slices are added in order. With fewer slices, each thread would have
     * to do more loads one after another, and these loads take most of the time of this kernel. */
    BIAS_SLICES = 32
};

/* The kernel d_q has written n_parts rows of sums over diagonals for each tile; see Note [Parts of
 * the bias gradient] in attention.cuh. Each row may have an entry for the distance `at` = key -
 * (query - tile.first). Return the sum of these entries for one tile. */
FSDP_DEVICE float sum_of_parts(const attention_params &p, const attention_tile &tile,
                               const float *part, int q_tile, int step, int n_parts, int at)
{
    const attention_range keys = visible_keys(p, tile, q_tile, step);
    if (keys.end <= keys.begin)
        return 0;
    const int rows = q_tile / n_parts;
    const int n = (keys.end - keys.begin + step - 1) / step * step + rows;
    float sum = 0;
    for (int w = 0; w < n_parts; w++) {
        const int e = at - keys.begin + rows * (w + 1);
        sum += e >= 0 && e < n ? part[(int64_t)w * p.part_ld + e] : 0.0f;
    }
    return sum;
}

static __global__ void __launch_bounds__(BIAS_COLUMNS *BIAS_SLICES)
    attention_bias_sum(const attention_params p, int q_tile, int step, int n_parts)
{
    const int column = threadIdx.x % BIAS_COLUMNS, slice = threadIdx.x / BIAS_COLUMNS;
    const int d = blockIdx.x * BIAS_COLUMNS + column, head = blockIdx.y;
    const int length = 2 * p.bias_span - 1;
    float sum = 0;
    for (int i = slice; d < length && i < p.n_q_tiles; i += BIAS_SLICES) {
        const attention_tile tile = p.q_tiles[i];
        const int distance = d - (p.bias_span - 1); /* the distance key - (query + shift) */
        const float *part = p.bias_parts + ((int64_t)i * p.heads + head) * n_parts * p.part_ld;
        sum +=
            sum_of_parts(p, tile, part, q_tile, step, n_parts, distance + tile.first + tile.shift);
    }
    SHARED(float, sums, [BIAS_SLICES][BIAS_COLUMNS]);
    sums[slice][column] = sum;
    __syncthreads();
    if (slice == 0 && d < length) {
        sum = 0;
        for (int i = 0; i < BIAS_SLICES; i++)
            sum += sums[i][column];
        p.d_bias[(int64_t)head * length + d] = sum;
    }
}

/* --- the lists of tiles --- */

typedef struct tile_list {
    attention_tile *at;
    int n;
} tile_list;

static attention_tile tile_of(const fsdp_attention_args *args, int64_t b, int first)
{
    attention_tile tile = {};
    tile.query_row = args->q_offsets[b];
    tile.n_queries = args->q_offsets[b + 1] - args->q_offsets[b];
    tile.key_row = args->k_offsets[b];
    tile.n_keys = (int32_t)fsdp_attention_keys(args, b);
    tile.shift = args->causal ? tile.n_keys - tile.n_queries : 0;
    tile.first = first;
    return tile;
}

static int64_t count_tiles(const fsdp_attention_args *args, bool of_keys, int rows)
{
    int64_t n = 0;
    for (int64_t b = 0; b < args->n_sequences; b++) {
        const attention_tile tile = tile_of(args, b, 0);
        n += ((of_keys ? tile.n_keys : tile.n_queries) + rows - 1) / rows;
    }
    return n;
}

/* All values that determine the lists of tiles. The tile_key is the same for all layers of a model,
 * so the layers share the lists. */
typedef struct tile_key {
    int32_t *at;
    size_t bytes;
} tile_key;

static bool make_key(tile_key *key, const fsdp_attention_args *args,
                     const attention_kernels *kernels, bool backward, const attention_params &p)
{
    const size_t n = (size_t)args->n_sequences, offsets = n + 1;
    const int32_t head[] = {args->causal,    p.window, kernels->q_tile,
                            kernels->k_tile, backward, args->k_ends != NULL,
                            (int32_t)n};
    const size_t heads = sizeof head / sizeof *head;
    const size_t words = heads + 2 * offsets + (args->k_ends ? n : 0);
    int32_t *to = (int32_t *)fsdp_realloc(NULL, words, sizeof *to);
    if (!to)
        return false;
    *key = {to, words * sizeof *to};
    memcpy(to, head, sizeof head);
    memcpy(to += heads, args->q_offsets, offsets * sizeof *to);
    memcpy(to += offsets, args->k_offsets, offsets * sizeof *to);
    if (args->k_ends)
        memcpy(to + offsets, args->k_ends, n * sizeof *to);
    return true;
}

/* Append the tiles of all sequences to the list, ordered so that the tiles with the most work come
 * first. */
static void append_tiles(tile_list *list, const fsdp_attention_args *args,
                         const attention_params &p, bool of_keys, int rows)
{
    const int begin = list->n;
    for (int64_t b = 0; b < args->n_sequences; b++) {
        attention_tile tile = tile_of(args, b, 0);
        const int n = of_keys ? tile.n_keys : tile.n_queries;
        for (; tile.first < n; tile.first += rows) {
            const attention_range range =
                of_keys ? visible_queries(p, tile, rows, 1) : visible_keys(p, tile, rows, 1);
            tile.work = range.end > range.begin ? range.end - range.begin : 0;
            list->at[list->n++] = tile;
        }
    }
    std::stable_sort(
        list->at + begin, list->at + list->n,
        [](const attention_tile &x, const attention_tile &y) { return x.work > y.work; });
}

/* Make both lists of tiles, which have n tiles in total, and copy them to the device. Set *out to
 * the address of the copy on the device. */
static fsdp_status make_tiles(fsdp_cuda_context *c, const fsdp_attention_args *args,
                              const attention_kernels *kernels, bool backward,
                              const attention_params &p, int64_t n, const tile_key &key,
                              const void **out)
{
    tile_list list = {};
    list.at = (attention_tile *)fsdp_calloc((size_t)n, sizeof *list.at);
    if (!list.at)
        return fsdp_error_nomem();
    append_tiles(&list, args, p, false, kernels->q_tile);
    if (backward)
        append_tiles(&list, args, p, true, kernels->k_tile);
    *out = fsdp_cuda_upload_for(c, key.at, key.bytes, list.at, (size_t)list.n * sizeof *list.at);
    fsdp_free(list.at);
    return *out ? FSDP_OK : fsdp_cuda_report(c);
}

/* Copy the lists of tiles to the device, unless an earlier call has copied equal lists. Store the
 * addresses and the lengths of the lists in *p. */
static fsdp_status upload_tiles(fsdp_cuda_context *c, const fsdp_attention_args *args,
                                const attention_kernels *kernels, bool backward,
                                attention_params *p)
{
    const int64_t n_q = count_tiles(args, false, kernels->q_tile),
                  n_k = backward ? count_tiles(args, true, kernels->k_tile) : 0;
    tile_key key = {};
    if (n_q + n_k == 0)
        return FSDP_OK;
    if (!make_key(&key, args, kernels, backward, *p))
        return fsdp_error_nomem();
    fsdp_status status = FSDP_OK;
    const void *tiles = fsdp_cuda_find_upload(c, key.at, key.bytes);
    if (!tiles)
        status = make_tiles(c, args, kernels, backward, *p, n_q + n_k, key, &tiles);
    fsdp_free(key.at);
    FSDP_TRY(status);
    p->q_tiles = (const attention_tile *)tiles;
    p->k_tiles = p->q_tiles + n_q;
    p->n_q_tiles = (int)n_q;
    p->n_k_tiles = (int)n_k;
    return FSDP_OK;
}

/* --- the functions of fsdp_kernels --- */

static attention_params params_of(const fsdp_attention_args *args)
{
    attention_params p = {};
    p.q = args->q, p.k = args->k, p.v = args->v;
    p.q_ld = args->q_ld, p.k_ld = args->k_ld, p.v_ld = args->v_ld;
    p.out_ld = args->heads * args->head_dim;
    p.d_q_ld = fsdp_attention_gradient_ld(args, args->d_q_ld, args->heads);
    p.d_k_ld = fsdp_attention_gradient_ld(args, args->d_k_ld, args->kv_heads);
    p.d_v_ld = fsdp_attention_gradient_ld(args, args->d_v_ld, args->kv_heads);
    p.heads = (int)args->heads, p.kv_heads = (int)args->kv_heads;
    p.head_dim = (int)args->head_dim;
    p.n_query_rows = args->q_offsets[args->n_sequences];
    p.scale = args->scale;
    p.causal = args->causal;
    /* limiting the window to 2^30 has no effect, because positions are less than 2^30 apart */
    p.window = (int)std::min<int64_t>(args->window, 1 << 30);
    p.bias = args->position_bias;
    p.bias_span = (int)args->bias_span;
    p.drops = args->dropout_p > 0.0f;
    p.drop_threshold = fsdp_drop_threshold(args->dropout_p);
    p.keep_factor = fsdp_keep_factor(args->dropout_p);
    p.dropout_key = args->dropout_key;
    p.out = args->out, p.lse = args->lse;
    return p;
}

static void add_gradients(const fsdp_attention_args *args, attention_params *p)
{
    p->d_out = args->d_out;
    p->d_q = args->d_q, p->d_k = args->d_k, p->d_v = args->d_v;
    p->d_bias = args->d_position_bias;
}

template <typename T> static bool has_vectors(const attention_params &p, bool backward)
{
    return is_vectorizable<T>(p.head_dim, p.q, p.k, p.v, p.out) &&
           is_vectorizable<T>(p.q_ld | p.k_ld | p.v_ld) &&
           (!backward ||
            is_vectorizable<T>(p.d_q_ld | p.d_k_ld | p.d_v_ld, p.d_out, p.d_q, p.d_k, p.d_v));
}

/* Return the kernels that use tensor cores, or NULL if these kernels do not support the dtype, the
 * head width, the alignment or the scale. */
static const attention_kernels *tensor_kernels(fsdp_dtype dtype, const attention_params &p)
{
    enum {
        /* With a smaller head_dim, most of the tensor cores' work would be multiplications of
         * padding. */
        LEAST_DIM = 16,
        NARROW = 64,
        MOST_DIM = 128
    };
    if (dtype == FSDP_DTYPE_F32 || !p.vectors || p.head_dim < LEAST_DIM || p.head_dim > MOST_DIM ||
        !(p.scale > 0.0f))
        return NULL;
    if (dtype == FSDP_DTYPE_BF16)
        return p.head_dim <= NARROW ? &fsdp_cuda_attention_bf16 : &fsdp_cuda_attention_bf16_wide;
    return p.head_dim <= NARROW ? &fsdp_cuda_attention_f16 : &fsdp_cuda_attention_f16_wide;
}

/* Choose the kernels, and set p->vectors. */
static const attention_kernels *choose_kernels(fsdp_cuda_context *c, fsdp_dtype dtype,
                                               attention_params *p, bool backward)
{
    with_type(dtype, [&](auto zero) { p->vectors = has_vectors<decltype(zero)>(*p, backward); });
    const attention_kernels *kernels = tensor_kernels(dtype, *p);
    /* The maximum number of bytes of shared memory that a block may use. Cards of compute
     * capability 8.6 have less shared memory than cards of compute capability 8.0. */
    int bytes = 0;
    fsdp_cuda_check(c,
                    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                           fsdp_cuda_device(c)),
                    "attention");
    if (kernels && bytes >= (backward ? kernels->backward_bytes : kernels->forward_bytes))
        return kernels;
    return fsdp_cuda_attention_plain(dtype);
}

extern "C" fsdp_status fsdp_cuda_attention(fsdp_kernel_context *context,
                                           const fsdp_attention_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    FSDP_TRY(fsdp_cuda_status(c)); /* fails if an earlier function of fsdp_kernels has failed */
    attention_params p = params_of(args);
    const attention_kernels *kernels = choose_kernels(c, args->dtype, &p, false);
    FSDP_TRY(upload_tiles(c, args, kernels, false, &p));
    if (p.n_q_tiles)
        kernels->forward(c, p);
    fsdp_cuda_launched(c, "attention");
    return fsdp_cuda_report(c);
}

/* Reserve scratch memory for the arrays that only backward needs, and store their addresses in
 * *p. */
static fsdp_status reserve_backward(fsdp_cuda_context *c, const fsdp_attention_args *args,
                                    const attention_kernels *kernels, attention_params *p)
{
    int most_keys = 0;
    for (int64_t b = 0; b < args->n_sequences; b++)
        most_keys = std::max(most_keys, (int)fsdp_attention_keys(args, b));
    p->part_ld = (most_keys + kernels->step - 1) / kernels->step * kernels->step +
                 kernels->q_tile / kernels->n_parts;
    const size_t delta = ((size_t)p->heads * (size_t)p->n_query_rows + 63) / 64 * 64;
    const size_t parts = p->d_bias ? (size_t)p->n_q_tiles * (size_t)p->heads *
                                         (size_t)kernels->n_parts * (size_t)p->part_ld
                                   : 0;
    p->delta = (float *)fsdp_cuda_scratch(c, (2 * delta + parts) * sizeof(float));
    if (!p->delta)
        return fsdp_cuda_report(c);
    p->lse2 = p->delta + delta;
    p->bias_parts = p->d_bias ? p->delta + 2 * delta : NULL;
    return FSDP_OK;
}

extern "C" fsdp_status fsdp_cuda_attention_backward(fsdp_kernel_context *context,
                                                    const fsdp_attention_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    FSDP_TRY(fsdp_cuda_status(c)); /* fails if an earlier function of fsdp_kernels has failed */
    attention_params p = params_of(args);
    add_gradients(args, &p);
    const attention_kernels *kernels = choose_kernels(c, args->dtype, &p, true);
    FSDP_TRY(upload_tiles(c, args, kernels, true, &p));
    if (p.n_q_tiles + p.n_k_tiles) {
        FSDP_TRY(reserve_backward(c, args, kernels, &p));
        kernels->backward(c, p);
    }
    if (p.d_bias && p.heads) {
        const dim3 grid((unsigned)((2 * p.bias_span - 1 + BIAS_COLUMNS - 1) / BIAS_COLUMNS),
                        (unsigned)p.heads);
        CUDA_LAUNCH(attention_bias_sum, grid, BIAS_COLUMNS * BIAS_SLICES, 0, fsdp_cuda_stream(c), p,
                    kernels->q_tile, kernels->step, kernels->n_parts);
    }
    fsdp_cuda_launched(c, "attention_backward");
    return fsdp_cuda_report(c);
}
