/* Ranks as processes that run different programs, or end: see test_divergence.c. */
#include <sys/mman.h>

#include "tests/comm/processes.h"
#include "tests/fsdp/odd_rank.h"

static void run_case(fsdp_test *t, const odd_case *kase, odd_layout layout, int variant,
                     int world_size)
{
    process_result results[MAX_PROCESSES];
    if (!odd_applies(kase, layout, &tree_variants[variant]))
        return;
    odd_job *job =
        mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT(job != MAP_FAILED);
    *job = (odd_job){.kase = kase, .layout = layout, .options = &tree_variants[variant]};
    ASSERT_OK(run_processes(world_size, odd_rank, job, results, NULL));
    odd_check(t, job, world_size);
    munmap(job, sizeof *job);
    if (t->failed)
        FAIL("variant %d on %d ranks", variant, world_size);
}

TEST(every_divergence_and_failure_is_one_error_on_all_processes)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++)
        for (int world_size = 2; world_size <= 4 && !t->failed; world_size++)
            run_case(t, &odd_cases[i], ODD_WORLD, (int)i % TREE_VARIANTS, world_size);
}

TEST(in_split_groups_and_meshes_too)
{
    for (size_t i = 0; i < n_odd_cases && !t->failed; i++) {
        run_case(t, &odd_cases[i], ODD_PAIRS, (int)i % 2, 4);
        run_case(t, &odd_cases[i], ODD_MESH, (int)(i + 1) % 2, 4);
    }
}
