/* Element-wise operations: arithmetic, activations and dropout. Except for activated_backward(),
 * they share one loop over memory, elementwise_task(). Each operation has a function that computes
 * one block. */
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/philox.h"
#include "src/kernels/cpu/isa/vector.h"

enum {
    MAX_IN = 3,
    MAX_OUT = 2
};

typedef struct elementwise elementwise;

/* Computes one block of n elements. The inputs are the arrays in[k] with k < n_in, and the results
 * are the arrays out[k] with k < n_out. n is a multiple of FSDP_LANES. `first` is the index that
 * the block's first element has in the tensors. */
typedef void block_fn(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                      const float *const in[MAX_IN], int64_t first, int n);

struct elementwise {
    block_fn *block;
    int n_in, n_out;
    const void *in[MAX_IN];
    void *out[MAX_OUT];
    fsdp_dtype dtype;
    int64_t n;
    fsdp_activation activation;
    float factor; /* the factor of scale(), or the factor of the elements that dropout() keeps */
    uint32_t threshold; /* for dropout(): see fsdp_drop_threshold() */
    uint64_t key;       /* for dropout(): the key of its random bits */
};

static void elementwise_task(void *arg, int64_t task, int worker)
{
    const elementwise *e = arg;
    float buffers[MAX_IN][FSDP_BLOCK], out[MAX_OUT][FSDP_BLOCK];
    const float *in[MAX_IN];
    int64_t end = fsdp_min_i64(e->n, (task + 1) * FSDP_CHUNK);
    (void)worker;
    for (int64_t i = task * FSDP_CHUNK; i < end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(end - i, FSDP_BLOCK);
        for (int k = 0; k < e->n_in; k++)
            in[k] = fsdp_load_block(buffers[k], e->in[k], e->dtype, i, n);
        e->block(e, out, in, i, fsdp_padded(n));
        for (int k = 0; k < e->n_out; k++)
            fsdp_store_block(e->out[k], e->dtype, i, out[k], n);
    }
}

static void run_elementwise(fsdp_kernel_context *c, elementwise *e)
{
    fsdp_run_tasks(c, fsdp_ceil_div(e->n, FSDP_CHUNK), elementwise_task, e);
}

/* --- add, mul, scale --- */

static void add_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                      const float *const in[MAX_IN], int64_t first, int n)
{
    const float *x = in[0], *y = in[1];
    float *restrict z = out[0];
    (void)e, (void)first;
    for (int j = 0; j < n; j++)
        z[j] = x[j] + y[j];
}

static void mul_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                      const float *const in[MAX_IN], int64_t first, int n)
{
    const float *x = in[0], *y = in[1];
    float *restrict z = out[0];
    (void)e, (void)first;
    for (int j = 0; j < n; j++)
        z[j] = x[j] * y[j];
}

static void scale_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                        const float *const in[MAX_IN], int64_t first, int n)
{
    const float *x = in[0], factor = e->factor;
    float *restrict z = out[0];
    (void)first;
    for (int j = 0; j < n; j++)
        z[j] = x[j] * factor;
}

static void add(fsdp_kernel_context *c, void *out, const void *x, const void *y, fsdp_dtype dtype,
                int64_t n)
{
    run_elementwise(c, &(elementwise){.block = add_block,
                                      .n_in = 2,
                                      .in = {x, y},
                                      .n_out = 1,
                                      .out = {out},
                                      .dtype = dtype,
                                      .n = n});
}

static void mul(fsdp_kernel_context *c, void *out, const void *x, const void *y, fsdp_dtype dtype,
                int64_t n)
{
    run_elementwise(c, &(elementwise){.block = mul_block,
                                      .n_in = 2,
                                      .in = {x, y},
                                      .n_out = 1,
                                      .out = {out},
                                      .dtype = dtype,
                                      .n = n});
}

static void scale(fsdp_kernel_context *c, void *out, const void *x, float factor, fsdp_dtype dtype,
                  int64_t n)
{
    run_elementwise(c, &(elementwise){.block = scale_block,
                                      .n_in = 1,
                                      .in = {x},
                                      .n_out = 1,
                                      .out = {out},
                                      .dtype = dtype,
                                      .n = n,
                                      .factor = factor});
}

/* --- activations --- */

#define SQRT_2_OVER_PI 0x1.988454p-1f
#define SQRT_1_2 0x1.6a09e6p-1f
#define INV_SQRT_2_PI 0x1.988454p-2f

/* Limits x to [-bound, bound]; NaN stays NaN. In the functions below, a slope has a term with the
 * factor x. There, x is limited first, because an infinite x times 0 would be NaN. Limiting x does
 * not change the slope, because in float32 the slope is constant for |x| > bound. */
FSDP_INLINE fsdp_vec within(fsdp_vec x, float bound)
{
    return fsdp_vec_max(fsdp_vec_set(-bound), fsdp_vec_min(fsdp_vec_set(bound), x));
}

/* Each of the following functions returns the activation a(x) and sets *slope to its derivative
 * a'(x). If a caller uses only one of the two results, the compiler removes the computation of the
 * other result. */

FSDP_INLINE fsdp_vec none(fsdp_vec x, fsdp_vec *slope)
{
    *slope = fsdp_vec_set(1.0f);
    return x;
}

/* Returns relu(x). NaN stays NaN, as in torch.relu. */
FSDP_INLINE fsdp_vec relu(fsdp_vec x, fsdp_vec *slope)
{
    *slope = fsdp_vec_select(x > 0.0f, fsdp_vec_set(1.0f), fsdp_vec_set(0.0f));
    return fsdp_vec_max(fsdp_vec_set(0.0f), x);
}

/* Returns GELU (Hendrycks & Gimpel 2016) of x in the approximation 0.5 x (1 + tanh u). The factor
 * 0.5 (1 + tanh u) is computed as the logistic function of 2u. */
FSDP_INLINE fsdp_vec gelu_tanh(fsdp_vec x, fsdp_vec *slope)
{
    fsdp_vec z = within(x, 64.0f);
    fsdp_vec u = x * (SQRT_2_OVER_PI + SQRT_2_OVER_PI * 0.044715f * (x * x));
    fsdp_vec du = SQRT_2_OVER_PI + 3.0f * SQRT_2_OVER_PI * 0.044715f * (z * z);
    fsdp_vec ds, s = fsdp_vec_sigmoid(u + u, &ds);
    *slope = s + 2.0f * z * du * ds;
    return x * s;
}

FSDP_INLINE fsdp_vec gelu_erf(fsdp_vec x, fsdp_vec *slope)
{
    fsdp_vec phi = 0.5f * (1.0f + fsdp_vec_erf(x * SQRT_1_2)), z = within(x, 64.0f);
    *slope = phi + z * (INV_SQRT_2_PI * fsdp_vec_exp(-0.5f * (z * z)));
    return x * phi;
}

FSDP_INLINE fsdp_vec silu(fsdp_vec x, fsdp_vec *slope)
{
    fsdp_vec ds, s = fsdp_vec_sigmoid(x, &ds);
    *slope = s + within(x, 128.0f) * ds;
    return x * s;
}

FSDP_INLINE fsdp_vec hyperbolic_tangent(fsdp_vec x, fsdp_vec *slope)
{
    fsdp_vec y = fsdp_vec_tanh(x);
    *slope = 1.0f - y * y;
    return y;
}

enum {
    VALUE = 1,
    SLOPE = 2
};

/* Computes one block. If `wanted` has the bit VALUE, sets y to a(x). If `wanted` has the bit SLOPE,
 * sets `slope` to a'(x). `y` or `slope` may be NULL if its bit is not set. Callers pass a constant
 * for `wanted`, so the compiler removes the code for a result that is not wanted. */
FSDP_INLINE void activate(fsdp_activation a, int wanted, float *restrict y, float *restrict slope,
                          const float *restrict x, int n)
{
#define EACH(function)                                                                             \
    for (int j = 0; j < n; j += FSDP_VEC) {                                                        \
        fsdp_vec d, value = function(fsdp_vec_load(x + j), &d);                                    \
        if (wanted & VALUE)                                                                        \
            fsdp_vec_store(y + j, value);                                                          \
        if (wanted & SLOPE)                                                                        \
            fsdp_vec_store(slope + j, d);                                                          \
    }                                                                                              \
    break

    switch (a) {
    case FSDP_ACTIVATION_NONE:
        EACH(none);
    case FSDP_ACTIVATION_RELU:
        EACH(relu);
    case FSDP_ACTIVATION_GELU_TANH:
        EACH(gelu_tanh);
    case FSDP_ACTIVATION_GELU_ERF:
        EACH(gelu_erf);
    case FSDP_ACTIVATION_SILU:
        EACH(silu);
    case FSDP_ACTIVATION_TANH:
        EACH(hyperbolic_tangent);
    }
#undef EACH
}

static void activation_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                             const float *const in[MAX_IN], int64_t first, int n)
{
    (void)first;
    activate(e->activation, VALUE, out[0], NULL, in[0], n);
}

static void activation_backward_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                                      const float *const in[MAX_IN], int64_t first, int n)
{
    const float *dy = in[0];
    float *restrict dx = out[0];
    (void)first;
    activate(e->activation, SLOPE, NULL, dx, in[1], n);
    for (int j = 0; j < n; j++)
        dx[j] *= dy[j];
}

static void gated_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                        const float *const in[MAX_IN], int64_t first, int n)
{
    const float *up = in[1];
    float *restrict y = out[0];
    (void)first;
    activate(e->activation, VALUE, y, NULL, in[0], n);
    for (int j = 0; j < n; j++)
        y[j] *= up[j];
}

static void gated_backward_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                                 const float *const in[MAX_IN], int64_t first, int n)
{
    const float *dy = in[0], *gate = in[1], *up = in[2];
    float *restrict d_gate = out[0], *restrict d_up = out[1];
    (void)first;
    activate(e->activation, VALUE | SLOPE, d_up, d_gate, gate, n);
    for (int j = 0; j < n; j++) {
        d_up[j] *= dy[j];
        d_gate[j] *= dy[j] * up[j];
    }
}

static void activation(fsdp_kernel_context *c, fsdp_activation a, void *out, const void *x,
                       fsdp_dtype dtype, int64_t n)
{
    run_elementwise(c, &(elementwise){.block = activation_block,
                                      .n_in = 1,
                                      .in = {x},
                                      .n_out = 1,
                                      .out = {out},
                                      .dtype = dtype,
                                      .n = n,
                                      .activation = a});
}

static void activation_backward(fsdp_kernel_context *c, fsdp_activation a, void *dx, const void *dy,
                                const void *x, fsdp_dtype dtype, int64_t n)
{
    run_elementwise(c, &(elementwise){.block = activation_backward_block,
                                      .n_in = 2,
                                      .in = {dy, x},
                                      .n_out = 1,
                                      .out = {dx},
                                      .dtype = dtype,
                                      .n = n,
                                      .activation = a});
}

static void gated(fsdp_kernel_context *c, fsdp_activation a, void *out, const void *gate,
                  const void *up, fsdp_dtype dtype, int64_t n)
{
    run_elementwise(c, &(elementwise){.block = gated_block,
                                      .n_in = 2,
                                      .in = {gate, up},
                                      .n_out = 1,
                                      .out = {out},
                                      .dtype = dtype,
                                      .n = n,
                                      .activation = a});
}

static void gated_backward(fsdp_kernel_context *c, fsdp_activation a, void *d_gate, void *d_up,
                           const void *dy, const void *gate, const void *up, fsdp_dtype dtype,
                           int64_t n)
{
    run_elementwise(c, &(elementwise){.block = gated_backward_block,
                                      .n_in = 3,
                                      .in = {dy, gate, up},
                                      .n_out = 2,
                                      .out = {d_gate, d_up},
                                      .dtype = dtype,
                                      .n = n,
                                      .activation = a});
}

/* --- activated_backward --- */

/* Pointers to one row of each array of fsdp_activated_backward_args. A pointer is NULL if its array
 * is NULL. */
typedef struct activated_row {
    const void *x, *up;
    void *dx, *d_up, *hidden;
} activated_row;

/* Computes columns [i, i + n) of a row. All inputs are read before the first output is written,
 * since an output may overwrite an input. */
static void activated_block(const fsdp_activated_backward_args *a, const activated_row *row,
                            int64_t i, int n)
{
    float in[3][FSDP_BLOCK], y[FSDP_BLOCK], slope[FSDP_BLOCK], of_up[FSDP_BLOCK];
    const bool has_gradient = row->dx || row->d_up;
    const float *x = fsdp_load_block(in[0], row->x, a->dtype, i, n);
    const float *up = row->up ? fsdp_load_block(in[1], row->up, a->dtype, i, n) : NULL;
    const float *d = has_gradient ? fsdp_load_block(in[2], row->hidden, a->dtype, i, n) : NULL;
    const int padded = fsdp_padded(n);
    activate(a->activation, VALUE | SLOPE, y, slope, x, padded);
    for (int j = 0; d && j < padded; j++)
        slope[j] *= up ? d[j] * up[j] : d[j] * a->factor;
    for (int j = 0; row->d_up && j < padded; j++)
        of_up[j] = y[j] * d[j];
    for (int j = 0; up && j < padded; j++)
        y[j] *= up[j];
    if (row->dx)
        fsdp_store_block(row->dx, a->dtype, i, slope, n);
    if (row->d_up)
        fsdp_store_block(row->d_up, a->dtype, i, of_up, n);
    fsdp_store_block(row->hidden, a->dtype, i, y, n);
}

static void *row_at(const void *base, fsdp_dtype dtype, int64_t elements)
{
    return base ? (void *)((uintptr_t)base + (size_t)elements * fsdp_dtype_size(dtype)) : NULL;
}

static void activated_task(void *arg, int64_t task, int worker)
{
    const fsdp_activated_backward_args *a = arg;
    const int64_t rows = fsdp_task_rows(a->columns);
    const int64_t end = fsdp_min_i64(a->rows, (task + 1) * rows);
    (void)worker;
    for (int64_t r = task * rows; r < end; r++) {
        const int64_t at = r * a->ld;
        const activated_row row = {.x = row_at(a->x, a->dtype, at),
                                   .up = row_at(a->up, a->dtype, at),
                                   .dx = row_at(a->dx, a->dtype, at),
                                   .d_up = row_at(a->d_up, a->dtype, at),
                                   .hidden = row_at(a->hidden, a->dtype, r * a->columns)};
        for (int64_t i = 0; i < a->columns; i += FSDP_BLOCK)
            activated_block(a, &row, i, (int)fsdp_min_i64(a->columns - i, FSDP_BLOCK));
    }
}

static void activated_backward(fsdp_kernel_context *c, const fsdp_activated_backward_args *args)
{
    fsdp_activated_backward_args a = *args;
    fsdp_run_tasks(c, a.columns ? fsdp_ceil_div(a.rows, fsdp_task_rows(a.columns)) : 0,
                   activated_task, &a);
}

/* --- dropout --- */

static void dropout_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                          const float *const in[MAX_IN], int64_t first, int n)
{
    uint32_t halves[FSDP_BLOCK];
    const float *x = in[0], factor = e->factor;
    const uint32_t threshold = e->threshold;
    float *restrict y = out[0];
    fsdp_philox_halves(halves, e->key, (uint64_t)first / FSDP_COUNTER_HALVES, FSDP_BLOCK);
    for (int j = 0; j < n; j++)
        y[j] = fsdp_select(-(uint32_t)(halves[j] >= threshold), x[j] * factor, 0.0f);
}

static void relu_dropout_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                               const float *const in[MAX_IN], int64_t first, int n)
{
    float rectified[FSDP_BLOCK];
    fsdp_vec slope;
    for (int j = 0; j < n; j += FSDP_VEC)
        fsdp_vec_store(rectified + j, relu(fsdp_vec_load(in[0] + j), &slope));
    dropout_block(e, out, (const float *const[MAX_IN]){rectified}, first, n);
}

/* Applies dropout to in[0], rounds the result to the dtype, and then adds in[1]. The result has the
 * same bits as if dropout and addition were two operations. */
static void dropout_add_block(const elementwise *e, float out[MAX_OUT][FSDP_BLOCK],
                              const float *const in[MAX_IN], int64_t first, int n)
{
    float stored[FSDP_BLOCK], rounded[FSDP_BLOCK];
    dropout_block(e, out, in, first, n);
    fsdp_store_block(stored, e->dtype, 0, out[0], n);
    const float *dropped = fsdp_load_block(rounded, stored, e->dtype, 0, n), *addend = in[1];
    float *restrict y = out[0];
    for (int j = 0; j < n; j++)
        y[j] = dropped[j] + addend[j];
}

static void dropout(fsdp_kernel_context *c, const fsdp_dropout_args *args)
{
    run_elementwise(c, &(elementwise){.block = args->addend ? dropout_add_block
                                               : args->relu ? relu_dropout_block
                                                            : dropout_block,
                                      .n_in = args->addend ? 2 : 1,
                                      .in = {args->x, args->addend},
                                      .n_out = 1,
                                      .out = {args->out},
                                      .dtype = args->dtype,
                                      .n = args->n,
                                      .factor = fsdp_keep_factor(args->p),
                                      .threshold = fsdp_drop_threshold(args->p),
                                      .key = args->key});
}

void FSDP_ISA_NAME_OF(fsdp_cpu_fill_elementwise)(fsdp_kernels *k)
{
    k->add = add;
    k->mul = mul;
    k->scale = scale;
    k->activation = activation;
    k->activation_backward = activation_backward;
    k->gated = gated;
    k->gated_backward = gated_backward;
    k->activated_backward = activated_backward;
    k->dropout = dropout;
}
