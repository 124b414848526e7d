/* Sums over the rows of sharded tensors; see row_sums.h. */
#include <math.h>
#include <string.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/optim/row_sums.h"

enum {
    MAX_DEPTH = 64 /* depth of a tree with up to INT64_MAX rows */
};

/* --- segments --- */

/* Returns true if other ranks have rows of the item, too. */
static bool has_peers(const fsdp_row_sum *s)
{
    return fsdp_group_world_size(s->group) > 1;
}

/* Segments are defined in Note [Row sums] in row_sums.h. Returns the end of the largest segment
 * that begins at row `begin` and does not go beyond row `end`. */
static int64_t segment_end(const fsdp_row_sum *s, int64_t begin, int64_t end)
{
    int64_t size = begin & -begin; /* largest power of two that divides begin; 0 if begin is 0 */
    if (!has_peers(s))
        return end;
    if (!size)
        size = INT64_C(1) << 62;
    while (size > end - begin)
        size /= 2;
    return begin + size;
}

int64_t fsdp_row_segment_end(const fsdp_row_sum *s, int64_t begin)
{
    return segment_end(s, begin, s->end);
}

static int64_t count_segments(const fsdp_row_sum *s, int64_t begin, int64_t end)
{
    int64_t n = 0;
    for (; begin < end; begin = segment_end(s, begin, end))
        n++;
    return n;
}

static void rows_of_rank(const fsdp_row_sum *s, int rank, int64_t *begin, int64_t *end)
{
    fsdp_shard_rows(s->rows, fsdp_group_world_size(s->group), rank, begin, end);
    *begin *= s->inner;
    *end *= s->inner;
}

/* Returns the length of the array that each rank sends for the item `s`. In a gather, all ranks
 * send arrays of the same length, but some ranks may have more segments than others. So the length
 * is the one that the rank with the most segments needs. */
static int64_t numbers_sent(const fsdp_row_sum *s)
{
    int64_t most = 0;
    for (int r = 0; r < fsdp_group_world_size(s->group); r++) {
        int64_t begin, end;
        rows_of_rank(s, r, &begin, &end);
        int64_t n = count_segments(s, begin, end);
        most = n > most ? n : most;
    }
    return most * s->width;
}

static double join_two(fsdp_reduce_op op, double left, double right)
{
    if (op == FSDP_REDUCE_SUM)
        return left + right;
    return right > left || isnan(right) ? right : left; /* NaN if one of them is NaN */
}

/* --- memory of the sums --- */

/* Returns true if no item before item i has the same process group as item i. */
static bool begins_group(const fsdp_row_sums *sums, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (sums->items[k].group == sums->items[i].group)
            return false;
    return true;
}

static int64_t numbers_of_group(const fsdp_row_sums *sums, const fsdp_group *group)
{
    int64_t n = 0;
    for (size_t i = 0; i < sums->n; i++)
        if (sums->items[i].group == group)
            n += numbers_sent(&sums->items[i]);
    return n;
}

/* Sets the pointer `own` of each item. The numbers of all items with the same group are contiguous
 * in memory, because one gather sends them. */
static void assign_own(fsdp_row_sums *sums, double *own)
{
    for (size_t first = 0; first < sums->n; first++) {
        if (!begins_group(sums, first))
            continue;
        for (size_t i = first; i < sums->n; i++) {
            fsdp_row_sum *s = &sums->items[i];
            if (s->group != sums->items[first].group)
                continue;
            s->own = own;
            own += numbers_sent(s);
        }
    }
}

static void assign_totals(fsdp_row_sums *sums)
{
    double *total = sums->totals;
    for (size_t i = 0; i < sums->n; i++) {
        fsdp_row_sum *s = &sums->items[i];
        s->total = total;
        if (sums->is_local)
            s->own = total;
        total += s->width;
    }
}

/* Counts the numbers that this rank sends, and those that it receives in the largest gather. */
static void count_exchanged(const fsdp_row_sums *sums, int64_t *sent, int64_t *gathered)
{
    for (size_t i = 0; i < sums->n; i++) {
        const fsdp_row_sum *s = &sums->items[i];
        if (!begins_group(sums, i))
            continue;
        const int64_t of_group = numbers_of_group(sums, s->group);
        const int64_t all = s->group ? of_group * fsdp_group_world_size(s->group) : 0;
        *sent += of_group;
        *gathered = all > *gathered ? all : *gathered;
    }
}

/* Sets sums->is_local, and those fields of the items that are known before memory is allocated.
 * Returns the number of totals. */
static int64_t open_items(fsdp_row_sums *sums)
{
    int64_t totals = 0;
    sums->is_local = true;
    for (size_t i = 0; i < sums->n; i++) {
        fsdp_row_sum *s = &sums->items[i];
        rows_of_rank(s, fsdp_group_rank(s->group), &s->begin, &s->end);
        totals += s->width;
        sums->is_local &= !has_peers(s);
    }
    return totals;
}

/* Returns an upper bound of the number of fsdp_numbers that fsdp_row_sums_combine() needs: one for
 * each segment, and one more for each item. If the numbers of an item are combined in order, they
 * need one entry even if this rank has no segment of the item. */
static size_t count_runs(const fsdp_row_sums *sums)
{
    size_t n = sums->n;
    for (size_t i = 0; i < sums->n; i++)
        n += (size_t)count_segments(&sums->items[i], sums->items[i].begin, sums->items[i].end);
    return n;
}

fsdp_status fsdp_row_sums_open(fsdp_row_sums *sums, fsdp_row_sum *items, size_t n,
                               fsdp_reduce_op op, fsdp_device *device)
{
    int64_t sent = 0, gathered = 0;
    *sums = (fsdp_row_sums){.items = items, .n = n, .op = op};
    const int64_t totals = open_items(sums);
    if (!sums->is_local)
        count_exchanged(sums, &sent, &gathered);
    FSDP_TRY(fsdp_tensor_create(device, FSDP_DTYPE_F64, 1, (int64_t[]){sent + gathered + totals},
                                FSDP_TAG_COMM, &sums->memory));
    FSDP_TRY(fsdp_host_copy_create(&sums->copy, sums->memory));
    sums->runs = fsdp_calloc(count_runs(sums), sizeof *sums->runs);
    if (!sums->runs)
        return FSDP_ERR_NOMEM;
    double *memory = sums->copy.data;
    if (!memory)
        return FSDP_OK;
    sums->sent_bytes = (size_t)(sums->is_local ? totals : sent) * sizeof *memory;
    fsdp_device_memset(device, fsdp_tensor_ptr(sums->memory), 0, sums->sent_bytes);
    sums->gathered = memory + sent;
    sums->totals = sums->gathered + gathered;
    assign_own(sums, memory);
    assign_totals(sums);
    return FSDP_OK;
}

void fsdp_row_sums_close(fsdp_row_sums *sums)
{
    fsdp_free(sums->runs);
    fsdp_host_copy_destroy(&sums->copy);
    fsdp_tensor_release(sums->memory);
    *sums = (fsdp_row_sums){0};
}

/* --- adding up the rows --- */

/* Writes kernel arguments to runs[0], runs[1] and so on, one for each segment of the item. The
 * kernel combines the numbers of the rows of each segment. Returns the end of the entries that were
 * written. */
static fsdp_numbers *add_runs(const fsdp_row_sums *sums, const fsdp_row_values *v,
                              fsdp_numbers *runs)
{
    const fsdp_row_sum *s = &sums->items[v->item];
    double *own = fsdp_row_sums_on_device(sums, s->own + v->column);
    if (v->in_order) {
        *runs++ = (fsdp_numbers){v->rows, v->n, own, true};
        return runs;
    }
    for (int64_t b = s->begin, e; b < s->end; b = e, own += s->width) {
        e = fsdp_row_segment_end(s, b);
        *runs++ = (fsdp_numbers){v->rows + (b - s->begin), e - b, own, false};
    }
    return runs;
}

void fsdp_row_sums_combine(const fsdp_row_sums *sums, const fsdp_row_values *values, size_t n)
{
    const fsdp_device *device = sums->memory->storage->device;
    fsdp_numbers *end = sums->runs;
    for (size_t i = 0; i < n; i++)
        end = add_runs(sums, &values[i], end);
    if (end > sums->runs)
        device->kernels->combine(device->context, sums->runs, (size_t)(end - sums->runs),
                                 sums->op == FSDP_REDUCE_MAX);
}

static size_t position_of(const fsdp_row_sums *sums, const double *number)
{
    return (size_t)((const char *)number - (const char *)sums->copy.data);
}

/* Copies `n` totals to the device, if they are not there already. Returns their address on the
 * device. */
static const double *send(const fsdp_row_sums *sums, const double *totals, size_t n)
{
    if (!sums->is_local)
        fsdp_host_copy_write_part(&sums->copy, position_of(sums, totals), n * sizeof *totals);
    return fsdp_row_sums_on_device(sums, totals);
}

const double *fsdp_row_sums_send_total(const fsdp_row_sums *sums, size_t item)
{
    const fsdp_row_sum *s = &sums->items[item];
    return send(sums, s->total, (size_t)s->width);
}

const double *fsdp_row_sums_send_totals(const fsdp_row_sums *sums)
{
    size_t n = 0;
    for (size_t i = 0; i < sums->n; i++)
        n += (size_t)sums->items[i].width;
    return send(sums, sums->totals, n);
}

/* Combines the numbers of the segments of all ranks, in the order of rows, into the total of one
 * column, and returns it. Whenever the last two segments have the same size, they become one
 * segment of twice the size, like a carry in binary counting. parts[r * stride] is the number of
 * the first segment of rank r in this column. */
static double join_segments(const fsdp_row_sum *s, fsdp_reduce_op op, const double *parts,
                            int64_t stride)
{
    double sum[MAX_DEPTH];
    int64_t size[MAX_DEPTH];
    int depth = 0;
    for (int r = 0; r < fsdp_group_world_size(s->group); r++) {
        int64_t b, e, end;
        const double *part = parts + r * stride;
        rows_of_rank(s, r, &b, &end);
        for (; b < end; b = e, part += s->width) {
            e = segment_end(s, b, end);
            FSDP_DEBUG_ASSERT(depth < MAX_DEPTH);
            sum[depth] = *part;
            size[depth++] = e - b;
            for (; depth > 1 && size[depth - 2] == size[depth - 1]; depth--) {
                sum[depth - 2] = join_two(op, sum[depth - 2], sum[depth - 1]);
                size[depth - 2] *= 2;
            }
        }
    }
    for (; depth > 1; depth--)
        sum[depth - 2] = join_two(op, sum[depth - 2], sum[depth - 1]);
    return depth ? sum[0] : 0.0;
}

/* Computes the totals of the items of one group. `gathered` has `stride` numbers from each rank. */
static void join_group(const fsdp_row_sums *sums, const fsdp_group *group, const double *gathered,
                       int64_t stride)
{
    for (size_t i = 0; i < sums->n; i++) {
        const fsdp_row_sum *s = &sums->items[i];
        if (s->group != group)
            continue;
        for (int64_t column = 0; column < s->width; column++)
            s->total[column] = join_segments(s, sums->op, gathered + column, stride);
        gathered += numbers_sent(s);
    }
}

/* Do the gathers of fsdp_row_sums_gather() with zeros. The meta device has no numbers, but its
 * collectives are counted, so that a plan knows them. */
static fsdp_status gather_nothing(const fsdp_row_sums *sums)
{
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < sums->n && !sums->is_local && status == FSDP_OK; i++) {
        fsdp_group *group = sums->items[i].group;
        if (!group || !begins_group(sums, i))
            continue;
        const size_t own = (size_t)numbers_of_group(sums, group);
        double *zeros =
            fsdp_calloc(own * ((size_t)fsdp_group_world_size(group) + 1), sizeof *zeros);
        status = zeros ? fsdp_all_gather(group, zeros, own * sizeof *zeros, zeros + own)
                       : FSDP_ERR_NOMEM;
        fsdp_free(zeros);
    }
    return status;
}

fsdp_status fsdp_row_sums_gather(fsdp_row_sums *sums)
{
    if (!sums->copy.data)
        return gather_nothing(sums);
    FSDP_TRY(fsdp_host_copy_read_part(&sums->copy, 0, sums->sent_bytes));
    for (size_t i = 0; i < sums->n && !sums->is_local; i++) {
        const fsdp_row_sum *s = &sums->items[i];
        if (!begins_group(sums, i))
            continue;
        int64_t stride = numbers_of_group(sums, s->group);
        if (s->group)
            FSDP_TRY(
                fsdp_all_gather(s->group, s->own, (size_t)stride * sizeof *s->own, sums->gathered));
        join_group(sums, s->group, s->group ? sums->gathered : s->own, stride);
    }
    return FSDP_OK;
}
