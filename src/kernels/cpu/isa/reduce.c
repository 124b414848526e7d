/* Sums over the buffers of all ranks (tree_sum, tree_sum_rows), and sums of powers over rows, from
 * which norms are computed (row_power_sums). Terms are added in a fixed order, because results must
 * not depend on the world size. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vec16.h"

/* --- tree_sum --- */

enum {
    TREE_AHEAD = 1024, /* prefetch distance in elements */
    /* A result of at least this many elements is streamed, that is, stored by instructions that
     * bypass the caches. A smaller result may be read while it is still in the cache. */
    STREAM_FROM = 1 << 16
};

typedef struct tree_job {
    float *dst;
    const void *const *src;
    int n_sources;
    fsdp_dtype dtype;
    int64_t n;
    float scale;
    bool streams; /* dst is written by stores that bypass the caches */
} tree_job;

/* Returns, for each of the elements [i, i + 16), the sum of this element over the first `count`
 * sources. count is at most four. */
FSDP_INLINE fsdp_v16 sum16_of_four(const float *const *src, int count, int64_t i)
{
    for (int k = 0; k < count; k++)
        __builtin_prefetch((const void *)((uintptr_t)(src[k] + i) + TREE_AHEAD * sizeof(float)));
    fsdp_v16 sum = fsdp_load16(src[0] + i);
    if (count > 1)
        sum += fsdp_load16(src[1] + i);
    if (count == 3)
        sum += fsdp_load16(src[2] + i);
    if (count == 4)
        sum += fsdp_load16(src[2] + i) + fsdp_load16(src[3] + i);
    return sum;
}

/* For each element in [begin, end), computes the sum over the first `count` sources, which are
 * float32. The sources are added in the same order as by tree_block(), but without its buffers.
 * count is at most eight, and end - begin is a multiple of 16. */
FSDP_INLINE void sum_directly(const tree_job *job, int count, int64_t begin, int64_t end)
{
    const float *src[8];
    memcpy(src, job->src, (size_t)count * sizeof *src);
    for (int64_t i = begin; i < end; i += 16) {
        fsdp_v16 sum = sum16_of_four(src, count < 4 ? count : 4, i);
        if (count > 4)
            sum += sum16_of_four(src + 4, count - 4, i);
        sum *= job->scale;
        if (job->streams)
            fsdp_stream16(job->dst + i, sum);
        else
            fsdp_store16(job->dst + i, sum);
    }
}

/* If the dtype is float32 and there are 1, 2, 3, 4 or 8 sources, computes the sums over the sources
 * for all complete groups of sixteen elements in [begin, end), and returns the end of the last such
 * group. Otherwise computes nothing and returns `begin`. */
static int64_t sum_float32(const tree_job *job, int64_t begin, int64_t end)
{
    const int64_t whole = begin + ((end - begin) & -16);
    if (job->dtype != FSDP_DTYPE_F32)
        return begin;
    switch (job->n_sources) {
    case 1:
        sum_directly(job, 1, begin, whole);
        return whole;
    case 2:
        sum_directly(job, 2, begin, whole);
        return whole;
    case 3:
        sum_directly(job, 3, begin, whole);
        return whole;
    case 4:
        sum_directly(job, 4, begin, whole);
        return whole;
    case 8:
        sum_directly(job, 8, begin, whole);
        return whole;
    default:
        return begin;
    }
}

/* For each of the elements [i, i + n), computes the sum over sources [first, first + count).
 * Returns the address of the n sums. This address is `buffer`, with one exception: if there is only
 * one source and its elements need no conversion, it is an address in the source itself. The
 * sources are added as a binary tree: they are divided into two parts, the number of sources in the
 * first part is the largest power of two below `count`, and each part is divided in the same
 * way. */
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

static void sum_elements(const tree_job *job, int64_t begin, int64_t end)
{
    for (int64_t i = sum_float32(job, begin, end); i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        float buffer[FSDP_BLOCK], scaled[FSDP_BLOCK];
        const float *sum = tree_block(job, buffer, 0, job->n_sources, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            scaled[j] = sum[j] * job->scale;
        fsdp_store_block(job->dst, FSDP_DTYPE_F32, i, scaled, n);
    }
}

static void tree_task(void *arg, int64_t task, int worker)
{
    const tree_job *job = arg;
    (void)worker;
    sum_elements(job, task * FSDP_CHUNK, fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK));
    if (job->streams)
        fsdp_stream_end();
}

/* Returns true if dst may be written by stores that bypass the caches. dst must be large and
 * aligned. It must not be one of the sources, because the cache lines of a source are already in
 * the cache when dst is written. */
static bool may_stream(const float *dst, const void *const *src, int n_sources, int64_t n)
{
    for (int k = 0; k < n_sources; k++)
        if (src[k] == dst)
            return false;
    return n >= STREAM_FROM && (uintptr_t)dst % sizeof(fsdp_v16) == 0;
}

static void tree_sum(fsdp_kernel_context *c, float *dst, const void *const *src, int n_sources,
                     fsdp_dtype dtype, int64_t n, float scale)
{
    tree_job job = {dst, src, n_sources, dtype, n, scale, may_stream(dst, src, n_sources, n)};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), tree_task, &job);
}

/* --- tree_sum_rows --- */

typedef struct tree_rows_job {
    fsdp_tree_sum_rows_args args;
    int64_t task_rows;
} tree_rows_job;

static void sum_row(const fsdp_tree_sum_rows_args *args, int64_t i)
{
    const int32_t *rows = args->rows + i * (1 + args->n_tables);
    const void *src[FSDP_MAX_SUMMED_TABLES];
    for (int t = 0; t < args->n_tables; t++)
        src[t] = args->tables[t] + rows[1 + t] * args->width;
    const tree_job job = {args->dst + rows[0] * args->width,
                          src,
                          args->n_tables,
                          FSDP_DTYPE_F32,
                          args->width,
                          args->scale,
                          false};
    sum_elements(&job, 0, args->width);
}

static void rows_task(void *arg, int64_t task, int worker)
{
    const tree_rows_job *job = arg;
    const int64_t end = fsdp_min_i64(job->args.n, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t i = task * job->task_rows; i < end; i++)
        sum_row(&job->args, i);
}

static void tree_sum_rows(fsdp_kernel_context *c, const fsdp_tree_sum_rows_args *args)
{
    tree_rows_job job = {*args, fsdp_task_rows(args->width)};
    fsdp_run_tasks(c, fsdp_ceil_div(args->n, job.task_rows), rows_task, &job);
}

/* --- row_power_sums --- */

typedef struct powers_job {
    const fsdp_row_powers *of;
    int64_t task_rows;
    double power;
} powers_job;

static inline double larger(double a, double b)
{
    return b > a || b != b ? b : a; /* NaN if a or b is NaN */
}

static double power_of(float x, double power)
{
    double magnitude = fabs((double)x);
    if (power == 1.0 || isinf(power))
        return magnitude;
    return power == 2.0 ? magnitude * magnitude : pow(magnitude, power);
}

/* Adds |x[i]|^power to accumulator i % FSDP_LANES, for each element x[i] of a block. If power is
 * INFINITY, instead sets the accumulator to |x[i]| if that is larger. */
static void accumulate_powers(double acc[restrict FSDP_LANES], const float *restrict x, int n,
                              double power)
{
    if (power == 2.0)
        for (int j = 0; j < n; j += FSDP_LANES)
            for (int l = 0; l < FSDP_LANES; l++)
                acc[l] += (double)x[j + l] * (double)x[j + l];
    else if (power == 1.0)
        for (int j = 0; j < n; j += FSDP_LANES)
            for (int l = 0; l < FSDP_LANES; l++)
                acc[l] += fabs((double)x[j + l]);
    else if (isinf(power))
        for (int j = 0; j < n; j++)
            acc[j % FSDP_LANES] = larger(acc[j % FSDP_LANES], fabs((double)x[j]));
    else
        for (int j = 0; j < n; j++)
            acc[j % FSDP_LANES] += pow(fabs((double)x[j]), power);
}

/* Returns the sum of |x|^power over the elements x of a row or, if power is INFINITY, the largest
 * |x|. The accumulators are combined pairwise. */
static double row_powers(const powers_job *job, int64_t row)
{
    const fsdp_row_powers *of = job->of;
    double acc[FSDP_LANES] = {0};
    float buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < of->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(of->width - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(buffer, of->x, of->dtype, row * of->width + i, n);
        accumulate_powers(acc, x, fsdp_padded(n), job->power);
    }
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            acc[l] = isinf(job->power) ? larger(acc[l], acc[l + width]) : acc[l] + acc[l + width];
    return acc[0];
}

/* Computes the sums of powers for rows [begin, end). Each row must have only one element. */
static void single_powers(const powers_job *job, int64_t begin, int64_t end)
{
    const fsdp_row_powers *of = job->of;
    float buffer[FSDP_BLOCK];
    for (int64_t r = begin; r < end; r += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - r, FSDP_BLOCK);
        const float *x = fsdp_load_block(buffer, of->x, of->dtype, r, n);
        for (int j = 0; j < n; j++)
            of->sums[r + j] = power_of(x[j], job->power);
    }
}

static void powers_task(void *arg, int64_t task, int worker)
{
    const powers_job *job = arg;
    int64_t begin = task * job->task_rows;
    int64_t end = fsdp_min_i64(job->of->rows, begin + job->task_rows);
    (void)worker;
    if (job->of->width == 1)
        single_powers(job, begin, end);
    else
        for (int64_t r = begin; r < end; r++)
            job->of->sums[r] = row_powers(job, r);
}

static void row_power_sums(fsdp_kernel_context *c, const fsdp_row_powers *tensors, size_t n,
                           double power)
{
    for (size_t i = 0; i < n; i++) {
        powers_job job = {&tensors[i], fsdp_task_rows(tensors[i].width), power};
        fsdp_run_tasks(c, fsdp_ceil_div(tensors[i].rows, job.task_rows), powers_task, &job);
    }
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_reduce)(fsdp_kernels *k)
{
    k->tree_sum = tree_sum;
    k->tree_sum_rows = tree_sum_rows;
    k->row_power_sums = row_power_sums;
}
