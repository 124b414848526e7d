/* Ranks that run different programs: all of them get one error, long before the timeout, that names
 * rank, step, unit and call. The ranks are threads here, and processes in test_divergence_shm.c. */
#include "src/comm/comm.h"
#include "tests/fsdp/odd_rank.h"

static void run_case(fsdp_test *t, const odd_case *kase, odd_layout layout, int variant,
                     int world_size)
{
    odd_job job = {.kase = kase, .layout = layout, .options = &tree_variants[variant]};
    if (kase->processes_only || !odd_applies(kase, layout, job.options))
        return;
    ASSERT(fsdp_run_ranks(world_size, odd_rank, &job, NULL) != FSDP_OK);
    odd_check(t, &job, world_size);
    if (t->failed)
        FAIL("variant %d on %d ranks", variant, world_size);
}

TEST(every_divergence_and_failure_is_one_error_on_all_ranks)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++)
        for (int v = 0; v < TREE_VARIANTS && !t->failed; v++)
            run_case(t, &odd_cases[i], ODD_WORLD, v, 3);
}

TEST(of_two_ranks_and_of_four_too)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++) {
        run_case(t, &odd_cases[i], ODD_WORLD, (int)i % TREE_VARIANTS, 2);
        run_case(t, &odd_cases[i], ODD_WORLD, (int)(i + 1) % TREE_VARIANTS, 4);
    }
}

/* The ranks of the other group get the error in their next call. */
TEST(a_failure_in_one_group_is_reported_to_the_ranks_of_another)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++)
        run_case(t, &odd_cases[i], ODD_PAIRS, (int)i % 2, 4);
}

TEST(over_a_mesh_of_replicas_too)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++)
        run_case(t, &odd_cases[i], ODD_MESH, (int)i % 2, 4);
}
