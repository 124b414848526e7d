/* AdamW, Adam and SGD on one shard, with torch's arithmetic in torch's order (torch/optim/adam.py
 * _single_tensor_adam, sgd.py _single_tensor_sgd): scalars are computed in double and rounded to
 * float where torch hands them to a kernel. A task updates its part block by block, so the copy in
 * param_dtype is made while the block is in cache. */
#include "src/kernels/cpu/isa/block.h"

/* --- adamw --- */

typedef struct adam_job {
    const fsdp_adamw_args *args;
    float keep;         /* 1 - lr wd, what decay leaves of the parameter (decoupled) */
    float weight_decay; /* added to the gradient (not decoupled) */
    float weight;       /* 1 - beta1 */
    float beta2, rest2; /* and 1 - beta2 */
    float correction2;  /* sqrt(1 - beta2^step) */
    float eps;
    float step_size; /* -lr / (1 - beta1^step) */
} adam_job;

static adam_job adam_job_of(const fsdp_adamw_args *a)
{
    double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    return (adam_job){
        .args = a,
        .keep = a->decoupled ? (float)(1.0 - a->lr * a->weight_decay) : 1.0f,
        .weight_decay = a->decoupled ? 0.0f : (float)a->weight_decay,
        .weight = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .correction2 = (float)sqrt(correction2),
        .eps = (float)a->eps,
        .step_size = (float)-(a->lr / correction1),
    };
}

/* A block of at most FSDP_BLOCK elements. */
static void adam_block(const adam_job *job, float *restrict param, float *restrict exp_avg,
                       float *restrict exp_avg_sq, const float *restrict grad, int n)
{
    float grad_scale = job->args->grad_scale, keep = job->keep, decay = job->weight_decay;
    float weight = job->weight, beta2 = job->beta2, rest2 = job->rest2;
    float correction2 = job->correction2, eps = job->eps, step_size = job->step_size;
    /* torch.lerp(m, g, weight) starts from the nearer end: m + weight (g - m), or from one half
     * on g - (g - m) (1 - weight). */
    bool near = weight < 0.5f;
    float toward = near ? weight : -(1.0f - weight);
    uint32_t from_m = -(uint32_t)near;
    for (int j = 0; j < n; j++) {
        float p = param[j] * keep;
        float g = grad[j] * grad_scale + decay * p;
        float m = exp_avg[j];
        m = fsdp_select(from_m, m, g) + toward * (g - m);
        float v = exp_avg_sq[j] * beta2 + rest2 * g * g;
        float denominator = sqrtf(v) / correction2 + eps;
        exp_avg[j] = m;
        exp_avg_sq[j] = v;
        param[j] = p + step_size * m / denominator;
    }
}

static void adam_task(void *arg, int64_t task, int worker)
{
    const adam_job *job = arg;
    const fsdp_adamw_args *a = job->args;
    int64_t end = fsdp_min_i64(a->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        adam_block(job, a->param + i, a->exp_avg + i, a->exp_avg_sq + i, a->grad + i, n);
        if (a->copy)
            fsdp_store_block(a->copy, a->copy_dtype, i, a->param + i, n);
    }
}

static void adamw(fsdp_kernel_context *c, const fsdp_adamw_args *args)
{
    adam_job job = adam_job_of(args);
    fsdp_run_tasks(c, fsdp_ceil_div(args->n, FSDP_CHUNK), adam_task, &job);
}

/* --- sgd --- */

typedef struct sgd_job {
    const fsdp_sgd_args *args;
    float step, momentum, rest, weight_decay; /* -lr, momentum, 1 - dampening, decay */
} sgd_job;

static void sgd_block(const sgd_job *job, float *restrict param, float *restrict buffer,
                      const float *restrict grad, int n)
{
    const fsdp_sgd_args *a = job->args;
    float grad_scale = a->grad_scale, step = job->step, decay = job->weight_decay;
    float momentum = a->first ? 0.0f : job->momentum, rest = a->first ? 1.0f : job->rest;
    if (!buffer) {
        for (int j = 0; j < n; j++)
            param[j] += step * (grad[j] * grad_scale + decay * param[j]);
        return;
    }
    if (a->first) /* it may hold anything */
        memset(buffer, 0, (size_t)n * sizeof *buffer);
    float ahead = job->momentum;
    uint32_t nesterov = -(uint32_t)a->nesterov;
    for (int j = 0; j < n; j++) {
        float p = param[j], g = grad[j] * grad_scale + decay * p;
        float b = momentum * buffer[j] + rest * g;
        buffer[j] = b;
        param[j] = p + step * fsdp_select(nesterov, g + ahead * b, b);
    }
}

static void sgd_task(void *arg, int64_t task, int worker)
{
    const sgd_job *job = arg;
    const fsdp_sgd_args *a = job->args;
    int64_t end = fsdp_min_i64(a->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        sgd_block(job, a->param + i, a->momentum_buffer ? a->momentum_buffer + i : NULL,
                  a->grad + i, n);
        if (a->copy)
            fsdp_store_block(a->copy, a->copy_dtype, i, a->param + i, n);
    }
}

static void sgd(fsdp_kernel_context *c, const fsdp_sgd_args *args)
{
    sgd_job job = {args, (float)-args->lr, (float)args->momentum, (float)(1.0 - args->dampening),
                   (float)args->weight_decay};
    fsdp_run_tasks(c, fsdp_ceil_div(args->n, FSDP_CHUNK), sgd_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_optim)(fsdp_kernels *k)
{
    k->adamw = adamw;
    k->sgd = sgd;
}
