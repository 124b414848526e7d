/* The kernel tree_sum_rows: sums of rows of several tables, all computed by one launch. */
#include "src/kernels/cuda/row_access.cuh"
#include "src/kernels/cuda/tree.cuh"

enum {
    THREADS = 256,
    CHUNK = 4 /* elements that a thread computes at a time: 16 bytes */
};

/* args.rows must be in device memory. TABLES is n_tables, rounded up to a power of two. Each block
 * of threads computes blockDim.y rows. */
template <int TABLES, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS) sum_rows(fsdp_tree_sum_rows_args args)
{
    const int64_t n = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (n >= args.n)
        return;
    const int32_t *rows = args.rows + n * (1 + args.n_tables);
    float *to = args.dst + rows[0] * args.width;
    const float *from[TABLES];
#pragma unroll
    for (int t = 0; t < TABLES; t++)
        from[t] = t < args.n_tables ? args.tables[t] + rows[1 + t] * args.width : NULL;
#pragma unroll 4
    for (int64_t i = threadIdx.x * CHUNK; i < args.width; i += blockDim.x * CHUNK) {
        float x[TABLES][CHUNK], sum[CHUNK];
#pragma unroll
        for (int t = 0; t < TABLES; t++) {
            for (int e = 0; e < CHUNK; e++)
                x[t][e] = -0.0f;
            if (t < args.n_tables)
                load_floats<CHUNK>(x[t], from[t], i, args.width, ALIGNED);
        }
#pragma unroll
        for (int e = 0; e < CHUNK; e++)
            sum[e] = tree_of<TABLES, float>([&](int t) { return x[t][e]; }) * args.scale;
        store_floats<CHUNK>(to, i, args.width, sum, ALIGNED);
    }
}

template <int TABLES>
static void start_sum_rows(fsdp_cuda_context *c, const fsdp_tree_sum_rows_args &args)
{
    const unsigned x = warps_of(smaller(ceil_div(args.width, CHUNK), THREADS)), y = THREADS / x;
    const unsigned blocks = (unsigned)ceil_div(args.n, y);
    bool is_aligned = is_vectorizable<float>(args.width, args.dst);
    for (int t = 0; t < args.n_tables; t++)
        is_aligned = is_aligned && is_vectorizable<float>(0, args.tables[t]);
    if (is_aligned)
        CUDA_LAUNCH((sum_rows<TABLES, true>), blocks, dim3(x, y), 0, fsdp_cuda_stream(c), args);
    else
        CUDA_LAUNCH((sum_rows<TABLES, false>), blocks, dim3(x, y), 0, fsdp_cuda_stream(c), args);
}

extern "C" void fsdp_cuda_tree_sum_rows(fsdp_kernel_context *context,
                                        const fsdp_tree_sum_rows_args *args)
{
    fsdp_cuda_context *c = fsdp_cuda_of(context);
    fsdp_tree_sum_rows_args job = *args;
    if (!job.n || !job.width)
        return;
    job.rows = (const int32_t *)fsdp_cuda_upload(
        c, job.rows, (size_t)(job.n * (1 + job.n_tables)) * sizeof *job.rows);
    if (!job.rows)
        return;
    if (job.n_tables == 1)
        start_sum_rows<1>(c, job);
    else if (job.n_tables == 2)
        start_sum_rows<2>(c, job);
    else if (job.n_tables <= 4)
        start_sum_rows<4>(c, job);
    else
        start_sum_rows<FSDP_MAX_SUMMED_TABLES>(c, job);
    fsdp_cuda_launched(c, "tree_sum_rows");
}
