/* Kernels that update one rank's part of a parameter with AdamW, Adam, Schedule-Free AdamW, SGD or
 * Adafactor, and the kernel clamp(). The operations and their order are those of PyTorch
 * (torch/optim/adam.py _single_tensor_adam, sgd.py _single_tensor_sgd), of schedulefree
 * (adamw_schedulefree.py) and of transformers (optimization.py Adafactor).
 * Scalars are computed in double. They are rounded to float where PyTorch would pass them to a
 * kernel. A task updates its elements in blocks. If the parameter also has a copy in copy_dtype,
 * the new values of each block are written to the copy while they are still in the cache. */
#include "src/base/dynamic_map.h"
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/philox.h"
#include "src/kernels/cpu/isa/halves.h"

/* --- a block of a parameter --- */

/* The arrays that contain a parameter: see fsdp_adamw_args. */
typedef struct parameter {
    float *param;
    fsdp_halves halves;
    void *copy;
    fsdp_dtype copy_dtype;
} parameter;

/* Returns a pointer to elements [i, i + n) of a parameter in float32. If the parameter is stored as
 * float32, the pointer points into the parameter. Otherwise it points to `wide`, and the elements
 * in `wide` are joined from halves or widened from the copy. */
static float *open_param(const parameter *p, int64_t i, int n, float wide[restrict FSDP_BLOCK])
{
    if (p->param)
        return p->param + i;
    if (p->halves.hi)
        fsdp_join_block(wide, fsdp_halves_at(p->halves, i), n);
    else
        fsdp_load_block(wide, p->copy, p->copy_dtype, i, n);
    return wide;
}

/* Stores the updated elements [i, i + n) of a parameter. `values` is the pointer that open_param()
 * returned. */
static void close_param(const parameter *p, int64_t i, int n, const float values[FSDP_BLOCK])
{
    if (p->halves.hi && !p->param)
        fsdp_split_block(fsdp_halves_at(p->halves, i), values, n);
    if (p->copy)
        fsdp_store_block(p->copy, p->copy_dtype, i, values, n);
}

/* --- stochastic rounding --- */

/* The numbers that identify the arrays in stochastic rounding; see fsdp_rounding_key() in
 * src/base/philox.h. */
enum {
    ROUND_PARAM,
    ROUND_EXP_AVG,
    ROUND_EXP_AVG_SQ
};

/* Stores `values` in elements [i, i + n) of the bfloat16 array dst, rounded stochastically. Element
 * i of dst is element `first` + i of the whole parameter. */
static void round_block(uint16_t *restrict dst, uint64_t key, int64_t first, int64_t i,
                        const float *restrict values, int n)
{
    enum {
        /* A counter gives several numbers, and a block may begin in the middle of them. In
         * addition, fsdp_philox_halves() computes multiples of 64 numbers. So up to 64 numbers more
         * than a block needs are computed. */
        MOST = FSDP_BLOCK + 64
    };
    uint32_t random[MOST];
    const int64_t at = first + i;
    const int skip = (int)(at % FSDP_COUNTER_HALVES);
    fsdp_philox_halves(random, key, (uint64_t)(at / FSDP_COUNTER_HALVES), (n + skip + 63) & -64);
    for (int j = 0; j < n; j++) {
        const uint32_t bits = fsdp_bits_from_f32(values[j]);
        const uint32_t nan = -(uint32_t)((bits & 0x7fffffffu) > 0x7f800000u);
        const uint32_t rounded = bits + random[skip + j];
        dst[i + j] = (uint16_t)(((rounded & ~nan) | ((bits | 0x400000u) & nan)) >> 16);
    }
}

/* --- adamw --- */

typedef struct adam_job {
    const fsdp_adamw_args *args;
    parameter param;
    float grad_scale;
    /* 1 - lr * weight_decay if weight decay is decoupled, otherwise 1. The parameter is multiplied
     * by this factor. */
    float keep;
    /* 0 if weight decay is decoupled. Otherwise, this factor times the parameter is added to the
     * gradient. */
    float weight_decay;
    float weight;       /* 1 - beta1 */
    float beta2, rest2; /* rest2: 1 - beta2 */
    float correction2;  /* sqrt(1 - beta2^step) */
    float eps;
    float step_size; /* -lr / (1 - beta1^step) */
} adam_job;

static adam_job adam_job_of(const fsdp_adamw_args *a, const fsdp_clip_result *clip)
{
    double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    return (adam_job){
        .args = a,
        .param = {a->param, a->halves, a->copy, a->copy_dtype},
        .grad_scale = clip ? clip->scale : a->grad_scale,
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

/* Updates the n elements of a block. n is at most FSDP_BLOCK. */
static void adam_block(const adam_job *job, float *restrict param, float *restrict exp_avg,
                       float *restrict exp_avg_sq, const float *restrict grad, int n)
{
    float grad_scale = job->grad_scale, keep = job->keep, decay = job->weight_decay;
    float weight = job->weight, beta2 = job->beta2, rest2 = job->rest2;
    float correction2 = job->correction2, eps = job->eps, step_size = job->step_size;
    /* torch.lerp(m, g, weight) computes m + weight (g - m) if weight < 1/2. Otherwise it computes
     * g - (g - m) (1 - weight). */
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

/* Return a pointer to elements [i, i + n) of a moment in float32. If the moment is stored as
 * float32, the pointer points into the moment. Otherwise it points to `wide`, and the elements in
 * `wide` are widened from the moment. */
static float *open_moment(void *moment, fsdp_dtype dtype, int64_t i, int n,
                          float wide[restrict FSDP_BLOCK])
{
    if (dtype == FSDP_DTYPE_F32)
        return (float *)moment + i;
    fsdp_load_block(wide, moment, dtype, i, n);
    return wide;
}

/* Store the updated elements [i, i + n) of a moment. `values` is the pointer that open_moment()
 * returned. */
static void close_moment(const fsdp_adamw_args *a, void *moment, int array, int64_t i, int n,
                         const float values[FSDP_BLOCK])
{
    if (a->state_dtype == FSDP_DTYPE_BF16 && a->stochastic)
        round_block(moment, fsdp_mix64(a->rounding_key + (uint64_t)array), a->first, i, values, n);
    else if (a->state_dtype != FSDP_DTYPE_F32)
        fsdp_store_block(moment, a->state_dtype, i, values, n);
}

/* Store the updated elements [i, i + n) of the parameter. `values` is the pointer that open_param()
 * returned. */
static void close_adam_param(const adam_job *job, int64_t i, int n, const float values[FSDP_BLOCK])
{
    const fsdp_adamw_args *a = job->args;
    const bool only_copy = !a->param && !a->halves.hi;
    if (a->stochastic && only_copy && a->copy_dtype == FSDP_DTYPE_BF16)
        round_block(a->copy, fsdp_mix64(a->rounding_key + ROUND_PARAM), a->first, i, values, n);
    else
        close_param(&job->param, i, n, values);
}

static void adam_task(void *arg, int64_t task, int worker)
{
    const adam_job *job = arg;
    const fsdp_adamw_args *a = job->args;
    int64_t end = fsdp_min_i64(a->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        float wide[FSDP_BLOCK], wide_m[FSDP_BLOCK], wide_v[FSDP_BLOCK];
        float *param = open_param(&job->param, i, n, wide);
        float *m = open_moment(a->exp_avg, a->state_dtype, i, n, wide_m);
        float *v = open_moment(a->exp_avg_sq, a->state_dtype, i, n, wide_v);
        adam_block(job, param, m, v, a->grad + i, n);
        close_adam_param(job, i, n, param);
        close_moment(a, a->exp_avg, ROUND_EXP_AVG, i, n, m);
        close_moment(a, a->exp_avg_sq, ROUND_EXP_AVG_SQ, i, n, v);
    }
}

/* --- adamw with moments in 8 bits --- */

/* Converts n codes of a block to float32: the value of each code is multiplied by absmax, the
 * largest magnitude of the block. */
static void widen_codes(float *restrict values, const uint8_t *restrict codes,
                        const fsdp_dynamic_map *map, float absmax, int n)
{
    for (int j = 0; j < n; j++)
        values[j] = map->value[codes[j]] * absmax;
}

/* Stores the n values of a block as codes, and returns the largest magnitude of these values. */
static float narrow_values(uint8_t *restrict codes, const float *restrict values,
                           const fsdp_dynamic_map *map, int n)
{
    float absmax = 0.0f;
    for (int j = 0; j < n; j++) {
        const float magnitude = fabsf(values[j]);
        absmax = magnitude > absmax ? magnitude : absmax;
    }
    /* In a block of zeros, any divisor gives the code of 0. */
    const float divisor = absmax > 0.0f ? absmax : 1.0f;
    for (int j = 0; j < n; j++)
        codes[j] = fsdp_dynamic_map_code(map, values[j] / divisor);
    return absmax;
}

/* Updates one block of elements. `block` is the block's index among the blocks of all rows. */
static void adam_block_8bit(const adam_job *job, int64_t block, int64_t blocks_of_row)
{
    const fsdp_adamw_args *a = job->args;
    const fsdp_dynamic_map *map1 = fsdp_dynamic_map_signed(), *map2 = fsdp_dynamic_map_unsigned();
    const int64_t j = block % blocks_of_row * FSDP_MAP_BLOCK;
    const int64_t i = block / blocks_of_row * a->inner + j;
    const int n = (int)fsdp_min_i64(a->inner - j, FSDP_MAP_BLOCK);
    uint8_t *codes1 = (uint8_t *)a->exp_avg + i, *codes2 = (uint8_t *)a->exp_avg_sq + i;
    float m[FSDP_MAP_BLOCK], v[FSDP_MAP_BLOCK], wide[FSDP_BLOCK];
    float *param = open_param(&job->param, i, n, wide);
    widen_codes(m, codes1, map1, a->absmax1[block], n);
    widen_codes(v, codes2, map2, a->absmax2[block], n);
    adam_block(job, param, m, v, a->grad + i, n);
    close_adam_param(job, i, n, param);
    a->absmax1[block] = narrow_values(codes1, m, map1, n);
    a->absmax2[block] = narrow_values(codes2, v, map2, n);
}

_Static_assert((int)FSDP_MAP_BLOCK <= (int)FSDP_BLOCK, "open_param() opens at most FSDP_BLOCK");

static void adam_task_8bit(void *arg, int64_t task, int worker)
{
    enum {
        TASK_BLOCKS = FSDP_CHUNK / FSDP_MAP_BLOCK
    };
    const adam_job *job = arg;
    const fsdp_adamw_args *a = job->args;
    const int64_t of_row = fsdp_ceil_div(a->inner, FSDP_MAP_BLOCK), all = a->n / a->inner * of_row;
    const int64_t end = fsdp_min_i64(all, (task + 1) * TASK_BLOCKS);
    (void)worker;
    for (int64_t block = task * TASK_BLOCKS; block < end; block++)
        adam_block_8bit(job, block, of_row);
}

static void start_adam(fsdp_kernel_context *c, const fsdp_adamw_args *a, adam_job *job)
{
    const bool narrow = a->state_dtype == FSDP_DTYPE_U8;
    const int64_t blocks = narrow ? a->n / a->inner * fsdp_ceil_div(a->inner, FSDP_MAP_BLOCK) : 0;
    const int64_t tasks = narrow ? fsdp_ceil_div(blocks, FSDP_CHUNK / FSDP_MAP_BLOCK)
                                 : fsdp_ceil_div(a->n, FSDP_CHUNK);
    fsdp_run_tasks(c, tasks, narrow ? adam_task_8bit : adam_task, job);
}

static void adamw(fsdp_kernel_context *c, const fsdp_adamw_args *tensors, size_t n,
                  const fsdp_clip_result *clip)
{
    for (size_t i = 0; i < n && !(clip && clip->refused); i++) {
        adam_job job = adam_job_of(&tensors[i], clip);
        start_adam(c, &tensors[i], &job);
    }
}

/* --- schedule-free adamw --- */

typedef struct schedule_free_job {
    const fsdp_schedule_free_args *args;
    parameter param;
    float grad_scale;
    float beta2, rest2, correction2; /* rest2: 1 - beta2; correction2: 1 - beta2^step */
    float eps, weight_decay, lr;
    float y_step; /* lr (beta1 (1 - average) - 1) */
    float average;
} schedule_free_job;

static schedule_free_job schedule_free_job_of(const fsdp_schedule_free_args *a,
                                              const fsdp_clip_result *clip)
{
    return (schedule_free_job){
        .args = a,
        .param = {a->param, a->halves, a->copy, a->copy_dtype},
        .grad_scale = clip ? clip->scale : a->grad_scale,
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .correction2 = (float)(1.0 - pow(a->beta2, (double)a->step)),
        .eps = (float)a->eps,
        .weight_decay = (float)a->weight_decay,
        .lr = (float)a->lr,
        .y_step = (float)(a->lr * (a->beta1 * (1.0 - a->average) - 1.0)),
        .average = (float)a->average,
    };
}

/* Moves n elements of y toward z, as torch.lerp() does: see adam_block(). */
static void move_toward(const schedule_free_job *job, float *restrict y, const float *restrict z,
                        int n)
{
    const float average = job->average;
    const bool near = fabsf(average) < 0.5f;
    const float toward = near ? average : -(1.0f - average);
    const uint32_t from_y = -(uint32_t)near;
    for (int j = 0; j < n; j++)
        y[j] = fsdp_select(from_y, y[j], z[j]) + toward * (z[j] - y[j]);
}

static void schedule_free_block(const schedule_free_job *job, float *restrict y, float *restrict z,
                                float *restrict exp_avg_sq, const float *restrict grad, int n)
{
    const float grad_scale = job->grad_scale, beta2 = job->beta2, rest2 = job->rest2;
    const float correction2 = job->correction2, eps = job->eps, decay = job->weight_decay;
    const float y_step = job->y_step, lr = job->lr;
    float update[FSDP_BLOCK];
    if (job->args->first)
        memcpy(z, y, (size_t)n * sizeof *z);
    for (int j = 0; j < n; j++) {
        const float g = grad[j] * grad_scale, v = exp_avg_sq[j] * beta2 + rest2 * g * g;
        exp_avg_sq[j] = v;
        update[j] = g / (sqrtf(v / correction2) + eps) + decay * y[j];
    }
    move_toward(job, y, z, n);
    for (int j = 0; j < n; j++) {
        y[j] += y_step * update[j];
        z[j] -= lr * update[j];
    }
}

/* Changes n elements of the parameter without a step: fsdp_schedule_free_args. */
static void switch_block(const schedule_free_job *job, float *restrict y, int64_t i, int n)
{
    const fsdp_schedule_free_args *a = job->args;
    const size_t bytes = (size_t)n * sizeof *y;
    if (a->restores) {
        memcpy(y, a->kept + i, bytes);
        return;
    }
    if (a->kept)
        memcpy(a->kept + i, y, bytes);
    move_toward(job, y, a->z + i, n);
}

static void schedule_free_task(void *arg, int64_t task, int worker)
{
    const schedule_free_job *job = arg;
    const fsdp_schedule_free_args *a = job->args;
    int64_t end = fsdp_min_i64(a->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        float wide[FSDP_BLOCK], *y = open_param(&job->param, i, n, wide);
        if (a->grad)
            schedule_free_block(job, y, a->z + i, a->exp_avg_sq + i, a->grad + i, n);
        else
            switch_block(job, y, i, n);
        close_param(&job->param, i, n, y);
    }
}

static void schedule_free(fsdp_kernel_context *c, const fsdp_schedule_free_args *tensors, size_t n,
                          const fsdp_clip_result *clip)
{
    for (size_t i = 0; i < n && !(clip && clip->refused); i++) {
        schedule_free_job job = schedule_free_job_of(&tensors[i], clip);
        fsdp_run_tasks(c, fsdp_ceil_div(tensors[i].n, FSDP_CHUNK), schedule_free_task, &job);
    }
}

/* --- sgd --- */

typedef struct sgd_job {
    const fsdp_sgd_args *args;
    parameter param;
    float grad_scale;
    float step, momentum, rest, weight_decay; /* step: -lr; rest: 1 - dampening */
} sgd_job;

static void sgd_block(const sgd_job *job, float *restrict param, float *restrict buffer,
                      const float *restrict grad, int n)
{
    const fsdp_sgd_args *a = job->args;
    float grad_scale = job->grad_scale, step = job->step, decay = job->weight_decay;
    float momentum = a->first ? 0.0f : job->momentum, rest = a->first ? 1.0f : job->rest;
    if (!buffer) {
        for (int j = 0; j < n; j++)
            param[j] += step * (grad[j] * grad_scale + decay * param[j]);
        return;
    }
    if (a->first) /* in the first step, the momentum buffer has undefined values */
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
        float wide[FSDP_BLOCK], *param = open_param(&job->param, i, n, wide);
        sgd_block(job, param, a->momentum_buffer ? a->momentum_buffer + i : NULL, a->grad + i, n);
        close_param(&job->param, i, n, param);
    }
}

static void sgd(fsdp_kernel_context *c, const fsdp_sgd_args *tensors, size_t n,
                const fsdp_clip_result *clip)
{
    for (size_t i = 0; i < n && !(clip && clip->refused); i++) {
        const fsdp_sgd_args *a = &tensors[i];
        sgd_job job = {.args = a,
                       .param = {a->param, a->halves, a->copy, a->copy_dtype},
                       .grad_scale = clip ? clip->scale : a->grad_scale,
                       .step = (float)-a->lr,
                       .momentum = (float)a->momentum,
                       .rest = (float)(1.0 - a->dampening),
                       .weight_decay = (float)a->weight_decay};
        fsdp_run_tasks(c, fsdp_ceil_div(a->n, FSDP_CHUNK), sgd_task, &job);
    }
}

/* --- clamp --- */

typedef struct clamp_job {
    float *x;
    float limit;
    int64_t n;
} clamp_job;

static void clamp_task(void *arg, int64_t task, int worker)
{
    const clamp_job *job = arg;
    float *restrict x = job->x, limit = job->limit;
    int64_t end = fsdp_min_i64(job->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i++) {
        x[i] = x[i] > limit ? limit : x[i];
        x[i] = x[i] < -limit ? -limit : x[i];
    }
}

static void clamp(fsdp_kernel_context *c, float *x, float limit, int64_t n)
{
    clamp_job job = {x, limit, n};
    fsdp_run_tasks(c, fsdp_ceil_div(n, FSDP_CHUNK), clamp_task, &job);
}

/* --- adafactor: moments --- */

typedef struct squares_job {
    double *sums;
    const float *grad;
    int64_t rows, cols, task_rows;
    float grad_scale, eps;
} squares_job;

/* Returns (grad * grad_scale)^2 + eps. Adafactor adds up these values over rows and over columns,
 * and keeps moving averages of the sums. As in transformers, eps is added in float32. */
static inline double square_of(const squares_job *job, float grad)
{
    float g = grad * job->grad_scale;
    return (double)(g * g + job->eps);
}

static double join_lanes(double acc[FSDP_LANES])
{
    for (int width = FSDP_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++)
            acc[l] += acc[l + width];
    return acc[0];
}

static void square_rows_task(void *arg, int64_t task, int worker)
{
    const squares_job *job = arg;
    int64_t begin = task * job->task_rows, end = fsdp_min_i64(job->rows, begin + job->task_rows);
    int64_t whole = job->cols & -FSDP_LANES;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *g = job->grad + r * job->cols;
        double acc[FSDP_LANES] = {0};
        for (int64_t j = 0; j < whole; j += FSDP_LANES)
            for (int l = 0; l < FSDP_LANES; l++)
                acc[l] += square_of(job, g[j + l]);
        for (int64_t j = whole; j < job->cols; j++)
            acc[j - whole] += square_of(job, g[j]);
        job->sums[r] = join_lanes(acc);
    }
}

static void square_row_sums(fsdp_kernel_context *c, double *sums, const float *grad, int64_t rows,
                            int64_t cols, float grad_scale, float eps)
{
    squares_job job = {sums, grad, rows, cols, fsdp_task_rows(cols), grad_scale, eps};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, job.task_rows), square_rows_task, &job);
}

enum {
    /* The number of columns in a task. The sums of this many columns take 512 bytes on the stack in
     * each level of the recursion of square_strip(). */
    COLUMN_STRIP = 64
};

/* Sets sums[j], for j < n, to the sum of square_of() over column j of a strip. The strip has `rows`
 * rows and begins at `g`. The rows are added as a binary tree: they are divided into two parts, the
 * number of rows in the first part is the largest power of two below `rows`, and each part is
 * divided in the same way. */
static void square_strip(const squares_job *job, double *restrict sums, const float *g,
                         int64_t rows, int n)
{
    if (rows == 1) {
        for (int j = 0; j < n; j++)
            sums[j] = square_of(job, g[j]);
        return;
    }
    double other[COLUMN_STRIP];
    int64_t half = 1;
    while (2 * half < rows)
        half *= 2;
    square_strip(job, sums, g, half, n);
    square_strip(job, other, g + half * job->cols, rows - half, n);
    for (int j = 0; j < n; j++)
        sums[j] += other[j];
}

static void square_columns_task(void *arg, int64_t task, int worker)
{
    const squares_job *job = arg;
    int64_t begin = task * COLUMN_STRIP;
    int n = (int)fsdp_min_i64(job->cols - begin, COLUMN_STRIP);
    (void)worker;
    if (job->rows)
        square_strip(job, job->sums + begin, job->grad + begin, job->rows, n);
    else
        memset(job->sums + begin, 0, (size_t)n * sizeof *job->sums);
}

static void square_column_sums(fsdp_kernel_context *c, double *sums, const float *grad,
                               int64_t rows, int64_t cols, float grad_scale, float eps)
{
    squares_job job = {sums, grad, rows, cols, 0, grad_scale, eps};
    fsdp_run_tasks(c, fsdp_ceil_div(cols, COLUMN_STRIP), square_columns_task, &job);
}

/* Updates n moving averages. The calling thread updates all of them alone, because a tensor has too
 * few averages to divide them among threads. */
static void moving_average(fsdp_kernel_context *c, float *average, const double *sums, double count,
                           double beta, int64_t n)
{
    float keep = (float)beta, rest = (float)(1.0 - beta);
    (void)c;
    for (int64_t i = 0; i < n; i++)
        average[i] = average[i] * keep + rest * (float)(sums[i] / count);
}

static void reciprocal_sqrt(fsdp_kernel_context *c, float *out, const float *x, float divisor,
                            int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        out[i] = 1.0f / sqrtf(x[i] / divisor);
}

/* --- adafactor: update --- */

typedef struct adafactor_job {
    const fsdp_adafactor_args *args;
    double *sums; /* used only by adafactor_square_sums() */
    int64_t task_rows;
    float lr, decay, beta1, rest1; /* decay: -lr * weight_decay; rest1: 1 - beta1 */
} adafactor_job;

static inline float update_of(const fsdp_adafactor_args *a, float row_factor, float grad, int64_t j)
{
    return row_factor * a->col_factor[j] * (grad * a->grad_scale);
}

static void update_squares_task(void *arg, int64_t task, int worker)
{
    const adafactor_job *job = arg;
    const fsdp_adafactor_args *a = job->args;
    int64_t begin = task * job->task_rows, end = fsdp_min_i64(a->rows, begin + job->task_rows);
    int64_t whole = a->cols & -FSDP_LANES;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *g = a->grad + r * a->cols;
        float factor = a->row_factor[r];
        double acc[FSDP_LANES] = {0};
        for (int64_t j = 0; j < whole; j += FSDP_LANES)
            for (int l = 0; l < FSDP_LANES; l++) {
                double u = (double)update_of(a, factor, g[j + l], j + l);
                acc[l] += u * u;
            }
        for (int64_t j = whole; j < a->cols; j++) {
            double u = (double)update_of(a, factor, g[j], j);
            acc[j - whole] += u * u;
        }
        job->sums[r] = join_lanes(acc);
    }
}

static void adafactor_square_sums(fsdp_kernel_context *c, double *sums,
                                  const fsdp_adafactor_args *args)
{
    adafactor_job job = {.args = args, .sums = sums, .task_rows = fsdp_task_rows(args->cols)};
    fsdp_run_tasks(c, fsdp_ceil_div(args->rows, job.task_rows), update_squares_task, &job);
}

/* Updates columns [j, j + n) of row r of the parameter; n is at most FSDP_BLOCK. */
static void adafactor_block(const adafactor_job *job, int64_t r, int64_t j, int n)
{
    const fsdp_adafactor_args *a = job->args;
    int64_t at = r * a->cols + j;
    const float *g = a->grad + at;
    float buffer[FSDP_BLOCK], u[FSDP_BLOCK], out[FSDP_BLOCK];
    const float *p = fsdp_load_block(buffer, a->param, a->param_dtype, at, n);
    for (int i = 0; i < n; i++)
        u[i] = update_of(a, a->row_factor[r], g[i], j + i) / a->divisor * job->lr;
    if (a->exp_avg) {
        float *m = a->exp_avg + at;
        for (int i = 0; i < n; i++)
            u[i] = m[i] = m[i] * job->beta1 + job->rest1 * u[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = p[i] + job->decay * p[i] - u[i];
    fsdp_store_block(a->param, a->param_dtype, at, out, n);
}

static void adafactor_task(void *arg, int64_t task, int worker)
{
    const adafactor_job *job = arg;
    const fsdp_adafactor_args *a = job->args;
    int64_t begin = task * job->task_rows, end = fsdp_min_i64(a->rows, begin + job->task_rows);
    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < a->cols; j += FSDP_BLOCK)
            adafactor_block(job, r, j, (int)fsdp_min_i64(a->cols - j, FSDP_BLOCK));
}

static void adafactor(fsdp_kernel_context *c, const fsdp_adafactor_args *args)
{
    adafactor_job job = {.args = args,
                         .task_rows = fsdp_task_rows(args->cols),
                         .lr = (float)args->lr,
                         .decay = (float)-(args->weight_decay * args->lr),
                         .beta1 = (float)args->beta1,
                         .rest1 = (float)(1.0 - args->beta1)};
    fsdp_run_tasks(c, fsdp_ceil_div(args->rows, job.task_rows), adafactor_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_optim)(fsdp_kernels *k)
{
    k->adamw = adamw;
    k->sgd = sgd;
    k->schedule_free = schedule_free;
    k->clamp = clamp;
    k->square_row_sums = square_row_sums;
    k->square_column_sums = square_column_sums;
    k->moving_average = moving_average;
    k->rsqrt = reciprocal_sqrt;
    k->adafactor_square_sums = adafactor_square_sums;
    k->adafactor = adafactor;
}
