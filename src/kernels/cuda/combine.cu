/* Combines sums of rows into sums of tensors (combine), and sums of tensors into the norm of all
 * gradients and the factor by which they are clipped (clip_factor). The terms are joined in the
 * same order as on the CPU. So if the power of the norm is 1, 2 or infinite, the results have the
 * same bits as on the CPU. */
#include "src/kernels/cuda/tables.cuh"

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    /* A warp combines a tile of 32 numbers by shuffles. A chunk has 32 x 32 tiles. */
    TILE = 32,
    TILES = 32 * 32,
    CHUNK = TILES * TILE,
    LEVELS = 48 /* number of levels of the tree whose leaves are chunks */
};

FSDP_DEVICE double join_two(bool largest, double left, double right)
{
    if (!largest)
        return left + right;
    return right > left || right != right ? right : left; /* NaN if left or right is NaN */
}

/* Return a number that has no effect when it is joined with another number. Incomplete tiles are
 * filled up with this number. For sums, the number is -0, because x + -0 has the bits of x for
 * every x. */
FSDP_DEVICE double no_term(bool largest)
{
    return largest ? -INFINITY : -0.0;
}

/* --- the tree --- */

/* Each of the 32 threads of a warp passes a number x. Return the combination of all these numbers,
 * joined pairwise in a binary tree. */
FSDP_DEVICE double tree_of_warp(bool largest, double x)
{
    for (int step = 1; step < 32; step *= 2)
        x = join_two(largest, x, __shfl_xor_sync(~0u, x, step));
    return x;
}

/* Set to[i] to the pairwise combination of the numbers in tile i of x [n], for each tile that
 * contains at least one number. */
FSDP_DEVICE void combine_tiles(bool largest, double *to, const double *x, int64_t n)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll 4
    for (int64_t begin = (int64_t)(threadIdx.x / 32) * TILE; begin < n; begin += WARPS * TILE) {
        const double own = begin + lane < n ? x[begin + lane] : no_term(largest);
        const double sum = tree_of_warp(largest, own);
        if (lane == 0)
            to[begin / TILE] = sum;
    }
}

/* Return the pairwise combination of the numbers x [n], n <= CHUNK. Only thread 0 gets the
 * result. */
FSDP_DEVICE double combine_chunk(bool largest, const double *x, int64_t n)
{
    SHARED(double, tiles, [TILES]);
    SHARED(double, few, [TILE]);
    const int64_t n_tiles = (n + TILE - 1) / TILE;
    combine_tiles(largest, tiles, x, n);
    __syncthreads();
    combine_tiles(largest, few, tiles, n_tiles);
    __syncthreads();
    if (threadIdx.x >= 32)
        return 0.0;
    const bool exists = (int64_t)threadIdx.x * TILE < n_tiles;
    return tree_of_warp(largest, exists ? few[threadIdx.x] : no_term(largest));
}

/* Return the pairwise combination of the numbers x [n]. Only thread 0 gets the result. The results
 * of chunks are joined as digits are carried in a binary counter: levels[l] is the result of 2^l
 * chunks if bit l is set in the number of chunks that have been processed. */
FSDP_DEVICE double combine_tree(bool largest, const double *x, int64_t n)
{
    SHARED(double, levels, [LEVELS]);
    const int64_t chunks = (n + CHUNK - 1) / CHUNK;
    double sum = 0.0;
    for (int64_t c = 0; c < chunks; c++) {
        const int64_t end = (c + 1) * CHUNK;
        sum = combine_chunk(largest, x + c * CHUNK, (end < n ? end : n) - c * CHUNK);
        if (threadIdx.x == 0 && chunks > 1) {
            int l = 0;
            for (; c >> l & 1; l++)
                sum = join_two(largest, levels[l], sum);
            levels[l] = sum;
        }
        __syncthreads();
    }
    if (threadIdx.x != 0 || chunks <= 1)
        return sum;
    sum = no_term(largest);
    for (int l = 0; chunks >> l; l++)
        if (chunks >> l & 1)
            sum = join_two(largest, levels[l], sum);
    return sum;
}

/* --- from the first to the last --- */

/* Join `sum` with x[0], x[1], ..., x[n - 1] in this order, and return the result. Only thread 0
 * gets the result. */
FSDP_DEVICE double combine_in_order(bool largest, double sum, const double *x, int64_t n)
{
    SHARED(double, some, [THREADS]);
    for (int64_t begin = 0; begin < n; begin += THREADS) {
        const int count = n - begin < THREADS ? (int)(n - begin) : (int)THREADS;
        if ((int)threadIdx.x < count)
            some[threadIdx.x] = x[begin + threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 0) {
#pragma unroll 8
            for (int i = 0; i < count; i++)
                sum = join_two(largest, sum, some[i]);
        }
        __syncthreads();
    }
    return sum;
}

/* --- combine --- */

/* One run of numbers to be combined, as described by fsdp_numbers. */
struct run {
    const double *numbers;
    int64_t n;
    double *result;
    int64_t in_order;
};

static __global__ void __launch_bounds__(THREADS) combine_runs(table_of<run> table, bool largest)
{
    const run r = table.tensors[blockIdx.x];
    const double sum = r.in_order && r.n
                           ? combine_in_order(largest, no_term(largest), r.numbers, r.n)
                           : combine_tree(largest, r.numbers, r.n);
    if (threadIdx.x == 0)
        *r.result = sum;
}

extern "C" void fsdp_cuda_combine(fsdp_kernel_context *context, const fsdp_numbers *runs, size_t n,
                                  bool largest)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    table_writer<run> writer;
    table_of<run> table;
    if (!n || !writer.begin(c, FSDP_CUDA_TABLE_RUNS, n))
        return;
    for (size_t i = 0; i < n; i++) {
        run *r = writer.add(1);
        r->numbers = runs[i].numbers;
        r->n = runs[i].n;
        r->result = runs[i].result;
        r->in_order = runs[i].in_order;
    }
    if (!writer.end(&table))
        return;
    CUDA_LAUNCH(combine_runs, writer.blocks(), THREADS, 0, fsdp_cuda_stream(c), table, largest);
    fsdp_cuda_launched(c, "combine");
}

/* --- clip_factor --- */

struct clip_options {
    double power, max_norm;
    bool refuses_norm;
};

FSDP_DEVICE double norm_of(const double sum, double power)
{
    if (power == 2.0)
        return sqrt(sum);
    return power == 1.0 || isinf(power) ? sum : pow(sum, 1.0 / power);
}

/* Return fsdp_clip_result.scale for this norm and max_norm, as fsdp_clip_scale() does. */
FSDP_DEVICE float scale_of(double norm, double max_norm)
{
    const double scale = max_norm / (norm + 1e-6);
    return scale > 1.0 || isinf(max_norm) ? 1.0f : (float)scale;
}

static __global__ void __launch_bounds__(THREADS)
    compute_clip(fsdp_clip_result *result, const double *sums, int64_t n, clip_options o,
                 const float *losses, int64_t n_losses)
{
    int refused = 0;
    for (int64_t i = threadIdx.x; i < n_losses; i += THREADS)
        refused |= !isfinite(losses[i]);
    refused = __syncthreads_or(refused);
    const double sum = combine_in_order(isinf(o.power), 0.0, sums, n);
    if (threadIdx.x == 0) {
        const double norm = norm_of(sum, o.power);
        result->norm = norm;
        result->scale = scale_of(norm, o.max_norm);
        result->refused = refused || (o.refuses_norm && !isfinite(norm));
    }
}

extern "C" void fsdp_cuda_clip_factor(fsdp_kernel_context *context, const fsdp_clip_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    const clip_options options = {args->power, args->max_norm, args->refuses_norm};
    CUDA_LAUNCH(compute_clip, 1, THREADS, 0, fsdp_cuda_stream(c), args->result, args->sums, args->n,
                options, args->losses, args->n_losses);
    fsdp_cuda_launched(c, "clip_factor");
}
