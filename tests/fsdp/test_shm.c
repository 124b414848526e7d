/* Ranks as processes over shared memory train to the same bits as ranks as threads. */
#include <stdio.h>
#include <sys/mman.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "tests/comm/processes.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 4,
    LEAVES = 4,
    MAX_NUMEL = 512
};

typedef struct job {
    const fsdp_fully_shard_options *options;
    int replicas; /* 0: no mesh */
    size_t n;     /* number of params. Rank 0 sets n and params, in shared memory */
    float params[MAX_NUMEL];
} job;

static fsdp_status train(fsdp_group *group, void *arg)
{
    job *j = arg;
    trainee m;
    float *params = NULL;
    size_t n = 0;
    fsdp_fully_shard_options options = *j->options;
    fsdp_device_mesh *mesh = NULL;
    fsdp_group_set_delay(group, 5, 200);
    if (j->replicas)
        FSDP_TRY(fsdp_device_mesh_create(
            group, 2, (int[]){j->replicas, fsdp_group_world_size(group) / j->replicas}, NULL,
            &mesh));
    options.mesh = mesh;
    FSDP_TRY(trainee_open_example(group, &options, &m));
    for (int step = 0; step < STEPS; step++) {
        FSDP_TRY(tree_step(&m, step, LEAVES));
        FSDP_TRY(tree_evaluate(&m, m.model, step));
    }
    FSDP_TRY(tree_params(m.model, &params, &n));
    if (fsdp_group_rank(group) == 0 && n <= MAX_NUMEL) {
        memcpy(j->params, params, n * sizeof *params);
        j->n = n;
    }
    fsdp_free(params);
    FSDP_TRY(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
    return FSDP_OK;
}

static void run_as_processes(fsdp_test *t, int world_size, job *j)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(world_size, train, j, results, &report));
    for (int r = 0; r < world_size; r++)
        if (results[r].status != FSDP_OK || results[r].signal)
            FAIL("rank %d of %d: signal %d, %s", r, world_size, results[r].signal,
                 results[r].message);
}

static job *share_jobs(size_t n)
{
    void *jobs =
        mmap(NULL, n * sizeof(job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return jobs == MAP_FAILED ? NULL : jobs;
}

/* All processes are forked before the first thread runs. */
TEST(processes_train_to_the_bits_of_threads)
{
    static const int worlds[] = {2, 4, 4};
    const size_t n = 3 * TREE_VARIANTS;
    job *jobs = share_jobs(n);
    ASSERT(jobs);
    for (size_t i = 0; i < n; i++) {
        jobs[i].options = &tree_variants[i / 3];
        jobs[i].replicas = i % 3 == 2 ? 2 : 0;
        run_as_processes(t, worlds[i % 3], &jobs[i]);
        CHECK_HERE();
        ASSERT(jobs[i].n > 0);
    }
    for (size_t i = 0; i < n; i++) {
        job threads = {.options = jobs[i].options, .replicas = jobs[i].replicas};
        ASSERT_OK(fsdp_run_ranks(worlds[i % 3], train, &threads, NULL));
        ASSERT_INT(threads.n, jobs[i].n);
        ASSERT(memcmp(threads.params, jobs[i].params, threads.n * sizeof *threads.params) == 0);
    }
    munmap(jobs, n * sizeof(job));
}

static fsdp_status fail_on_rank_1(fsdp_group *group, void *arg)
{
    trainee m;
    (void)arg;
    FSDP_TRY(trainee_open_example(group, &tree_variants[1], &m));
    FSDP_TRY(tree_step(&m, 0, 2));
    tree_of(trainee_unit(&m, "first"))->fail_backward = fsdp_group_rank(group) == 1;
    fsdp_status status = tree_step(&m, 1, 2);
    fsdp_group_abort(group, status);
    FSDP_TRY(trainee_close(&m));
    return status;
}

TEST(a_process_that_fails_ends_the_other)
{
    process_result results[MAX_PROCESSES];
    fsdp_rendezvous_report report;
    ASSERT_OK(run_processes(2, fail_on_rank_1, NULL, results, &report));
    ASSERT_INT(results[1].status, FSDP_ERR_INVALID);
    ASSERT_INT(results[0].status, FSDP_ERR_COMM);
    ASSERT(strstr(report.text, "rank 1 failed in step 2, unit first, backward"));
    ASSERT(results[0].ended_s < 60.0); /* long before the timeout of ten minutes */
}
