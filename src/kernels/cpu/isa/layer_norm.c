/* LayerNorm (Ba, Kiros & Hinton 2016) and its gradient. A row is read several times. After the
 * first time, it is in the first-level cache. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/columns.h"

enum {
    ROWS = 32 /* rows per task of forward */
};

/* --- forward --- */

typedef struct norm_job {
    void *y; /* NULL: only mean and rstd are computed */
    float *mean, *rstd;
    const void *x, *w, *bias; /* bias may be NULL */
    fsdp_dtype dtype, w_dtype;
    int64_t rows, width;
    float eps;
} norm_job;

static float row_mean(const norm_job *job, int64_t start)
{
    float acc[FSDP_LANES] = {0}, buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        fsdp_add_lanes(acc, fsdp_load_block(buffer, job->x, job->dtype, start + i, n),
                       fsdp_padded(n));
    }
    return fsdp_sum_lanes(acc) / (float)job->width;
}

/* Computes the variance as the mean of (x - mean)^2, because the formula E[x^2] - mean^2 would lose
 * precision by cancellation. */
static float row_variance(const norm_job *job, int64_t start, float mean)
{
    float acc[FSDP_LANES] = {0}, buffer[FSDP_BLOCK], squares[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(buffer, job->x, job->dtype, start + i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            squares[j] = (x[j] - mean) * (x[j] - mean);
        for (int j = n; j < fsdp_padded(n); j++)
            squares[j] = 0.0f;
        fsdp_add_lanes(acc, squares, fsdp_padded(n));
    }
    return fsdp_sum_lanes(acc) / (float)job->width;
}

static void norm_row(const norm_job *job, int64_t row)
{
    int64_t start = row * job->width;
    float x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK], bias_buffer[FSDP_BLOCK], y[FSDP_BLOCK];
    float mean = row_mean(job, start);
    float rstd = 1.0f / sqrtf(row_variance(job, start, mean) + job->eps);
    job->mean[row] = mean;
    job->rstd[row] = rstd;
    for (int64_t i = 0; i < job->width && job->y; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, start + i, n);
        const float *w = fsdp_load_block(w_buffer, job->w, job->w_dtype, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            y[j] = (x[j] - mean) * rstd * w[j];
        if (job->bias) {
            const float *bias = fsdp_load_block(bias_buffer, job->bias, job->w_dtype, i, n);
            for (int j = 0; j < fsdp_padded(n); j++)
                y[j] += bias[j];
        }
        fsdp_store_block(job->y, job->dtype, start + i, y, n);
    }
}

static void norm_task(void *arg, int64_t task, int worker)
{
    const norm_job *job = arg;
    int64_t end = fsdp_min_i64(job->rows, (task + 1) * ROWS);
    (void)worker;
    for (int64_t row = task * ROWS; row < end; row++)
        norm_row(job, row);
}

static void layer_norm(fsdp_kernel_context *c, void *y, float *mean, float *rstd, const void *x,
                       const void *w, const void *bias, fsdp_dtype dtype, fsdp_dtype w_dtype,
                       int64_t rows, int64_t width, float eps)
{
    norm_job job = {y, mean, rstd, x, w, bias, dtype, w_dtype, rows, width, eps};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, ROWS), norm_task, &job);
}

/* --- backward --- */

enum {
    DW,
    DBIAS,
    SETS
};

typedef struct norm_backward_job {
    const fsdp_layer_norm_backward_args *args;
    /* The division of the rows and columns among tasks, and the partial sums of dw and dbias. The
     * sums are computed only if want_sums is true. */
    fsdp_column_sums sums;
    bool want_sums;
} norm_backward_job;

/* Two means over a row, from which dx is computed: the mean of g and the mean of g n, where n = (x
 * - mean) rstd and g = dy w. */
typedef struct row_means {
    float g, g_n; /* mean(g), mean(g n) */
} row_means;

static row_means means_of(const fsdp_layer_norm_backward_args *args, int64_t row)
{
    float g_acc[FSDP_LANES] = {0}, g_n_acc[FSDP_LANES] = {0}, g[FSDP_BLOCK], g_n[FSDP_BLOCK];
    float dy_buffer[FSDP_BLOCK], x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK];
    float mean = args->mean[row], rstd = args->rstd[row], width = (float)args->width;
    for (int64_t i = 0; i < args->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(args->width - i, FSDP_BLOCK), padded = fsdp_padded(n);
        int64_t at = row * args->width + i;
        const float *dy = fsdp_load_block(dy_buffer, args->dy, args->dtype, at, n);
        const float *x = fsdp_load_block(x_buffer, args->x, args->dtype, at, n);
        const float *w = fsdp_load_block(w_buffer, args->w, args->w_dtype, i, n);
        /* dy is 0 in the padding, so the padding adds nothing to the sums. */
        for (int j = 0; j < padded; j++) {
            g[j] = dy[j] * w[j];
            g_n[j] = g[j] * ((x[j] - mean) * rstd);
        }
        fsdp_add_lanes(g_acc, g, padded);
        fsdp_add_lanes(g_n_acc, g_n, padded);
    }
    return (row_means){fsdp_sum_lanes(g_acc) / width, fsdp_sum_lanes(g_n_acc) / width};
}

/* Computes dx of one row in the columns of the current panel. If `sums` is not NULL, also adds the
 * row's terms of dw and dbias to `sums`, in which the panel's first column has index 0. */
static void norm_backward_row(const norm_backward_job *job, int64_t row, float *restrict sums)
{
    const fsdp_layer_norm_backward_args *args = job->args;
    float dy_buffer[FSDP_BLOCK], x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK], dx[FSDP_BLOCK];
    float mean = args->mean[row], rstd = args->rstd[row];
    row_means means = args->dx ? means_of(args, row) : (row_means){0};
    for (int64_t i = job->sums.begin; i < job->sums.end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->sums.end - i, FSDP_BLOCK), padded = fsdp_padded(n);
        int64_t at = row * args->width + i;
        const float *dy = fsdp_load_block(dy_buffer, args->dy, args->dtype, at, n);
        const float *x = fsdp_load_block(x_buffer, args->x, args->dtype, at, n);
        if (sums) {
            float *restrict dw = sums + DW * job->sums.stride + (i - job->sums.begin);
            float *restrict dbias = sums + DBIAS * job->sums.stride + (i - job->sums.begin);
            for (int j = 0; j < padded; j++) {
                dw[j] += dy[j] * ((x[j] - mean) * rstd);
                dbias[j] += dy[j];
            }
        }
        if (!args->dx)
            continue;
        const float *w = fsdp_load_block(w_buffer, args->w, args->w_dtype, i, n);
        for (int j = 0; j < padded; j++)
            dx[j] = rstd * ((dy[j] * w[j] - means.g) - (x[j] - mean) * rstd * means.g_n);
        fsdp_store_block(args->dx, args->dtype, at, dx, n);
    }
}

static void norm_backward_task(void *arg, int64_t task, int worker)
{
    const norm_backward_job *job = arg;
    const fsdp_column_sums *sums = &job->sums;
    int64_t end = fsdp_min_i64(sums->rows, (task + 1) * sums->block_rows);
    float *partial = job->want_sums ? fsdp_column_sums_begin(sums, task) : NULL;
    (void)worker;
    for (int64_t row = task * sums->block_rows; row < end; row++)
        norm_backward_row(job, row, partial);
}

static void layer_norm_backward(fsdp_kernel_context *c, const fsdp_layer_norm_backward_args *args)
{
    norm_backward_job job = {.args = args, .want_sums = args->dw.dst || args->dbias.dst};
    job.sums = fsdp_column_sums_of(c, args->rows, args->width, SETS);
    while (fsdp_column_sums_next(&job.sums)) {
        fsdp_run_tasks(c, job.sums.blocks, norm_backward_task, &job);
        if (args->dw.dst)
            fsdp_column_sums_end(&job.sums, DW, args->dw.dst, args->dw.dtype, args->dw.beta);
        if (args->dbias.dst)
            fsdp_column_sums_end(&job.sums, DBIAS, args->dbias.dst, args->dbias.dtype,
                                 args->dbias.beta);
    }
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_layer_norm)(fsdp_kernels *k)
{
    k->layer_norm = layer_norm;
    k->layer_norm_backward = layer_norm_backward;
}
