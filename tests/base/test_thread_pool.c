/* Every task runs exactly once, on a worker that exists, and its effects are visible when
 * parallel_for returns. */
#include "src/base/alloc_testing.h"
#include "src/base/thread_pool.h"

#include <stdatomic.h>

#include "src/base/alloc.h"
#include "tests/test.h"

enum {
    MAX_TASKS = 1000
};

typedef struct tally {
    int runs[MAX_TASKS]; /* not atomic: TSan reports a race or a missing happens-before */
    int size;
    _Atomic int bad_workers;
    int64_t per_worker[64]; /* each written only by its worker */
} tally;

static void count_task(void *arg, int64_t i, int worker)
{
    tally *t = arg;
    t->runs[i]++;
    if (worker < 0 || worker >= t->size)
        atomic_fetch_add(&t->bad_workers, 1);
    else
        t->per_worker[worker]++;
}

static void check_pool(fsdp_test *t, fsdp_thread_pool *pool, int64_t n)
{
    tally *counted = fsdp_calloc(1, sizeof *counted);
    ASSERT(counted);
    counted->size = fsdp_thread_pool_size(pool);
    fsdp_parallel_for(pool, n, count_task, counted);
    for (int64_t i = 0; i < MAX_TASKS; i++)
        ASSERT_INT(counted->runs[i], i < n);
    int64_t sum = 0;
    for (int w = 0; w < counted->size; w++)
        sum += counted->per_worker[w];
    ASSERT_INT(sum, n);
    ASSERT_INT(counted->bad_workers, 0);
    fsdp_free(counted);
}

TEST(every_task_runs_once_at_every_pool_size)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, MAX_TASKS};
    for (int size = 1; size <= 8; size++) {
        fsdp_thread_pool *pool = NULL;
        ASSERT_OK(fsdp_thread_pool_create(size, &pool));
        ASSERT_INT(fsdp_thread_pool_size(pool), size);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            check_pool(t, pool, counts[i]);
            CHECK_HERE();
        }
        fsdp_thread_pool_destroy(pool);
    }
}

TEST(no_pool_is_a_plain_loop)
{
    ASSERT_INT(fsdp_thread_pool_size(NULL), 1);
    check_pool(t, NULL, 17);
    fsdp_thread_pool_destroy(NULL);
}

/* Jobs follow each other immediately. A late worker must neither run an old task again nor mistake
 * a task of the next job for one of its own. */
TEST(many_short_jobs_in_a_row)
{
    fsdp_thread_pool *pool = NULL;
    ASSERT_OK(fsdp_thread_pool_create(4, &pool));
    tally *counted = fsdp_calloc(1, sizeof *counted);
    ASSERT(counted);
    counted->size = 4;
    enum {
        JOBS = 3000
    };
    for (int job = 0; job < JOBS; job++)
        fsdp_parallel_for(pool, 1 + job % 5, count_task, counted);
    for (int i = 0; i < 5; i++)
        ASSERT_INT(counted->runs[i], JOBS / 5 * (5 - i));
    fsdp_free(counted);
    fsdp_thread_pool_destroy(pool);
}

TEST(a_senseless_size_is_an_error)
{
    fsdp_thread_pool *pool = NULL;
    ASSERT_ERROR(fsdp_thread_pool_create(0, &pool), FSDP_ERR_INVALID, "0 threads");
    ASSERT_ERROR(fsdp_thread_pool_create(-3, &pool), FSDP_ERR_INVALID, "-3 threads");
}

TEST(no_memory_is_an_error)
{
    fsdp_thread_pool *pool = NULL;
    for (long n = 1; n <= 2; n++) {
        fsdp_alloc_fail_at(n);
        ASSERT_ERROR(fsdp_thread_pool_create(3, &pool), FSDP_ERR_NOMEM, "memory");
        fsdp_alloc_fail_at(0);
    }
}
