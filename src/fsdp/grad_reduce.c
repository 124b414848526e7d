/* See grad_reduce.h. */
#include "src/fsdp/grad_reduce.h"

#include "src/base/assert.h"
#include "src/fsdp/grad_rows.h"
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
}

/* --- sums over the ranks --- */

/* Set `to` to `(to + from) * scale`. */
static void fold(const fsdp_grad_buffer *b, fsdp_tensor *to, const fsdp_tensor *from, float scale)
{
    const void *src[2] = {fsdp_tensor_ptr(to), fsdp_tensor_ptr(from)};
    const fsdp_device *device = b->context->device;
    if (device->kernels && fsdp_tensor_numel(to))
        device->kernels->tree_sum(device->context, fsdp_tensor_ptr(to), src, 2, FSDP_DTYPE_F32,
                                  fsdp_tensor_numel(to), scale);
}

static void pop_sum(fsdp_param_grad *g)
{
    fsdp_tensor_release(g->tree[--g->n_tree]);
    g->tree[g->n_tree] = NULL;
}

/* Push the sum of one micro-step onto the stack. While the two sums on top have the same level,
 * fold them into one sum of the next level. */
static void push_sum(const fsdp_grad_buffer *b, fsdp_param_grad *g, fsdp_tensor *rows)
{
    FSDP_ASSERT(g->n_tree < FSDP_MAX_TREE);
    g->tree[g->n_tree] = rows;
    g->tree_level[g->n_tree++] = 0;
    while (g->n_tree > 1 && g->tree_level[g->n_tree - 1] == g->tree_level[g->n_tree - 2]) {
        fold(b, g->tree[g->n_tree - 2], g->tree[g->n_tree - 1], 1.0f);
        g->tree_level[g->n_tree - 2]++;
        pop_sum(g);
    }
}

/* Fold all sums on the stack, beginning at the top, and scale the result. If the parameter already
 * has a gradient, add the result to it. (As in PyTorch, gradients accumulate until the user zeroes
 * them.) Otherwise the result becomes the gradient. */
static fsdp_status finish_gradient(const fsdp_grad_buffer *b, fsdp_param *p, float scale)
{
    const fsdp_device *device = b->context->device;
    fsdp_param_grad *g = &p->grad;
    while (g->n_tree > 2) {
        fold(b, g->tree[g->n_tree - 2], g->tree[g->n_tree - 1], 1.0f);
        pop_sum(g);
    }
    if (g->n_tree == 2) {
        fold(b, g->tree[0], g->tree[1], scale);
        pop_sum(g);
    } else if (scale != 1.0f && device->kernels) {
        device->kernels->scale(device->context, fsdp_tensor_ptr(g->tree[0]),
                               fsdp_tensor_ptr(g->tree[0]), scale, FSDP_DTYPE_F32,
                               fsdp_tensor_numel(g->tree[0]));
    }
    if (b->all_reduce_hook)
        FSDP_TRY(b->all_reduce_hook(p->parameter, g->tree[0], b->all_reduce_arg));
    fsdp_grad_sink *sink = &p->parameter->sink;
    if (sink->grad) {
        fold(b, sink->grad, g->tree[0], 1.0f);
        pop_sum(g);
    } else {
        sink->grad = g->tree[0];
        g->tree[--g->n_tree] = NULL;
    }
    return FSDP_OK;
}

static float scale_of(const fsdp_grad_buffer *b)
{
    return (float)(1.0 / (b->divide_factor > 0.0
                              ? b->divide_factor
                              : (double)fsdp_param_context_world_size(b->context)));
}

/* Return the factor by which to multiply the sum of the current micro-step. If the step has only
 * this sum, return scale_of(). If the step has several sums, return 1: finish_gradient() later adds
 * these sums and multiplies the total by scale_of(). */
static float scale_if_only(const fsdp_grad_buffer *b, const fsdp_param *p, bool last)
{
    return last && p->grad.n_tree == 0 ? scale_of(b) : 1.0f;
}

static fsdp_status create_rows(const fsdp_grad_buffer *b, const fsdp_param *p, fsdp_tensor **out)
{
    const fsdp_tensor *local = p->local;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(b->context->device, FSDP_DTYPE_F32, local->ndim, local->shape,
                                FSDP_TAG_GRAD, &rows));
    fsdp_status status = fsdp_param_set_spec(p, rows);
    if (status == FSDP_OK)
        *out = rows;
    else
        fsdp_tensor_release(rows);
    return status;
}

static fsdp_status sum_parts(fsdp_grad_buffer *b, const fsdp_grad_parts *parts, fsdp_param *p,
                             bool last)
{
    fsdp_tensor *rows;
    FSDP_TRY(create_rows(b, p, &rows));
    const float scale = b->context->replicate_group ? 1.0f : scale_if_only(b, p, last);
    if (p->grad.posted_rows) {
        fsdp_status status = fsdp_grad_rows_sum(b, parts, p, rows, scale);
        if (status != FSDP_OK) {
            fsdp_tensor_release(rows);
            return status;
        }
    } else {
        fsdp_grad_parts_sum(b, parts, p->grad.whole->offset, &p->slice, rows, scale);
    }
    if (p->grad.partial) {
        fold(b, p->grad.partial, rows, 1.0f);
        fsdp_tensor_release(rows);
    } else {
        p->grad.partial = rows;
    }
    return FSDP_OK;
}

/* Sum this rank's rows of the posted gradients over the ranks that share the buffer, and add the
 * sums to `partial` of each parameter. */
static fsdp_status reduce_scatter(fsdp_grad_buffer *b, bool last)
{
    const fsdp_grad_parts parts = posted_parts(b);
    const fsdp_phase_info info = posted_phase(b);
    FSDP_TRY(fsdp_buffer_begin(b->posted.buffer, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(b, &parts);
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++)
        if (b->params[i].grad.posted)
            status = sum_parts(b, &parts, &b->params[i], last);
    fsdp_grad_drop_posted(b);
    fsdp_param_context_report(b->context, FSDP_UNIT_REDUCE, b->context->group, info.bytes);
    return status;
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

static void sum_lanes(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, const fsdp_param *p,
                      float scale)
{
    const fsdp_slice all = {.runs = 1, .length = fsdp_tensor_numel(p->grad.partial)};
    fsdp_grad_parts_sum(b, lanes, (int64_t)p->grad.lane_offset, &all, p->grad.partial, scale);
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
        const fsdp_param *p = &b->params[i];
        if (p->grad.partial)
            sum_lanes(b, lanes, p, scale_if_only(b, p, last));
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
    if (!b->context->replicate_group)
        return FSDP_OK;
    fsdp_grad_parts lanes = {NULL, b->context->replicate_group, lay_out_lane(b)};
    FSDP_TRY(fsdp_pool_acquire(&b->context->comm->lanes, fsdp_grad_parts_bytes(b, &lanes),
                               &lanes.buffer));
    fsdp_status status = exchange_lanes(b, &lanes, last);
    fsdp_pool_release(&b->context->comm->lanes, lanes.buffer);
    return status;
}

/* Fold `partial` of p, which is now summed over all ranks, with the sums of earlier micro-steps. At
 * the last micro-step, finish the gradient. */
static fsdp_status complete_sum(const fsdp_grad_buffer *b, fsdp_param *p, bool last)
{
    const bool is_scaled = last && p->grad.n_tree == 0;
    fsdp_tensor *rows = p->grad.partial;
    p->grad.partial = NULL;
    push_sum(b, &p->grad, rows);
    return last ? finish_gradient(b, p, is_scaled ? 1.0f : scale_of(b)) : FSDP_OK;
}

static fsdp_status complete_sums(fsdp_grad_buffer *b, bool last)
{
    if (b->context->replicate_group && b->no_all_reduce)
        return FSDP_OK;
    FSDP_TRY(all_reduce(b, last));
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.partial)
            FSDP_TRY(complete_sum(b, &b->params[i], last));
    return FSDP_OK;
}

fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b)
{
    bool has_partial = false;
    for (size_t i = 0; i < b->n_params; i++)
        has_partial |= b->params[i].grad.partial != NULL;
    if (has_partial && fsdp_grad_buffer_syncs(b))
        FSDP_TRY(complete_sums(b, true));
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.n_tree)
            FSDP_TRY(finish_gradient(b, &b->params[i], scale_of(b)));
    return FSDP_OK;
}

static fsdp_status reduce(fsdp_grad_buffer *b)
{
    FSDP_TRY(reduce_scatter(b, b->posted.is_last));
    return complete_sums(b, b->posted.is_last);
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
    if (!b->posted.buffer)
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "reduce_scatter", b->context->name);
    fsdp_status status = reduce_with_location(b);
    fsdp_trace_end();
    return status;
}

void fsdp_grad_free_sums(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        while (b->params[i].grad.n_tree)
            pop_sum(&b->params[i].grad);
}
