/* See grad_reduce.h. */
#include "src/fsdp/grad_reduce.h"

#include "src/comm/cards/cards.h"
#include "src/comm/group.h"
#include "src/fsdp/grad_hosts.h"
#include "src/fsdp/grad_lanes.h"
#include "src/fsdp/grad_rows.h"
#include "src/trace/trace.h"

/* --- posted gradients --- */

static fsdp_grad_parts posted_parts(const fsdp_grad_buffer *b)
{
    return fsdp_grad_parts_of_buffer(b, b->posted.buffer, b->posted.numel, b->posted.peer_numel);
}

static fsdp_phase_info posted_phase(const fsdp_grad_buffer *b, fsdp_phase_kind kind)
{
    size_t numel = 0;
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.posted)
            numel += (size_t)fsdp_param_numel(&b->params[i]);
    return fsdp_grad_phase(b, kind, numel);
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
    b->posted = (fsdp_posted_gradients){0};
}

/* --- sums over the ranks --- */

/* Return the number of ranks that share the memory of a gradient buffer. */
static int memory_ranks(const fsdp_grad_buffer *b)
{
    return fsdp_group_memory_ranks(b->context->group, b->context->device);
}

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
    const fsdp_slice pieces = fsdp_grad_pieces(fsdp_param_numel(p), memory_ranks(b));
    const fsdp_grad_source source = {.parts = parts,
                                     .offset = p->grad.whole->offset,
                                     .peer_offset = p->grad.peer_offset,
                                     .slice = parts->is_split ? &p->slice : &pieces,
                                     .is_table = p->grad.posted_rows};
    return sum_source(b, &source, p, last);
}

/* Add up the elements of p that rank `reader` reads, over the ranks of this host. */
static fsdp_status add_up_rows_of(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                  const fsdp_param *p, int reader)
{
    const fsdp_parameter *parameter = p->parameter;
    const int dim = p->owner.shard.dim;
    int64_t begin, end;
    fsdp_shard_rows(parameter->shape[dim], fsdp_group_world_size(parts->group), reader, &begin,
                    &end);
    const fsdp_slice slice = fsdp_slice_of(parameter->ndim, parameter->shape, dim, begin, end);
    const fsdp_grad_source source = {
        .parts = parts, .offset = p->grad.whole->offset, .slice = &slice};
    return fsdp_grad_hosts_add_up(b, &source, reader);
}

/* Add up a piece of p, which all ranks read, over the ranks of this host. */
static fsdp_status add_up_piece(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                const fsdp_param *p)
{
    int64_t begin, end;
    fsdp_grad_piece(fsdp_param_numel(p), memory_ranks(b),
                    fsdp_group_memory_rank(parts->group, b->context->device), &begin, &end);
    const fsdp_slice slice = {.first = begin, .runs = 1, .length = end - begin};
    const fsdp_grad_source source = {
        .parts = parts, .offset = p->grad.whole->offset, .slice = &slice};
    return fsdp_grad_hosts_add_up(b, &source, FSDP_ALL_READERS);
}

/* Add up this rank's share of p over the ranks of this host. If each rank reads only its rows, the
 * share is the rows of all ranks that have the same local rank as this rank. If all ranks read all
 * rows, the share is one piece of p (fsdp_grad_piece()). */
static fsdp_status add_up_posted(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                 const fsdp_param *p)
{
    const int local = memory_ranks(b);
    if (!parts->is_split)
        return add_up_piece(b, parts, p);
    for (int r = fsdp_group_memory_rank(parts->group, b->context->device);
         r < fsdp_group_world_size(parts->group); r += local)
        FSDP_TRY(add_up_rows_of(b, parts, p, r));
    return FSDP_OK;
}

uint64_t fsdp_grad_reduce_sent_bytes(const fsdp_grad_buffer *b)
{
    const fsdp_grad_parts parts = fsdp_grad_parts_of_buffer(b, NULL, 0, 0);
    int64_t numel = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < b->n_params; i++) {
        const fsdp_param *p = &b->params[i];
        if (p->grad.touched && p->grad.table.most)
            bytes += fsdp_grad_rows_sent_bytes(&parts, p);
        else if (p->grad.touched)
            numel += fsdp_param_numel(p);
    }
    return bytes + fsdp_grad_hosts_bytes(b, &parts, numel);
}

fsdp_status fsdp_grad_reduce_send(fsdp_grad_buffer *b)
{
    if (!b->posted.exists || b->posted.is_added_up ||
        !fsdp_grad_terms_exist(b->context, b->context->group))
        return FSDP_OK;
    const fsdp_grad_parts parts = posted_parts(b);
    const fsdp_phase_info info = posted_phase(b, FSDP_KIND_GRADIENT);
    b->posted.is_added_up = true;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "sum of the host", b->context->name);
    fsdp_status status = fsdp_buffer_begin(b->posted.buffer, FSDP_PHASE_REWRITE, &info);
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++)
        if (b->params[i].grad.posted && !b->params[i].grad.posted_rows)
            status = add_up_posted(b, &parts, &b->params[i]);
    fsdp_buffer_end(b->posted.buffer);
    fsdp_trace_end();
    return status;
}

/* Sum this rank's rows of the posted gradients over the ranks that share the buffer. With replicas,
 * add the sums to `partial` of each parameter. Without replicas, this completes the sums of the
 * micro-step. */
static fsdp_status reduce_scatter(fsdp_grad_buffer *b, bool last)
{
    const fsdp_grad_parts parts = posted_parts(b);
    const fsdp_phase_info info = posted_phase(b, FSDP_KIND_REDUCE_SCATTER);
    FSDP_TRY(fsdp_grad_reduce_send(b));
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
    const fsdp_grad_parts one = {.leaves = 1};
    const fsdp_grad_source source = {.parts = &one, .slice = &p->slice, .is_table = true};
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

/* --- all stages --- */

/* Begin to sum `partial` of each parameter over the replicas. No effect without replicas. */
static fsdp_status begin_all_reduce(fsdp_grad_buffer *b, bool last)
{
    return !b->context->replicate_group || b->no_all_reduce ? FSDP_OK
                                                            : fsdp_grad_lanes_write(b, last);
}

static fsdp_status end_all_reduce(fsdp_grad_buffer *b)
{
    while (b->lanes.exists)
        FSDP_TRY(fsdp_grad_lanes_advance(b, scale_of(b)));
    return FSDP_OK;
}

fsdp_status fsdp_grad_reduce_finish(fsdp_grad_buffer *b)
{
    bool has_partial = false;
    for (size_t i = 0; i < b->n_params; i++)
        has_partial |= b->params[i].grad.partial != NULL;
    if (has_partial && fsdp_grad_buffer_syncs(b)) {
        FSDP_TRY(begin_all_reduce(b, true));
        FSDP_TRY(end_all_reduce(b));
    }
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

static fsdp_status reduce_posted(fsdp_grad_buffer *b)
{
    const bool is_last = b->posted.is_last;
    if (b->context->group)
        FSDP_TRY(reduce_scatter(b, is_last));
    else
        forget_posted(b);
    FSDP_TRY(begin_all_reduce(b, is_last));
    return fsdp_grad_lanes_are_staged(b->context) ? FSDP_OK : end_all_reduce(b);
}

/* Do the next stage of b. If sums over the replicas are in progress, advance these sums. Otherwise
 * reduce the posted gradients. */
static fsdp_status reduce_stage(fsdp_grad_buffer *b)
{
    FSDP_TRY(b->lanes.exists ? fsdp_grad_lanes_advance(b, scale_of(b)) : reduce_posted(b));
    return b->lanes.exists ? FSDP_OK : finish_complete(b);
}

bool fsdp_grad_is_in_flight(const fsdp_grad_buffer *b)
{
    return b->posted.exists || b->lanes.exists;
}

/* Do the next stage of the reduce. During the stage, error messages name this param group as the
 * location. If the stage succeeds, restore the previous location. */
static fsdp_status reduce_with_location(fsdp_grad_buffer *b)
{
    fsdp_group *group = fsdp_param_context_any_group(b->context);
    if (!group)
        return reduce_stage(b);
    const fsdp_comm_location before = fsdp_group_location(group);
    fsdp_param_context_set_location(b->context, "reduce_scatter");
    FSDP_TRY(reduce_stage(b));
    fsdp_group_at(group, before.step, before.unit, before.call);
    return FSDP_OK;
}

fsdp_status fsdp_grad_reduce_stage(fsdp_grad_buffer *b)
{
    if (!fsdp_grad_is_in_flight(b))
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "reduce_scatter", b->context->name);
    fsdp_status status = reduce_with_location(b);
    fsdp_trace_end();
    return status;
}

fsdp_status fsdp_grad_reduce(fsdp_grad_buffer *b)
{
    while (fsdp_grad_is_in_flight(b))
        FSDP_TRY(fsdp_grad_reduce_stage(b));
    return FSDP_OK;
}

void fsdp_grad_free_sums(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        fsdp_grad_sums_free(&b->params[i]);
}
