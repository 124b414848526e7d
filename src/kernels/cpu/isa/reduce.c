/* Sums over ranks and norms, which fix the numbers that every world size must agree on. */
#include "src/kernels/cpu/isa/block.h"

/* --- tree_sum --- */

typedef struct tree_job {
    float *dst;
    const void *const *src;
    int n_sources;
    fsdp_dtype dtype;
    int64_t n;
    float scale;
} tree_job;

/* Sum over sources [first, first + count) of one block, in `buffer` or in place: the aligned
 * binary tree splits at the largest power of two below count. */
static const float *tree_block(const tree_job *job, float *restrict buffer, int first, int count,
                               int64_t i, int n)
{
    if (count == 1)
        return fsdp_load_block(buffer, job->src[first], job->dtype, i, n);
    float other[FSDP_BLOCK];
    int half = 1;
    while (2 * half < count)
        half *= 2;
    const float *a = tree_block(job, buffer, first, half, i, n);
    const float *b = tree_block(job, other, first + half, count - half, i, n);
    for (int j = 0; j < fsdp_padded(n); j++)
        buffer[j] = a[j] + b[j];
    return buffer;
}

static void tree_task(void *arg, int64_t task, int worker)
{
    const tree_job *job = arg;
    int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        float buffer[FSDP_BLOCK], scaled[FSDP_BLOCK];
        const float *sum = tree_block(job, buffer, 0, job->n_sources, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            scaled[j] = sum[j] * job->scale;
        fsdp_store_block(job->dst, FSDP_DTYPE_F32, i, scaled, n);
    }
}

static void tree_sum(fsdp_kernel_context *c, float *dst, const void *const *src, int n_sources,
                     fsdp_dtype dtype, int64_t n, float scale)
{
    tree_job job = {dst, src, n_sources, dtype, n, scale};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), tree_task, &job);
}

/* --- row_sum_squares --- */

typedef struct squares_job {
    double *sums;
    const float *x;
    int64_t rows, width, task_rows;
} squares_job;

/* Element i of the row in accumulator i % FSDP_LANES; the accumulators pairwise. */
static double sum_squares(const float *x, int64_t n)
{
    double acc[FSDP_LANES] = {0};
    int64_t whole = n & -FSDP_LANES;
    for (int64_t i = 0; i < whole; i += FSDP_LANES)
        for (int l = 0; l < FSDP_LANES; l++)
            acc[l] += (double)x[i + l] * (double)x[i + l];
    for (int64_t i = whole; i < n; i++)
        acc[i - whole] += (double)x[i] * (double)x[i];
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            acc[l] += acc[l + width];
    return acc[0];
}

static void squares_task(void *arg, int64_t task, int worker)
{
    const squares_job *job = arg;
    int64_t begin = task * job->task_rows, end = fsdp_min_i64(job->rows, begin + job->task_rows);
    (void)worker;
    if (job->width == 1)
        for (int64_t r = begin; r < end; r++)
            job->sums[r] = (double)job->x[r] * (double)job->x[r];
    else
        for (int64_t r = begin; r < end; r++)
            job->sums[r] = sum_squares(job->x + r * job->width, job->width);
}

static void row_sum_squares(fsdp_kernel_context *c, double *sums, const float *x, int64_t rows,
                            int64_t width)
{
    squares_job job = {sums, x, rows, width, 1};
    if (width < FSDP_CHUNK)
        job.task_rows = FSDP_CHUNK / (width > 0 ? width : 1);
    fsdp_run_tasks(c, fsdp_ceil_div(rows, job.task_rows), squares_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_reduce)(fsdp_kernels *k)
{
    k->tree_sum = tree_sum;
    k->row_sum_squares = row_sum_squares;
}
