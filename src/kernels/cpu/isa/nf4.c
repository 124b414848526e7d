/* Reads weights in NF4. See Note [NF4] in src/kernels/nf4.h. */
#include "src/kernels/cpu/isa/block.h"

typedef struct nf4_job {
    const fsdp_nf4_args *args;
    int64_t task_blocks; /* number of NF4 blocks in a task */
} nf4_job;

static float scale_of(const fsdp_nf4_args *a, int64_t block)
{
    return a->absmax ? a->absmax[block]
                     : a->map[a->codes[block]] * a->nested[block / a->nested_block] + a->offset;
}

/* Write elements [at, at + n) to `out`. n is at most FSDP_BLOCK. All of these elements have the
 * scale `scale`. */
static void write_elements(const fsdp_nf4_args *a, int64_t at, int n, float scale)
{
    float values[FSDP_BLOCK], scaled[FSDP_NF4_LEVELS];
    const uint8_t *packed = a->packed + at / 2;
    for (int i = 0; i < FSDP_NF4_LEVELS; i++)
        scaled[i] = fsdp_nf4_levels[i] * scale;
    for (int i = 0; i < n; i += 2) {
        values[i] = scaled[packed[i / 2] >> 4];
        values[i + 1] = scaled[packed[i / 2] & 0xf];
    }
    for (int i = 0; i < n && a->dtype == FSDP_DTYPE_BF16; i++)
        ((uint16_t *)a->out)[at + i] = fsdp_bf16_from_f32(values[i]);
    for (int i = 0; i < n && a->dtype == FSDP_DTYPE_F16; i++)
        ((uint16_t *)a->out)[at + i] = fsdp_round_f16(values[i]);
    if (a->dtype == FSDP_DTYPE_F32)
        memcpy((float *)a->out + at, values, (size_t)n * sizeof *values);
}

static void nf4_task(void *arg, int64_t task, int worker)
{
    const nf4_job *job = arg;
    const fsdp_nf4_args *a = job->args;
    const int64_t first = task * job->task_blocks;
    (void)worker;
    for (int64_t block = first; block < first + job->task_blocks; block++) {
        const int64_t end = fsdp_min_i64(a->n, (block + 1) * a->block);
        const float scale = block * a->block < a->n ? scale_of(a, block) : 0.0f;
        for (int64_t at = block * a->block, n; at < end; at += n) {
            n = fsdp_min_i64(end - at, FSDP_BLOCK);
            write_elements(a, at, (int)n, scale);
        }
    }
}

static void nf4_dequantize(fsdp_kernel_context *c, const fsdp_nf4_args *args)
{
    const int64_t blocks = fsdp_ceil_div(args->n, args->block);
    const nf4_job job = {.args = args, .task_blocks = fsdp_ceil_div(FSDP_CHUNK, args->block)};
    fsdp_run_tasks(c, fsdp_ceil_div(blocks, job.task_blocks), nf4_task, (void *)(uintptr_t)&job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_nf4)(fsdp_kernels *k)
{
    k->nf4_dequantize = nf4_dequantize;
}
