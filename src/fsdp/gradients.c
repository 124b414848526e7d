/* A unit's gradients: from the slot that backward writes, over the ranks, to the shards.
 *
 * Note [Same bits at any world size]. Leaf m = a * W + r is the gradient of micro-step a on rank r.
 * Leaves are added in float32 as the aligned binary tree over m: across ranks by the reduce of each
 * micro-step, across micro-steps in a stack of partial sums, of which two of one level become one
 * of the next. The division comes last, once. 1 x 4, 2 x 2 and 4 x 1 (ranks x micro-steps) then
 * agree in every bit. With replicas (Note [Replicas]) rank r is column r mod S of row r / S of the
 * mesh: a row's ranks are added first, then the rows. Where S is a power of two, that is the same
 * tree. */
#include "src/base/assert.h"
#include "src/trace/trace.h"
#include "src/fsdp/grad_rows.h"
#include "src/fsdp/slot.h"

/* --- own rows over all ranks --- */

/* a = (a + b) * scale */
static void fold(const fsdp_param_group *u, fsdp_tensor *a, const fsdp_tensor *b, float scale)
{
    const void *src[2] = {fsdp_tensor_ptr(a), fsdp_tensor_ptr(b)};
    if (u->device->kernels && fsdp_tensor_numel(a))
        u->device->kernels->tree_sum(u->device->context, fsdp_tensor_ptr(a), src, 2, FSDP_DTYPE_F32,
                                     fsdp_tensor_numel(a), scale);
}

static void pop(fsdp_param *p)
{
    fsdp_tensor_release(p->tree[--p->n_tree]);
    p->tree[p->n_tree] = NULL;
}

/* Push one micro-step's sum; two of a level become one of the next. */
static void push(const fsdp_param_group *u, fsdp_param *p, fsdp_tensor *rows)
{
    FSDP_ASSERT(p->n_tree < FSDP_MAX_TREE);
    p->tree[p->n_tree] = rows;
    p->tree_level[p->n_tree++] = 0;
    while (p->n_tree > 1 && p->tree_level[p->n_tree - 1] == p->tree_level[p->n_tree - 2]) {
        fold(u, p->tree[p->n_tree - 2], p->tree[p->n_tree - 1], 1.0f);
        p->tree_level[p->n_tree - 2]++;
        pop(p);
    }
}

/* Fold what is left, smallest first, scale, and hand it to the parameter: it adds to a gradient
 * that nobody zeroed, as in PyTorch. */
static fsdp_status finish(const fsdp_param_group *u, fsdp_param *p, float scale)
{
    while (p->n_tree > 2) {
        fold(u, p->tree[p->n_tree - 2], p->tree[p->n_tree - 1], 1.0f);
        pop(p);
    }
    if (p->n_tree == 2) {
        fold(u, p->tree[0], p->tree[1], scale);
        pop(p);
    } else if (scale != 1.0f && u->device->kernels) {
        u->device->kernels->scale(u->device->context, fsdp_tensor_ptr(p->tree[0]),
                                  fsdp_tensor_ptr(p->tree[0]), scale, FSDP_DTYPE_F32,
                                  fsdp_tensor_numel(p->tree[0]));
    }
    if (u->all_reduce_hook)
        FSDP_TRY(u->all_reduce_hook(p->parameter, p->tree[0], u->all_reduce_arg));
    fsdp_grad_sink *sink = &p->parameter->sink;
    if (sink->grad) {
        fold(u, sink->grad, p->tree[0], 1.0f);
        pop(p);
    } else {
        sink->grad = p->tree[0];
        p->tree[--p->n_tree] = NULL;
    }
    return FSDP_OK;
}

static float scale_of(const fsdp_param_group *u)
{
    return (float)(1.0 / (u->divide_factor > 0.0 ? u->divide_factor
                                                 : (double)fsdp_param_group_world_size(u)));
}

/* The sum that is about to be complete is all of the step: the last addition may scale it. */
static float scale_if_only(const fsdp_param_group *u, const fsdp_param *p, bool last)
{
    return last && p->n_tree == 0 ? scale_of(u) : 1.0f;
}

static fsdp_status create_rows(const fsdp_param_group *u, const fsdp_param *p, fsdp_tensor **out)
{
    const fsdp_tensor *local = p->parameter->local;
    fsdp_tensor *rows;
    FSDP_TRY(fsdp_tensor_create(u->device, FSDP_DTYPE_F32, local->ndim, local->shape, FSDP_TAG_GRAD,
                                &rows));
    fsdp_status status = fsdp_param_group_place(u, p, rows);
    if (status == FSDP_OK)
        *out = rows;
    else
        fsdp_tensor_release(rows);
    return status;
}

static fsdp_status sum_slots(fsdp_param_group *u, const fsdp_grad_parts *slots, fsdp_param *p,
                             bool last)
{
    fsdp_tensor *rows;
    FSDP_TRY(create_rows(u, p, &rows));
    const float scale = u->replicate_group ? 1.0f : scale_if_only(u, p, last);
    if (p->published_rows) {
        fsdp_status status = fsdp_grad_rows_sum(u, slots, p, rows, scale);
        if (status != FSDP_OK) {
            fsdp_tensor_release(rows);
            return status;
        }
    } else {
        fsdp_grad_parts_sum(u, slots, p->grad_slot->offset, &p->slice, rows, scale);
    }
    if (p->partial) {
        fold(u, p->partial, rows, 1.0f);
        fsdp_tensor_release(rows);
    } else {
        p->partial = rows;
    }
    return FSDP_OK;
}

/* Over the ranks that share slots: what this micro-step touched is in `partial` afterwards, added
 * to what is there. */
static fsdp_status reduce_scatter(fsdp_param_group *u, bool last)
{
    const fsdp_grad_parts slots = fsdp_slot_published(u);
    fsdp_phase_info info = fsdp_slot_reduce_info(u);
    FSDP_TRY(fsdp_buffer_begin(u->published, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(u, &slots);
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++)
        if (u->params[i].published)
            status = sum_slots(u, &slots, &u->params[i], last);
    fsdp_buffer_end(u->published);
    fsdp_slot_was_reduced(u);
    fsdp_param_group_tell(u, FSDP_UNIT_REDUCE, u->group, info.bytes);
    return status;
}

/* --- own rows over replicas --- */

static void write_lane(const fsdp_param_group *u, const fsdp_grad_parts *lanes)
{
    const int rank = fsdp_group_rank(lanes->group);
    char *own = fsdp_grad_parts_of_rank(u, lanes, rank);
    unsigned char *flags = fsdp_grad_parts_flags(u, lanes, rank);
    for (size_t i = 0; i < u->n_params && own; i++) {
        const fsdp_param *p = &u->params[i];
        flags[i] = p->partial != NULL;
        if (p->partial && fsdp_tensor_numel(p->partial))
            u->device->kernels->copy(u->device->context, own + p->lane_offset * sizeof(float),
                                     fsdp_tensor_ptr(p->partial),
                                     (size_t)fsdp_tensor_numel(p->partial) * sizeof(float));
    }
}

static void sum_lanes(const fsdp_param_group *u, const fsdp_grad_parts *lanes, const fsdp_param *p,
                      float scale)
{
    const fsdp_slice all = {.runs = 1, .length = fsdp_tensor_numel(p->partial)};
    fsdp_grad_parts_sum(u, lanes, (int64_t)p->lane_offset, &all, p->partial, scale);
}

static fsdp_status exchange_lanes(fsdp_param_group *u, const fsdp_grad_parts *lanes, bool last)
{
    size_t numel = 0;
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].partial)
            numel += (size_t)fsdp_tensor_numel(u->params[i].partial);
    fsdp_phase_info info = fsdp_slot_info(u, FSDP_KIND_GRADIENT, numel);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_WRITE, &info));
    write_lane(u, lanes);
    fsdp_buffer_end(lanes->buffer);
    info.kind = FSDP_KIND_ALL_REDUCE;
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(u, lanes);
    for (size_t i = 0; i < u->n_params && status == FSDP_OK; i++) {
        const fsdp_param *p = &u->params[i];
        if (p->partial)
            sum_lanes(u, lanes, p, scale_if_only(u, p, last));
    }
    fsdp_buffer_end(lanes->buffer);
    fsdp_param_group_tell(u, FSDP_UNIT_ALL_REDUCE, lanes->group, info.bytes);
    return status;
}

/* Own rows of what trains, or did in an earlier micro-step; room for as many as any rank has, so
 * that all hold equal memory (Note [Idle memory] in buffer.h). */
static int64_t lay_out_lane(fsdp_param_group *u)
{
    int64_t numel = 0;
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_param *p = &u->params[i];
        if (!fsdp_parameter_requires_grad(p->parameter) && !p->partial)
            continue;
        p->lane_offset = (size_t)numel;
        numel += fsdp_param_group_aligned(fsdp_param_most_numel(u, p));
    }
    return numel;
}

/* Partial sums become those over all mesh rows. No effect without replicas. */
static fsdp_status all_reduce(fsdp_param_group *u, bool last)
{
    if (!u->replicate_group)
        return FSDP_OK;
    fsdp_grad_parts lanes = {NULL, u->replicate_group, lay_out_lane(u)};
    FSDP_TRY(fsdp_pool_take(&u->pools->lanes, fsdp_grad_parts_bytes(u, &lanes), &lanes.buffer));
    fsdp_status status = exchange_lanes(u, &lanes, last);
    fsdp_pool_give_back(&u->pools->lanes, lanes.buffer);
    return status;
}

/* The sum of a micro-step is complete: fold it with those of earlier ones. */
static fsdp_status hand_over(const fsdp_param_group *u, fsdp_param *p, bool last)
{
    const bool is_scaled = last && p->n_tree == 0;
    fsdp_tensor *rows = p->partial;
    p->partial = NULL;
    push(u, p, rows);
    return last ? finish(u, p, is_scaled ? 1.0f : scale_of(u)) : FSDP_OK;
}

static fsdp_status complete_sums(fsdp_param_group *u, bool last)
{
    if (u->replicate_group && u->no_all_reduce)
        return FSDP_OK;
    FSDP_TRY(all_reduce(u, last));
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].partial)
            FSDP_TRY(hand_over(u, &u->params[i], last));
    return FSDP_OK;
}

fsdp_status fsdp_param_group_finish(fsdp_param_group *u)
{
    bool has_partial = false;
    for (size_t i = 0; i < u->n_params; i++)
        has_partial |= u->params[i].partial != NULL;
    if (has_partial && fsdp_param_group_syncs(u))
        FSDP_TRY(complete_sums(u, true));
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].n_tree)
            FSDP_TRY(finish(u, &u->params[i], scale_of(u)));
    return FSDP_OK;
}

static fsdp_status reduce(fsdp_param_group *u)
{
    FSDP_TRY(reduce_scatter(u, u->published_is_last));
    return complete_sums(u, u->published_is_last);
}

/* What fails in it fails there, and what comes after it where the rank was before. */
static fsdp_status reduce_in_its_place(fsdp_param_group *u)
{
    fsdp_group *group = fsdp_param_group_any_group(u);
    if (!group)
        return reduce(u);
    const fsdp_comm_location before = fsdp_group_location(group);
    fsdp_param_group_at(u, "reduce_scatter");
    FSDP_TRY(reduce(u));
    fsdp_group_at(group, before.step, before.unit, before.call);
    return FSDP_OK;
}

fsdp_status fsdp_param_group_reduce(fsdp_param_group *u)
{
    if (!u->published)
        return FSDP_OK;
    fsdp_trace_begin(FSDP_TRACE_SHARDING, "reduce_scatter", u->name);
    fsdp_status status = reduce_in_its_place(u);
    fsdp_trace_end();
    return status;
}

bool fsdp_param_group_has_sums(const fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        if (u->params[i].n_tree || u->params[i].partial)
            return true;
    return u->slot || u->published;
}

static void free_sums(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        while (u->params[i].n_tree)
            pop(&u->params[i]);
}

void fsdp_param_group_drop_sums(fsdp_param_group *u)
{
    for (size_t i = 0; i < u->n_params; i++)
        u->params[i].parameter->sink.n_dropped += u->params[i].n_tree > 0;
    free_sums(u);
}

void fsdp_param_group_drop_gradients(fsdp_param_group *u)
{
    fsdp_grad_rows_forget(u);
    for (size_t i = 0; i < u->n_params; i++) {
        const fsdp_param *p = &u->params[i];
        p->parameter->sink.n_dropped += p->touched || p->published || p->partial || p->n_tree;
    }
    fsdp_param_group_free_gradients(u);
}

void fsdp_param_group_free_gradients(fsdp_param_group *u)
{
    free_sums(u);
    for (size_t i = 0; i < u->n_params; i++) {
        fsdp_tensor_release(u->params[i].partial);
        u->params[i].partial = NULL;
    }
    fsdp_slot_drop(u);
}
