/* RMSNorm (Zhang & Sennrich 2019), which T5 calls T5LayerNorm, and the gradients of RMSNorm. This
 * file also has column_sum(), which computes the column sums of a matrix. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/columns.h"

enum {
    ROWS = 32 /* rows per task of forward */
};

/* --- forward --- */

typedef struct norm_job {
    void *y;
    float *rstd;
    const void *x, *w;
    fsdp_dtype dtype, w_dtype;
    int64_t rows, width;
    float eps;
} norm_job;

static float row_sum_squares(const norm_job *job, int64_t start)
{
    float acc[FSDP_LANES] = {0}, buffer[FSDP_BLOCK], squares[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(buffer, job->x, job->dtype, start + i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            squares[j] = x[j] * x[j];
        fsdp_add_lanes(acc, squares, fsdp_padded(n));
    }
    return fsdp_sum_lanes(acc);
}

static void norm_row(const norm_job *job, int64_t row)
{
    int64_t start = row * job->width;
    float x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK], y[FSDP_BLOCK];
    float mean_square = row_sum_squares(job, start) / (float)job->width;
    float rstd = 1.0f / sqrtf(mean_square + job->eps);
    job->rstd[row] = rstd;
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, start + i, n);
        const float *w = fsdp_load_block(w_buffer, job->w, job->w_dtype, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            y[j] = x[j] * rstd * w[j];
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

static void rms_norm(fsdp_kernel_context *c, void *y, float *rstd, const void *x, const void *w,
                     fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows, int64_t width, float eps)
{
    norm_job job = {y, rstd, x, w, dtype, w_dtype, rows, width, eps};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, ROWS), norm_task, &job);
}

/* --- backward ---
 * With n = x rstd and g = dy w:  dx = rstd (g - n mean(g n)),  dw = sum over rows of dy n. */

typedef struct norm_backward_job {
    void *dx; /* NULL: not computed */
    const void *dy, *x, *w;
    const float *rstd;
    fsdp_dtype dtype, w_dtype;
    int64_t width;
    /* The division of the rows and columns among tasks, and the partial sums of dw. The sums are
     * computed only if want_dw is true. */
    fsdp_column_sums sums;
    bool want_dw;
} norm_backward_job;

/* Returns the mean over a row of the product dy w x. */
static float row_mean(const norm_backward_job *job, int64_t start)
{
    float acc[FSDP_LANES] = {0}, products[FSDP_BLOCK];
    float dy_buffer[FSDP_BLOCK], x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
        const float *dy = fsdp_load_block(dy_buffer, job->dy, job->dtype, start + i, n);
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, start + i, n);
        const float *w = fsdp_load_block(w_buffer, job->w, job->w_dtype, i, n);
        for (int j = 0; j < fsdp_padded(n); j++)
            products[j] = dy[j] * w[j] * x[j];
        fsdp_add_lanes(acc, products, fsdp_padded(n));
    }
    return fsdp_sum_lanes(acc) / (float)job->width;
}

/* Computes dx of one row in columns [begin, end). If `sums` is not NULL, also adds the row's terms
 * of dw to `sums`, in which column `begin` has index 0. */
static void norm_backward_row(const norm_backward_job *job, int64_t row, int64_t begin, int64_t end,
                              float *restrict sums)
{
    int64_t start = row * job->width;
    float dy_buffer[FSDP_BLOCK], x_buffer[FSDP_BLOCK], w_buffer[FSDP_BLOCK], dx[FSDP_BLOCK];
    float rstd = job->rstd[row];
    float slope = job->dx ? row_mean(job, start) * rstd * rstd : 0.0f;
    for (int64_t i = begin; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const float *dy = fsdp_load_block(dy_buffer, job->dy, job->dtype, start + i, n);
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, start + i, n);
        if (sums) {
            float *restrict sum = sums + (i - begin);
            for (int j = 0; j < padded; j++)
                sum[j] += dy[j] * (x[j] * rstd);
        }
        if (!job->dx)
            continue;
        const float *w = fsdp_load_block(w_buffer, job->w, job->w_dtype, i, n);
        for (int j = 0; j < padded; j++)
            dx[j] = rstd * (dy[j] * w[j] - x[j] * slope);
        fsdp_store_block(job->dx, job->dtype, start + i, dx, n);
    }
}

static void norm_backward_task(void *arg, int64_t task, int worker)
{
    const norm_backward_job *job = arg;
    const fsdp_column_sums *sums = &job->sums;
    int64_t end = fsdp_min_i64(sums->rows, (task + 1) * sums->block_rows);
    float *partial = job->want_dw ? fsdp_column_sums_begin(sums, task) : NULL;
    (void)worker;
    for (int64_t row = task * sums->block_rows; row < end; row++)
        norm_backward_row(job, row, sums->begin, sums->end, partial);
}

static void rms_norm_backward(fsdp_kernel_context *c, void *dx, void *dw, fsdp_dtype dw_dtype,
                              float dw_beta, const void *dy, const void *x, const float *rstd,
                              const void *w, fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows,
                              int64_t width)
{
    norm_backward_job job = {dx, dy, x, w, rstd, dtype, w_dtype, width, .want_dw = dw != NULL};
    job.sums = fsdp_column_sums_of(c, rows, width, 1);
    while (fsdp_column_sums_next(&job.sums)) {
        fsdp_run_tasks(c, job.sums.blocks, norm_backward_task, &job);
        if (dw)
            fsdp_column_sums_end(&job.sums, 0, dw, dw_dtype, dw_beta);
    }
}

/* --- column_sum --- */

typedef struct column_job {
    const void *x;
    fsdp_dtype dtype;
    fsdp_column_sums sums;
} column_job;

static void column_task(void *arg, int64_t task, int worker)
{
    const column_job *job = arg;
    const fsdp_column_sums *sums = &job->sums;
    float *partial = fsdp_column_sums_begin(sums, task), buffer[FSDP_BLOCK];
    int64_t last = fsdp_min_i64(sums->rows, (task + 1) * sums->block_rows);
    (void)worker;
    for (int64_t row = task * sums->block_rows; row < last; row++)
        for (int64_t i = sums->begin; i < sums->end; i += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(sums->end - i, FSDP_BLOCK);
            const float *x = fsdp_load_block(buffer, job->x, job->dtype, row * sums->width + i, n);
            float *restrict sum = partial + (i - sums->begin);
            for (int j = 0; j < fsdp_padded(n); j++)
                sum[j] += x[j];
        }
}

static void column_sum(fsdp_kernel_context *c, void *dbias, fsdp_dtype dbias_dtype, float beta,
                       const void *dy, fsdp_dtype dtype, int64_t rows, int64_t n)
{
    column_job job = {dy, dtype, fsdp_column_sums_of(c, rows, n, 1)};
    while (fsdp_column_sums_next(&job.sums)) {
        fsdp_run_tasks(c, job.sums.blocks, column_task, &job);
        fsdp_column_sums_end(&job.sums, 0, dbias, dbias_dtype, beta);
    }
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_norm)(fsdp_kernels *k)
{
    k->rms_norm = rms_norm;
    k->rms_norm_backward = rms_norm_backward;
    k->column_sum = column_sum;
}
