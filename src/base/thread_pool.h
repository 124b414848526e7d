/* A pool of threads, used instead of OpenMP. Each rank has one. The caller divides its work into n
 * tasks according to the shapes of tensors, and any thread may run a task. The division never
 * depends on the number of threads, so results do not depend on it, either. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_thread_pool fsdp_thread_pool;

/* Create a pool of `threads` threads, including the calling thread. With `threads` = 1, no thread
 * is started, and fsdp_parallel_for() is a plain loop. */
FSDP_MUST_CHECK fsdp_status fsdp_thread_pool_create(int threads, fsdp_thread_pool **pool);
void fsdp_thread_pool_destroy(fsdp_thread_pool *pool); /* accepts NULL */
int fsdp_thread_pool_size(const fsdp_thread_pool *pool);

/* fsdp_parallel_for() runs task(arg, i, worker) for each i in [0, n), and returns when all tasks
 * are done. `worker` is the index of the thread in [0, size); the caller is worker 0. A task must
 * not call fsdp_parallel_for(). If `pool` is NULL, this is a plain loop with worker 0. */
typedef void fsdp_task_fn(void *arg, int64_t i, int worker);
void fsdp_parallel_for(fsdp_thread_pool *pool, int64_t n, fsdp_task_fn *task, void *arg);
