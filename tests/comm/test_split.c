/* Groups of some ranks: the conformance suite in each of them, nested and next to each other, over
 * threads and processes. A failure in one group reaches all. */
#include <string.h>
#include <unistd.h>

#include "src/comm/group.h"
#include "tests/comm/conformance.h"
#include "tests/comm/processes.h"
#include "tests/test.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return fsdp_error(FSDP_ERR_STATE, "%s:%d: rank %d: %s does not hold", __FILE__,        \
                              __LINE__, fsdp_group_rank(world), #condition);                       \
    } while (0)

/* The ranks of `group` as ranks of the world, by all_gather. */
static fsdp_status members(fsdp_group *world, fsdp_group *group, int *ranks)
{
    int rank = fsdp_group_rank(world);
    return fsdp_all_gather(group, &rank, sizeof rank, ranks);
}

/* Ranks of one parity, the highest first. */
static fsdp_status by_parity(fsdp_group *world)
{
    int rank = fsdp_group_rank(world), world_size = fsdp_group_world_size(world), ranks[16];
    fsdp_group *half;
    FSDP_TRY(fsdp_group_split(world, rank % 2, -rank, &half));
    CHECK(fsdp_group_world_size(half) == (world_size + 1 - rank % 2) / 2);
    FSDP_TRY(members(world, half, ranks));
    CHECK(ranks[fsdp_group_rank(half)] == rank);
    for (int r = 1; r < fsdp_group_world_size(half); r++)
        CHECK(ranks[r] == ranks[r - 1] - 2);
    FSDP_TRY(comm_conformance(half, NULL));
    fsdp_destroy_process_group(half);
    return FSDP_OK;
}

/* Rank 0 is in no group. The others are split again, in pairs. */
static fsdp_status nested(fsdp_group *world)
{
    int rank = fsdp_group_rank(world), world_size = fsdp_group_world_size(world);
    fsdp_group *rest, *pair;
    FSDP_TRY(fsdp_group_split(world, rank == 0 ? -1 : 7, 0, &rest));
    CHECK((rest == NULL) == (rank == 0));
    if (!rest)
        return FSDP_OK;
    CHECK(fsdp_group_world_size(rest) == world_size - 1 && fsdp_group_rank(rest) == rank - 1);
    FSDP_TRY(fsdp_group_split(rest, (rank - 1) / 2, 0, &pair));
    FSDP_TRY(comm_conformance(pair, NULL));
    fsdp_destroy_process_group(rest); /* the pair remains usable */
    FSDP_TRY(comm_conformance(pair, NULL));
    fsdp_destroy_process_group(pair);
    return FSDP_OK;
}

/* Rows and columns of a mesh, used alternately. */
static fsdp_status mesh(fsdp_group *world)
{
    int rank = fsdp_group_rank(world), world_size = fsdp_group_world_size(world);
    fsdp_group *row, *column;
    FSDP_TRY(fsdp_group_split(world, rank / 2, rank, &row));
    FSDP_TRY(fsdp_group_split(world, rank % 2, rank, &column));
    for (int i = 0; i < 20; i++) {
        int64_t sum = rank + i;
        FSDP_TRY(fsdp_all_reduce(row, &sum, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM));
        FSDP_TRY(fsdp_all_reduce(column, &sum, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM));
        if (world_size % 2 == 0)
            CHECK(sum == (int64_t)world_size * (world_size - 1) / 2 + (int64_t)i * world_size);
    }
    FSDP_TRY(comm_conformance(row, NULL));
    FSDP_TRY(comm_conformance(column, NULL));
    fsdp_destroy_process_group(row);
    fsdp_destroy_process_group(column);
    return fsdp_barrier(world);
}

static fsdp_status all_splits(fsdp_group *world, void *arg)
{
    (void)arg;
    FSDP_TRY(by_parity(world));
    FSDP_TRY(nested(world));
    FSDP_TRY(mesh(world));
    return comm_conformance(world, NULL);
}

TEST(split_groups_conform_over_threads)
{
    for (int world_size = 1; world_size <= (UNDER_SANITIZER ? 3 : 5); world_size += 2)
        ASSERT_OK(fsdp_run_ranks(world_size, all_splits, NULL, NULL));
}

TEST(split_groups_conform_over_processes)
{
    process_result results[MAX_PROCESSES];
    for (int world_size = 2; world_size <= 4; world_size += 2) {
        ASSERT_OK(run_processes(world_size, all_splits, NULL, results, NULL));
        for (int r = 0; r < world_size; r++)
            if (results[r].status != FSDP_OK)
                FAIL("rank %d of %d: %s", r, world_size, results[r].message);
    }
}

/* Rank 3 fails. The ranks of the other row get the error at their next wait. */
static fsdp_status one_fails(fsdp_group *world, void *arg)
{
    (void)arg;
    fsdp_group *row;
    int rank = fsdp_group_rank(world);
    FSDP_TRY(fsdp_group_split(world, rank / 2, rank, &row));
    fsdp_status status = FSDP_OK;
    if (rank == 3)
        status = fsdp_error(FSDP_ERR_NUMERIC, "the dice fell badly");
    for (int i = 0; status == FSDP_OK; i++) {
        usleep(1000);
        status = fsdp_barrier(row);
    }
    fsdp_group_abort(row, status);
    fsdp_destroy_process_group(row);
    return status;
}

TEST(a_failure_in_one_group_ends_all_groups)
{
    process_result results[4];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(4, one_fails, NULL, results, &report));
    ASSERT_INT(report.rank, 3);
    for (int r = 0; r < 3; r++) {
        ASSERT_INT(results[r].status, FSDP_ERR_COMM);
        ASSERT(strstr(results[r].message, "rank 3") != NULL);
        ASSERT(strstr(results[r].message, "the dice fell badly") != NULL);
    }
}

/* Ranks 2 and 3 of the world are 0 and 1 of their group. Messages have the ranks of the world. */
static fsdp_status diverge(fsdp_group *world, void *arg)
{
    (void)arg;
    fsdp_group *row;
    int rank = fsdp_group_rank(world);
    int64_t x = 0;
    FSDP_TRY(fsdp_group_split(world, rank / 2, rank, &row));
    fsdp_status status = rank == 3 ? fsdp_all_reduce(row, &x, 1, FSDP_DTYPE_I64, FSDP_REDUCE_SUM)
                                   : fsdp_barrier(row);
    fsdp_group_abort(row, status);
    fsdp_destroy_process_group(row);
    return status;
}

TEST(divergence_names_the_worlds_ranks)
{
    fsdp_status statuses[4];
    ASSERT_ERROR(fsdp_run_ranks(4, diverge, NULL, statuses), FSDP_ERR_COMM, "ranks diverged");
    ASSERT(strstr(fsdp_last_error(), "rank 2") != NULL);
    ASSERT(strstr(fsdp_last_error(), "rank 3") != NULL);
}

static fsdp_status too_often(fsdp_group *world, void *arg)
{
    (void)arg;
    fsdp_group *group;
    for (int i = 0; i < 15; i++) {
        FSDP_TRY(fsdp_group_split(world, 0, 0, &group));
        fsdp_destroy_process_group(group);
    }
    return fsdp_group_split(world, 0, 0, &group);
}

TEST(a_group_is_split_fifteen_times)
{
    ASSERT_ERROR(fsdp_run_ranks(2, too_often, NULL, NULL), FSDP_ERR_UNSUPPORTED, "15 times");
}

/* The numbers of a group's buffers run out where those of the next group begin. This is an error,
 * after which everything else works. */
static fsdp_status use_up_numbers(fsdp_group *world, void *arg)
{
    fsdp_group *half;
    (void)arg;
    FSDP_TRY(fsdp_group_split(world, fsdp_group_rank(world) / 2, 0, &half));
    fsdp_group *const groups[] = {world, half};
    for (size_t g = 0; g < 2; g++) {
        fsdp_shared_buffer *buffer = NULL;
        groups[g]->next_buffer = (groups[g]->next_buffer & ~0xffffu) | 0xfffe;
        for (int i = 0; i < 2; i++) {
            FSDP_TRY(fsdp_shared_buffer_create(groups[g], 8, &buffer));
            fsdp_shared_buffer_destroy(buffer);
        }
        for (int i = 0; i < 2; i++) {
            CHECK(fsdp_shared_buffer_create(groups[g], 8, &buffer) == FSDP_ERR_UNSUPPORTED);
            CHECK(strstr(fsdp_last_error(), "has made 65535 already"));
        }
        FSDP_TRY(fsdp_barrier(groups[g]));
    }
    fsdp_destroy_process_group(half);
    return fsdp_barrier(world);
}

TEST(a_group_makes_65535_buffers)
{
    ASSERT_OK(fsdp_run_ranks(4, use_up_numbers, NULL, NULL));
}
