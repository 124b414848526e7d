/* A group without peers: what its collectives return, what it refuses, how it is split. */
#include "src/comm/plan_group.h"
#include "tests/test.h"

TEST(a_plan_group_is_of_any_size_and_fills_hosts_in_rank_order)
{
    fsdp_group *g;
    ASSERT_OK(fsdp_plan_group_create(13, 512, 8, &g));
    ASSERT_INT(fsdp_group_rank(g), 13);
    ASSERT_INT(fsdp_group_world_size(g), 512);
    ASSERT_INT(fsdp_group_local_rank(g), 5);
    ASSERT_INT(fsdp_group_local_world_size(g), 8);
    ASSERT_STR(fsdp_group_backend(g), "plan");
    ASSERT(fsdp_group_is_plan(g) && !fsdp_group_is_plan(NULL));
    fsdp_destroy_process_group(g);
}

TEST(collectives_of_a_plan_give_what_there_is_and_are_counted)
{
    fsdp_group *g;
    ASSERT_OK(fsdp_plan_group_create(1, 3, 3, &g));
    double x = 2.5;
    int one = 7, all[3] = {0};
    ASSERT_OK(fsdp_all_reduce(g, &x, 1, FSDP_DTYPE_F64, FSDP_REDUCE_SUM));
    ASSERT(x == 2.5);
    ASSERT_OK(fsdp_all_gather(g, &one, sizeof one, all));
    ASSERT(all[0] == 7 && all[1] == 7 && all[2] == 7);
    all[2] = 8; /* in place: this rank's part may be in the result */
    ASSERT_OK(fsdp_all_gather(g, &all[2], sizeof one, all));
    ASSERT(all[0] == 8 && all[1] == 8 && all[2] == 8);
    ASSERT_OK(fsdp_barrier(g));
    ASSERT_OK(fsdp_broadcast(g, &one, sizeof one, 1));
    const fsdp_comm_counters *c = fsdp_group_counters(g);
    ASSERT_INT(c->calls[FSDP_KIND_ALL_GATHER], 2);
    ASSERT_INT(c->logical_bytes[FSDP_KIND_ALL_GATHER], 2 * 3 * sizeof one);
    ASSERT_INT(c->calls[FSDP_KIND_ALL_REDUCE], 1);
    ASSERT_INT(c->calls[FSDP_KIND_BARRIER], 1);
    fsdp_destroy_process_group(g);
}

TEST(what_would_hold_values_of_peers_is_an_error)
{
    fsdp_group *g, *part;
    fsdp_shared_buffer *buffer;
    float send[2] = {0}, recv[1];
    ASSERT_OK(fsdp_plan_group_create(0, 2, 2, &g));
    ASSERT_ERROR(fsdp_shared_buffer_create(g, 64, &buffer), FSDP_ERR_UNSUPPORTED, "plan");
    ASSERT_ERROR(fsdp_reduce_scatter(g, send, recv, 1, FSDP_REDUCE_SUM), FSDP_ERR_UNSUPPORTED,
                 "plan");
    ASSERT_ERROR(fsdp_broadcast(g, recv, sizeof recv, 1), FSDP_ERR_UNSUPPORTED, "plan");
    ASSERT_ERROR(fsdp_group_split(g, 0, 0, &part), FSDP_ERR_UNSUPPORTED, "plan");
    ASSERT_ERROR(fsdp_all_reduce(g, NULL, 1, FSDP_DTYPE_F32, FSDP_REDUCE_SUM), FSDP_ERR_INVALID,
                 "buf");
    fsdp_destroy_process_group(g);
}

TEST(worlds_that_do_not_fit_are_refused)
{
    fsdp_group *g;
    ASSERT_ERROR(fsdp_plan_group_create(0, 0, 1, &g), FSDP_ERR_INVALID, "world_size");
    ASSERT_ERROR(fsdp_plan_group_create(0, 6, 4, &g), FSDP_ERR_INVALID, "local_world_size 4");
    ASSERT_ERROR(fsdp_plan_group_create(6, 6, 2, &g), FSDP_ERR_INVALID, "rank is 6");
}

/* 16 ranks on 2 hosts as a mesh of 4 x 4: columns are 4 apart, two of them on each host. */
TEST(a_plan_group_is_split_along_a_mesh)
{
    fsdp_group *g, *column, *row;
    ASSERT_OK(fsdp_plan_group_create(9, 16, 8, &g));
    ASSERT_OK(fsdp_plan_group_split(g, 2, 4, 4, &column)); /* 1, 5, 9, 13 */
    ASSERT_INT(fsdp_group_rank(column), 2);
    ASSERT_INT(fsdp_group_world_size(column), 4);
    ASSERT_INT(fsdp_group_local_world_size(column), 2);
    ASSERT_INT(fsdp_group_local_rank(column), 0);
    ASSERT_OK(fsdp_plan_group_split(g, 1, 4, 1, &row)); /* 8, 9, 10, 11 */
    ASSERT_INT(fsdp_group_local_world_size(row), 4);
    ASSERT_INT(fsdp_group_local_rank(row), 1);
    fsdp_destroy_process_group(row);
    ASSERT_ERROR(fsdp_plan_group_split(g, 3, 4, 4, &row), FSDP_ERR_INVALID, "distance 4");
    fsdp_destroy_process_group(column);
    fsdp_destroy_process_group(g);
}
