/* The conformance suite of process groups. Expected values are in closed form. */
#include "tests/comm/conformance.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/comm.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return fsdp_error(FSDP_ERR_STATE, "%s:%d: rank %d: %s does not hold", __FILE__,        \
                              __LINE__, fsdp_group_rank(group), #condition);                       \
    } while (0)

enum {
    MANY = 200001 /* odd and more than one chunk of the scratch buffer */
};

static fsdp_status check_identity(fsdp_group *group)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    CHECK(rank >= 0 && rank < world_size);
    const int local_world_size = fsdp_group_local_world_size(group);
    CHECK(world_size % local_world_size == 0);
    CHECK(fsdp_group_local_rank(group) == rank % local_world_size);
    CHECK((local_world_size < world_size) == (strcmp(fsdp_group_backend(group), "mpi") == 0));
    CHECK(world_size > 1 || strcmp(fsdp_group_backend(group), "local") == 0);
    int32_t one = 1;
    FSDP_TRY(fsdp_all_reduce(group, &one, 1, FSDP_DTYPE_I32, FSDP_REDUCE_SUM));
    CHECK(one == world_size);
    return FSDP_OK;
}

/* Rank r contributes r + i at element i: the sum is W * i + W (W - 1) / 2. */
static fsdp_status check_all_reduce(fsdp_group *group, size_t count)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    double *f64 = fsdp_calloc(count, sizeof *f64);
    float *f32 = fsdp_calloc(count, sizeof *f32);
    int64_t *i64 = fsdp_calloc(count, sizeof *i64);
    int32_t *i32 = fsdp_calloc(count, sizeof *i32);
    CHECK(f64 && f32 && i64 && i32);
    for (size_t i = 0; i < count; i++) {
        f64[i] = (double)rank + (double)i;
        f32[i] = (float)(rank + (int)(i % 1000));
        i64[i] = rank + (int64_t)i;
        i32[i] = (rank + (int32_t)i) * (rank % 2 ? -1 : 1);
    }
    FSDP_TRY(fsdp_all_reduce(group, f64, count, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    FSDP_TRY(fsdp_all_reduce(group, f32, count, FSDP_DTYPE_F32, FSDP_REDUCE_AVG));
    FSDP_TRY(fsdp_all_reduce(group, i64, count, FSDP_DTYPE_I64, FSDP_REDUCE_MAX));
    FSDP_TRY(fsdp_all_reduce(group, i32, count, FSDP_DTYPE_I32, FSDP_REDUCE_MIN));
    double shift = (double)world_size * (world_size - 1) / 2;
    int last_odd = world_size % 2 ? world_size - 2 : world_size - 1;
    for (size_t i = 0; i < count; i++) {
        CHECK(f64[i] == (double)world_size * (double)i + shift);
        CHECK(f32[i] == (float)(world_size * (int)(i % 1000) + (int)shift) / (float)world_size);
        CHECK(i64[i] == (int64_t)i + world_size - 1);
        CHECK(i32[i] == (world_size == 1 ? (int32_t)i : -(last_odd + (int32_t)i)));
    }
    fsdp_free(f64), fsdp_free(f32), fsdp_free(i64), fsdp_free(i32);
    return FSDP_OK;
}

static fsdp_status check_nan_survives(fsdp_group *group)
{
    int rank = fsdp_group_rank(group), last = fsdp_group_world_size(group) - 1;
    for (int where = 0; where <= last; where++) {
        float most = rank == where ? NAN : (float)rank;
        double least = rank == where ? (double)NAN : (double)rank;
        FSDP_TRY(fsdp_all_reduce(group, &most, 1, FSDP_DTYPE_F32, FSDP_REDUCE_MAX));
        FSDP_TRY(fsdp_all_reduce(group, &least, 1, FSDP_DTYPE_F64, FSDP_REDUCE_MIN));
        CHECK(isnan(most) && isnan(least));
    }
    return FSDP_OK;
}

static unsigned char pattern(int rank, size_t i)
{
    return (unsigned char)(31 * (size_t)(rank + 1) + i * 7 + (i >> 8));
}

/* Rank 0 gets the data of all ranks, in several chunks; `recv` of the others is not used. */
static fsdp_status check_gather(fsdp_group *group, size_t bytes)
{
    const int n = fsdp_group_world_size(group), rank = fsdp_group_rank(group);
    unsigned char *send = fsdp_calloc(bytes + 1, 1);
    unsigned char *recv = rank == 0 ? fsdp_calloc(bytes * (size_t)n + 1, 1) : NULL;
    for (size_t i = 0; i < bytes; i++)
        send[i] = (unsigned char)(i * 7 + (size_t)rank * 31);
    fsdp_status status = fsdp_gather(group, send, bytes, recv);
    for (size_t i = 0; status == FSDP_OK && rank == 0 && i < bytes * (size_t)n; i++)
        if (recv[i] != (unsigned char)(i % bytes * 7 + i / bytes * 31))
            status = fsdp_error(FSDP_ERR_STATE, "gather: byte %zu of %zu is wrong", i, bytes);
    fsdp_free(send);
    fsdp_free(recv);
    return status;
}

/* Return the rank that sends a piece to `reader` in round `i`. A rank may send several pieces. */
static int sender_of(int reader, int i, int world_size)
{
    return (reader * 3 + i) / 2 % world_size;
}

/* Return the size of that piece; 0: the reader gets nothing. */
static size_t bytes_for(int reader, int i)
{
    static const size_t sizes[] = {FSDP_PIECE_BYTES, 0, 1, 4097};
    return sizes[(size_t)(reader + i) % FSDP_LENGTH(sizes)];
}

static fsdp_status check_exchange_round(fsdp_group *group, int i, unsigned char *data,
                                        unsigned char *recv)
{
    const int n = fsdp_group_world_size(group), rank = fsdp_group_rank(group);
    fsdp_piece *pieces = fsdp_calloc((size_t)n, sizeof *pieces);
    size_t n_pieces = 0;
    CHECK(pieces);
    for (int reader = 0; reader < n; reader++)
        if (sender_of(reader, i, n) == rank && bytes_for(reader, i))
            pieces[n_pieces++] = (fsdp_piece){reader, data + reader, bytes_for(reader, i)};
    const size_t bytes = bytes_for(rank, i);
    recv[bytes] = 77;
    const fsdp_status status = fsdp_exchange_pieces(group, pieces, n_pieces, recv, bytes);
    fsdp_free(pieces);
    FSDP_TRY(status);
    for (size_t k = 0; k < bytes; k++)
        CHECK(recv[k] == pattern(sender_of(rank, i, n), k + (size_t)rank));
    CHECK(recv[bytes] == 77);
    return FSDP_OK;
}

static fsdp_status check_exchange_pieces(fsdp_group *group)
{
    const size_t bytes = FSDP_PIECE_BYTES + (size_t)fsdp_group_world_size(group);
    unsigned char *data = fsdp_calloc(bytes, 1), *recv = fsdp_calloc(bytes + 1, 1);
    fsdp_status status = data && recv ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t k = 0; status == FSDP_OK && k < bytes; k++)
        data[k] = pattern(fsdp_group_rank(group), k);
    for (int i = 0; i < 9 && status == FSDP_OK; i++)
        status = check_exchange_round(group, i, data, recv);
    fsdp_free(data);
    fsdp_free(recv);
    return status;
}

static fsdp_status check_all_gather(fsdp_group *group, size_t bytes)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    unsigned char *send = fsdp_calloc(bytes, 1), *recv = fsdp_calloc(bytes * (size_t)world_size, 1);
    CHECK(send && recv);
    for (int in_place = 0; in_place < 2; in_place++) {
        unsigned char *from = in_place ? recv + (size_t)rank * bytes : send;
        memset(recv, 0, bytes * (size_t)world_size);
        for (size_t i = 0; i < bytes; i++)
            from[i] = pattern(rank, i);
        FSDP_TRY(fsdp_all_gather(group, from, bytes, recv));
        for (int r = 0; r < world_size; r++)
            for (size_t i = 0; i < bytes; i++)
                CHECK(recv[(size_t)r * bytes + i] == pattern(r, i));
    }
    fsdp_free(send), fsdp_free(recv);
    return FSDP_OK;
}

static fsdp_status check_broadcast(fsdp_group *group, size_t bytes, int root)
{
    unsigned char *buf = fsdp_calloc(bytes, 1);
    CHECK(buf);
    for (size_t i = 0; i < bytes; i++)
        buf[i] = pattern(fsdp_group_rank(group), i);
    FSDP_TRY(fsdp_broadcast(group, buf, bytes, root));
    for (size_t i = 0; i < bytes; i++)
        CHECK(buf[i] == pattern(root, i));
    fsdp_free(buf);
    return FSDP_OK;
}

/* The aligned binary tree, implemented a second time: neighbors are added in pairs, and an odd one
 * is carried over. */
static float tree_sum(float *values, int n)
{
    while (n > 1) {
        for (int i = 0; i < n / 2; i++)
            values[i] = values[2 * i] + values[2 * i + 1];
        if (n % 2)
            values[n / 2] = values[n - 1];
        n = (n + 1) / 2;
    }
    return values[0];
}

/* Values of very different magnitude, so that another order of additions gives other bits. */
static float uneven(int rank, size_t i)
{
    return ldexpf(1.0f + (float)((i * 2654435761u + (size_t)rank * 40503u) % 65536) / 65536.0f,
                  (int)((i + 5 * (size_t)rank) % 24)) *
           ((i + (size_t)rank) % 3 ? 1.0f : -1.0f);
}

static fsdp_status check_reduce_scatter(fsdp_group *group, size_t count, fsdp_reduce_op op)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    size_t total = count * (size_t)world_size;
    float *send = fsdp_calloc(total, sizeof *send), *recv = fsdp_calloc(count, sizeof *recv);
    CHECK(send && recv);
    for (int in_place = 0; in_place < 2; in_place++) {
        float *to = in_place ? send + (size_t)rank * count : recv;
        for (size_t i = 0; i < total; i++)
            send[i] = uneven(rank, i);
        FSDP_TRY(fsdp_reduce_scatter(group, send, to, count, op));
        for (size_t i = 0; i < count; i++) {
            float values[16];
            for (int r = 0; r < world_size; r++)
                values[r] = uneven(r, (size_t)rank * count + i);
            float expected = tree_sum(values, world_size);
            CHECK(to[i] == (op == FSDP_REDUCE_AVG ? expected / (float)world_size : expected));
        }
        for (size_t i = 0; i < total && !in_place; i++)
            CHECK(send[i] == uneven(rank, i));
    }
    fsdp_free(send), fsdp_free(recv);
    return FSDP_OK;
}

/* Each rank writes its part and all read everything, twice, so that the second WRITE must wait. */
static fsdp_status check_shared_buffer(fsdp_group *group, size_t part)
{
    int rank = fsdp_group_rank(group), world_size = fsdp_group_world_size(group);
    fsdp_shared_buffer *buffer = NULL;
    size_t bytes = part * (size_t)world_size;
    FSDP_TRY(fsdp_shared_buffer_create(group, bytes, &buffer));
    unsigned char *data = fsdp_shared_buffer_data(buffer);
    CHECK((uintptr_t)data % 4096 == 0);
    fsdp_phase_info info = {.unit = 1, .kind = FSDP_KIND_STATE_DICT, .bytes = bytes};
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    for (size_t i = 0; i < bytes; i++)
        CHECK(data[i] == 0);
    fsdp_phase_end(buffer);
    for (uint32_t step = 0; step < 2; step++) {
        info.step = step;
        info.kind = FSDP_KIND_WRITE_SHARD;
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        for (size_t i = 0; i < part; i++)
            data[(size_t)rank * part + i] = pattern(rank + (int)step, i);
        fsdp_phase_wrote(buffer, FSDP_ALL_READERS, (size_t)rank * part, part);
        fsdp_phase_end(buffer);
        info.kind = FSDP_KIND_ALL_GATHER;
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        CHECK(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info) == FSDP_ERR_STATE);
        for (int r = 0; r < world_size; r++)
            for (size_t i = 0; i < part; i++)
                CHECK(data[(size_t)r * part + i] == pattern(r + (int)step, i));
        fsdp_phase_end(buffer);
    }
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

/* Each rank writes rows for every rank and, after these rows, a byte that all ranks read. Each rank
 * then reads the rows that were written for it. There are more ranges than fit in one message. */
static fsdp_status check_rows_for_readers(fsdp_group *group)
{
    enum {
        ROW = 12,
        ROUNDS = 40
    };
    const int rank = fsdp_group_rank(group), ranks = fsdp_group_world_size(group);
    const size_t part = (size_t)(ranks * ROW * ROUNDS + 1);
    fsdp_shared_buffer *buffer = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(group, part * (size_t)ranks, &buffer));
    unsigned char *data = fsdp_shared_buffer_data(buffer);
    fsdp_phase_info info = {.unit = 2, .kind = FSDP_KIND_GRADIENT, .bytes = part};
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    for (int n = 0; n < ROUNDS; n++)
        for (int r = 0; r < ranks; r++) {
            const size_t row = (size_t)rank * part + (size_t)((n * ranks + r) * ROW);
            for (size_t i = 0; i < ROW; i++)
                data[row + i] = pattern(rank + 3 * r + n, i);
            fsdp_phase_wrote(buffer, r, row, ROW);
        }
    const size_t last = (size_t)(rank + 1) * part - 1;
    data[last] = pattern(rank, 5);
    fsdp_phase_wrote(buffer, FSDP_ALL_READERS, last, 1);
    fsdp_phase_end(buffer);
    info.kind = FSDP_KIND_REDUCE_SCATTER;
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    for (int from = 0; from < ranks; from++) {
        CHECK(data[(size_t)(from + 1) * part - 1] == pattern(from, 5));
        for (int n = 0; n < ROUNDS; n++)
            for (size_t i = 0; i < ROW; i++)
                CHECK(data[(size_t)from * part + (size_t)((n * ranks + rank) * ROW) + i] ==
                      pattern(from + 3 * rank + n, i));
    }
    fsdp_phase_end(buffer);
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

/* A sum in stages. First each rank adds up one slice of the parts of all ranks of its host, and
 * writes the sum over this slice of the first part. Then every rank reads the sums of all hosts and
 * writes a byte that all ranks read. */
static fsdp_status check_stages(fsdp_group *group)
{
    enum {
        SLICE = 1000,
        STEPS = 4
    };
    const int rank = fsdp_group_rank(group), ranks = fsdp_group_world_size(group);
    const int here = fsdp_group_local_world_size(group), local = fsdp_group_local_rank(group);
    const int first = rank - local; /* ranks are numbered host by host */
    const size_t part = (size_t)(here * SLICE);
    fsdp_shared_buffer *buffer = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(group, (size_t)ranks * (part + 1), &buffer));
    unsigned char *data = fsdp_shared_buffer_data(buffer), *results = data + (size_t)ranks * part;
    fsdp_phase_info info = {.unit = 3, .kind = FSDP_KIND_GRADIENT, .bytes = part};
    for (info.step = 0; info.step < STEPS; info.step++) {
        const int step = (int)info.step;
        const size_t slice = (size_t)first * part + (size_t)(local * SLICE);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        for (size_t i = 0; i < part; i++)
            data[(size_t)rank * part + i] = pattern(rank + step, i);
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_REWRITE, &info));
        for (int r = 1; r < here; r++)
            for (size_t i = 0; i < SLICE; i++)
                data[slice + i] =
                    (unsigned char)(data[slice + i] + data[slice + (size_t)r * part + i]);
        fsdp_phase_wrote(buffer, FSDP_ALL_READERS, slice, SLICE);
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        for (int host = 0; host < ranks / here; host++)
            for (size_t i = 0; i < part; i++) {
                unsigned char sum = 0;
                for (int r = 0; r < here; r++)
                    sum = (unsigned char)(sum + pattern(host * here + r + step, i));
                CHECK(data[(size_t)(host * here) * part + i] == sum);
            }
        fsdp_phase_end(buffer);
        /* The third stage may begin while other ranks still read: it writes other bytes. */
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_REWRITE, &info));
        results[rank] = pattern(rank, (size_t)step);
        fsdp_phase_wrote(buffer, FSDP_ALL_READERS, (size_t)ranks * part + (size_t)rank, 1);
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        for (int r = 0; r < ranks; r++)
            CHECK(results[r] == pattern(r, (size_t)step));
        fsdp_phase_end(buffer);
    }
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

/* Collectives are counted by kind. A world of one counts nothing, since it does nothing. */
static fsdp_status check_counters(fsdp_group *group)
{
    uint64_t active = fsdp_group_world_size(group) > 1;
    fsdp_comm_counters before = *fsdp_group_counters(group);
    fsdp_shared_buffer *buffer = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(group, 64, &buffer));
    fsdp_phase_info info = {.kind = FSDP_KIND_ALL_GATHER, .bytes = 1000};
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    fsdp_phase_end(buffer);
    const fsdp_comm_counters *now = fsdp_group_counters(group);
    CHECK(now->calls[FSDP_KIND_ALL_GATHER] == before.calls[FSDP_KIND_ALL_GATHER] + active);
    CHECK(now->logical_bytes[FSDP_KIND_ALL_GATHER] ==
          before.logical_bytes[FSDP_KIND_ALL_GATHER] + 1000 * active);
    CHECK(now->moved_bytes == before.moved_bytes); /* a phase moves nothing */
    FSDP_TRY(fsdp_barrier(group));
    CHECK(now->calls[FSDP_KIND_BARRIER] == before.calls[FSDP_KIND_BARRIER] + active);
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

static fsdp_status check_arguments(fsdp_group *group)
{
    float x = 0;
    int world_size = fsdp_group_world_size(group);
    CHECK(fsdp_broadcast(group, &x, sizeof x, world_size) == FSDP_ERR_INVALID);
    CHECK(fsdp_broadcast(group, &x, sizeof x, -1) == FSDP_ERR_INVALID);
    CHECK(fsdp_all_reduce(group, &x, 1, FSDP_DTYPE_BF16, FSDP_REDUCE_SUM) == FSDP_ERR_INVALID);
    CHECK(strstr(fsdp_last_error(), "bfloat16"));
    CHECK(fsdp_all_reduce(group, &x, 1, FSDP_DTYPE_I32, FSDP_REDUCE_AVG) == FSDP_ERR_INVALID);
    CHECK(fsdp_all_reduce(group, NULL, 1, FSDP_DTYPE_F32, FSDP_REDUCE_SUM) == FSDP_ERR_INVALID);
    CHECK(fsdp_all_gather(group, NULL, 1, &x) == FSDP_ERR_INVALID);
    CHECK(fsdp_all_gather(group, &x, SIZE_MAX, &x) == FSDP_ERR_INVALID);
    CHECK(fsdp_all_reduce(group, &x, SIZE_MAX / 4, FSDP_DTYPE_F32, 0) == FSDP_ERR_INVALID);
    CHECK(fsdp_barrier(NULL) == FSDP_ERR_INVALID);
    CHECK(fsdp_reduce_scatter(group, NULL, &x, 1, FSDP_REDUCE_SUM) == FSDP_ERR_INVALID);
    return fsdp_barrier(group); /* an argument error leaves the group usable */
}

fsdp_status comm_conformance(fsdp_group *group, void *arg)
{
    (void)arg;
    int world_size = fsdp_group_world_size(group);
    static const size_t sizes[] = {0, 1, 7, MANY};
    FSDP_TRY(check_identity(group));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        FSDP_TRY(fsdp_barrier(group));
        FSDP_TRY(check_all_reduce(group, sizes[i]));
        FSDP_TRY(check_all_gather(group, 3 * sizes[i]));
        FSDP_TRY(check_gather(group, 3 * sizes[i]));
        FSDP_TRY(check_broadcast(group, 5 * sizes[i], (int)i % world_size));
        FSDP_TRY(check_reduce_scatter(group, sizes[i], i % 2 ? FSDP_REDUCE_SUM : FSDP_REDUCE_AVG));
        FSDP_TRY(check_shared_buffer(group, sizes[i]));
    }
    FSDP_TRY(check_exchange_pieces(group));
    FSDP_TRY(check_nan_survives(group));
    FSDP_TRY(check_rows_for_readers(group));
    FSDP_TRY(check_stages(group));
    FSDP_TRY(check_counters(group));
    return check_arguments(group);
}
