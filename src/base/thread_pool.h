/* A pool of threads; each rank has one, and OpenMP is not used. Work is divided according to the
 * shapes of tensors, never according to the number of threads, so results do not depend on that
 * number. The caller defines task i of n, and any thread may run it. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_thread_pool fsdp_thread_pool;

/* `threads` includes the calling thread: with 1, no thread is started, and fsdp_parallel_for() is a
 * plain loop. */
FSDP_MUST_CHECK fsdp_status fsdp_thread_pool_create(int threads, fsdp_thread_pool **pool);
void fsdp_thread_pool_destroy(fsdp_thread_pool *pool); /* accepts NULL */
int fsdp_thread_pool_size(const fsdp_thread_pool *pool);

/* Run task(arg, i, worker) for i in [0, n), with worker in [0, size); worker 0 is the caller.
 * Returns when all tasks are done. Must not be called from a task. If `pool` is NULL, this is a
 * plain loop with worker 0. */
typedef void fsdp_task_fn(void *arg, int64_t i, int worker);
void fsdp_parallel_for(fsdp_thread_pool *pool, int64_t n, fsdp_task_fn *task, void *arg);
