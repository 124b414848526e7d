/* See grad_reduce.h. */
#include "src/fsdp/grad_reduce.h"

#include "src/fsdp/grad_rows.h"
#include "src/fsdp/grad_sums.h"
#include "src/trace/trace.h"

fsdp_phase_info fsdp_grad_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind, size_t numel)
{
    const fsdp_dtype dtype = b->context->options.mp_policy.reduce_dtype;
    return fsdp_param_context_phase(b->context, kind, dtype, numel * fsdp_dtype_size(dtype));
}

/* --- posted gradients --- */

static fsdp_grad_parts posted_parts(const fsdp_grad_buffer *b)
{
    return (fsdp_grad_parts){b->posted.buffer, b->context->group, b->posted.numel};
}

static fsdp_phase_info posted_phase(const fsdp_grad_buffer *b)
{
    size_t numel = 0;
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.posted)
            numel += (size_t)fsdp_param_numel(&b->params[i]);
    return fsdp_grad_phase(b, FSDP_KIND_REDUCE_SCATTER, numel);
}

void fsdp_grad_drop_posted(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_param *p = &b->params[i];
        if (p->grad.posted_rows)
            fsdp_grad_rows_close(p);
        p->grad.posted = p->grad.posted_rows = false;
    }
    if (b->posted.buffer) {
        fsdp_buffer_end(b->posted.buffer);
        fsdp_pool_release(&b->context->comm->grads, b->posted.buffer);
    }
    b->posted.buffer = NULL;
    b->posted.exists = false;
}

/* --- sums over the ranks --- */

static float scale_of(const fsdp_grad_buffer *b)
{
    return (float)(1.0 / (b->divide_factor > 0.0
                              ? b->divide_factor
                              : (double)fsdp_param_context_world_size(b->context)));
}

/* Assign p's gradient, whose sums are complete. If the parameter already has a gradient, add the
 * sum to it. (As in PyTorch, gradients accumulate until the user zeroes them.) Otherwise the sum
 * becomes the gradient. */
static fsdp_status finish_gradient(const fsdp_grad_buffer *b, fsdp_param *p)
{
    fsdp_tensor *total = fsdp_grad_sums_take(b, p, scale_of(b));
    fsdp_status status = FSDP_OK;
    if (b->all_reduce_hook)
        status = b->all_reduce_hook(p->parameter, total, b->all_reduce_arg);
    fsdp_grad_sink *sink = &p->parameter->sink;
    if (status == FSDP_OK && !sink->grad) {
        sink->grad = total;
        return FSDP_OK;
    }
    if (status == FSDP_OK)
        fsdp_grad_fold(b, sink->grad, total, 1.0f);
    fsdp_tensor_release(total);
    return status;
}

/* Assign the gradients to which the last micro-step has been added. */
static fsdp_status finish_complete(const fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.is_complete)
            FSDP_TRY(finish_gradient(b, &b->params[i]));
    return FSDP_OK;
}

/* Add `rows`, which are summed over a mesh row, to `partial`. Takes ownership of `rows`. */
static void add_partial(const fsdp_grad_buffer *b, fsdp_param *p, fsdp_tensor *rows)
{
    if (!p->grad.partial) {
        p->grad.partial = rows;
        return;
    }
    fsdp_grad_fold(b, p->grad.partial, rows, 1.0f);
    fsdp_tensor_release(rows);
}

/* Sum the posted gradient of p over the ranks of a mesh row, and add the sum to `partial`. */
static fsdp_status sum_row_of_mesh(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                                   fsdp_param *p)
{
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_grad_sums_create(b, p, &rows));
    const fsdp_status status = fsdp_grad_sums_store(b, source, p, rows, 1.0f);
    if (status == FSDP_OK)
        add_partial(b, p, rows);
    else
        fsdp_tensor_release(rows);
    return status;
}

static fsdp_status sum_source(const fsdp_grad_buffer *b, const fsdp_grad_source *source,
                              fsdp_param *p, bool last)
{
    fsdp_tensor *rows = NULL;
    return b->context->replicate_group ? sum_row_of_mesh(b, source, p)
                                       : fsdp_grad_sums_add(b, source, p, last, scale_of(b), &rows);
}

static fsdp_status sum_posted(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                              fsdp_param *p, bool last)
{
    const fsdp_grad_source source = {.parts = parts,
                                     .offset = p->grad.whole->offset,
                                     .slice = &p->slice,
                                     .leaves = 1,
                                     .is_table = p->grad.posted_rows};
    return sum_source(b, &source, p, last);
}

/* Sum this rank's rows of the posted gradients over the ranks that share the buffer. With replicas,
 * add the sums to `partial` of each parameter. Otherwise the sums of the micro-step are then
 * complete. */
static fsdp_status reduce_scatter(fsdp_grad_buffer *b, bool last)
{
    const fsdp_grad_parts parts = posted_parts(b);
    const fsdp_phase_info info = posted_phase(b);
    FSDP_TRY(fsdp_buffer_begin(b->posted.buffer, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(b, &parts);
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++)
        if (b->params[i].grad.posted)
            status = sum_posted(b, &parts, &b->params[i], last);
    fsdp_grad_drop_posted(b);
    fsdp_param_context_report(b->context, FSDP_UNIT_REDUCE, b->context->group, info.bytes);
    return status;
}

/* --- groups of one rank --- */

fsdp_status fsdp_grad_round(const fsdp_grad_buffer *b, const fsdp_param *p)
{
    const fsdp_dtype dtype = b->context->options.mp_policy.reduce_dtype;
    const fsdp_kernels *k = b->context->device->kernels;
    fsdp_tensor *g = p->grad.table.most ? p->grad.table.rows : p->grad.whole, *rounded;
    if (dtype == FSDP_DTYPE_F32)
        return FSDP_OK;
    FSDP_TRY(fsdp_tensor_to(g, dtype, FSDP_TAG_COMM, &rounded));
    if (k)
        k->cast(b->context->device->context, fsdp_tensor_ptr(g), FSDP_DTYPE_F32,
                fsdp_tensor_ptr(rounded), dtype, fsdp_tensor_numel(g));
    fsdp_tensor_release(rounded);
    return FSDP_OK;
}

static fsdp_status sum_table(const fsdp_grad_buffer *b, fsdp_param *p, bool last)
{
    const fsdp_grad_parts one = {.group = NULL};
    const fsdp_grad_source source = {
        .parts = &one, .slice = &p->slice, .leaves = 1, .is_table = true};
    FSDP_TRY(sum_source(b, &source, p, last));
    fsdp_grad_rows_close(p);
    return FSDP_OK;
}

static void sum_whole(const fsdp_grad_buffer *b, fsdp_param *p, bool last)
{
    if (b->context->replicate_group) {
        add_partial(b, p, p->grad.whole);
        p->grad.whole = NULL;
    } else {
        fsdp_grad_sums_add_whole(b, p, last, scale_of(b));
    }
}

fsdp_status fsdp_grad_hand_over(const fsdp_grad_buffer *b, fsdp_param *p)
{
    const bool last = b->context->comm->last_micro_step;
    FSDP_TRY(fsdp_grad_round(b, p));
    if (p->grad.table.most)
        FSDP_TRY(sum_table(b, p, last));
    else
        sum_whole(b, p, last);
    p->grad.touched = false;
    return p->grad.is_complete ? finish_gradient(b, p) : FSDP_OK;
}

/* --- sums over the replicas --- */

static void write_lane(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    const int rank = fsdp_group_rank(lanes->group);
    char *own = fsdp_grad_parts_of_rank(b, lanes, rank);
    for (size_t i = 0; i < b->n_params && own; i++) {
        const fsdp_param *p = &b->params[i];
        b->flags[i] = p->grad.partial != NULL;
        if (p->grad.partial && fsdp_tensor_numel(p->grad.partial))
            b->context->device->kernels->copy(
                b->context->device->context, own + p->grad.lane_offset * sizeof(float),
                fsdp_tensor_ptr(p->grad.partial),
                (size_t)fsdp_tensor_numel(p->grad.partial) * sizeof(float));
    }
    fsdp_grad_parts_write_flags(b, lanes);
}

/* Sum p->grad.partial over the replicas. All ranks have copied it to their lanes, so the sum may
 * overwrite it. */
static fsdp_status sum_lanes(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, fsdp_param *p,
                             bool last)
{
    const fsdp_slice all = {.runs = 1, .length = fsdp_tensor_numel(p->grad.partial)};
    const fsdp_grad_source source = {.parts = lanes,
                                     .offset = (int64_t)p->grad.lane_offset,
                                     .slice = &all,
                                     .leaves = fsdp_group_world_size(b->context->group)};
    fsdp_tensor *rows = p->grad.partial;
    p->grad.partial = NULL;
    const fsdp_status status = fsdp_grad_sums_add(b, &source, p, last, scale_of(b), &rows);
    fsdp_tensor_release(rows);
    return status;
}

static fsdp_status exchange_lanes(fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, bool last)
{
    size_t numel = 0;
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.partial)
            numel += (size_t)fsdp_tensor_numel(b->params[i].grad.partial);
    fsdp_phase_info info = fsdp_grad_phase(b, FSDP_KIND_GRADIENT, numel);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_WRITE, &info));
    write_lane(b, lanes);
    fsdp_buffer_end(lanes->buffer);
    info.kind = FSDP_KIND_ALL_REDUCE;
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(b, lanes);
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++) {
        fsdp_param *p = &b->params[i];
        if (p->grad.partial)
            status = sum_lanes(b, lanes, p, last);
    }
    fsdp_buffer_end(lanes->buffer);
    fsdp_param_context_report(b->context, FSDP_UNIT_ALL_REDUCE, lanes->group, info.bytes);
    return status;
}

/* Assign places in a lane to this rank's rows of the parameters that train or that have a `partial`
 * sum. Each place has room for the largest shard of its parameter. So lanes have the same size on
 * all ranks, and all ranks use the same buffers of the pool. Return the number of elements of a
 * lane. */
static int64_t lay_out_lane(fsdp_grad_buffer *b)
{
    int64_t numel = 0;
    for (size_t i = 0; i < b->n_params; i++) {
        fsdp_param *p = &b->params[i];
        if (!fsdp_parameter_requires_grad(p->parameter) && !p->grad.partial)
            continue;
        p->grad.lane_offset = (size_t)numel;
        numel += fsdp_aligned_numel(fsdp_param_most_numel(p));
    }
    return numel;
}

/* Sum `partial` of each parameter over the replicas. No effect without replicas. */
static fsdp_status all_reduce(fsdp_grad_buffer *b, bool last)
{
    if (!b->context->replicate_group || b->no_all_reduce)
        return FSDP_OK;
    fsdp_grad_parts lanes = {NULL, b->context->replicate_group, lay_out_lane(b)};
    FSDP_TRY(fsdp_pool_acquire(&b->context->comm->lanes, fsdp_grad_parts_bytes(b, &lanes),
                               &lanes.buffer));
    fsdp_status status = exchange_lanes(b, &lanes, last);
    fsdp_pool_release(&b->context->comm->lanes, lanes.buffer);
    return status;
}

fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b)
{
    bool has_partial = false;
    for (size_t i = 0; i < b->n_params; i++)
        has_partial |= b->params[i].grad.partial != NULL;
    if (has_partial && fsdp_grad_buffer_syncs(b))
        FSDP_TRY(all_reduce(b, true));
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.n_sums)
            FSDP_TRY(finish_gradient(b, &b->params[i]));
    return FSDP_OK;
}

/* For a group of one rank: drop the posted gradients. They have been handed over already. */
static void forget_posted(fsdp_grad_buffer *b)
{
    fsdp_grad_drop_posted(b);
    fsdp_param_context_report(b->context, FSDP_UNIT_REDUCE, NULL, 0);
}

static fsdp_status reduce(fsdp_grad_buffer *b)
{
    const bool is_last = b->posted.is_last;
    if (b->context->group)
        FSDP_TRY(reduce_scatter(b, is_last));
    else
        forget_posted(b);
    FSDP_TRY(all_reduce(b, is_last));
    return finish_complete(b);
}

/* Reduce the posted gradients. During the reduce, error messages name this param group as the
 * location. If the reduce succeeds, restore the previous location. */
static fsdp_status reduce_with_location(fsdp_grad_buffer *b)
{
    fsdp_group *group = fsdp_param_context_any_group(b->context);
    if (!group)
        return reduce(b);
    const fsdp_comm_location before = fsdp_group_location(group);
    fsdp_param_context_set_location(b->context, "reduce_scatter");
    FSDP_TRY(reduce(b));
    fsdp_group_at(group, before.step, before.unit, before.call);
    return FSDP_OK;
}

fsdp_status fsdp_grad_reduce(fsdp_grad_buffer *b)
{
    if (!b->posted.exists)
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "reduce_scatter", b->context->name);
    fsdp_status status = reduce_with_location(b);
    fsdp_trace_end();
    return status;
}

void fsdp_grad_free_sums(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        fsdp_grad_sums_free(&b->params[i]);
}
