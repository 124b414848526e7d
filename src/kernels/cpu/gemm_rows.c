/* GEMM in which A has few rows; see few_rows.h. */
#include "src/base/alloc.h"
#include "src/kernels/cpu/few_rows.h"
#include "src/kernels/cpu/gemm.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/scratch.h"

enum {
    C_ELEMENTS = 1536 /* maximum elements of C per task; the limit keeps them in the first-level
                       * cache */
};

typedef struct gemm {
    const fsdp_gemm_args *args;
    fsdp_kernel_context *context;
    const fsdp_cpu_few_rows *rows;
    int64_t columns; /* columns of C per task, a multiple of 16 */
    fsdp_cpu_failure failure;
} gemm;

const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of_isa(const fsdp_kernel_context *c)
{
    static const fsdp_cpu_few_rows *const tables[FSDP_CPU_ISA_COUNT] = {
        [FSDP_CPU_ISA_V3] = &fsdp_cpu_few_rows_x86_64_v3,
        [FSDP_CPU_ISA_V4] = &fsdp_cpu_few_rows_x86_64_v4};
    return tables[fsdp_kernel_context_isa(c)];
}

const fsdp_cpu_few_rows *fsdp_cpu_few_rows_of(const fsdp_kernel_context *c, fsdp_dtype dtype)
{
    fsdp_cpu_isa isa = fsdp_kernel_context_isa(c);
    fsdp_cpu_multiplier multiplier = fsdp_kernel_context_multiplier(c);
    bool widened = dtype == FSDP_DTYPE_F16 ||
                   (dtype == FSDP_DTYPE_BF16 && multiplier == FSDP_CPU_MULTIPLY_FMA);
    if (isa == FSDP_CPU_ISA_V4 && (multiplier == FSDP_CPU_MULTIPLY_ONEDNN || !widened))
        return NULL;
    return fsdp_cpu_few_rows_of_isa(c);
}

static fsdp_status run_columns(const gemm *g, int worker, int64_t column)
{
    const fsdp_gemm_args *args = g->args;
    size_t bytes = 0, word = sizeof(float);
    int64_t a_ld = fsdp_few_rows_ld(args->k);
    size_t c_at = fsdp_scratch_part(&bytes, (size_t)(args->m * g->columns) * word);
    size_t a_at = fsdp_scratch_part(&bytes, (size_t)(args->m * a_ld) * word);
    char *scratch = fsdp_kernel_scratch(g->context, worker, bytes);
    if (!scratch)
        return fsdp_error_nomem();
    float *a = (float *)(void *)(scratch + a_at), *c = (float *)(void *)(scratch + c_at);
    const fsdp_few_rows product = {.rows = args->m,
                                   .columns = fsdp_gemm_min(g->columns, args->n - column),
                                   .k = args->k,
                                   .a = a,
                                   .a_ld = a_ld,
                                   .b = fsdp_gemm_b_at(args, 0, column),
                                   .b_dtype = args->ab_dtype,
                                   .trans_b = args->trans_b,
                                   .b_row = fsdp_gemm_bytes(args->ab_dtype, args->ldb),
                                   .c = c,
                                   .c_ld = g->columns};
    g->rows->widen_a(args, a, a_ld);
    g->rows->multiply(&product);
    g->rows->finish(args, column, &product);
    return FSDP_OK;
}

static void run_task(void *arg, int64_t i, int worker)
{
    gemm *g = arg;
    if (!fsdp_cpu_failure_any(&g->failure))
        fsdp_cpu_failure_note(&g->failure, run_columns(g, worker, i * g->columns));
}

fsdp_status fsdp_cpu_gemm_rows(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                               fsdp_thread_pool *pool)
{
    gemm g = {.args = args, .context = c, .rows = fsdp_cpu_few_rows_of(c, args->ab_dtype)};
    int64_t threads = pool ? fsdp_thread_pool_size(pool) : 1;
    int64_t most = C_ELEMENTS / args->m, each = (args->n + threads - 1) / threads;
    g.columns = (fsdp_gemm_min(each, most) + 15) / 16 * 16;
    fsdp_parallel_for(pool, (args->n + g.columns - 1) / g.columns, run_task, &g);
    return fsdp_cpu_failure_raise(&g.failure);
}
