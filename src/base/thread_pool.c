/* Implements the pool: how workers wait for jobs and share the tasks of a job. Workers sleep on a
 * condition variable. The caller of fsdp_parallel_for() opens a job, and a worker that wakes enters
 * the job. The caller, and each worker in the job, take one task after another from an atomic
 * counter. When no tasks are left, the caller closes the job and waits for the workers that have
 * entered it. A worker that wakes later finds the job closed and sleeps again.
 *
 * Waking up takes as long as a short job. So threads spin for a moment before they sleep, but only
 * if each thread can have a processor of its own. */
#include "src/base/thread_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/cpus.h"

enum {
    SPIN_NS = 25000,
    SPINS_A_LOOK = 32 /* iterations between two reads of the clock */
};

typedef struct worker {
    fsdp_thread_pool *pool;
    pthread_t thread;
    int index; /* 1 to size - 1; index 0 is the caller */
} worker;

struct fsdp_thread_pool {
    /* `size` includes the caller. `started` is the number of running workers; after create(), it is
     * size - 1. */
    int size, started;
    worker *workers;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    bool spins;
    /* The lock protects the two fields below. */
    bool stopping, open; /* `open`: a job is open, so workers may enter it */
    /* The two fields below are written only under the lock. */
    _Atomic uint64_t job; /* number of the newest job; a worker enters a job at most once */
    _Atomic int inside;   /* number of workers that are in the job */
    /* The newest job. Except for `next`, these fields are written before `open` is set, and do not
     * change until the last worker has left the job. */
    fsdp_task_fn *task;
    void *arg;
    int64_t n;
    _Atomic int64_t next;
};

static void run_tasks(fsdp_thread_pool *pool, int index)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->n)
            return;
        pool->task(pool->arg, i, index);
    }
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static bool has_new_job(const fsdp_thread_pool *pool, uint64_t seen)
{
    return atomic_load_explicit(&pool->job, memory_order_relaxed) != seen;
}

static bool is_left(const fsdp_thread_pool *pool, uint64_t unused)
{
    (void)unused;
    return atomic_load_explicit(&pool->inside, memory_order_relaxed) == 0;
}

/* Spin until done() is true, but for at most SPIN_NS nanoseconds. The caller must call done() again
 * under the lock. */
static void spin_until(const fsdp_thread_pool *pool,
                       bool (*done)(const fsdp_thread_pool *pool, uint64_t seen), uint64_t seen)
{
    const int64_t end = pool->spins ? fsdp_clock_ns() + SPIN_NS : 0;
    while (pool->spins && !done(pool, seen) && fsdp_clock_ns() < end)
        for (int i = 0; i < SPINS_A_LOOK && !done(pool, seen); i++)
            pause_cpu();
}

static void run_job(const worker *self, uint64_t *seen)
{
    fsdp_thread_pool *pool = self->pool;
    *seen = pool->job;
    pool->inside++;
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, self->index);
    pthread_mutex_lock(&pool->lock);
    if (--pool->inside == 0)
        pthread_cond_signal(&pool->idle);
    pthread_mutex_unlock(&pool->lock);
    spin_until(pool, has_new_job, *seen);
    pthread_mutex_lock(&pool->lock);
}

static void *worker_main(void *arg)
{
    const worker *self = arg;
    fsdp_thread_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stopping) {
        if (pool->open && pool->job != seen)
            run_job(self, &seen);
        else
            pthread_cond_wait(&pool->wake, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Return true if this process may use at least `threads` processors. Other processes may be using
 * them, too. */
static bool have_cores(int threads)
{
    return fsdp_available_cpus() >= threads;
}

fsdp_status fsdp_thread_pool_create(int threads, fsdp_thread_pool **pool)
{
    if (threads < 1 || threads > 4096)
        return fsdp_error(FSDP_ERR_INVALID, "thread pool: %d threads, not between 1 and 4096",
                          threads);
    fsdp_thread_pool *made = fsdp_calloc(1, sizeof *made);
    if (!made)
        return fsdp_error_nomem();
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    pthread_cond_init(&made->idle, NULL);
    made->size = threads;
    made->spins = have_cores(threads);
    made->workers = fsdp_calloc((size_t)threads, sizeof *made->workers);
    if (!made->workers) {
        fsdp_thread_pool_destroy(made);
        return fsdp_error_nomem();
    }
    for (int i = 1; i < threads; i++) {
        worker *w = &made->workers[i - 1];
        *w = (worker){.pool = made, .index = i};
        int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error) {
            fsdp_thread_pool_destroy(made);
            return fsdp_error(FSDP_ERR_NOMEM, "thread pool: cannot start thread %d of %d: %s", i,
                              threads, strerror(error));
        }
        made->started++;
    }
    *pool = made;
    return FSDP_OK;
}

void fsdp_thread_pool_destroy(fsdp_thread_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    fsdp_free(pool->workers);
    fsdp_free(pool);
}

int fsdp_thread_pool_size(const fsdp_thread_pool *pool)
{
    return pool ? pool->size : 1;
}

void fsdp_parallel_for(fsdp_thread_pool *pool, int64_t n, fsdp_task_fn *task, void *arg)
{
    if (!pool || pool->size == 1 || n <= 1) {
        for (int64_t i = 0; i < n; i++)
            task(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->task = task;
    pool->arg = arg;
    pool->n = n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->open = true;
    pool->job++;
    if (n - 1 < pool->started)
        for (int64_t i = 1; i < n; i++)
            pthread_cond_signal(&pool->wake);
    else
        pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, 0);
    spin_until(pool, is_left, 0);
    pthread_mutex_lock(&pool->lock);
    pool->open = false;
    while (pool->inside > 0)
        pthread_cond_wait(&pool->idle, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}
