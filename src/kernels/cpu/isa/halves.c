/* Kernels that split float32 values into two halves and join them again; see Note [Halves] in
 * src/base/halves.h. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/halves.h"

typedef struct halves_job {
    fsdp_halves halves;
    float *to;         /* join: the result */
    const float *from; /* split: the input */
    int64_t n;
} halves_job;

static void join_task(void *arg, int64_t task, int worker)
{
    const halves_job *job = arg;
    const int64_t at = task * FSDP_CHUNK;
    (void)worker;
    fsdp_join_block(job->to + at, fsdp_halves_at(job->halves, at),
                    (int)fsdp_min_i64(job->n - at, FSDP_CHUNK));
}

static void split_task(void *arg, int64_t task, int worker)
{
    const halves_job *job = arg;
    const int64_t at = task * FSDP_CHUNK;
    (void)worker;
    fsdp_split_block(fsdp_halves_at(job->halves, at), job->from + at,
                     (int)fsdp_min_i64(job->n - at, FSDP_CHUNK));
}

static void join(fsdp_kernel_context *c, float *dst, fsdp_halves src, int64_t n)
{
    halves_job job = {.halves = src, .to = dst, .n = n};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), join_task, &job);
}

static void split(fsdp_kernel_context *c, fsdp_halves dst, const float *src, int64_t n)
{
    halves_job job = {.halves = dst, .from = src, .n = n};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), split_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_halves)(fsdp_kernels *k)
{
    k->join = join;
    k->split = split;
}
