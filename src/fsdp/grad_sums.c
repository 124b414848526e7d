/* See grad_sums.h. */
#include "src/fsdp/grad_sums.h"

#include <assert.h>

#include "src/base/assert.h"
#include "src/fsdp/grad_hosts.h"
#include "src/fsdp/grad_rows.h"
#include "src/trace/trace.h"

/* sum_parts() sums the parts of at most two blocks, so fsdp_grad_rows_sum() must accept that many
 * parts. */
static_assert(2 * FSDP_SUM_BLOCK <= FSDP_MAX_SUMMED_TABLES, "one sum of tables over parts");

/* --- sums over parts --- */

/* A sum that is being computed, in chunks of its elements. */
typedef struct sum_run {
    const fsdp_grad_buffer *b;
    const fsdp_grad_source *source;
    const fsdp_param *p;
    fsdp_grad_own_rows own; /* only for tables */
    int parts;              /* number of parts */
    int block;              /* number of parts in a block of micro-batches */
    bool has_terms;         /* fsdp_grad_terms_exist() */
    fsdp_tensor *to;
    bool adds;    /* `to` contains a sum already, to which the new sum is added */
    float scale;  /* factor by which the final sum is multiplied */
    float *chunk; /* device memory for one chunk; NULL: not needed, or on meta */
} sum_run;

/* Sum elements [begin, begin + n) over the parts [first, first + parts). */
static void sum_parts(const sum_run *r, int first, int parts, int64_t begin, int64_t n, float *to,
                      float scale)
{
    const fsdp_grad_source *source = r->source;
    if (source->is_table)
        fsdp_grad_rows_sum(r->b, source->parts, r->p, &r->own,
                           &(fsdp_grad_range){first, parts, begin, n}, to, scale);
    else if (r->has_terms)
        fsdp_grad_hosts_sum(r->b, source, &(fsdp_grad_range){first, parts, begin, n}, to, scale);
    else
        fsdp_grad_parts_sum(r->b, source, &(fsdp_grad_range){first, parts, begin, n}, to, scale);
}

static int fewer(int a, int b)
{
    return a < b ? a : b;
}

/* Return how many parts sum_parts() may sum in one call. A binary tree over the parts of two blocks
 * gives the same bits as adding the sums of the two blocks. If there are terms,
 * fsdp_grad_hosts_sum() computes the sum, and it accepts only one block. */
static int parts_at_once(const sum_run *r)
{
    return (r->has_terms ? 1 : 2) * r->block;
}

/* Sum elements [begin, begin + n) over all parts. If `to` has no sum yet, the first call of
 * sum_parts() sums up to parts_at_once() parts. Each later call sums one block, and adds the sum of
 * the block to `to`. */
static void sum_chunk(const sum_run *r, int64_t begin, int64_t n)
{
    const fsdp_device *device = r->b->context->device;
    float *to = (float *)fsdp_tensor_ptr(r->to) + begin;
    int first = 0;
    if (!r->adds) {
        first = fewer(parts_at_once(r), r->parts);
        sum_parts(r, 0, first, begin, n, to, first == r->parts ? r->scale : 1.0f);
    }
    for (int parts; first < r->parts; first += parts) {
        const void *terms[2] = {to, r->chunk};
        parts = fewer(r->block, r->parts - first);
        sum_parts(r, first, parts, begin, n, r->chunk, 1.0f);
        device->kernels->tree_sum(device->context, to, terms, 2, FSDP_DTYPE_F32, n,
                                  first + parts == r->parts ? r->scale : 1.0f);
    }
}

static bool needs_chunk(const sum_run *r)
{
    return r->adds || r->parts > parts_at_once(r);
}

/* Return the index after the last element to sum. */
static int64_t end_of(const sum_run *r)
{
    return r->source->is_piece ? r->source->end : fsdp_tensor_numel(r->to);
}

/* Return the number of elements of a chunk. Chunks of a table are whole rows. */
static int64_t chunk_numel(const sum_run *r)
{
    const int64_t all = end_of(r) - r->source->begin,
                  most = r->b->context->device->traits->sum_numel;
    if (!needs_chunk(r) || all <= most)
        return all;
    if (!r->source->is_table)
        return most;
    const int64_t width = r->p->parameter->shape[1];
    return width < most ? most / width * width : width;
}

static void sum_chunks(const sum_run *r, int64_t chunk)
{
    const int64_t end = end_of(r);
    for (int64_t begin = r->source->begin; begin < end; begin += chunk)
        sum_chunk(r, begin, end - begin < chunk ? end - begin : chunk);
}

static fsdp_status sum_dense_or_table(sum_run *r, int64_t chunk)
{
    if (r->source->is_table)
        FSDP_TRY(fsdp_grad_rows_find_own(r->b, r->source->parts, r->p, &r->own));
    sum_chunks(r, chunk);
    if (r->source->is_table)
        fsdp_grad_rows_drop_own(&r->own);
    return FSDP_OK;
}

/* Compute the sum. Also allocate the memory for a chunk on meta, so that memory plans count it. */
static fsdp_status sum(sum_run *r)
{
    fsdp_device *device = r->b->context->device;
    const int64_t chunk = chunk_numel(r);
    fsdp_tensor *memory = NULL;
    if (!chunk)
        return FSDP_OK;
    if (needs_chunk(r))
        FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, &chunk, FSDP_TAG_GRAD, &memory));
    r->chunk = memory ? fsdp_tensor_ptr(memory) : NULL;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "sum over ranks", r->b->context->name);
    const fsdp_status status = device->kernels ? sum_dense_or_table(r, chunk) : FSDP_OK;
    fsdp_trace_end();
    fsdp_tensor_release(memory);
    return status;
}

static sum_run run_of(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                      const fsdp_param *p)
{
    const fsdp_grad_parts *parts = source->parts;
    return (sum_run){
        .b = b,
        .source = source,
        .p = p,
        .parts = fsdp_group_world_size(parts->group),
        .block = source->is_table ? FSDP_SUM_BLOCK
                                  : fsdp_grad_block_parts(b->context, parts->group, parts->leaves),
        .has_terms = !source->is_table && fsdp_grad_terms_exist(b->context, parts->group)};
}

fsdp_status fsdp_grad_sums_store(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                                 const fsdp_param *p, fsdp_tensor *rows, float scale)
{
    sum_run r = run_of(b, source, p);
    r.to = rows;
    r.scale = scale;
    return sum(&r);
}

/* --- sums over micro-steps --- */

static void scale_sum(const fsdp_grad_buffer *b, fsdp_tensor *sum, float scale)
{
    const fsdp_device *device = b->context->device;
    if (scale != 1.0f && device->kernels)
        device->kernels->scale(device->context, fsdp_tensor_ptr(sum), fsdp_tensor_ptr(sum), scale,
                               FSDP_DTYPE_F32, fsdp_tensor_numel(sum));
}

void fsdp_grad_fold(const fsdp_grad_buffer *b, fsdp_tensor *to, const fsdp_tensor *from,
                    float scale)
{
    const void *src[2] = {fsdp_tensor_ptr(to), fsdp_tensor_ptr(from)};
    const fsdp_device *device = b->context->device;
    if (device->kernels && fsdp_tensor_numel(to))
        device->kernels->tree_sum(device->context, fsdp_tensor_ptr(to), src, 2, FSDP_DTYPE_F32,
                                  fsdp_tensor_numel(to), scale);
}

static void pop_sum(fsdp_param_grad *g)
{
    fsdp_tensor_release(g->sums[--g->n_sums]);
    g->sums[g->n_sums] = NULL;
}

/* Fold the sum on top of the stack with the sum below it. */
static void fold_top(const fsdp_grad_buffer *b, fsdp_param_grad *g, float scale)
{
    fsdp_grad_fold(b, g->sums[g->n_sums - 2], g->sums[g->n_sums - 1], scale);
    pop_sum(g);
}

/* While the two sums on top have the same number of micro-batches, fold them. The running sum, and
 * a block that is complete, count as FSDP_SUM_BLOCK micro-batches. */
static void fold_equals(const fsdp_grad_buffer *b, fsdp_param_grad *g)
{
    while (g->n_sums > 1 && g->sum_leaves[g->n_sums - 1] == g->sum_leaves[g->n_sums - 2]) {
        fold_top(b, g, 1.0f);
        if (g->sum_leaves[g->n_sums - 1] < FSDP_SUM_BLOCK)
            g->sum_leaves[g->n_sums - 1] *= 2;
    }
}

fsdp_status fsdp_grad_sums_create(const fsdp_grad_buffer *b, const fsdp_param *p, fsdp_tensor **out)
{
    const fsdp_tensor *local = p->local;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(b->context->device, FSDP_DTYPE_F32, local->ndim, local->shape,
                                FSDP_TAG_GRAD, &rows));
    const fsdp_status status = fsdp_param_set_spec(p, rows);
    if (status == FSDP_OK)
        *out = rows;
    else
        fsdp_tensor_release(rows);
    return status;
}

static void push_sum(fsdp_param_grad *g, fsdp_tensor *sum, int leaves)
{
    FSDP_ASSERT(g->n_sums < FSDP_MOST_SUMS);
    g->sums[g->n_sums] = sum;
    g->sum_leaves[g->n_sums++] = leaves;
}

/* How the sum of a micro-step is added to the sums of earlier micro-steps. */
typedef struct addition {
    int leaves;      /* number of micro-batches of the new sum */
    fsdp_tensor *to; /* the top of the stack, to which the sum is added; NULL: push the sum */
    float scale;     /* factor by which the result is multiplied */
} addition;

/* Choose how to add a micro-step of `all` micro-batches to g's sums. Set g->is_scaled to true if
 * the result is the total, which is then multiplied by final_scale. */
static addition addition_of(fsdp_param_grad *g, int all, float final_scale)
{
    const int top = g->n_sums - 1;
    /* If FSDP_SUM_BLOCK is not a multiple of `all`, add the micro-step to the running sum. */
    addition a = {.leaves = FSDP_SUM_BLOCK % all ? FSDP_SUM_BLOCK : all};
    if (top >= 0 && g->sum_leaves[top] == a.leaves)
        a.to = g->sums[top];
    g->is_scaled = g->is_complete && g->n_sums == (a.to ? 1 : 0);
    a.scale = g->is_scaled ? final_scale : 1.0f;
    return a;
}

/* Call this after the sum of a micro-step was added to the top of the stack. The top now has twice
 * as many micro-batches, unless it counts as a complete block already. Then fold it with the sums
 * below it that have the same size (fold_equals()). */
static void end_addition(const fsdp_grad_buffer *b, fsdp_param_grad *g)
{
    if (g->sum_leaves[g->n_sums - 1] < FSDP_SUM_BLOCK)
        g->sum_leaves[g->n_sums - 1] *= 2;
    fold_equals(b, g);
}

/* Compute the sum in *rows or, if *rows is NULL, in new memory. Push the sum, and set *rows to
 * NULL. */
static fsdp_status compute_and_push(fsdp_param *p, sum_run *r, int leaves, fsdp_tensor **rows)
{
    fsdp_tensor *own = *rows;
    if (!own)
        FSDP_TRY(fsdp_grad_sums_create(r->b, p, &own));
    r->to = own;
    const fsdp_status status = sum(r);
    if (status != FSDP_OK) {
        if (!*rows)
            fsdp_tensor_release(own);
        return status;
    }
    *rows = NULL;
    push_sum(&p->grad, own, leaves);
    return FSDP_OK;
}

static fsdp_status add_sum(const fsdp_grad_buffer *b, const fsdp_grad_source *source, fsdp_param *p,
                           float final_scale, fsdp_tensor **rows)
{
    sum_run r = run_of(b, source, p);
    const addition a = addition_of(&p->grad, r.parts * source->parts->leaves, final_scale);
    r.scale = a.scale;
    if (!a.to)
        return compute_and_push(p, &r, a.leaves, rows);
    r.adds = true;
    r.to = a.to;
    FSDP_TRY(sum(&r));
    end_addition(b, &p->grad);
    return FSDP_OK;
}

fsdp_status fsdp_grad_sums_add(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                               fsdp_param *p, bool last, float scale, fsdp_tensor **rows)
{
    p->grad.is_complete = last;
    const fsdp_status status = add_sum(b, source, p, scale, rows);
    if (status != FSDP_OK)
        p->grad.is_complete = p->grad.is_scaled = false;
    return status;
}

void fsdp_grad_sums_add_whole(const fsdp_grad_buffer *b, fsdp_param *p, bool last, float scale)
{
    fsdp_param_grad *g = &p->grad;
    fsdp_tensor *whole = g->whole;
    g->whole = NULL;
    g->is_complete = last;
    const addition a = addition_of(g, 1, scale);
    if (!a.to) {
        scale_sum(b, whole, a.scale);
        push_sum(g, whole, a.leaves);
        return;
    }
    fsdp_grad_fold(b, a.to, whole, a.scale);
    fsdp_tensor_release(whole);
    end_addition(b, g);
}

fsdp_tensor *fsdp_grad_sums_take(const fsdp_grad_buffer *b, fsdp_param *p, float scale)
{
    fsdp_param_grad *g = &p->grad;
    FSDP_ASSERT(g->n_sums > 0);
    while (g->n_sums > 1) {
        g->is_scaled = g->n_sums == 2;
        fold_top(b, g, g->is_scaled ? scale : 1.0f);
    }
    fsdp_tensor *total = g->sums[0];
    g->sums[--g->n_sums] = NULL;
    if (!g->is_scaled)
        scale_sum(b, total, scale);
    g->is_complete = g->is_scaled = false;
    return total;
}

void fsdp_grad_sums_free(fsdp_param *p)
{
    while (p->grad.n_sums)
        pop_sum(&p->grad);
    p->grad.is_complete = p->grad.is_scaled = false;
}
