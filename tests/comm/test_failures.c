/* What the other ranks report when one fails, diverges, leaves or hangs. */
#include <stdatomic.h>
#include <time.h>

#include "src/base/alloc_testing.h"
#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "tests/test.h"

enum {
    MAX_RANKS = 8,
    SOON_S =
        60 /* on any machine; a rank that sees no failure waits for the timeout of ten minutes */
};

/* What the failing call of each rank returned. Each thread writes its own entry. */
typedef struct outcome {
    fsdp_status status[MAX_RANKS];
    char message[MAX_RANKS][1024];
    double seconds[MAX_RANKS]; /* duration of the call */
} outcome;

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Counts ranks that have finished their set-up, without using the group: otherwise the failure of a
 * fast rank could reach a slow one during its set-up. Ranks are threads here, and each calls it
 * once. */
static _Atomic int arrived;

static void set_up_done(const fsdp_group *group)
{
    int world_size = fsdp_group_world_size(group);
    int target = (atomic_fetch_add(&arrived, 1) / world_size + 1) * world_size;
    while (atomic_load(&arrived) < target)
        sleep_ms(1);
}

static fsdp_status run(int world_size, fsdp_rank_fn *body, void *arg, fsdp_status *status)
{
    atomic_store(&arrived, 0);
    return fsdp_run_ranks(world_size, body, arg, status);
}

/* Record `status` and its message, and continue as if the rank had succeeded. */
static fsdp_status record_outcome(outcome *o, const fsdp_group *group, fsdp_status status)
{
    int rank = fsdp_group_rank(group);
    o->status[rank] = status;
    memcpy(o->message[rank], fsdp_last_error(), strlen(fsdp_last_error()) + 1);
    return FSDP_OK;
}

static void check_all_comm(fsdp_test *t, const outcome *o, int world_size, const char *text)
{
    for (int r = 0; r < world_size; r++) {
        if (o->status[r] != FSDP_ERR_COMM || !strstr(o->message[r], text))
            FAIL("rank %d: %s: '%s' lacks '%s'", r, fsdp_status_name(o->status[r]), o->message[r],
                 text);
    }
}

/* ---- abort ---- */

static fsdp_status fail_on_rank_2(fsdp_group *group, void *arg)
{
    outcome *o = arg;
    int rank = fsdp_group_rank(group);
    fsdp_group_at(group, 12, "encoder.block.0", "reduce_scatter");
    FSDP_TRY(fsdp_barrier(group));
    set_up_done(group);
    double start = fsdp_clock_s();
    fsdp_status status =
        rank == 2 ? fsdp_error(FSDP_ERR_NUMERIC, "loss is NaN") : fsdp_barrier(group);
    o->seconds[rank] = fsdp_clock_s() - start;
    (void)record_outcome(o, group, status);
    return status;
}

TEST(a_failing_rank_fails_all_long_before_the_timeout_and_is_the_one_reported)
{
    outcome o = {0};
    fsdp_status status[4];
    ASSERT_ERROR(run(4, fail_on_rank_2, &o, status), FSDP_ERR_NUMERIC, "loss is NaN");
    ASSERT_STR(fsdp_last_error(), "loss is NaN");
    for (int r = 0; r < 4; r++) {
        ASSERT(o.seconds[r] < SOON_S);
        ASSERT_INT(status[r], r == 2 ? FSDP_ERR_NUMERIC : FSDP_ERR_COMM);
        if (r != 2)
            ASSERT_STR(o.message[r], "rank 2 failed in step 12, unit encoder.block.0, "
                                     "reduce_scatter: loss is NaN");
    }
}

static fsdp_status abort_everywhere(fsdp_group *group, void *arg)
{
    FSDP_TRY(fsdp_barrier(group));
    set_up_done(group);
    fsdp_group_abort(group, fsdp_error(FSDP_ERR_IO, "disk of rank %d", fsdp_group_rank(group)));
    return record_outcome(arg, group, fsdp_barrier(group));
}

TEST(of_failures_at_once_all_ranks_report_the_same_one)
{
    for (int round = 0; round < 50; round++) {
        outcome o = {0};
        ASSERT_OK(run(6, abort_everywhere, &o, NULL));
        check_all_comm(t, &o, 6, "failed: disk of rank ");
        CHECK_HERE();
        for (int r = 1; r < 6; r++)
            ASSERT_STR(o.message[r], o.message[0]);
    }
}

static fsdp_status use_after_abort(fsdp_group *group, void *arg)
{
    (void)arg;
    fsdp_shared_buffer *buffer = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(group, 10, &buffer));
    set_up_done(group);
    if (fsdp_group_rank(group) == 0)
        fsdp_group_abort(group, fsdp_error(FSDP_ERR_STATE, "given up"));
    while (fsdp_barrier(group) == FSDP_OK)
        continue;
    int32_t x = 0;
    fsdp_phase_info info = {.kind = FSDP_KIND_ALL_GATHER};
    fsdp_shared_buffer *another = NULL;
    bool poisoned = fsdp_all_reduce(group, &x, 1, FSDP_DTYPE_I32, 0) == FSDP_ERR_COMM &&
                    fsdp_broadcast(group, &x, 4, 0) == FSDP_ERR_COMM &&
                    fsdp_shared_buffer_create(group, 10, &another) == FSDP_ERR_COMM &&
                    fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info) == FSDP_ERR_COMM &&
                    strstr(fsdp_last_error(), "rank 0 failed: given up");
    fsdp_phase_end(buffer); /* the phase has not begun */
    fsdp_shared_buffer_destroy(buffer);
    return poisoned ? FSDP_OK : fsdp_error(FSDP_ERR_STATE, "the group still works");
}

TEST(an_aborted_group_fails_every_later_call)
{
    ASSERT_OK(run(3, use_after_abort, NULL, NULL));
}

/* ---- divergence ---- */

static const fsdp_phase_info gather_of_3 = {
    .unit = 3, .step = 5, .kind = FSDP_KIND_ALL_GATHER, .dtype = FSDP_DTYPE_BF16, .bytes = 1024};
static const fsdp_phase_info reduce_of_4 = {
    .unit = 4, .step = 5, .kind = FSDP_KIND_REDUCE_SCATTER, .dtype = FSDP_DTYPE_F32, .bytes = 64};

/* Begins phases of a buffer until one fails, since the error may come only with the next call. */
static fsdp_status begin_until_error(fsdp_shared_buffer *buffer, fsdp_phase_info info)
{
    for (;;) {
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        fsdp_phase_end(buffer);
    }
}

static fsdp_status diverge_on_one_buffer(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffer = NULL;
    FSDP_TRY(fsdp_shared_buffer_create(group, 100, &buffer));
    set_up_done(group);
    fsdp_phase_info info = fsdp_group_rank(group) == 1 ? gather_of_3 : reduce_of_4;
    (void)record_outcome(arg, group, begin_until_error(buffer, info));
    fsdp_shared_buffer_destroy(buffer);
    return FSDP_OK;
}

TEST(different_calls_on_one_buffer_name_both_ranks)
{
    outcome o = {0};
    ASSERT_OK(run(3, diverge_on_one_buffer, &o, NULL));
    check_all_comm(t, &o, 3, "all_gather of unit 3 (bfloat16, 1024 bytes, write) in step 5");
    check_all_comm(t, &o, 3, "reduce_scatter of unit 4 (float32, 64 bytes, write) in step 5");
    check_all_comm(t, &o, 3, "ranks diverged: rank ");
    check_all_comm(t, &o, 3, "rank 1 beg");
}

/* Each field of the info, and the phase itself, in turn differs on rank 1 alone. */
static fsdp_status diverge_in_field(fsdp_group *group, void *arg)
{
    fsdp_status status;
    fsdp_shared_buffer *buffer = NULL;
    int field = *(const int *)arg;
    FSDP_TRY(fsdp_shared_buffer_create(group, 100, &buffer));
    set_up_done(group);
    fsdp_phase_info info = gather_of_3;
    fsdp_phase phase = FSDP_PHASE_WRITE;
    if (fsdp_group_rank(group) == 1) {
        info.unit += field == 0;
        info.step += field == 1;
        info.kind = (uint16_t)(info.kind + (field == 2));
        info.dtype = (uint16_t)(info.dtype + (field == 3));
        info.bytes += field == 4;
        phase = field == 5 ? FSDP_PHASE_READ : phase;
    }
    do {
        status = fsdp_phase_begin(buffer, phase, &info);
        fsdp_phase_end(buffer);
    } while (status == FSDP_OK);
    fsdp_shared_buffer_destroy(buffer);
    return status == FSDP_ERR_COMM && strstr(fsdp_last_error(), "ranks diverged")
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "field %d is not compared", field);
}

TEST(every_field_of_a_phase_is_compared)
{
    for (int field = 0; field < 6; field++)
        ASSERT_OK(run(2, diverge_in_field, &field, NULL));
}

/* Even ranks are at one buffer while odd ones are at another. No phase number shows it: each waits
 * for the other. */
static fsdp_status diverge_across_buffers(fsdp_group *group, void *arg)
{
    fsdp_shared_buffer *buffers[2] = {0};
    int rank = fsdp_group_rank(group);
    for (int i = 0; i < 2; i++)
        FSDP_TRY(fsdp_shared_buffer_create(group, 100, &buffers[i]));
    set_up_done(group);
    fsdp_phase_info info = rank % 2 ? gather_of_3 : reduce_of_4;
    (void)record_outcome(arg, group, begin_until_error(buffers[rank % 2], info));
    for (int i = 0; i < 2; i++)
        fsdp_shared_buffer_destroy(buffers[i]);
    return FSDP_OK;
}

TEST(ranks_that_wait_for_each_other_are_found_long_before_the_timeout)
{
    for (int world_size = 2; world_size <= 5; world_size++) {
        outcome o = {0};
        double start = fsdp_clock_s();
        ASSERT_OK(run(world_size, diverge_across_buffers, &o, NULL));
        ASSERT(fsdp_clock_s() - start < SOON_S);
        check_all_comm(t, &o, world_size, "each waits for the other");
        CHECK_HERE();
        check_all_comm(t, &o, world_size, "reduce_scatter of unit 4");
        check_all_comm(t, &o, world_size, "all_gather of unit 3");
    }
}

typedef struct mismatch {
    int which;
    outcome outcome;
} mismatch;

static fsdp_status mismatched_collectives(fsdp_group *group, void *arg)
{
    mismatch *m = arg;
    float x[8] = {0}, y[16];
    bool odd = fsdp_group_rank(group) == 1;
    fsdp_status status = FSDP_OK;
    while (status == FSDP_OK)
        switch (m->which) {
        case 0: /* another collective */
            status = odd ? fsdp_barrier(group) : fsdp_broadcast(group, x, 8, 0);
            break;
        case 1: /* another size */
            status = fsdp_all_reduce(group, x, odd ? 7 : 8, FSDP_DTYPE_F32, FSDP_REDUCE_SUM);
            break;
        case 2: /* another operation */
            status = fsdp_all_reduce(group, x, 8, FSDP_DTYPE_F32,
                                     odd ? FSDP_REDUCE_MAX : FSDP_REDUCE_SUM);
            break;
        case 3: /* another dtype of the same size */
            status = fsdp_all_reduce(group, x, 8, odd ? FSDP_DTYPE_I32 : FSDP_DTYPE_F32,
                                     FSDP_REDUCE_SUM);
            break;
        case 4: /* another root */
            status = fsdp_broadcast(group, x, 8, odd);
            break;
        case 5: /* zero bytes against some */
            status = fsdp_all_gather(group, x, odd ? 0 : 4, y);
            break;
        case 6: { /* a shared buffer of another size */
            fsdp_shared_buffer *buffer = NULL;
            status = fsdp_shared_buffer_create(group, odd ? 10 : 20, &buffer);
            fsdp_shared_buffer_destroy(buffer);
            break;
        }
        default: /* rank 1 calls a collective while the others create a buffer */
            if (odd) {
                status = fsdp_barrier(group);
            } else {
                fsdp_shared_buffer *buffer = NULL;
                status = fsdp_shared_buffer_create(group, 20, &buffer);
                fsdp_shared_buffer_destroy(buffer);
            }
        }
    return record_outcome(&m->outcome, group, status);
}

TEST(mismatched_collectives_are_errors_on_all_ranks)
{
    for (int which = 0; which < 8; which++) {
        mismatch m = {.which = which};
        ASSERT_OK(run(3, mismatched_collectives, &m, NULL));
        check_all_comm(t, &m.outcome, 3, "ranks diverged: rank ");
        CHECK_HERE();
    }
}

static fsdp_status one_barrier_more(fsdp_group *group, void *arg)
{
    FSDP_TRY(fsdp_barrier(group));
    fsdp_group_at(group, 9, NULL, "validation");
    set_up_done(group);
    if (fsdp_group_rank(group) == 0)
        return FSDP_OK;
    return record_outcome(arg, group, fsdp_barrier(group));
}

TEST(a_rank_that_left_is_not_waited_for)
{
    outcome o = {0};
    ASSERT_OK(run(2, one_barrier_more, &o, NULL));
    ASSERT_INT(o.status[1], FSDP_ERR_COMM);
    ASSERT_STR(o.message[1], "ranks diverged: rank 1 begins barrier number 2 (uint8, 0 bytes, "
                             "option 0), but rank 0 has left the group (rank 1 in step 9, "
                             "validation)");
}

/* ---- timeout ---- */

/* Rank 1 does not come until rank 0 has given up. */
static _Atomic bool gave_up;

static fsdp_status hang(fsdp_group *group, void *arg)
{
    outcome *o = arg;
    const int rank = fsdp_group_rank(group);
    FSDP_TRY(fsdp_barrier(group));
    fsdp_group_set_timeout_ms(group, 250);
    fsdp_group_at(group, 4, "decoder.block.1", rank ? "forward" : "all_gather");
    set_up_done(group);
    while (rank == 1 && !atomic_load(&gave_up))
        sleep_ms(1);
    double start = fsdp_clock_s();
    (void)record_outcome(o, group, fsdp_barrier(group));
    o->seconds[rank] = fsdp_clock_s() - start;
    atomic_store(&gave_up, true);
    return FSDP_OK;
}

TEST(a_silent_peer_is_a_timeout_and_poisons_the_group)
{
    outcome o = {0};
    ASSERT_OK(run(2, hang, &o, NULL));
    ASSERT_INT(o.status[0], FSDP_ERR_TIMEOUT);
    ASSERT(strstr(o.message[0], "timeout: rank 0 waited "));
    ASSERT(strstr(o.message[0], "for rank 1, which was last in barrier number 1 (uint8, 0 bytes, "
                                "option 0) and is in step 4, unit decoder.block.1, forward (rank 0 "
                                "in step 4, unit decoder.block.1, all_gather)"));
    ASSERT(o.seconds[0] >= 0.25);
    ASSERT_INT(o.status[1], FSDP_ERR_COMM);
    ASSERT_STR(o.message[1], o.message[0]);
}

/* ---- memory ---- */

static fsdp_status no_memory_on_one(fsdp_group *group, void *arg)
{
    int who = *(const int *)arg;
    fsdp_shared_buffer *buffer = NULL;
    for (long n = 1; n <= 3; n++) {
        fsdp_alloc_fail_at(fsdp_group_rank(group) == who ? n : 0);
        fsdp_status status = fsdp_shared_buffer_create(group, 1000, &buffer);
        fsdp_alloc_fail_at(0);
        /* Rank 0 makes three allocations, the others one. */
        if (status != (who == 0 || n == 1 ? FSDP_ERR_NOMEM : FSDP_OK))
            return fsdp_error(FSDP_ERR_STATE, "allocation %ld of rank %d: %s", n, who,
                              fsdp_status_name(status));
        fsdp_shared_buffer_destroy(buffer);
        buffer = NULL;
    }
    FSDP_TRY(fsdp_shared_buffer_create(group, 1000, &buffer)); /* the group is still usable */
    fsdp_shared_buffer_destroy(buffer);
    return fsdp_barrier(group);
}

TEST(no_memory_on_one_rank_is_an_error_on_all)
{
    for (int who = 0; who < 3; who++)
        ASSERT_OK(run(3, no_memory_on_one, &who, NULL));
}

TEST(no_memory_for_the_ranks_is_an_error)
{
    for (long n = 1; n <= 5; n++) {
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_run_ranks(2, one_barrier_more, NULL, NULL);
        fsdp_alloc_fail_at(0);
        ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
}

static fsdp_shared_buffer *survivors[2];

static fsdp_status leave_buffer(fsdp_group *group, void *arg)
{
    (void)arg;
    return fsdp_shared_buffer_create(group, 5000, &survivors[fsdp_group_rank(group)]);
}

TEST(a_buffer_may_outlive_its_group)
{
    ASSERT_OK(run(2, leave_buffer, NULL, NULL));
    memset(fsdp_shared_buffer_data(survivors[0]), 7, 5000);
    fsdp_shared_buffer_destroy(survivors[0]);
    ASSERT_INT(((unsigned char *)fsdp_shared_buffer_data(survivors[1]))[4999], 7);
    fsdp_shared_buffer_destroy(survivors[1]);
}

TEST(senseless_world_sizes_are_errors)
{
    ASSERT_ERROR(run(0, leave_buffer, NULL, NULL), FSDP_ERR_INVALID, "world_size is 0");
    ASSERT_ERROR(run(-1, leave_buffer, NULL, NULL), FSDP_ERR_INVALID, "-1");
    ASSERT_ERROR(run(5000, leave_buffer, NULL, NULL), FSDP_ERR_INVALID, "5000");
}
