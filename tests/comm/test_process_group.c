/* Ranks as threads: conformance and the phase protocol. */
#include <time.h>

#include "src/comm/group_testing.h"
#include "src/comm/phase.h"
#include "tests/comm/conformance.h"
#include "tests/comm/stress.h"
#include "tests/test.h"

TEST(no_group_is_a_world_of_one)
{
    ASSERT_INT(fsdp_group_rank(NULL), 0);
    ASSERT_INT(fsdp_group_world_size(NULL), 1);
    ASSERT_INT(fsdp_group_local_rank(NULL), 0);
    ASSERT_INT(fsdp_group_local_world_size(NULL), 1);
}

TEST(conformance_in_a_world_of_one)
{
    ASSERT_OK(fsdp_run_ranks(1, comm_conformance, NULL, NULL));
}

TEST(conformance_over_threads)
{
    for (int world_size = 2; world_size <= 5; world_size++)
        ASSERT_OK(fsdp_run_ranks(world_size, comm_conformance, NULL, NULL));
    ASSERT_OK(fsdp_run_ranks(8, comm_conformance, NULL, NULL));
}

/* Under TSan this also proves that every read happens after the write that it sees. */
TEST(no_stale_read_between_2_to_8_threads)
{
    for (int world_size = 2; world_size <= 8; world_size++) {
        stress_options options = {.seed = 100 + (uint64_t)world_size,
                                  .phases =
                                      (world_size <= 4 ? 4000 : 1000) / (UNDER_SANITIZER ? 4 : 1),
                                  .max_delay_us = world_size % 2 ? 20 : 0};
        ASSERT_OK(fsdp_run_ranks(world_size, comm_stress, &options, NULL));
    }
}

TEST(random_collectives_of_2_to_8_delayed_threads)
{
    for (int world_size = 2; world_size <= 8; world_size += 3) {
        stress_options options = {
            .seed = 200 + (uint64_t)world_size, .phases = 150, .max_delay_us = 200};
        ASSERT_OK(fsdp_run_ranks(world_size, comm_random_collectives, &options, NULL));
    }
}

TEST(without_the_writers_wait_stale_reads_are_found)
{
#if UNDER_TSAN
    SKIP("reads and writes race here on purpose; tests/comm/test_shm.c does it with processes");
#endif
    stress_options options = {
        .seed = 1, .phases = 2000, .max_delay_us = 100, .skip_writer_wait = true};
    ASSERT_ERROR(fsdp_run_ranks(3, comm_stress, &options, NULL), FSDP_ERR_STATE, " violations");
}

/* Rank 1 writes late. Until then rank 0 would have to wait, and fsdp_phase_read_ready() says so. */
TEST_RANKS(read_ready_says_whether_begin_would_wait, 2)
{
    fsdp_shared_buffer *buffer = NULL;
    fsdp_phase_info info = {.kind = FSDP_KIND_WRITE_SHARD};
    ASSERT_OK(fsdp_shared_buffer_create(t->group, 8, &buffer));
    ASSERT(fsdp_phase_read_ready(buffer));
    if (t->rank == 1)
        ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    fsdp_phase_end(buffer);
    if (t->rank == 0) {
        ASSERT(!fsdp_phase_read_ready(buffer));
        ASSERT_OK(fsdp_barrier(t->group));
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT(fsdp_phase_read_ready(buffer));
    fsdp_shared_buffer_destroy(buffer);
}

/* One rank alone runs many READs. The ring of records stops it before it overwrites a record that
 * the other has not compared yet. */
TEST_RANKS(a_reader_far_ahead_is_held_back, 2)
{
    enum {
        READS = 200
    };
    fsdp_shared_buffer *buffer = NULL;
    ASSERT_OK(fsdp_shared_buffer_create(t->group, 8, &buffer));
    if (t->rank == 1)
        ASSERT_OK(fsdp_barrier(t->group));
    int ready = 0;
    for (int i = 0; i < READS; i++) {
        fsdp_phase_info info = {.kind = FSDP_KIND_ALL_GATHER, .step = (uint32_t)i};
        if (t->rank == 0 && i == ready && fsdp_phase_read_ready(buffer))
            ready++;
        else if (t->rank == 0 && i == ready)
            ASSERT_OK(fsdp_barrier(t->group)); /* rank 1 continues from here */
        ASSERT_OK(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        fsdp_phase_end(buffer);
    }
    if (t->rank == 0)
        ASSERT_INT(ready, 32);
    fsdp_shared_buffer_destroy(buffer);
}

TEST_RANKS(a_world_of_one_counts_nothing, 1)
{
    float x = 3;
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_all_reduce(t->group, &x, 1, FSDP_DTYPE_F32, FSDP_REDUCE_AVG));
    ASSERT_F32(x, 3);
    fsdp_comm_counters none = {0};
    ASSERT(memcmp(fsdp_group_counters(t->group), &none, sizeof none) == 0);
}

/* Wait until the peer has waited for `rank` in this buffer. The peer sets `coming` when it has
 * nothing else left to wait for. */
static void be_late(const fsdp_shared_buffer *buffer, int rank, atomic_bool *coming)
{
    const struct timespec pause = {0, 1000000}, late = {0, 30000000};
    while (!atomic_load(coming) || !atomic_load(&buffer->lanes[rank].waiters))
        nanosleep(&pause, NULL);
    nanosleep(&late, NULL);
}

/* Rank 1 is late at a barrier, and rank 0 at a phase. Each wait is counted under its kind. */
TEST_RANKS(waits_are_counted_by_kind, 2)
{
    static atomic_bool coming[2]; /* the next wait of each rank is the one to be counted */
    const int64_t least = 20000000;
    fsdp_shared_buffer *buffer = NULL;
    fsdp_phase_info info = {.kind = FSDP_KIND_ALL_GATHER};
    ASSERT_OK(fsdp_shared_buffer_create(t->group, 8, &buffer));
    ASSERT_OK(fsdp_barrier(t->group));
    const fsdp_comm_counters before = fsdp_group_get_counters(t->group);
    if (t->rank == 1)
        be_late(&t->group->scratch, 1, &coming[0]);
    else
        atomic_store(&coming[0], true);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    if (t->rank == 0)
        be_late(buffer, 0, &coming[1]);
    fsdp_phase_end(buffer);
    if (t->rank == 1)
        atomic_store(&coming[1], true);
    ASSERT_OK(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    fsdp_phase_end(buffer);
    const fsdp_comm_counters after = fsdp_group_get_counters(t->group);
    const fsdp_comm_kind waited = t->rank == 0 ? FSDP_KIND_BARRIER : FSDP_KIND_ALL_GATHER;
    ASSERT(after.wait_ns[waited] - before.wait_ns[waited] >= least);
    ASSERT_INT(after.calls[FSDP_KIND_ALL_GATHER] - before.calls[FSDP_KIND_ALL_GATHER], 1);
    int64_t sum = 0;
    for (int k = 0; k < FSDP_KIND_COUNT; k++)
        sum += after.wait_ns[k];
    ASSERT_INT(fsdp_comm_counters_wait_ns(&after), sum);
    ASSERT_STR(fsdp_comm_kind_name(waited), t->rank == 0 ? "barrier" : "all_gather");
    fsdp_shared_buffer_destroy(buffer);
}
