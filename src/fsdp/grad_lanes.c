/* See grad_lanes.h. */
#include "src/fsdp/grad_lanes.h"

#include "src/comm/cards/cards.h"
#include "src/comm/group.h"
#include "src/fsdp/grad_hosts.h"
#include "src/fsdp/grad_terms.h"

bool fsdp_grad_lanes_are_staged(const fsdp_param_context *c)
{
    return !fsdp_ranks_share_memory(c, c->replicate_group) ||
           fsdp_group_has_network(c->replicate_group);
}

/* Return the number of hosts that the replicas are on. For ranks on cards, return the number of
 * cards. */
static int count_memories(const fsdp_grad_buffer *b)
{
    const fsdp_param_context *c = b->context;
    return fsdp_group_world_size(c->replicate_group) /
           fsdp_group_memory_ranks(c->replicate_group, c->device);
}

static fsdp_grad_parts lanes_of(const fsdp_grad_buffer *b, fsdp_buffer *buffer, int64_t numel)
{
    fsdp_group *group = b->context->replicate_group;
    const bool is_split = count_memories(b) > 2;
    return (fsdp_grad_parts){.buffer = buffer,
                             .group = group,
                             .numel = numel,
                             .leaves = fsdp_group_world_size(b->context->group),
                             .is_split = is_split,
                             .has_results = is_split};
}

/* Return the number of pieces into which the rows of a parameter are divided. If each rank reads
 * only one piece, this is the number of ranks. If all ranks read all rows, this is the number of
 * ranks of a host, because each of them adds up one piece. */
static int n_pieces(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    return lanes->is_split ? fsdp_group_world_size(lanes->group)
                           : fsdp_group_memory_ranks(lanes->group, b->context->device);
}

/* Return the number of elements of this rank's rows of all parameters in the lanes. */
static int64_t lanes_numel(const fsdp_grad_buffer *b)
{
    int64_t numel = 0;
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.in_lanes)
            numel += fsdp_tensor_numel(b->params[i].local);
    return numel;
}

static fsdp_phase_info phase_of(const fsdp_grad_buffer *b, fsdp_phase_kind kind)
{
    return fsdp_grad_phase(b, kind, (size_t)lanes_numel(b));
}

/* --- writing --- */

/* Declare which ranks read p's elements in this rank's lane (fsdp_buffer_wrote()). */
static void name_lane(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, const fsdp_param *p)
{
    const int64_t numel = fsdp_tensor_numel(p->local), place = (int64_t)p->grad.lane_offset;
    if (!lanes->is_split) {
        fsdp_grad_parts_name(b, lanes, FSDP_ALL_READERS,
                             (fsdp_grad_elements){.first = place, .n = numel});
        return;
    }
    for (int r = 0; r < n_pieces(b, lanes); r++) {
        int64_t begin, end;
        fsdp_grad_piece(numel, n_pieces(b, lanes), r, &begin, &end);
        fsdp_grad_parts_name(b, lanes, r,
                             (fsdp_grad_elements){.first = place + begin, .n = end - begin});
    }
}

static void write_lane(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    char *own = fsdp_grad_parts_of_rank(b, lanes, fsdp_group_rank(lanes->group));
    for (size_t i = 0; i < b->n_params && own; i++) {
        const fsdp_param *p = &b->params[i];
        b->flags[i] = p->grad.in_lanes;
        if (p->grad.in_lanes && fsdp_tensor_numel(p->grad.partial))
            b->context->device->kernels->copy(
                b->context->device->context, own + p->grad.lane_offset * sizeof(float),
                fsdp_tensor_ptr(p->grad.partial),
                (size_t)fsdp_tensor_numel(p->grad.partial) * sizeof(float));
        if (p->grad.in_lanes && !fsdp_grad_terms_exist(b->context, lanes->group))
            name_lane(b, lanes, p);
    }
    fsdp_grad_parts_write_flags(b, lanes);
}

/* Add up piece `i` of p's rows over the lanes of this host, for the ranks that read the piece. */
static fsdp_status add_up_piece(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes,
                                const fsdp_param *p, int i)
{
    int64_t begin, end;
    fsdp_grad_piece(fsdp_tensor_numel(p->local), n_pieces(b, lanes), i, &begin, &end);
    const fsdp_slice piece = {.first = begin, .runs = 1, .length = end - begin};
    const fsdp_grad_source source = {
        .parts = lanes, .offset = (int64_t)p->grad.lane_offset, .slice = &piece};
    return fsdp_grad_hosts_add_up(b, &source, lanes->is_split ? i : FSDP_ALL_READERS);
}

/* Add up this rank's pieces of all parameters over the lanes of this host. If each rank reads only
 * one piece, this rank adds up the pieces of all ranks that have the same local rank as this rank.
 * If all ranks read all rows, this rank adds up one piece of each parameter. */
static fsdp_status add_up_lanes(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    const int local = fsdp_group_memory_ranks(lanes->group, b->context->device);
    for (size_t i = 0; i < b->n_params; i++)
        for (int k = fsdp_group_memory_rank(lanes->group, b->context->device);
             k < n_pieces(b, lanes) && b->params[i].grad.in_lanes; k += local)
            FSDP_TRY(add_up_piece(b, lanes, &b->params[i], k));
    return FSDP_OK;
}

static fsdp_status write_and_add_up(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    const fsdp_phase_info info = phase_of(b, FSDP_KIND_GRADIENT);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_WRITE, &info));
    write_lane(b, lanes);
    fsdp_buffer_end(lanes->buffer);
    if (!fsdp_grad_terms_exist(b->context, lanes->group))
        return FSDP_OK;
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_REWRITE, &info));
    const fsdp_status status = add_up_lanes(b, lanes);
    fsdp_buffer_end(lanes->buffer);
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
        p->grad.in_lanes = p->grad.partial != NULL;
        if (!fsdp_parameter_requires_grad(p->parameter) && !p->grad.partial)
            continue;
        p->grad.lane_offset = (size_t)numel;
        numel += fsdp_aligned_numel(fsdp_param_most_numel(p));
    }
    return numel;
}

fsdp_status fsdp_grad_lanes_write(fsdp_grad_buffer *b, bool last)
{
    fsdp_grad_parts lanes = lanes_of(b, NULL, lay_out_lane(b));
    FSDP_TRY(fsdp_pool_acquire(&b->context->comm->lanes, fsdp_grad_parts_bytes(b, &lanes),
                               &lanes.buffer));
    b->lanes = (fsdp_grad_lanes){
        .exists = true, .buffer = lanes.buffer, .numel = lanes.numel, .is_last = last};
    FSDP_TRY(write_and_add_up(b, &lanes));
    fsdp_param_context_report(b->context, FSDP_UNIT_POST_LANES, lanes.group,
                              fsdp_grad_hosts_bytes(b, &lanes, lanes_numel(b)));
    return FSDP_OK;
}

/* --- adding up all lanes --- */

/* Sum p->grad.partial, or this rank's piece of it, over the replicas. All ranks have copied
 * `partial` to their lanes, so the sum may overwrite `partial`. */
static fsdp_status sum_lanes(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, fsdp_param *p,
                             float scale)
{
    const int64_t numel = fsdp_tensor_numel(p->local);
    const fsdp_slice all = fsdp_grad_pieces(numel, n_pieces(b, lanes));
    fsdp_grad_source source = {.parts = lanes,
                               .offset = (int64_t)p->grad.lane_offset,
                               .slice = &all,
                               .is_piece = lanes->is_split,
                               .end = numel};
    if (lanes->is_split)
        fsdp_grad_piece(numel, n_pieces(b, lanes), fsdp_group_rank(lanes->group), &source.begin,
                        &source.end);
    fsdp_tensor *rows = p->grad.partial;
    p->grad.partial = NULL;
    const fsdp_status status = fsdp_grad_sums_add(b, &source, p, b->lanes.is_last, scale, &rows);
    fsdp_tensor_release(rows);
    return status;
}

static fsdp_status add_lanes(fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, float scale)
{
    const fsdp_phase_info info =
        phase_of(b, lanes->is_split ? FSDP_KIND_GRADIENT : FSDP_KIND_ALL_REDUCE);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_READ, &info));
    fsdp_status status = fsdp_grad_parts_compare_flags(b, lanes);
    for (size_t i = 0; i < b->n_params && status == FSDP_OK; i++)
        if (b->params[i].grad.in_lanes)
            status = sum_lanes(b, lanes, &b->params[i], scale);
    fsdp_buffer_end(lanes->buffer);
    return status;
}

/* --- exchanging the sums of pieces --- */

/* If `to_buffer` is true, copy piece `i` of p's newest sum to the buffer. Otherwise copy this piece
 * from the buffer to the sum. */
static void copy_piece(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes, const fsdp_param *p,
                       int i, bool to_buffer)
{
    const fsdp_device *device = b->context->device;
    char *results = fsdp_grad_parts_of_rank(b, lanes, fsdp_group_world_size(lanes->group));
    int64_t begin, end;
    fsdp_grad_piece(fsdp_tensor_numel(p->local), n_pieces(b, lanes), i, &begin, &end);
    if (!results || begin == end)
        return;
    const size_t bytes = (size_t)(end - begin) * sizeof(float);
    char *place = results + (p->grad.lane_offset + (size_t)begin) * sizeof(float);
    float *sum = (float *)fsdp_tensor_ptr(p->grad.sums[p->grad.n_sums - 1]) + begin;
    if (to_buffer)
        device->kernels->copy(device->context, place, sum, bytes);
    else
        device->kernels->copy(device->context, sum, place, bytes);
    if (to_buffer)
        fsdp_buffer_wrote(lanes->buffer, FSDP_ALL_READERS,
                          (size_t)(place - (char *)fsdp_buffer_data(lanes->buffer)), bytes);
}

static fsdp_status write_results(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    const fsdp_phase_info info = phase_of(b, FSDP_KIND_GRADIENT);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_REWRITE, &info));
    for (size_t i = 0; i < b->n_params; i++)
        if (b->params[i].grad.in_lanes)
            copy_piece(b, lanes, &b->params[i], fsdp_group_rank(lanes->group), true);
    fsdp_buffer_end(lanes->buffer);
    return FSDP_OK;
}

static fsdp_status read_results(const fsdp_grad_buffer *b, const fsdp_grad_parts *lanes)
{
    const fsdp_phase_info info = phase_of(b, FSDP_KIND_ALL_REDUCE);
    FSDP_TRY(fsdp_buffer_begin(lanes->buffer, FSDP_PHASE_READ, &info));
    for (size_t i = 0; i < b->n_params; i++)
        for (int r = 0; r < n_pieces(b, lanes) && b->params[i].grad.in_lanes; r++)
            if (r != fsdp_group_rank(lanes->group))
                copy_piece(b, lanes, &b->params[i], r, false);
    fsdp_buffer_end(lanes->buffer);
    return FSDP_OK;
}

/* --- the stages after the first --- */

void fsdp_grad_lanes_drop(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++)
        b->params[i].grad.in_lanes = false;
    if (b->lanes.exists) {
        fsdp_buffer_end(b->lanes.buffer);
        fsdp_pool_release(&b->context->comm->lanes, b->lanes.buffer);
    }
    b->lanes = (fsdp_grad_lanes){0};
}

static fsdp_status end_stages(fsdp_grad_buffer *b)
{
    const uint64_t bytes = phase_of(b, FSDP_KIND_ALL_REDUCE).bytes;
    fsdp_grad_lanes_drop(b);
    fsdp_param_context_report(b->context, FSDP_UNIT_ALL_REDUCE, b->context->replicate_group, bytes);
    return FSDP_OK;
}

fsdp_status fsdp_grad_lanes_advance(fsdp_grad_buffer *b, float scale)
{
    const fsdp_grad_parts lanes = lanes_of(b, b->lanes.buffer, b->lanes.numel);
    if (b->lanes.has_results) {
        FSDP_TRY(read_results(b, &lanes));
        return end_stages(b);
    }
    FSDP_TRY(add_lanes(b, &lanes, scale));
    if (!lanes.is_split)
        return end_stages(b);
    b->lanes.has_results = true;
    FSDP_TRY(write_results(b, &lanes));
    const uint64_t piece = (uint64_t)lanes_numel(b) * sizeof(float) / (uint64_t)n_pieces(b, &lanes);
    fsdp_param_context_report(b->context, FSDP_UNIT_SUM_LANES, lanes.group,
                              piece * (uint64_t)(count_memories(b) - 1));
    return FSDP_OK;
}
