/* See grad_rows.h. */
#include "src/fsdp/grad_rows.h"

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/cards/cards.h"
#include "src/comm/group.h"

enum {
    LEAST_ROWS = 64 /* the least capacity of a table, in rows */
};

static int64_t width_of(const fsdp_param *p)
{
    return p->parameter->shape[1];
}

/* Return the number of elements that p's list of touched ids occupies in the buffer. The list comes
 * before p's table. */
static int64_t list_numel(const fsdp_param *p)
{
    return fsdp_aligned_numel(1 + p->grad.table.most);
}

static size_t list_bytes(const fsdp_param *p)
{
    return (size_t)list_numel(p) * sizeof(int32_t);
}

int64_t fsdp_grad_rows_numel(const fsdp_param *p)
{
    return list_numel(p) + fsdp_aligned_numel((1 + p->grad.table.most) * width_of(p));
}

/* --- parameters with a table --- */

/* Return true if the gradient of p may be a table. One of the conditions is that p was read only by
 * lookups. The result is the same on all ranks. */
static bool may_have_table(const fsdp_param *p)
{
    const fsdp_grad_sink *sink = &p->parameter->sink;
    return sink->looked_up && !sink->read_whole && p->parameter->ndim == 2 &&
           p->owner.shard.dim == 0 && fsdp_parameter_requires_grad(p->parameter);
}

static int64_t length_for(const fsdp_param *p, int64_t rows)
{
    int64_t most = LEAST_ROWS;
    while (most < rows)
        most *= 2;
    return (1 + most) * (1 + width_of(p)) < fsdp_param_numel(p) / 2 ? most : 0;
}

static fsdp_status choose_lengths(fsdp_grad_buffer *b, int64_t *lookups)
{
    bool any = false;
    for (size_t i = 0; i < b->n_params; i++) {
        const fsdp_param *p = &b->params[i];
        lookups[i] = may_have_table(p) ? p->parameter->sink.lookups : -1;
        any |= lookups[i] >= 0;
    }
    if (!any)
        return FSDP_OK;
    /* Take the maximum over the replicas, too. All ranks must use buffers of the same sizes. */
    fsdp_group *const groups[] = {b->context->group, b->context->replicate_group};
    for (size_t i = 0; i < FSDP_LENGTH(groups); i++)
        if (groups[i])
            FSDP_TRY(
                fsdp_all_reduce(groups[i], lookups, b->n_params, FSDP_DTYPE_I64, FSDP_REDUCE_MAX));
    for (size_t i = 0; i < b->n_params; i++)
        if (lookups[i] >= 0) {
            fsdp_row_table *t = &b->params[i].grad.table;
            t->most = length_for(&b->params[i], lookups[i]);
            t->lookups = lookups[i];
        }
    return FSDP_OK;
}

static void reset_lookups(fsdp_grad_sink *sink)
{
    sink->looked_up = sink->read_whole = false;
    sink->lookups = 0;
}

fsdp_status fsdp_grad_rows_plan(fsdp_grad_buffer *b)
{
    int64_t *lookups = fsdp_calloc(b->n_params, sizeof *lookups);
    /* If this rank fails alone, peers would wait in the all-reduce. */
    fsdp_status status = lookups ? choose_lengths(b, lookups) : fsdp_error_nomem();
    fsdp_param_context_abort(b->context, status);
    if (!lookups)
        return status;
    fsdp_free(lookups);
    for (size_t i = 0; i < b->n_params; i++) {
        b->params[i].grad.table.is_over = false;
        reset_lookups(&b->params[i].parameter->sink);
    }
    return status;
}

void fsdp_grad_rows_end_backward(fsdp_grad_buffer *b)
{
    for (size_t i = 0; i < b->n_params; i++) {
        b->params[i].grad.table.is_over = true;
        reset_lookups(&b->params[i].parameter->sink);
    }
}

bool fsdp_grad_rows_have_room(const fsdp_param *p)
{
    return !p->grad.table.is_over && !p->parameter->sink.looked_up;
}

/* --- the table in the open buffer --- */

fsdp_status fsdp_grad_rows_open(const fsdp_grad_buffer *b, fsdp_param *p)
{
    fsdp_row_table *t = &p->grad.table;
    if (!t->most)
        return FSDP_OK;
    const int64_t shape[] = {1 + t->most, width_of(p)};
    FSDP_TRY(b->context->group ? fsdp_tensor_over(b->storage, FSDP_DTYPE_F32, 2, shape,
                                                  p->grad.whole->offset + list_numel(p), &t->rows)
                               : fsdp_tensor_create(b->context->device, FSDP_DTYPE_F32, 2, shape,
                                                    FSDP_TAG_GRAD, &t->rows));
    t->ids = fsdp_calloc((size_t)t->most, sizeof *t->ids);
    if (t->ids && !t->place)
        t->place = fsdp_calloc((size_t)p->parameter->shape[0], sizeof *t->place);
    if (!t->ids || !t->place)
        return FSDP_ERR_NOMEM;
    if (b->context->device->kernels)
        b->context->device->kernels->fill(b->context->device->context, fsdp_tensor_ptr(t->rows),
                                          FSDP_DTYPE_F32, 0.0, width_of(p));
    return FSDP_OK;
}

void fsdp_grad_rows_close(fsdp_param *p)
{
    fsdp_row_table *t = &p->grad.table;
    for (int64_t i = 0; i < t->n; i++)
        t->place[t->ids[i]] = 0;
    fsdp_tensor_release(t->rows);
    fsdp_free(t->ids);
    *t = (fsdp_row_table){.place = t->place};
}

void fsdp_grad_rows_fini(fsdp_param *p)
{
    fsdp_grad_rows_close(p);
    fsdp_free(p->grad.table.place);
    p->grad.table.place = NULL;
}

/* Return the row of the table for an id. If the id has no row yet, append one. */
static int32_t row_of(fsdp_row_table *t, int32_t id)
{
    if (!t->place[id]) {
        FSDP_ASSERT(t->n < t->most);
        t->ids[t->n++] = id;
        t->place[id] = (int32_t)t->n;
    }
    return t->place[id];
}

fsdp_status fsdp_grad_rows_reserve(const fsdp_grad_buffer *b, fsdp_param *p, const int32_t *ids,
                                   int64_t n, int32_t padding_idx, fsdp_grad_rows *out)
{
    fsdp_row_table *t = &p->grad.table;
    const int64_t before = t->n, width = width_of(p);
    int32_t *index = fsdp_calloc((size_t)n, sizeof *index);
    if (!index)
        return FSDP_ERR_NOMEM;
    for (int64_t i = 0; i < n; i++)
        index[i] = ids[i] == padding_idx ? 0 : row_of(t, ids[i]);
    if (b->context->device->kernels && t->n > before)
        b->context->device->kernels->fill(b->context->device->context,
                                          (float *)fsdp_tensor_ptr(t->rows) + (1 + before) * width,
                                          FSDP_DTYPE_F32, 0.0, (t->n - before) * width);
    *out = (fsdp_grad_rows){.table = t->rows, .index = index, .unused_row = 0};
    return FSDP_OK;
}

const float *fsdp_grad_rows_in_place(const fsdp_param *p, const float *place)
{
    return place + list_numel(p);
}

void fsdp_grad_rows_spread(const fsdp_grad_buffer *b, const fsdp_param *p, const float *table,
                           const fsdp_tensor *whole)
{
    const int64_t width = width_of(p);
    b->context->device->kernels->scatter_rows(
        b->context->device->context, fsdp_tensor_ptr(whole), p->parameter->shape[0], table + width,
        p->grad.table.ids, p->grad.table.n, (size_t)width * sizeof(float));
}

/* --- posting, and summing over the ranks --- */

static float *place_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                            const fsdp_param *p, int rank)
{
    return (float *)(void *)fsdp_grad_parts_of_rank(b, parts, rank) +
           (fsdp_grad_parts_are_rows(parts, rank) ? p->grad.peer_offset : p->grad.whole->offset);
}

static const float *table_of_rank(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                  const fsdp_param *p, int rank)
{
    return b->context->group ? fsdp_grad_rows_in_place(p, place_of_rank(b, parts, p, rank))
                             : fsdp_tensor_ptr(p->grad.table.rows);
}

/* Return the rank that owns row `row` of p and reads it in the tables of all ranks. */
static int owner_of_row(const fsdp_grad_parts *parts, const fsdp_param *p, int64_t row)
{
    int64_t begin, end;
    fsdp_shard_rows(p->parameter->shape[0], fsdp_group_world_size(parts->group), 0, &begin, &end);
    return (int)(row / (end > 1 ? end : 1));
}

/* Declare that `reader` reads n elements of p's place in this rank's part, from element `at` on. */
static void name_place(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, const fsdp_param *p,
                       int reader, int64_t at, int64_t n)
{
    fsdp_grad_parts_name(b, parts, reader,
                         (fsdp_grad_elements){.first = p->grad.whole->offset + at,
                                              .peer_first = p->grad.peer_offset + at,
                                              .n = n});
}

/* Declare which elements of this rank's list and table the peers read (fsdp_buffer_wrote()). Every
 * peer reads the list, row 0 of the table, and the rows that the peer owns. */
static void name_rows(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts, const fsdp_param *p)
{
    const fsdp_row_table *t = &p->grad.table;
    const int64_t table = list_numel(p), width = width_of(p);
    /* Every rank gets the whole table if it owns every row. Between cards, one transfer of the
     * whole table takes less time than a transfer for each row. */
    const bool is_whole = !b->context->shard_group || parts->peer_numel;
    name_place(b, parts, p, FSDP_ALL_READERS, 0, 1 + t->n);
    name_place(b, parts, p, FSDP_ALL_READERS, table, is_whole ? (1 + t->n) * width : width);
    for (int64_t i = 0; !is_whole && i < t->n; i++)
        name_place(b, parts, p, owner_of_row(parts, p, t->ids[i]), table + (1 + i) * width, width);
}

uint64_t fsdp_grad_rows_sent_bytes(const fsdp_grad_parts *parts, const fsdp_param *p)
{
    const uint64_t memories = (uint64_t)(fsdp_group_world_size(parts->group) /
                                         fsdp_group_memory_ranks(parts->group, p->context->device));
    const uint64_t rows = (uint64_t)p->grad.table.lookups, width = (uint64_t)width_of(p);
    const uint64_t list = (1 + rows) * sizeof(int32_t), table = rows * width * sizeof(float);
    return (memories - 1) * (list + width * sizeof(float) +
                             table / (parts->is_split && !parts->peer_numel ? memories : 1));
}

void fsdp_grad_rows_post(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                         const fsdp_param *p)
{
    const fsdp_row_table *t = &p->grad.table;
    const int32_t n = (int32_t)t->n;
    int32_t *list =
        (int32_t *)(void *)place_of_rank(b, parts, p, fsdp_group_rank(b->context->group));
    fsdp_device_from_host(b->context->device, list, &n, sizeof n);
    fsdp_device_from_host(b->context->device, list + 1, t->ids, (size_t)n * sizeof *t->ids);
    name_rows(b, parts, p);
}

/* Row i + 1 of rank r's table contains the gradient of id ids[i], for i < n. Record in own->place
 * where the table has the rows that this rank sums. Skip all other ids. */
static void find_own_of(const fsdp_grad_own_rows *own, const fsdp_row_table *t, int r,
                        const int32_t *ids, int64_t n)
{
    FSDP_ASSERT(n >= 0);
    FSDP_ASSERT(n <= t->most);
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = ids[i] - own->first;
        if (row >= 0 && row < own->n)
            own->place[r * own->n + row] = (int32_t)(i + 1);
    }
}

/* Set own->place for the tables of all ranks. The peers' lists of ids are in the shared buffer. If
 * the host cannot read this buffer, `copy` is memory for one list; otherwise `copy` is NULL. */
static fsdp_status find_own(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                            const fsdp_param *p, const fsdp_grad_own_rows *own, int32_t *copy)
{
    const fsdp_row_table *t = &p->grad.table;
    for (int r = 0; r < own->ranks; r++) {
        if (r == fsdp_group_rank(b->context->group)) {
            find_own_of(own, t, r, t->ids, t->n);
            continue;
        }
        const int32_t *list = (const int32_t *)(void *)place_of_rank(b, parts, p, r);
        if (copy)
            FSDP_TRY(fsdp_buffer_to_host(parts->buffer, copy, list, list_bytes(p)));
        find_own_of(own, t, r, (copy ? copy : list) + 1, copy ? *copy : *list);
    }
    return FSDP_OK;
}

static fsdp_status find_own_rows(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                 const fsdp_param *p, const fsdp_grad_own_rows *own)
{
    int32_t *copy = NULL;
    if (own->ranks > 1 && fsdp_device_has_own_memory(b->context->device)) {
        copy = fsdp_realloc(NULL, list_bytes(p), 1);
        if (!copy)
            return FSDP_ERR_NOMEM;
    }
    const fsdp_status status = find_own(b, parts, p, own, copy);
    fsdp_free(copy);
    return status;
}

fsdp_status fsdp_grad_rows_find_own(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                                    const fsdp_param *p, fsdp_grad_own_rows *out)
{
    const int64_t width = width_of(p);
    fsdp_grad_own_rows own = {.first = p->slice.first / width,
                              .n = fsdp_tensor_numel(p->local) / width,
                              .ranks = fsdp_group_world_size(parts->group)};
    const int most = own.ranks < FSDP_MAX_SUMMED_TABLES ? own.ranks : FSDP_MAX_SUMMED_TABLES;
    own.place = fsdp_calloc((size_t)(own.ranks * own.n), sizeof *own.place);
    own.sums = fsdp_calloc((size_t)((1 + most) * own.n), sizeof *own.sums);
    fsdp_status status = own.place && own.sums ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = find_own_rows(b, parts, p, &own);
    if (status == FSDP_OK)
        *out = own;
    else
        fsdp_grad_rows_drop_own(&own);
    return status;
}

void fsdp_grad_rows_drop_own(fsdp_grad_own_rows *own)
{
    fsdp_free(own->place);
    fsdp_free(own->sums);
    own->place = own->sums = NULL;
}

/* For each row of the range that is in the table of at least one part, write an entry to own->sums.
 * Return the number of entries. The sum of every other row in the range is zero. */
static int64_t list_sums(const fsdp_grad_own_rows *own, const fsdp_grad_range *range, int64_t begin,
                         int64_t rows)
{
    int32_t *sum = own->sums;
    for (int64_t row = 0; row < rows; row++) {
        int32_t any = 0;
        for (int r = 0; r < range->parts; r++)
            any |= sum[1 + r] = own->place[(range->first + r) * own->n + begin + row];
        sum[0] = (int32_t)row;
        sum += any ? 1 + range->parts : 0;
    }
    return (sum - own->sums) / (1 + range->parts);
}

void fsdp_grad_rows_sum(const fsdp_grad_buffer *b, const fsdp_grad_parts *parts,
                        const fsdp_param *p, const fsdp_grad_own_rows *own,
                        const fsdp_grad_range *range, float *to, float scale)
{
    const int64_t width = width_of(p), rows = range->n / width;
    const fsdp_device *device = b->context->device;
    fsdp_tree_sum_rows_args args = {.dst = to,
                                    .n_tables = range->parts,
                                    .rows = own->sums,
                                    .n = list_sums(own, range, range->begin / width, rows),
                                    .width = width,
                                    .scale = scale};
    FSDP_ASSERT(range->parts <= FSDP_MAX_SUMMED_TABLES);
    for (int r = 0; r < range->parts; r++)
        args.tables[r] = table_of_rank(b, parts, p, range->first + r);
    device->kernels->fill(device->context, to, FSDP_DTYPE_F32, 0.0, range->n);
    device->kernels->tree_sum_rows(device->context, &args);
}
