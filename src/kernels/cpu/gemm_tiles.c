/* Computes a GEMM with our own tiles (tile.h). Each task computes a block of C. A task divides k
 * into ranges, called splits. For each split, the task packs its columns of B once. Then it
 * processes its rows of A in blocks that stay in the second-level cache. If C is not f32 and there
 * are several splits, the sums are kept in scratch memory until the last split. Results do not
 * depend on how C is divided into tasks. */
#include "src/kernels/cpu/gemm.h"

#include "src/base/alloc.h"
#include "src/kernels/cpu/product.h"
#include "src/kernels/cpu/scratch.h"
#include "src/kernels/cpu/tile.h"

enum {
    SUM_ROWS = 1024, /* maximum rows of C per task if the sums are in scratch memory */
    /* Packing one element takes as long as this many multiplications, if the element is in memory
     * and not in a cache. */
    PACK_COST = 8,
    MOST_TASKS = 3, /* maximum number of tasks for each thread, if there are several threads */
};

typedef struct gemm {
    const fsdp_gemm_args *args;
    fsdp_kernel_context *context;
    const fsdp_cpu_tiles *tiles;
    bool pack_a, sums;
    int64_t split; /* number of elements along k in a split */
    int64_t task_rows, task_columns, row_tasks;
    fsdp_cpu_failure failure;
} gemm;

static int64_t ceil_div(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

/* Divides n into parts of about equal length. The number of parts is the smallest for which no part
 * has more than `most` elements. Returns the length of a part, rounded up to a multiple of
 * `unit`. */
static int64_t even_part(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = ceil_div(n, most > unit ? most : unit);
    return ceil_div(ceil_div(n, parts), unit) * unit;
}

/* Returns the number of lanes (Note [Lanes] in tile.h) that `k` elements take. */
static int64_t depth_of(const gemm *g, int64_t k)
{
    return g->tiles->widens ? k : fsdp_tile_depth(g->args->ab_dtype, k);
}

/* Returns the number of rows in a block of A, if each row has `depth` lanes. */
static int64_t rows_of_block(const gemm *g, int64_t depth)
{
    int64_t rows = g->tiles->a_bytes / (depth * FSDP_TILE_LANE_BYTES) / 32 * 32;
    return rows > 32 ? rows : 32;
}

/* The part of C that one task computes, columns [c0, c0 + columns) of rows [r0, r0 + rows), and the
 * buffers of the task. */
typedef struct part {
    int64_t r0, rows, c0, columns;
    char *a, *b; /* the packed block of A and the packed columns of B */
    float *sum;  /* [rows, columns]; NULL if the sums are stored in C */
} part;

static void multiply_split(const gemm *g, const part *p, int64_t k0, int64_t k)
{
    const fsdp_gemm_args *args = g->args;
    int64_t depth = depth_of(g, k);
    /* The number of rows in a block of A. It is computed for the longest split, since scratch
     * memory was reserved for that split; shorter splits use the same number. */
    int64_t block_rows = rows_of_block(g, depth_of(g, g->split));
    bool first = k0 == 0, last = k0 + k == args->k;
    fsdp_tile_block block = {.dtype = args->ab_dtype,
                             .n = p->columns,
                             .depth = depth,
                             .a_stride = g->pack_a ? 0 : fsdp_gemm_bytes(args->ab_dtype, args->lda),
                             .b = p->b};
    g->tiles->pack_b(p->b, args->ab_dtype, fsdp_gemm_b_at(args, k0, p->c0), args->ldb,
                     !args->trans_b, k, p->columns);
    for (int64_t i = 0; i < p->rows; i += block_rows) {
        float *sum = p->sum ? p->sum + i * p->columns : NULL;
        block.m = fsdp_gemm_min(block_rows, p->rows - i);
        block.a = fsdp_gemm_a_at(args, p->r0 + i, k0);
        if (g->pack_a) {
            g->tiles->pack_a(p->a, args->ab_dtype, block.a, args->lda, args->trans_a, k, block.m);
            block.a = p->a;
        }
        if (sum && !last) {
            block.c = sum;
            block.c_dtype = FSDP_DTYPE_F32;
            block.ldc = p->columns;
            block.add = !first;
        } else {
            block.c = fsdp_gemm_c_at(args, p->r0 + i, p->c0);
            block.c_dtype = args->c_dtype;
            block.ldc = args->ldc;
            block.add = args->beta != 0.0f || (!sum && !first);
            block.sum = sum;
            block.sum_ld = p->columns;
            block.bias = last ? fsdp_gemm_bias_at(args, p->c0) : NULL;
        }
        g->tiles->multiply(&block);
    }
}

static fsdp_status run_part(const gemm *g, int worker, part *p)
{
    const fsdp_gemm_args *args = g->args;
    int64_t depth = depth_of(g, g->split);
    size_t bytes = 0, b = fsdp_scratch_part(&bytes, fsdp_tile_b_bytes(g->tiles, p->columns, depth));
    size_t a = fsdp_scratch_part(
        &bytes, g->pack_a ? fsdp_tile_a_bytes(g->tiles, rows_of_block(g, depth), depth) : 0);
    size_t sum =
        fsdp_scratch_part(&bytes, g->sums ? (size_t)(p->rows * p->columns) * sizeof(float) : 0);
    char *scratch = fsdp_kernel_scratch(g->context, worker, bytes);
    if (!scratch)
        return fsdp_error_nomem();
    p->a = scratch + a;
    p->b = scratch + b;
    p->sum = g->sums ? (float *)(void *)(scratch + sum) : NULL;
    for (int64_t k = 0; k < args->k; k += g->split)
        multiply_split(g, p, k, fsdp_gemm_min(g->split, args->k - k));
    return FSDP_OK;
}

static void run_task(void *arg, int64_t i, int worker)
{
    gemm *g = arg;
    part p = {.r0 = i % g->row_tasks * g->task_rows, .c0 = i / g->row_tasks * g->task_columns};
    p.rows = fsdp_gemm_min(g->task_rows, g->args->m - p.r0);
    p.columns = fsdp_gemm_min(g->task_columns, g->args->n - p.c0);
    if (!fsdp_cpu_failure_any(&g->failure))
        fsdp_cpu_failure_note(&g->failure, run_part(g, worker, &p));
}

/* One way to divide C into tasks. */
typedef struct cutting {
    int64_t task_rows, task_columns, tasks;
} cutting;

static cutting cut_into(const gemm *g, int64_t row_parts, int64_t column_parts)
{
    const int64_t m = g->args->m, n = g->args->n;
    cutting c = {.task_rows = even_part(m, ceil_div(m, row_parts), g->tiles->rows),
                 .task_columns = even_part(n, ceil_div(n, column_parts), g->tiles->columns)};
    c.tasks = ceil_div(m, c.task_rows) * ceil_div(n, c.task_columns);
    return c;
}

/* Returns the cost of a way to divide C: the work of the busiest thread for one lane of k (Note
 * [Lanes] in tile.h). For one lane, a task does one multiplication for each element of its block of
 * C. It also packs this lane of its columns of B and, if g->pack_a is true, of its rows of A. */
static double cost_of(const gemm *g, cutting c, int64_t threads)
{
    const double rows = (double)c.task_rows, columns = (double)c.task_columns;
    const double task = rows * columns + PACK_COST * (columns + (g->pack_a ? rows : 0.0));
    return (double)ceil_div(c.tasks, threads) * task;
}

/* Chooses the cheapest way to divide C among `threads` threads, with up to MOST_TASKS tasks per
 * thread. The columns of B that a task packs take at most about g->tiles->b_bytes bytes. If the
 * sums are in scratch memory, a task has at most SUM_ROWS rows. Results do not depend on the
 * choice. */
static void choose_cutting(gemm *g, int64_t threads)
{
    const fsdp_gemm_args *args = g->args;
    const int64_t depth = depth_of(g, g->split);
    const int64_t least_rows = g->sums ? ceil_div(args->m, SUM_ROWS) : 1;
    const int64_t least_columns = ceil_div(
        args->n, fsdp_gemm_min(args->n, g->tiles->b_bytes / (depth * FSDP_TILE_LANE_BYTES)));
    cutting best = cut_into(g, least_rows, least_columns);
    double least = cost_of(g, best, threads);
    const double enough = 1.02 * (double)args->m * (double)args->n / (double)threads;
    const int64_t most_columns = least_columns + MOST_TASKS * threads;
    for (int64_t columns = least_columns; threads > 1 && columns <= most_columns && least > enough;
         columns++)
        for (int64_t tasks = 1; tasks <= MOST_TASKS; tasks++) {
            const int64_t rows = ceil_div(tasks * threads, columns);
            const cutting c = cut_into(g, rows > least_rows ? rows : least_rows, columns);
            const double cost = cost_of(g, c, threads);
            if (cost < least) {
                least = cost;
                best = c;
            }
        }
    g->task_rows = best.task_rows;
    g->task_columns = best.task_columns;
    g->row_tasks = ceil_div(args->m, g->task_rows);
}

fsdp_status fsdp_cpu_gemm_tiles(fsdp_kernel_context *c, const fsdp_gemm_args *args,
                                fsdp_thread_pool *pool)
{
    gemm g = {.args = args, .context = c, .tiles = fsdp_cpu_tiles_of(c, args->ab_dtype)};
    bool bf16 = args->ab_dtype == FSDP_DTYPE_BF16;
    int64_t lane = bf16 && !g.tiles->widens ? 2 : 1; /* elements along k per lane */
    g.pack_a = args->trans_a || args->k % lane != 0 || g.tiles->widens;
    const int64_t most_depth =
        args->k >= FSDP_TILE_LONG_K ? g.tiles->most_long_depth : g.tiles->most_depth;
    const int64_t whole = g.tiles->amx ? lane * FSDP_AMX_LANES : lane;
    g.split = even_part(args->k, g.pack_a ? g.tiles->most_packed_k : most_depth * lane, whole);
    g.sums = g.split < args->k && args->c_dtype != FSDP_DTYPE_F32;
    choose_cutting(&g, pool ? fsdp_thread_pool_size(pool) : 1);
    fsdp_parallel_for(pool, g.row_tasks * ceil_div(args->n, g.task_columns), run_task, &g);
    return fsdp_cpu_failure_raise(&g.failure);
}
