/* Kernels of DoRA (Note [Magnitudes] in src/autograd/magnitude.h): they compute the norms of a
 * weight's rows, and the factors that scale these rows to other norms. They also multiply each
 * column of a matrix by a factor, and compute the gradient of these factors. */
#include "src/base/bf16.h"
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/columns.h"

enum {
    ROWS = 16 /* rows in a task of scale_columns() */
};

/* --- scale_columns --- */

typedef struct scale_job {
    void *y;
    const void *x, *bias; /* bias may be NULL */
    fsdp_dtype dtype;
    const float *factors;
    int64_t rows, width;
} scale_job;

static void scale_row(const scale_job *job, int64_t row)
{
    const int64_t start = row * job->width;
    float x_buffer[FSDP_BLOCK], factor_buffer[FSDP_BLOCK], bias_buffer[FSDP_BLOCK], y[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, start + i, n);
        const float *factor = fsdp_load_block(factor_buffer, job->factors, FSDP_DTYPE_F32, i, n);
        if (job->bias) {
            const float *bias = fsdp_load_block(bias_buffer, job->bias, job->dtype, i, n);
            for (int j = 0; j < padded; j++)
                y[j] = x[j] * factor[j] + bias[j];
        } else {
            for (int j = 0; j < padded; j++)
                y[j] = x[j] * factor[j];
        }
        fsdp_store_block(job->y, job->dtype, start + i, y, n);
    }
}

static void scale_task(void *arg, int64_t task, int worker)
{
    const scale_job *job = arg;
    const int64_t end = fsdp_min_i64(job->rows, (task + 1) * ROWS);
    (void)worker;
    for (int64_t row = task * ROWS; row < end; row++)
        scale_row(job, row);
}

static void scale_columns(fsdp_kernel_context *c, void *y, const void *x, fsdp_dtype dtype,
                          const float *factors, const void *bias, int64_t rows, int64_t width)
{
    scale_job job = {y, x, bias, dtype, factors, rows, width};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, ROWS), scale_task, &job);
}

/* --- column_dots --- */

typedef struct dots_job {
    const void *x, *y;
    fsdp_dtype dtype;
    const float *factors;
    fsdp_column_sums sums;
} dots_job;

/* Add the terms of one row, in the columns of the current panel, to `partial`. */
static void add_row(const dots_job *job, int64_t row, float *partial)
{
    const fsdp_column_sums *sums = &job->sums;
    float x_buffer[FSDP_BLOCK], y_buffer[FSDP_BLOCK], factor_buffer[FSDP_BLOCK];
    for (int64_t i = sums->begin; i < sums->end; i += FSDP_BLOCK) {
        const int n = (int)fsdp_min_i64(sums->end - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const int64_t at = row * sums->width + i;
        const float *x = fsdp_load_block(x_buffer, job->x, job->dtype, at, n);
        const float *y = fsdp_load_block(y_buffer, job->y, job->dtype, at, n);
        const float *factor = fsdp_load_block(factor_buffer, job->factors, FSDP_DTYPE_F32, i, n);
        float *restrict sum = partial + (i - sums->begin);
        for (int j = 0; j < padded; j++)
            sum[j] += x[j] * y[j] * factor[j];
    }
}

static void dots_task(void *arg, int64_t task, int worker)
{
    const dots_job *job = arg;
    float *partial = fsdp_column_sums_begin(&job->sums, task);
    const int64_t end = fsdp_min_i64(job->sums.rows, (task + 1) * job->sums.block_rows);
    (void)worker;
    for (int64_t row = task * job->sums.block_rows; row < end; row++)
        add_row(job, row, partial);
}

static void column_dots(fsdp_kernel_context *c, void *out, fsdp_dtype out_dtype, float beta,
                        const void *x, const void *y, fsdp_dtype dtype, const float *factors,
                        int64_t rows, int64_t width)
{
    dots_job job = {x, y, dtype, factors, fsdp_column_sums_of(c, rows, width, 1)};
    while (fsdp_column_sums_next(&job.sums)) {
        fsdp_run_tasks(c, job.sums.blocks, dots_task, &job);
        fsdp_column_sums_end(&job.sums, 0, out, out_dtype, beta);
    }
}

/* --- norms and factors: a few thousand numbers, so one thread computes them --- */

static void norms_of_squares(fsdp_kernel_context *c, float *norms, const double *squares,
                             fsdp_dtype dtype, int64_t n)
{
    float block[FSDP_BLOCK], rounded[FSDP_BLOCK];
    uint16_t halves[FSDP_BLOCK];
    (void)c;
    for (int64_t i = 0; i < n; i += FSDP_BLOCK) {
        const int count = (int)fsdp_min_i64(n - i, FSDP_BLOCK);
        memset(block, 0, sizeof block);
        for (int j = 0; j < count; j++)
            block[j] = (float)sqrt(squares[i + j]);
        const float *result = block;
        if (dtype != FSDP_DTYPE_F32) {
            fsdp_store_block(halves, dtype, 0, block, count);
            result = fsdp_load_block(rounded, halves, dtype, 0, count);
        }
        memcpy(norms + i, result, (size_t)count * sizeof *norms);
    }
}

static void magnitude_factors(fsdp_kernel_context *c, float *factors, float *reciprocals,
                              const void *magnitudes, fsdp_dtype dtype, const float *norms,
                              int64_t n)
{
    float buffer[FSDP_BLOCK];
    (void)c;
    for (int64_t i = 0; i < n; i += FSDP_BLOCK) {
        const int count = (int)fsdp_min_i64(n - i, FSDP_BLOCK);
        const float *magnitude = fsdp_load_block(buffer, magnitudes, dtype, i, count);
        for (int j = 0; j < count; j++) {
            const float norm = norms[i + j];
            factors[i + j] = norm == 0.0f ? 0.0f : magnitude[j] / norm;
            reciprocals[i + j] = norm == 0.0f ? 0.0f : 1.0f / norm;
        }
    }
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_magnitude)(fsdp_kernels *k)
{
    k->scale_columns = scale_columns;
    k->column_dots = column_dots;
    k->norms_of_squares = norms_of_squares;
    k->magnitude_factors = magnitude_factors;
}
