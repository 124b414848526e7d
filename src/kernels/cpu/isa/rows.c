/* Splits the rows of a matrix into parts, joins parts to rows, gathers rows as columns, and
 * computes means over ranges of rows. */
#include "src/kernels/cpu/isa/block.h"

/* --- split_columns, join_columns --- */

typedef struct columns_job {
    const char *x;           /* split: the input, whose rows have n parts */
    void *const *to;         /* split: [n] outputs */
    char *out;               /* join: the output, whose rows have n parts */
    const void *const *from; /* join: [n] inputs; if from[i] is NULL, part i is zeros */
    int n;
    int64_t rows, task_rows;
    size_t part_bytes;
} columns_job;

static void split_task(void *arg, int64_t task, int worker)
{
    const columns_job *job = arg;
    const size_t bytes = job->part_bytes, row_bytes = bytes * (size_t)job->n;
    int64_t end = fsdp_min_i64(job->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++)
        for (int i = 0; i < job->n; i++)
            memcpy((char *)job->to[i] + (size_t)row * bytes,
                   job->x + (size_t)row * row_bytes + (size_t)i * bytes, bytes);
}

static void join_task(void *arg, int64_t task, int worker)
{
    const columns_job *job = arg;
    const size_t bytes = job->part_bytes, row_bytes = bytes * (size_t)job->n;
    int64_t end = fsdp_min_i64(job->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++)
        for (int i = 0; i < job->n; i++) {
            char *to = job->out + (size_t)row * row_bytes + (size_t)i * bytes;
            if (job->from[i])
                memcpy(to, (const char *)job->from[i] + (size_t)row * bytes, bytes);
            else
                memset(to, 0, bytes);
        }
}

static void run_columns(fsdp_kernel_context *c, fsdp_task_fn *task, columns_job job)
{
    enum {
        TASK_BYTES = FSDP_CHUNK * 4
    };
    size_t row_bytes = job.part_bytes * (size_t)job.n;
    if (!row_bytes)
        return;
    job.task_rows = row_bytes < TASK_BYTES ? (int64_t)(TASK_BYTES / row_bytes) : 1;
    fsdp_run_tasks(c, fsdp_ceil_div(job.rows, job.task_rows), task, &job);
}

static void split_columns(fsdp_kernel_context *c, void *const *parts, const void *x, int n,
                          int64_t rows, size_t part_bytes)
{
    run_columns(c, split_task,
                (columns_job){.x = x, .to = parts, .n = n, .rows = rows, .part_bytes = part_bytes});
}

static void join_columns(fsdp_kernel_context *c, void *out, const void *const *parts, int n,
                         int64_t rows, size_t part_bytes)
{
    run_columns(
        c, join_task,
        (columns_job){.out = out, .from = parts, .n = n, .rows = rows, .part_bytes = part_bytes});
}

/* --- gather_transposed ---
 * A task handles one block of the columns of x. */

typedef struct transposed_job {
    void *out;
    const void *x;
    fsdp_dtype dtype;
    const int32_t *rows;
    int64_t n, width, x_rows;
} transposed_job;

static void transposed_task(void *arg, int64_t task, int worker)
{
    const transposed_job *job = arg;
    const int64_t column = task * FSDP_BLOCK;
    const int columns = (int)fsdp_min_i64(job->width - column, FSDP_BLOCK);
    float *out = (float *)job->out + column * job->n, buffer[FSDP_BLOCK];
    (void)worker;
    for (int64_t t = 0; t < job->n; t++) {
        const float *x = fsdp_load_block(buffer, job->x, job->dtype,
                                         job->rows[t] * job->width + column, columns);
        for (int j = 0; j < columns; j++)
            out[j * job->n + t] = x[j];
    }
}

static void transposed_backward_task(void *arg, int64_t task, int worker)
{
    const transposed_job *job = arg;
    const int64_t column = task * FSDP_BLOCK;
    const int columns = (int)fsdp_min_i64(job->width - column, FSDP_BLOCK);
    const float *dy = (const float *)job->x + column * job->n;
    float *dx = (float *)job->out + column;
    (void)worker;
    for (int64_t r = 0; r < job->x_rows; r++)
        memset(dx + r * job->width, 0, (size_t)columns * sizeof *dx);
    for (int64_t t = 0; t < job->n; t++)
        for (int j = 0; j < columns; j++)
            dx[job->rows[t] * job->width + j] += dy[j * job->n + t];
}

static void gather_transposed(fsdp_kernel_context *c, float *out, const void *x, fsdp_dtype dtype,
                              const int32_t *rows, int64_t n, int64_t width)
{
    transposed_job job = {out, x, dtype, rows, n, width, 0};
    fsdp_run_tasks(c, fsdp_ceil_div(width, FSDP_BLOCK), transposed_task, &job);
}

static void gather_transposed_backward(fsdp_kernel_context *c, float *dx, const float *dy,
                                       const int32_t *rows, int64_t n, int64_t width,
                                       int64_t x_rows)
{
    transposed_job job = {dx, dy, FSDP_DTYPE_F32, rows, n, width, x_rows};
    fsdp_run_tasks(c, fsdp_ceil_div(width, FSDP_BLOCK), transposed_backward_task, &job);
}

/* --- segment_mean ---
 * A segment is a range of consecutive rows. A task computes one block of columns of one segment. */

typedef struct segment_job {
    void *out; /* forward: [n, width]; backward: [rows, width] */
    const void *x;
    fsdp_dtype dtype;
    const int32_t *offsets;
    int64_t width, blocks; /* blocks: number of blocks of columns */
} segment_job;

typedef struct segment_block {
    int64_t segment, begin, end; /* the segment has rows [begin, end) */
    int64_t column;
    int n; /* number of columns */
} segment_block;

static segment_block segment_block_of(const segment_job *job, int64_t task)
{
    segment_block b = {.segment = task / job->blocks, .column = task % job->blocks * FSDP_BLOCK};
    b.begin = job->offsets[b.segment];
    b.end = job->offsets[b.segment + 1];
    b.n = (int)fsdp_min_i64(job->width - b.column, FSDP_BLOCK);
    return b;
}

static void mean_task(void *arg, int64_t task, int worker)
{
    const segment_job *job = arg;
    segment_block b = segment_block_of(job, task);
    float sum[FSDP_BLOCK] = {0}, buffer[FSDP_BLOCK], rows = (float)(b.end - b.begin);
    (void)worker;
    for (int64_t row = b.begin; row < b.end; row++) {
        const float *x =
            fsdp_load_block(buffer, job->x, job->dtype, row * job->width + b.column, b.n);
        for (int j = 0; j < fsdp_padded(b.n); j++)
            sum[j] += x[j];
    }
    for (int j = 0; b.begin < b.end && j < b.n; j++)
        sum[j] /= rows;
    fsdp_store_block(job->out, job->dtype, b.segment * job->width + b.column, sum, b.n);
}

static void mean_backward_task(void *arg, int64_t task, int worker)
{
    const segment_job *job = arg;
    segment_block b = segment_block_of(job, task);
    float part[FSDP_BLOCK], buffer[FSDP_BLOCK], rows = (float)(b.end - b.begin);
    (void)worker;
    if (b.begin == b.end)
        return;
    const float *dy =
        fsdp_load_block(buffer, job->x, job->dtype, b.segment * job->width + b.column, b.n);
    for (int j = 0; j < b.n; j++)
        part[j] = dy[j] / rows;
    for (int64_t row = b.begin; row < b.end; row++)
        fsdp_store_block(job->out, job->dtype, row * job->width + b.column, part, b.n);
}

static void segment_mean(fsdp_kernel_context *c, void *out, const void *x, fsdp_dtype dtype,
                         const int32_t *offsets, int64_t n, int64_t width)
{
    segment_job job = {out, x, dtype, offsets, width, fsdp_ceil_div(width, FSDP_BLOCK)};
    fsdp_run_tasks(c, n * job.blocks, mean_task, &job);
}

static void segment_mean_backward(fsdp_kernel_context *c, void *dx, const void *dy,
                                  fsdp_dtype dtype, const int32_t *offsets, int64_t n,
                                  int64_t width)
{
    segment_job job = {dx, dy, dtype, offsets, width, fsdp_ceil_div(width, FSDP_BLOCK)};
    fsdp_run_tasks(c, n * job.blocks, mean_backward_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_rows)(fsdp_kernels *k)
{
    k->split_columns = split_columns;
    k->join_columns = join_columns;
    k->gather_transposed = gather_transposed;
    k->gather_transposed_backward = gather_transposed_backward;
    k->segment_mean = segment_mean;
    k->segment_mean_backward = segment_mean_backward;
}
