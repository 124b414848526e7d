/* Embedding lookup and its gradient, and gathering and scattering of rows by index. */
#include "src/kernels/cpu/isa/block.h"

/* --- embedding --- */

typedef struct embedding_job {
    void *out;
    const void *weight;
    fsdp_dtype dtype, w_dtype;
    const int32_t *ids;
    int64_t tokens, width, rows; /* rows: number of tokens in a task */
} embedding_job;

static void embedding_task(void *arg, int64_t task, int worker)
{
    const embedding_job *job = arg;
    int64_t end = fsdp_min_i64(job->tokens, (task + 1) * job->rows);
    float buffer[FSDP_BLOCK];
    (void)worker;
    for (int64_t t = task * job->rows; t < end; t++)
        for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK);
            const float *w =
                fsdp_load_block(buffer, job->weight, job->w_dtype, job->ids[t] * job->width + i, n);
            fsdp_store_block(job->out, job->dtype, t * job->width + i, w, n);
        }
}

/* --- gather_rows, scatter_rows --- */

typedef struct rows_job {
    char *out;
    const char *x;
    const int32_t *index;
    int64_t n, rows; /* n: rows to copy or to set to zero; rows: how many of them a task has */
    size_t row_bytes;
} rows_job;

static void gather_task(void *arg, int64_t task, int worker)
{
    const rows_job *job = arg;
    int64_t end = fsdp_min_i64(job->n, (task + 1) * job->rows);
    (void)worker;
    for (int64_t t = task * job->rows; t < end; t++)
        memcpy(job->out + (size_t)t * job->row_bytes,
               job->x + (size_t)job->index[t] * job->row_bytes, job->row_bytes);
}

static void scatter_task(void *arg, int64_t task, int worker)
{
    const rows_job *job = arg;
    int64_t end = fsdp_min_i64(job->n, (task + 1) * job->rows);
    (void)worker;
    for (int64_t t = task * job->rows; t < end; t++)
        memcpy(job->out + (size_t)job->index[t] * job->row_bytes,
               job->x + (size_t)t * job->row_bytes, job->row_bytes);
}

static void zero_task(void *arg, int64_t task, int worker)
{
    const rows_job *job = arg;
    int64_t begin = task * job->rows, end = fsdp_min_i64(job->n, begin + job->rows);
    (void)worker;
    memset(job->out + (size_t)begin * job->row_bytes, 0, (size_t)(end - begin) * job->row_bytes);
}

static void run_rows(fsdp_kernel_context *c, fsdp_task_fn *task, rows_job job)
{
    job.rows = fsdp_task_rows((int64_t)(job.row_bytes / 4));
    fsdp_run_tasks(c, fsdp_ceil_div(job.n, job.rows), task, &job);
}

static void gather_rows(fsdp_kernel_context *c, void *out, const void *x, const int32_t *rows,
                        int64_t n, size_t row_bytes)
{
    run_rows(c, gather_task,
             (rows_job){.out = out, .x = x, .index = rows, .n = n, .row_bytes = row_bytes});
}

/* Writes row i of x to row rows[i] of `out`, and zeros to all other rows. The indices in `rows`
 * must be distinct, because rows are overwritten, not added. So scatter_rows() can be used as the
 * backward of gather_rows() only if gather_rows() selected no row twice. */
static void scatter_rows(fsdp_kernel_context *c, void *out, int64_t out_rows, const void *x,
                         const int32_t *rows, int64_t n, size_t row_bytes)
{
    run_rows(c, zero_task, (rows_job){.out = out, .n = out_rows, .row_bytes = row_bytes});
    run_rows(c, scatter_task,
             (rows_job){.out = out, .x = x, .index = rows, .n = n, .row_bytes = row_bytes});
}

static void embedding(fsdp_kernel_context *c, void *out, fsdp_dtype dtype, const void *weight,
                      fsdp_dtype w_dtype, const int32_t *ids, int64_t tokens, int64_t width)
{
    if (dtype == w_dtype) {
        gather_rows(c, out, weight, ids, tokens, (size_t)width * fsdp_dtype_size(dtype));
        return;
    }
    embedding_job job = {out, weight, dtype, w_dtype, ids, tokens, width, fsdp_task_rows(width)};
    fsdp_run_tasks(c, fsdp_ceil_div(tokens, job.rows), embedding_task, &job);
}

/* --- embedding_backward --- Tokens are processed in batches. The size of a batch is limited, so
 * that it can be sorted in scratch memory. A stable sort by id puts the tokens of one id next to
 * each other, in token order. For each id, one task adds the gradients of its tokens to the row of
 * dw in float32, and rounds the row once per batch. If a bfloat16 row were rounded after each
 * token, many small gradients would be lost to rounding. */

enum {
    BATCH = FSDP_KERNEL_SCRATCH_MIN / (2 * (int)sizeof(int32_t)), /* number of tokens in a batch */
    /* The number of sorted tokens in a task. Sorted tokens with the same id form a run. The task in
     * which a run begins adds up the whole run, even if it continues in the tokens of the next
     * task. */
    RUN_CHUNK = 32,
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS
};

typedef struct scatter_add_job {
    void *dw;
    const void *dy;
    fsdp_dtype dw_dtype, dtype;
    const int32_t *ids;   /* [n] ids of the tokens */
    const int32_t *order; /* [n] indices of the tokens within the batch, sorted by id */
    /* The batch is tokens [first, first + n). */
    int64_t first, n;
    int64_t width;
    int32_t padding_idx; /* tokens with this id are skipped */
} scatter_add_job;

/* Sorts the numbers [0, n) by ids[number]. Numbers with equal ids stay in ascending order. This is
 * a radix sort, least significant digit first, which moves the numbers between the buffers `order`
 * and `other`, [n] each. Returns the buffer that has the result. */
static const int32_t *sort_by_id(int32_t *order, int32_t *other, const int32_t *ids, int64_t n,
                                 int64_t vocab)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int shift = 0; shift < 32 && (vocab - 1) >> shift > 0; shift += DIGIT_BITS) {
        int32_t start[DIGITS + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            start[(ids[i] >> shift & (DIGITS - 1)) + 1]++;
        for (int d = 0; d < DIGITS; d++)
            start[d + 1] += start[d];
        for (int64_t i = 0; i < n; i++)
            other[start[ids[order[i]] >> shift & (DIGITS - 1)]++] = order[i];
        int32_t *sorted = other;
        other = order;
        order = sorted;
    }
    return order;
}

/* A run is a sequence of sorted tokens with the same id. Adds the gradients of a run to the row of
 * dw that belongs to the id: dw[ids[order[begin]]] += the sum of dy over the tokens order[begin ..
 * end). */
static void add_run(const scatter_add_job *job, int64_t begin, int64_t end)
{
    int64_t row = job->ids[job->order[begin]] * job->width;
    float sum[FSDP_BLOCK], old[FSDP_BLOCK], buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK), padded = fsdp_padded(n);
        fsdp_copy_f32(sum, fsdp_load_block(old, job->dw, job->dw_dtype, row + i, n), padded);
        for (int64_t k = begin; k < end; k++) {
            int64_t token = job->first + job->order[k];
            const float *dy =
                fsdp_load_block(buffer, job->dy, job->dtype, token * job->width + i, n);
            for (int j = 0; j < padded; j++)
                sum[j] += dy[j];
        }
        fsdp_store_block(job->dw, job->dw_dtype, row + i, sum, n);
    }
}

static void scatter_add_task(void *arg, int64_t task, int worker)
{
    const scatter_add_job *job = arg;
    const int32_t *ids = job->ids, *order = job->order;
    int64_t last = fsdp_min_i64(job->n, (task + 1) * RUN_CHUNK);
    int64_t begin = task * RUN_CHUNK;
    (void)worker;
    while (begin > 0 && begin < last && ids[order[begin]] == ids[order[begin - 1]])
        begin++;
    while (begin < last) {
        int64_t end = begin + 1;
        while (end < job->n && ids[order[end]] == ids[order[begin]])
            end++;
        if (ids[order[begin]] != job->padding_idx)
            add_run(job, begin, end);
        begin = end;
    }
}

static void embedding_backward(fsdp_kernel_context *c, void *dw, fsdp_dtype dw_dtype, float beta,
                               const void *dy, fsdp_dtype dtype, const int32_t *ids, int64_t tokens,
                               int64_t width, int64_t vocab, int32_t padding_idx)
{
    scatter_add_job job = {.dw = dw,
                           .dy = dy,
                           .dw_dtype = dw_dtype,
                           .dtype = dtype,
                           .width = width,
                           .padding_idx = padding_idx};
    int32_t *scratch = fsdp_kernel_scratch(c, 0, 2 * BATCH * sizeof *scratch);
    if (beta == 0.0f)
        run_rows(c, zero_task,
                 (rows_job){.out = dw,
                            .n = vocab,
                            .row_bytes = (size_t)width * fsdp_dtype_size(dw_dtype)});
    for (int64_t first = 0; first < tokens; first += BATCH) {
        job.first = first;
        job.n = fsdp_min_i64(tokens - first, BATCH);
        job.ids = ids + first;
        job.order = sort_by_id(scratch, scratch + BATCH, job.ids, job.n, vocab);
        fsdp_run_tasks(c, fsdp_ceil_div(job.n, RUN_CHUNK), scatter_add_task, &job);
    }
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_embedding)(fsdp_kernels *k)
{
    k->embedding = embedding;
    k->embedding_backward = embedding_backward;
    k->gather_rows = gather_rows;
    k->scatter_rows = scatter_rows;
}
