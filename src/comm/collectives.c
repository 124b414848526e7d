/* The collectives of <fsdp/comm.h>: barrier, broadcast, all-gather, all-reduce and reduce-scatter.
 * They use the group's scratch buffer: each rank fills its slot in a WRITE phase, and all ranks
 * read all slots in the READ phase that follows. Data that does not fit is sent in chunks. Values
 * are combined in a fixed order of the ranks, so every rank gets the same bits in every run.
 * Parameters and gradients have shared buffers of their own and do not use these functions. */
#include <assert.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/phase.h"

/* ---- chunks ---- */

/* Values of fsdp_phase_record.detail for two collectives, so that ranks find out if they call
 * different functions. In a reduction, this field contains the operation. In a broadcast, it
 * contains the root. In any other collective, it is 0. */
enum {
    GATHER_TO_RANK_0 = 1, /* fsdp_gather() */
    EXCHANGE_PIECES = 2   /* fsdp_exchange_pieces() */
};

/* A collective in progress. */
typedef struct collective {
    fsdp_group *group;
    fsdp_phase_record record;
} collective;

static fsdp_status begin_phase(collective *c, fsdp_phase phase)
{
    c->record.phase = (uint16_t)phase;
    return fsdp_phase_begin_record(&c->group->scratch, &c->record);
}

static void end_phase(collective *c)
{
    fsdp_phase_end(&c->group->scratch);
}

static collective start_collective(fsdp_group *group, fsdp_phase_kind kind, fsdp_dtype dtype,
                                   size_t bytes, uint32_t detail)
{
    group->counters.calls[kind]++;
    group->counters.logical_bytes[kind] += bytes;
    return (collective){.group = group,
                        .record = {.info = {.unit = ++group->next_collective,
                                            .kind = (uint16_t)kind,
                                            .dtype = (uint16_t)dtype,
                                            .bytes = bytes},
                                   .collective = 1,
                                   .detail = detail}};
}

static unsigned char *scratch_slot(const fsdp_group *group, int rank)
{
    return (unsigned char *)group->scratch.data + (size_t)rank * FSDP_SCRATCH_SLOT_BYTES;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Report that this rank has written the first `bytes` bytes of its slot, which all ranks read. */
static void wrote_slot(const collective *c, size_t bytes)
{
    fsdp_group *group = c->group;
    fsdp_phase_wrote(&group->scratch, FSDP_ALL_READERS,
                     (size_t)group->rank * FSDP_SCRATCH_SLOT_BYTES, bytes);
}

static void copy_counted(fsdp_group *group, void *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    group->counters.moved_bytes += bytes;
}

/* ---- barrier, broadcast, all_gather ---- */

/* Return the error for using `call` in the group of a plan. `call` needs values from other ranks,
 * and in a plan the other ranks do not exist. */
static fsdp_status error_without_peers(const char *call)
{
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "%s: the other ranks of a plan do not exist, so they have no values", call);
}

/* Do the all-gather of a plan: store this rank's data once for every rank. `send` may be inside
 * `out`. */
static void repeat_for_all_ranks(const void *send, size_t bytes, int times, unsigned char *out)
{
    if (!bytes)
        return;
    memmove(out, send, bytes);
    for (int r = 1; r < times; r++)
        memcpy(out + (size_t)r * bytes, out, bytes);
}

/* Return FSDP_ERR_INVALID if `group` is NULL, or if `count` elements of `size` bytes from each rank
 * do not fit into the address space. */
static fsdp_status check_group(const char *call, const fsdp_group *group, size_t count, size_t size)
{
    if (!group)
        return fsdp_error(FSDP_ERR_INVALID, "%s: group is NULL", call);
    if (count > PTRDIFF_MAX / size / (size_t)group->world_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: %zu elements of %zu bytes from %d ranks exceed memory", call, count,
                          size, group->world_size);
    return FSDP_OK;
}

fsdp_status fsdp_barrier(fsdp_group *group)
{
    FSDP_TRY(check_group("barrier", group, 0, 1));
    if (group->world_size == 1)
        return FSDP_OK;
    collective c = start_collective(group, FSDP_KIND_BARRIER, FSDP_DTYPE_U8, 0, 0);
    if (group->ops->without_peers)
        return FSDP_OK;
    FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
    end_phase(&c);
    FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
    end_phase(&c);
    return FSDP_OK;
}

fsdp_status fsdp_broadcast(fsdp_group *group, void *buf, size_t bytes, int root)
{
    FSDP_TRY(check_group("broadcast", group, bytes, 1));
    if (root < 0 || root >= group->world_size)
        return fsdp_error(FSDP_ERR_INVALID, "broadcast: root is %d, not a rank of %d", root,
                          group->world_size);
    if (!buf && bytes)
        return fsdp_error(FSDP_ERR_INVALID, "broadcast: buf is NULL");
    if (group->world_size == 1)
        return FSDP_OK;
    collective c =
        start_collective(group, FSDP_KIND_BROADCAST, FSDP_DTYPE_U8, bytes, (uint32_t)root);
    if (group->ops->without_peers)
        return group->rank == root ? FSDP_OK : error_without_peers("broadcast");
    size_t done = 0;
    /* Run at least one round, even for 0 bytes. If ranks have passed different sizes, they find
     * this out when they begin a phase. */
    do {
        size_t chunk = smaller(bytes - done, group->scratch.bytes);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
        if (group->rank == root)
            copy_counted(group, group->scratch.data, (const unsigned char *)buf + done, chunk);
        if (group->rank == root)
            fsdp_phase_wrote(&group->scratch, FSDP_ALL_READERS, 0, chunk);
        end_phase(&c);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
        if (group->rank != root)
            copy_counted(group, (unsigned char *)buf + done, group->scratch.data, chunk);
        end_phase(&c);
        done += chunk;
    } while (done < bytes);
    return FSDP_OK;
}

fsdp_status fsdp_all_gather(fsdp_group *group, const void *send, size_t bytes, void *recv)
{
    unsigned char *out = recv;
    FSDP_TRY(check_group("all_gather", group, bytes, 1));
    if ((!send || !recv) && bytes)
        return fsdp_error(FSDP_ERR_INVALID, "all_gather: send or recv is NULL");
    if (group->world_size == 1) {
        if (bytes && send != recv)
            memmove(recv, send, bytes);
        return FSDP_OK;
    }
    collective c = start_collective(group, FSDP_KIND_ALL_GATHER, FSDP_DTYPE_U8,
                                    bytes * (size_t)group->world_size, 0);
    if (group->ops->without_peers) {
        repeat_for_all_ranks(send, bytes, group->world_size, out);
        return FSDP_OK;
    }
    size_t done = 0;
    do {
        size_t chunk = smaller(bytes - done, FSDP_SCRATCH_SLOT_BYTES);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
        copy_counted(group, scratch_slot(group, group->rank), (const unsigned char *)send + done,
                     chunk);
        wrote_slot(&c, chunk);
        end_phase(&c);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
        for (int r = 0; r < group->world_size; r++)
            copy_counted(group, out + (size_t)r * bytes + done, scratch_slot(group, r), chunk);
        end_phase(&c);
        done += chunk;
    } while (done < bytes);
    return FSDP_OK;
}

fsdp_status fsdp_gather(fsdp_group *group, const void *send, size_t bytes, void *recv)
{
    unsigned char *out = recv;
    if (!group || group->world_size == 1) {
        if (bytes && send != recv)
            memmove(recv, send, bytes);
        return FSDP_OK;
    }
    FSDP_TRY(check_group("gather", group, bytes, 1));
    collective c = start_collective(group, FSDP_KIND_ALL_GATHER, FSDP_DTYPE_U8,
                                    bytes * (size_t)group->world_size, GATHER_TO_RANK_0);
    if (group->ops->without_peers) {
        if (group->rank == 0)
            repeat_for_all_ranks(send, bytes, group->world_size, out);
        return FSDP_OK;
    }
    size_t done = 0;
    do {
        size_t chunk = smaller(bytes - done, FSDP_SCRATCH_SLOT_BYTES);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
        copy_counted(group, scratch_slot(group, group->rank), (const unsigned char *)send + done,
                     chunk);
        fsdp_phase_wrote(&group->scratch, 0, (size_t)group->rank * FSDP_SCRATCH_SLOT_BYTES, chunk);
        end_phase(&c);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
        for (int r = 0; group->rank == 0 && r < group->world_size; r++)
            copy_counted(group, out + (size_t)r * bytes + done, scratch_slot(group, r), chunk);
        end_phase(&c);
        done += chunk;
    } while (done < bytes);
    return FSDP_OK;
}

static_assert((int)FSDP_PIECE_BYTES <= (int)FSDP_SCRATCH_SLOT_BYTES, "a piece fits into a slot");

/* The sender of a piece writes it to the reader's slot. No other rank writes to that slot, because
 * a rank gets at most one piece. */
fsdp_status fsdp_exchange_pieces(fsdp_group *group, const fsdp_piece *pieces, size_t n, void *recv,
                                 size_t recv_bytes)
{
    FSDP_TRY(check_group("exchange_pieces", group, FSDP_PIECE_BYTES, 1));
    FSDP_ASSERT(recv_bytes <= FSDP_PIECE_BYTES);
    if (group->world_size == 1) {
        FSDP_ASSERT(n <= 1);
        if (n && pieces[0].bytes)
            memmove(recv, pieces[0].data, pieces[0].bytes);
        return FSDP_OK;
    }
    if (group->ops->without_peers)
        return error_without_peers("exchange_pieces");
    collective c = start_collective(group, FSDP_KIND_STATE_DICT, FSDP_DTYPE_U8, 0, EXCHANGE_PIECES);
    FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
    for (size_t i = 0; i < n; i++) {
        FSDP_ASSERT(pieces[i].bytes <= FSDP_PIECE_BYTES);
        copy_counted(group, scratch_slot(group, pieces[i].reader), pieces[i].data, pieces[i].bytes);
        fsdp_phase_wrote(&group->scratch, pieces[i].reader,
                         (size_t)pieces[i].reader * FSDP_SCRATCH_SLOT_BYTES, pieces[i].bytes);
    }
    end_phase(&c);
    FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
    copy_counted(group, recv, scratch_slot(group, group->rank), recv_bytes);
    end_phase(&c);
    return FSDP_OK;
}

/* ---- reductions ---- */

/* If any value is NaN, the result is NaN, even the result of MAX and MIN. So a maximum does not
 * hide a loss or norm that is NaN. */
#define DEFINE_COMBINE(type, name)                                                                 \
    static void combine_##name(type *restrict into, const type *restrict from, size_t count,       \
                               fsdp_reduce_op op)                                                  \
    {                                                                                              \
        switch (op) {                                                                              \
        case FSDP_REDUCE_SUM:                                                                      \
        case FSDP_REDUCE_AVG:                                                                      \
            for (size_t i = 0; i < count; i++)                                                     \
                into[i] = (type)(into[i] + from[i]);                                               \
            break;                                                                                 \
        case FSDP_REDUCE_MAX:                                                                      \
            for (size_t i = 0; i < count; i++)                                                     \
                if (from[i] > into[i] || from[i] != from[i])                                       \
                    into[i] = from[i];                                                             \
            break;                                                                                 \
        case FSDP_REDUCE_MIN:                                                                      \
            for (size_t i = 0; i < count; i++)                                                     \
                if (from[i] < into[i] || from[i] != from[i])                                       \
                    into[i] = from[i];                                                             \
            break;                                                                                 \
        }                                                                                          \
    }
DEFINE_COMBINE(float, f32)
DEFINE_COMBINE(double, f64)
/* The two functions defined here are used only for the minimum and the maximum of integers, not for
 * sums. Sums of integers must wrap around, as in torch, but signed overflow is undefined in C. So
 * combine_i64() and combine_i32() add integers as unsigned numbers. */
DEFINE_COMBINE(int64_t, i64_compared)
DEFINE_COMBINE(int32_t, i32_compared)
#undef DEFINE_COMBINE

static void combine_i64(int64_t *into, const int64_t *from, size_t count, fsdp_reduce_op op)
{
    if (op != FSDP_REDUCE_SUM) {
        combine_i64_compared(into, from, count, op);
        return;
    }
    for (size_t i = 0; i < count; i++)
        into[i] = (int64_t)((uint64_t)into[i] + (uint64_t)from[i]);
}

static void combine_i32(int32_t *into, const int32_t *from, size_t count, fsdp_reduce_op op)
{
    if (op != FSDP_REDUCE_SUM) {
        combine_i32_compared(into, from, count, op);
        return;
    }
    for (size_t i = 0; i < count; i++)
        into[i] = (int32_t)((uint32_t)into[i] + (uint32_t)from[i]);
}

static void combine(void *into, const void *from, size_t count, fsdp_dtype dtype, fsdp_reduce_op op)
{
    if (dtype == FSDP_DTYPE_F32)
        combine_f32(into, from, count, op);
    else if (dtype == FSDP_DTYPE_F64)
        combine_f64(into, from, count, op);
    else if (dtype == FSDP_DTYPE_I64)
        combine_i64(into, from, count, op);
    else
        combine_i32(into, from, count, op);
}

static void divide_by_world_size(void *buf, size_t count, fsdp_dtype dtype, int world_size)
{
    for (size_t i = 0; i < count; i++)
        if (dtype == FSDP_DTYPE_F32)
            ((float *)buf)[i] /= (float)world_size;
        else
            ((double *)buf)[i] /= (double)world_size;
}

static fsdp_status check_reduction(const char *call, fsdp_dtype dtype, fsdp_reduce_op op)
{
    if ((unsigned)op > FSDP_REDUCE_MIN)
        return fsdp_error(FSDP_ERR_INVALID, "%s: unknown operation %d", call, (int)op);
    if (dtype != FSDP_DTYPE_F32 && dtype != FSDP_DTYPE_F64 && dtype != FSDP_DTYPE_I64 &&
        dtype != FSDP_DTYPE_I32)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: dtype is %s; float32, float64, int64 and int32 are reduced", call,
                          (unsigned)dtype < FSDP_DTYPE_COUNT ? fsdp_dtype_name(dtype) : "unknown");
    if (op == FSDP_REDUCE_AVG && !fsdp_dtype_is_floating(dtype))
        return fsdp_error(FSDP_ERR_INVALID, "%s: the average of %s is not an integer; sum instead",
                          call, fsdp_dtype_name(dtype));
    return FSDP_OK;
}

fsdp_status fsdp_all_reduce(fsdp_group *group, void *buf, size_t count, fsdp_dtype dtype,
                            fsdp_reduce_op op)
{
    FSDP_TRY(check_reduction("all_reduce", dtype, op));
    FSDP_TRY(check_group("all_reduce", group, count, fsdp_dtype_size(dtype)));
    if (!buf && count)
        return fsdp_error(FSDP_ERR_INVALID, "all_reduce: buf is NULL");
    if (group->world_size == 1)
        return FSDP_OK;
    size_t size = fsdp_dtype_size(dtype), done = 0;
    collective c = start_collective(group, FSDP_KIND_ALL_REDUCE, dtype, count * size, (uint32_t)op);
    if (group->ops->without_peers)
        return FSDP_OK;
    do {
        size_t chunk = smaller(count - done, FSDP_SCRATCH_SLOT_BYTES / size);
        unsigned char *part = (unsigned char *)buf + done * size;
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
        copy_counted(group, scratch_slot(group, group->rank), part, chunk * size);
        wrote_slot(&c, chunk * size);
        end_phase(&c);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
        copy_counted(group, part, scratch_slot(group, 0), chunk * size);
        for (int r = 1; r < group->world_size; r++)
            combine(part, scratch_slot(group, r), chunk, dtype, op);
        group->counters.moved_bytes += (size_t)(group->world_size - 1) * chunk * size;
        end_phase(&c);
        if (op == FSDP_REDUCE_AVG)
            divide_by_world_size(part, chunk, dtype, group->world_size);
        done += chunk;
    } while (done < count);
    return FSDP_OK;
}

enum {
    TREE_BLOCK = 256
};

/* Reduce `count` elements over the ranks `[first, last)`, pairwise in a binary tree: 6 ranks are
 * added as ((0+1)+(2+3))+(4+5). The elements begin at byte `offset` of each rank's slot. The number
 * of ranks in the left subtree is the largest power of two that is less than `last - first`. */
static void reduce_tree(const fsdp_group *group, size_t offset, int first, int last, size_t count,
                        fsdp_reduce_op op, float *out)
{
    if (last - first == 1) {
        memcpy(out, scratch_slot(group, first) + offset, count * sizeof *out);
        return;
    }
    float right[TREE_BLOCK];
    int left = 1;
    while (2 * left < last - first)
        left *= 2;
    reduce_tree(group, offset, first, first + left, count, op, out);
    reduce_tree(group, offset, first + left, last, count, op, right);
    combine_f32(out, right, count, op);
}

static void reduce_slice(fsdp_group *group, size_t chunk, fsdp_reduce_op op, float *recv)
{
    for (size_t at = 0; at < chunk; at += TREE_BLOCK) {
        size_t count = smaller(chunk - at, TREE_BLOCK);
        size_t offset = ((size_t)group->rank * chunk + at) * sizeof *recv;
        reduce_tree(group, offset, 0, group->world_size, count, op, recv + at);
    }
    if (op == FSDP_REDUCE_AVG)
        divide_by_world_size(recv, chunk, FSDP_DTYPE_F32, group->world_size);
    group->counters.moved_bytes += (size_t)group->world_size * chunk * sizeof *recv;
}

fsdp_status fsdp_reduce_scatter(fsdp_group *group, const float *send, float *recv, size_t count,
                                fsdp_reduce_op op)
{
    FSDP_TRY(check_reduction("reduce_scatter", FSDP_DTYPE_F32, op));
    FSDP_TRY(check_group("reduce_scatter", group, count, sizeof *send));
    size_t ranks = (size_t)group->world_size, done = 0;
    if ((!send || !recv) && count)
        return fsdp_error(FSDP_ERR_INVALID, "reduce_scatter: send or recv is NULL");
    if (group->world_size == 1) {
        if (count && send != recv)
            memmove(recv, send, count * sizeof *recv);
        return FSDP_OK;
    }
    if (group->ops->without_peers)
        return error_without_peers("reduce_scatter");
    collective c = start_collective(group, FSDP_KIND_REDUCE_SCATTER, FSDP_DTYPE_F32,
                                    ranks * count * sizeof *send, (uint32_t)op);
    do {
        /* In each round, every rank computes `chunk` elements of its result. So each rank's slot
         * contains `ranks` chunks of `send`: one chunk for the result of each rank. */
        size_t chunk = smaller(count - done, FSDP_SCRATCH_SLOT_BYTES / sizeof *send / ranks);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_WRITE));
        for (size_t r = 0; r < ranks; r++) {
            const size_t bytes = chunk * sizeof *send;
            copy_counted(group, scratch_slot(group, group->rank) + r * bytes,
                         send + r * count + done, bytes);
            fsdp_phase_wrote(&group->scratch, (int)r,
                             (size_t)group->rank * FSDP_SCRATCH_SLOT_BYTES + r * bytes, bytes);
        }
        end_phase(&c);
        FSDP_TRY(begin_phase(&c, FSDP_PHASE_READ));
        reduce_slice(group, chunk, op, recv + done);
        end_phase(&c);
        done += chunk;
    } while (done < count);
    return FSDP_OK;
}
