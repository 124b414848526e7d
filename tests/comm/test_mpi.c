/* The transport "mpi" with Open MPI and MPICH, on imagined hosts (mpi_ranks.h). */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/comm/comm.h"
#include "src/comm/group.h"
#include "tests/comm/conformance.h"
#include "tests/comm/mpi_ranks.h"
#include "tests/comm/stress.h"
#include "tests/test.h"

static fsdp_status run_stress(fsdp_group *group, void *arg)
{
    (void)arg;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        stress_options o = {.seed = seed, .phases = 150, .max_delay_us = seed == 2 ? 300 : 0};
        FSDP_TRY(comm_stress(group, &o));
    }
    return FSDP_OK;
}

static fsdp_status run_random(fsdp_group *group, void *arg)
{
    (void)arg;
    stress_options o = {.seed = 5, .phases = 40};
    return comm_random_collectives(group, &o);
}

/* Parts of more than two pieces, and a part that ends within a piece. */
static fsdp_status exchange_large_parts(fsdp_group *group, void *arg)
{
    (void)arg;
    const size_t words = (9 << 20) / sizeof(uint32_t) + 3;
    const int rank = fsdp_group_rank(group), ranks = fsdp_group_world_size(group);
    fsdp_shared_buffer *buffer = NULL;
    const size_t part = words * sizeof(uint32_t);
    FSDP_TRY(fsdp_shared_buffer_create(group, part * (size_t)ranks, &buffer));
    const uint64_t before = fsdp_group_get_counters(group).moved_bytes;
    uint32_t *data = fsdp_shared_buffer_data(buffer);
    for (uint32_t step = 1; step <= 3; step++) {
        const fsdp_phase_info info = {.unit = 1, .step = step, .kind = FSDP_KIND_WRITE_SHARD};
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
        for (size_t i = 0; i < words; i++)
            data[(size_t)rank * words + i] = (uint32_t)i * 7 + (uint32_t)rank * 31 + step;
        fsdp_phase_wrote(buffer, FSDP_ALL_READERS, (size_t)rank * part, part);
        fsdp_phase_end(buffer);
        FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
        for (size_t i = 0; i < words * (size_t)ranks; i++)
            if (data[i] != (uint32_t)(i % words) * 7 + (uint32_t)(i / words) * 31 + step)
                return fsdp_error(FSDP_ERR_STATE, "word %zu is wrong in step %u", i, step);
        fsdp_phase_end(buffer);
    }
    const uint64_t moved = fsdp_group_get_counters(group).moved_bytes - before;
    fsdp_shared_buffer_destroy(buffer);
    const int hosts = ranks / fsdp_group_local_world_size(group);
    return moved == 3 * part * (size_t)(hosts - 1)
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "%llu bytes moved", (unsigned long long)moved);
}

static fsdp_status expect_error(fsdp_group *group, fsdp_status status, const char *part)
{
    if (status == FSDP_OK)
        return fsdp_error(FSDP_ERR_STATE, "rank %d saw no failure", fsdp_group_rank(group));
    return strstr(fsdp_last_error(), part)
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "the message is: %s", fsdp_last_error());
}

/* The last rank fails as soon as it has left the first barrier. The others may still be in it: the
 * failure of a rank ends any wait. */
static fsdp_status fail_last_rank(fsdp_group *group, void *arg)
{
    (void)arg;
    const int last = fsdp_group_world_size(group) - 1;
    char expected[80];
    fsdp_status status = fsdp_barrier(group);
    fsdp_group_at(group, 3, "", "forward");
    snprintf(expected, sizeof expected, "rank %d failed in step 3, forward: the loss is NaN", last);
    if (fsdp_group_rank(group) == last && status == FSDP_OK) {
        fsdp_group_abort(group, fsdp_error(FSDP_ERR_NUMERIC, "the loss is NaN"));
        return FSDP_OK;
    }
    if (status == FSDP_OK)
        status = fsdp_barrier(group);
    return expect_error(group, status, expected);
}

/* Two ranks of different hosts that pass different sizes. */
static fsdp_status diverge(fsdp_group *group, void *arg)
{
    (void)arg;
    float values[8] = {0};
    const int last = fsdp_group_world_size(group) - 1;
    fsdp_status status = fsdp_barrier(group);
    if (status == FSDP_OK)
        status = fsdp_all_reduce(group, values, fsdp_group_rank(group) == last ? 7 : 8,
                                 FSDP_DTYPE_F32, FSDP_REDUCE_SUM);
    return expect_error(group, status, "ranks diverged");
}

/* A rank that leaves, while a rank of another host waits for it. */
static fsdp_status leave_early(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    return fsdp_group_rank(group) == 0
               ? FSDP_OK
               : expect_error(group, fsdp_barrier(group), "rank 0 has left the group");
}

/* The last rank is stopped, so MPI_Finalize() would wait for it. */
static fsdp_status stop_last_rank(fsdp_group *group, void *arg)
{
    (void)arg;
    FSDP_TRY(fsdp_barrier(group));
    if (fsdp_group_rank(group) == fsdp_group_world_size(group) - 1)
        raise(SIGSTOP);
    return expect_error(group, fsdp_barrier(group), "has not moved for");
}

/* fsdp_shared_buffer_discard() divides the data into one part for each rank of a host. With one
 * rank on each host, this part is the whole buffer. */
static fsdp_status discard_a_part(fsdp_group *group, void *arg)
{
    enum {
        PAGES = 32,
        KEPT = 8
    };
    (void)arg;
    fsdp_shared_buffer *buffer = NULL;
    unsigned char resident[PAGES];
    const size_t half = (size_t)PAGES * FSDP_COMM_PAGE / 2;
    const size_t own = (size_t)fsdp_group_rank(group) * half;
    const fsdp_phase_info info = {.unit = 1, .kind = FSDP_KIND_WRITE_SHARD};
    FSDP_TRY(fsdp_shared_buffer_create(group, 2 * half, &buffer));
    unsigned char *data = fsdp_shared_buffer_data(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_WRITE, &info));
    memset(data + own, 1, half);
    fsdp_phase_wrote(buffer, FSDP_ALL_READERS, own, half);
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_phase_begin(buffer, FSDP_PHASE_READ, &info));
    fsdp_phase_end(buffer);
    FSDP_TRY(fsdp_shared_buffer_discard(buffer, (size_t)KEPT * FSDP_COMM_PAGE));
    int n = 0;
    if (mincore(data, 2 * half, resident) != 0)
        return fsdp_error(FSDP_ERR_IO, "mincore failed");
    for (int i = 0; i < PAGES; i++)
        n += resident[i] & 1;
    fsdp_shared_buffer_destroy(buffer);
    return n == KEPT ? FSDP_OK : fsdp_error(FSDP_ERR_STATE, "%d pages remain", n);
}

static const mpi_body bodies[] = {{"conformance", comm_conformance},
                                  {"stress", run_stress},
                                  {"random", run_random},
                                  {"fail", fail_last_rank},
                                  {"large", exchange_large_parts},
                                  {"diverge", diverge},
                                  {"leave", leave_early},
                                  {"stop", stop_last_rank},
                                  {"discard", discard_a_part}};

TEST(body_of_a_rank_of_mpi)
{
    mpi_ranks_run_body(t, bodies, FSDP_LENGTH(bodies));
}

TEST(conformance_with_open_mpi)
{
    static const int shapes[][2] = {{2, 1}, {4, 2}, {3, 3}};
    for (size_t i = 0; i < FSDP_LENGTH(shapes) && !t->skipped; i++) {
        mpi_ranks_run(t, &open_mpi, "conformance", shapes[i][0], shapes[i][1], false);
        CHECK_HERE();
    }
}

TEST(conformance_with_mpich)
{
    static const int shapes[][2] = {{2, 2}, {4, 2}};
    for (size_t i = 0; i < FSDP_LENGTH(shapes) && !t->skipped; i++) {
        mpi_ranks_run(t, &mpich, "conformance", shapes[i][0], shapes[i][1], false);
        CHECK_HERE();
    }
}

TEST(random_phases_between_hosts_read_no_stale_byte)
{
    mpi_ranks_run(t, &open_mpi, "stress", 4, 2, false);
}

TEST(random_collectives_between_hosts_and_within_halves_are_right)
{
    mpi_ranks_run(t, &mpich, "random", 4, 2, false);
}

TEST(parts_of_many_pieces_arrive_and_their_bytes_are_counted)
{
    mpi_ranks_run(t, &mpich, "large", 4, 2, false);
}

TEST(a_failing_rank_is_named_on_other_hosts)
{
    mpi_ranks_run(t, &open_mpi, "fail", 4, 2, true);
}

TEST(ranks_of_two_hosts_that_diverge_are_found)
{
    mpi_ranks_run(t, &mpich, "diverge", 2, 2, true);
}

TEST(a_rank_that_left_is_named_on_another_host)
{
    mpi_ranks_run(t, &open_mpi, "leave", 2, 2, true);
}

TEST(a_job_of_one_host_ends_although_a_rank_is_stopped)
{
    mpi_ranks_run(t, &mpich, "stop", 2, 1, true);
}

TEST(a_discard_keeps_the_part_of_each_rank_of_a_host)
{
    mpi_ranks_run(t, &mpich, "discard", 2, 2, false);
}
