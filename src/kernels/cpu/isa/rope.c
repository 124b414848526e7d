/* Rotary position embedding (Su et al. 2021). Element j is paired with element j + K/2 of its head,
 * as in transformers' Llama, so both halves of a head are contiguous. Legend: T tokens, H heads, K
 * head width. */
#include "src/kernels/cpu/isa/block.h"

typedef struct rope_job {
    void *out;
    const void *x;
    fsdp_dtype dtype;
    const float *table;
    const int32_t *positions;
    int64_t tokens, heads, head_dim, task_tokens;
    float turn; /* 1: rotate by the angle; -1: rotate back */
} rope_job;

/* Rotates n pairs of elements of a head. Each pair has one element of the head's lower half and one
 * of its upper half. job->out may be job->x. */
static void rotate(const rope_job *job, int64_t low_at, int64_t high_at, const float *cosine,
                   const float *sine, int n)
{
    float low_buffer[FSDP_BLOCK], high_buffer[FSDP_BLOCK], low_out[FSDP_BLOCK];
    float high_out[FSDP_BLOCK], turn = job->turn;
    const float *low = fsdp_load_block(low_buffer, job->x, job->dtype, low_at, n);
    const float *high = fsdp_load_block(high_buffer, job->x, job->dtype, high_at, n);
    for (int j = 0; j < fsdp_padded(n); j++) {
        float s = sine[j] * turn;
        low_out[j] = low[j] * cosine[j] - high[j] * s;
        high_out[j] = high[j] * cosine[j] + low[j] * s;
    }
    fsdp_store_block(job->out, job->dtype, low_at, low_out, n);
    fsdp_store_block(job->out, job->dtype, high_at, high_out, n);
}

static void rope_token(const rope_job *job, int64_t token)
{
    const int64_t head_dim = job->head_dim, half = head_dim / 2;
    const float *row = job->table + job->positions[token] * head_dim;
    float cosine_buffer[FSDP_BLOCK], sine_buffer[FSDP_BLOCK];
    for (int64_t i = 0; i < half; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(half - i, FSDP_BLOCK);
        const float *cosine = fsdp_load_block(cosine_buffer, row, FSDP_DTYPE_F32, i, n);
        const float *sine = fsdp_load_block(sine_buffer, row, FSDP_DTYPE_F32, half + i, n);
        for (int64_t h = 0; h < job->heads; h++) {
            int64_t at = (token * job->heads + h) * head_dim + i;
            rotate(job, at, at + half, cosine, sine, n);
        }
    }
}

static void rope_task(void *arg, int64_t task, int worker)
{
    const rope_job *job = arg;
    int64_t end = fsdp_min_i64(job->tokens, (task + 1) * job->task_tokens);
    (void)worker;
    for (int64_t token = task * job->task_tokens; token < end; token++)
        rope_token(job, token);
}

static void rope(fsdp_kernel_context *c, void *out, const void *x, fsdp_dtype dtype,
                 const float *table, const int32_t *positions, int64_t tokens, int64_t heads,
                 int64_t head_dim, bool inverse)
{
    const int64_t width = heads * head_dim;
    rope_job job = {.out = out,
                    .x = x,
                    .dtype = dtype,
                    .table = table,
                    .positions = positions,
                    .tokens = tokens,
                    .heads = heads,
                    .head_dim = head_dim,
                    .task_tokens = width && width < FSDP_CHUNK ? FSDP_CHUNK / width : 1,
                    .turn = inverse ? -1.0f : 1.0f};
    fsdp_run_tasks(c, fsdp_ceil_div(tokens, job.task_tokens), rope_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_rope)(fsdp_kernels *k)
{
    k->rope = rope;
}
