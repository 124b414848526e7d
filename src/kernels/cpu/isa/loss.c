/* Operations on rows of logits: softmax cross-entropy, losses of targets that are numbers, and the
 * index of the largest value. Also the sum of losses. */
#include <float.h>

#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vector.h"

/* --- cross_entropy --- */

typedef struct loss_job {
    float *losses;
    void *logits;
    fsdp_dtype dtype;
    const int32_t *labels;
    int64_t rows, vocab, ld, task_rows; /* ld: row stride of the logits */
    bool gradient;
    float factor;
    float smoothing; /* 0: the labels are not smoothed */
} loss_job;

static float load_element(const void *x, fsdp_dtype dtype, int64_t i)
{
    float buffer[FSDP_BLOCK];
    return fsdp_load_block(buffer, x, dtype, i, 1)[0];
}

/* Returns the largest of n elements; n is a multiple of FSDP_VEC. If one of them is NaN, the result
 * is unspecified. */
static float block_max(const float *x, int n)
{
    fsdp_vec most = fsdp_vec_load(x);
    for (int j = FSDP_VEC; j < n; j += FSDP_VEC)
        most = fsdp_vec_max(fsdp_vec_load(x + j), most);
    return fsdp_vec_max_lane(most);
}

/* Loads a block of logits. The padding after the last logit is -infinity instead of 0. */
static const float *load_logits(float *restrict buffer, const void *x, fsdp_dtype dtype, int64_t i,
                                int n)
{
    const float *block = fsdp_load_block(buffer, x, dtype, i, n);
    if (n != fsdp_padded(n))
        for (int j = n; j < fsdp_padded(n); j++)
            buffer[j] = -INFINITY;
    return block;
}

static float exp_of(float x)
{
    return fsdp_vec_exp(fsdp_vec_set(x))[0];
}

/* Sets *maximum to the maximum of a row and returns the sum of e^(x - *maximum), in one pass over
 * the row (Milakov & Gimelshein 2018). When a block has a value above the current maximum, the sums
 * so far are rescaled to the new maximum. The maximum starts at a finite number, -FLT_MAX. With
 * -infinity instead, a row that begins with -infinity would have the terms e^(-infinity +
 * infinity), which are NaN. With -FLT_MAX, these terms are 0. */
static float row_sum_exp(const loss_job *job, int64_t start, float *maximum)
{
    float acc[FSDP_LANES] = {0}, buffer[FSDP_BLOCK], e[FSDP_BLOCK], most = -FLT_MAX;
    for (int64_t i = 0; i < job->vocab; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->vocab - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const float *x = load_logits(buffer, job->logits, job->dtype, start + i, n);
        float here = block_max(x, padded);
        if (here > most) {
            float scale = exp_of(most - here);
            for (int l = 0; l < FSDP_LANES; l++)
                acc[l] *= scale;
            most = here;
        }
        for (int j = 0; j < padded; j += FSDP_VEC)
            fsdp_vec_store(e + j, fsdp_vec_exp(fsdp_vec_load(x + j) - most));
        fsdp_add_lanes(acc, e, padded);
    }
    *maximum = most;
    return fsdp_sum_lanes(acc);
}

static void zero_row(const loss_job *job, int64_t start)
{
    size_t size = fsdp_dtype_size(job->dtype);
    memset((char *)job->logits + (size_t)start * size, 0, (size_t)job->vocab * size);
}

/* Returns the mean of a row of logits. */
static double row_mean(const loss_job *job, int64_t start)
{
    double total = 0.0;
    for (int64_t i = 0; i < job->vocab; i += FSDP_BLOCK) {
        float acc[FSDP_LANES] = {0}, buffer[FSDP_BLOCK];
        int n = (int)fsdp_min_i64(job->vocab - i, FSDP_BLOCK), padded = fsdp_padded(n);
        const float *x = fsdp_load_block(buffer, job->logits, job->dtype, start + i, n);
        fsdp_add_lanes(acc, x, padded);
        total += (double)fsdp_sum_lanes(acc);
    }
    return total / (double)job->vocab;
}

/* Overwrites a row of logits with the gradient of its loss. `even` is the target probability that
 * label smoothing gives to every class. Without smoothing, `even` is 0, and subtracting 0 changes
 * no bit. */
static void gradient_row(const loss_job *job, int64_t start, int32_t label, float maximum,
                         float sum)
{
    float buffer[FSDP_BLOCK], gradient[FSDP_BLOCK], scale = job->factor / sum;
    const float even = job->smoothing / (float)job->vocab;
    const float own = 1.0f - job->smoothing + even; /* target probability of the class `label` */
    for (int64_t i = 0; i < job->vocab; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->vocab - i, FSDP_BLOCK);
        const float *x = fsdp_load_block(buffer, job->logits, job->dtype, start + i, n);
        for (int j = 0; j < fsdp_padded(n); j += FSDP_VEC)
            fsdp_vec_store(gradient + j, fsdp_vec_exp(fsdp_vec_load(x + j) - maximum) * scale -
                                             even * job->factor);
        if (label >= i && label < i + n)
            gradient[label - i] = (exp_of(x[label - i] - maximum) / sum - own) * job->factor;
        fsdp_store_block(job->logits, job->dtype, start + i, gradient, n);
    }
}

static void loss_task(void *arg, int64_t task, int worker)
{
    const loss_job *job = arg;
    int64_t end = fsdp_min_i64(job->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++) {
        int64_t start = row * job->ld;
        int32_t label = job->labels[row];
        float maximum = 0.0f;
        if (label < 0) {
            job->losses[row] = 0.0f;
            if (job->gradient)
                zero_row(job, start);
            continue;
        }
        float sum = row_sum_exp(job, start, &maximum);
        float x = load_element(job->logits, job->dtype, start + label);
        double target = (double)x;
        if (job->smoothing > 0)
            target += (double)job->smoothing * (row_mean(job, start) - target);
        job->losses[row] = (float)(log((double)sum) + ((double)maximum - target));
        if (job->gradient)
            gradient_row(job, start, label, maximum, sum);
    }
}

static void smoothed_cross_entropy(fsdp_kernel_context *c, float *losses, void *logits,
                                   fsdp_dtype dtype, const int32_t *labels, int64_t rows,
                                   int64_t vocab, int64_t ld, bool gradient, float factor,
                                   float smoothing)
{
    loss_job job = {losses,   logits, dtype,    labels, rows, vocab, ld, fsdp_task_rows(vocab),
                    gradient, factor, smoothing};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, job.task_rows), loss_task, &job);
}

static void cross_entropy(fsdp_kernel_context *c, float *losses, void *logits, fsdp_dtype dtype,
                          const int32_t *labels, int64_t rows, int64_t vocab, int64_t ld,
                          bool gradient, float factor)
{
    smoothed_cross_entropy(c, losses, logits, dtype, labels, rows, vocab, ld, gradient, factor,
                           0.0f);
}

/* --- losses of targets that are numbers --- */

typedef struct target_job {
    float *losses, *logits;
    const float *targets;
    int64_t width, task_rows, rows;
    bool binary, gradient;
    float factor;
} target_job;

/* Return the loss of one logit x with the target t, and set *gradient to the derivative of the
 * loss. The binary cross-entropy is max(x, 0) - x t + log(1 + exp(-|x|)), which does not
 * overflow. */
static double element_loss(double x, double t, bool binary, double *gradient)
{
    if (!binary) {
        *gradient = 2.0 * (x - t);
        return (x - t) * (x - t);
    }
    const double small = exp(-fabs(x));
    *gradient = (x >= 0 ? 1.0 : small) / (1.0 + small) - t;
    return (x > 0 ? x : 0.0) - x * t + log1p(small);
}

static void target_task(void *arg, int64_t task, int worker)
{
    const target_job *job = arg;
    const int64_t end = fsdp_min_i64(job->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++) {
        float *x = job->logits + row * job->width;
        const float *t = job->targets + row * job->width;
        const bool ignored = isnan(t[0]);
        double total = 0.0;
        for (int64_t i = 0; i < job->width; i++) {
            double gradient = 0.0;
            if (!ignored)
                total += element_loss((double)x[i], (double)t[i], job->binary, &gradient);
            if (job->gradient)
                x[i] = (float)(gradient * (double)job->factor / (double)job->width);
        }
        job->losses[row] = (float)(total / (double)job->width);
    }
}

static void target_loss(fsdp_kernel_context *c, float *losses, float *logits, const float *targets,
                        int64_t rows, int64_t width, bool binary, bool gradient, float factor)
{
    target_job job = {losses, logits, targets,  width, fsdp_task_rows(width),
                      rows,   binary, gradient, factor};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, job.task_rows), target_task, &job);
}

static void sum(fsdp_kernel_context *c, float *out, const float *x, int64_t n, float factor)
{
    double total = 0.0;
    (void)c;
    for (int64_t i = 0; i < n; i++)
        total += (double)x[i];
    *out = (float)(total * (double)factor);
}

/* --- argmax --- */

typedef struct argmax_job {
    int32_t *index;
    const void *x;
    fsdp_dtype dtype;
    int64_t rows, width, task_rows;
} argmax_job;

static bool has_nan(const float *x, int n)
{
    uint32_t found = 0;
    for (int j = 0; j < n; j++)
        found |= (fsdp_bits_from_f32(x[j]) & 0x7fffffffu) > 0x7f800000u;
    return found;
}

/* Returns the index of the largest value of a row. If the largest value occurs several times,
 * returns the index of its first occurrence. As in PyTorch, NaN counts as larger than any
 * number. */
static int32_t argmax_row(const argmax_job *job, int64_t start)
{
    float buffer[FSDP_BLOCK], most = 0.0f;
    int64_t best = -1;
    for (int64_t i = 0; i < job->width; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(job->width - i, FSDP_BLOCK), j = 0;
        const float *x = load_logits(buffer, job->x, job->dtype, start + i, n);
        if (has_nan(x, n)) {
            while (!isnan(x[j]))
                j++;
            return (int32_t)(i + j);
        }
        float here = block_max(x, fsdp_padded(n));
        if (best >= 0 && !(here > most))
            continue;
        while (x[j] != here)
            j++;
        most = here;
        best = i + j;
    }
    return (int32_t)best;
}

static void argmax_task(void *arg, int64_t task, int worker)
{
    const argmax_job *job = arg;
    int64_t end = fsdp_min_i64(job->rows, (task + 1) * job->task_rows);
    (void)worker;
    for (int64_t row = task * job->task_rows; row < end; row++)
        job->index[row] = argmax_row(job, row * job->width);
}

static void argmax(fsdp_kernel_context *c, int32_t *index, const void *x, fsdp_dtype dtype,
                   int64_t rows, int64_t width)
{
    argmax_job job = {index, x, dtype, rows, width, fsdp_task_rows(width)};
    fsdp_run_tasks(c, fsdp_ceil_div(rows, job.task_rows), argmax_task, &job);
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_loss)(fsdp_kernels *k)
{
    k->cross_entropy = cross_entropy;
    k->smoothed_cross_entropy = smoothed_cross_entropy;
    k->target_loss = target_loss;
    k->sum = sum;
    k->argmax = argmax;
}
