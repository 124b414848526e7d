/* The kernels of a device: the inner loops of the operations (src/autograd/ops_*.c), of src/optim
 * and of src/fsdp. Each device has a table of kernels (fsdp_kernels), which is constant. The CPU
 * has three such tables, one for each ISA (x86-64, x86-64-v3, x86-64-v4). The caller that creates a
 * context may name the ISA. If it names none, the best ISA that the CPU has is chosen. All
 * arguments are raw pointers and sizes. The caller must have checked all shapes. Tensors are
 * contiguous and row-major, unless a leading dimension (ld, in elements) is given. If a comment
 * does not restrict the argument `dtype`, it is float32, bfloat16 or float16, except in fill() and
 * cast(), which accept every dtype. Arithmetic is in float32.
 *
 * Determinism: results depend on shapes and values alone, never on the number of threads. Two calls
 * with the same inputs give the same bits. Sums over rows are divided into blocks of a fixed size,
 * and the blocks are added in order.
 *
 * Legend: T tokens (rows), D model width, F feed-forward width, V vocabulary, H heads, K head
 * width, N output features. */
#pragma once
#include <math.h>

#include <fsdp/base.h>

#include "src/base/float8.h"
#include "src/base/halves.h"
#include "src/base/thread_pool.h"
#include "src/kernels/nf4.h"

/* The state that the kernels of one rank need. On the CPU, this state is a thread pool, scratch
 * memory for each thread and a cache of oneDNN's primitives. Each rank has its own context, even if
 * ranks are threads of one process. */
typedef struct fsdp_kernel_context fsdp_kernel_context;

typedef enum fsdp_activation {
    FSDP_ACTIVATION_NONE,
    FSDP_ACTIVATION_RELU,
    FSDP_ACTIVATION_GELU_TANH, /* "gelu_new" and "gelu_pytorch_tanh":
                                  0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))) */
    FSDP_ACTIVATION_GELU_ERF,  /* "gelu": x * Phi(x) */
    FSDP_ACTIVATION_SILU,
    FSDP_ACTIVATION_TANH,
} fsdp_activation;

/* A matrix product: C[m, n] = op(A)[m, k] op(B)[k, n] + beta C (+ bias[n]), where op(X) is X or
 * X^T. With trans_a, A is stored as [k, m] with leading dimension lda. With trans_b, B is stored as
 * [n, k] with leading dimension ldb. A and B have the same dtype: f32, bf16 or f16. C is f32 or has
 * the dtype of A and B. Sums are f32. */
typedef struct fsdp_gemm_args {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b;
    fsdp_dtype ab_dtype, c_dtype;
    float beta;       /* 0 or 1; if it is 0, C need not be initialized */
    const void *bias; /* [n] of ab_dtype, or NULL */
} fsdp_gemm_args;

/* The arguments of the backward of a(x) * up, for a block of columns. If up is NULL, it is the
 * backward of a(x). `a` is the activation function alone, without dropout. Each of dx and d_up may
 * be the same array as x or as up. */
typedef struct fsdp_activated_backward_args {
    fsdp_activation activation;
    /* The factor by which dropout multiplies dx; 1: no dropout. Used only if `up` is NULL. */
    float factor;
    fsdp_dtype dtype; /* dtype of all arrays */
    int64_t rows, columns;
    /* Row stride of all arrays except `hidden`, in elements. The row stride of `hidden` is
     * `columns`. */
    int64_t ld;
    const void *x, *up; /* if `up` is NULL, the result is a(x) */
    void *dx, *d_up;    /* NULL: this gradient is not computed */
    /* An input and an output. Before the call, `hidden` contains the gradient of the result, which
     * is read only if dx or d_up is computed. The call overwrites `hidden` with the result: a(x) *
     * up or, if `up` is NULL, a(x). */
    void *hidden;
} fsdp_activated_backward_args;

/* Inverted dropout (Srivastava et al. 2014): out[i] = x[i] / (1 - p) if element i is kept,
 * otherwise 0. fsdp_drop_threshold() defines which elements are kept. Backward is the same call on
 * the gradient. */
typedef struct fsdp_dropout_args {
    fsdp_dtype dtype; /* dtype of all arrays */
    int64_t n;
    const void *x;
    void *out; /* may be the same array as x or addend */
    float p;
    uint64_t key;
    /* true: apply dropout to max(x[i], 0) instead of x[i]; NaN stays NaN. Requires that addend is
     * NULL. */
    bool relu;
    /* addend[i] is added to element i of the result of dropout, after that element has been rounded
     * to dtype. NULL: nothing is added. */
    const void *addend;
} fsdp_dropout_args;

/* Multi-head attention over packed sequences. Sequence b has query rows [q_offsets[b],
 * q_offsets[b+1]) and key rows [k_offsets[b], k_ends[b]). If k_ends is NULL, the key rows end at
 * k_offsets[b+1]. Both ranges may be empty. Backward requires that k_ends is NULL, since it writes
 * all rows of d_k and d_v. Query head h reads key/value head h / (heads / kv_heads). The scores are
 * S = scale q.k + bias.
 *
 * Below, i and j are the indices of a query and of a key in their sequence. With `causal`, query i
 * sees key j only if j <= i + shift. `shift` is the sequence's number of keys minus its number of
 * queries, so the queries have the last positions of the sequence. Without `causal`, shift is 0.
 * With window > 0 (Mistral), query i sees key j only if i + shift - j < window.
 *
 * position_bias has rows of 2*bias_span - 1 elements, one row per head. Element [h, d] is added to
 * the scores of head h at which j - (i + shift) = d - (bias_span - 1). The caller must ensure that
 * |j - (i + shift)| < bias_span.
 *
 * With dropout_p > 0, forward and backward drop the same probabilities. The probability of head h,
 * query row t (of all Tq rows) and key j is dropped if the kernel `dropout`, called with
 * dropout_key, would drop element h * 2^40 + t * 2^20 + j.
 *
 * The matrix S is never stored completely: each task computes the scores of one head of one
 * sequence, which stay in the cache. Forward writes the log-sum-exp of each row of scores to lse
 * [heads, Tq] f32. If a query sees no key, its lse is -inf and its output is 0. Backward reads lse
 * and computes S again. */
typedef struct fsdp_attention_args {
    fsdp_dtype dtype; /* dtype of q, k, v, out and their gradients */
    int64_t n_sequences, heads, kv_heads, head_dim;
    const int32_t *q_offsets, *k_offsets; /* [n_sequences + 1], host memory */
    const int32_t *k_ends;                /* [n_sequences], host memory, or NULL */
    const void *q;                        /* [Tq, heads * head_dim], row stride q_ld */
    const void *k, *v;                    /* [Tk, kv_heads * head_dim], row strides k_ld, v_ld */
    int64_t q_ld, k_ld, v_ld;
    float scale;
    bool causal;
    int64_t window;
    const float *position_bias; /* [heads, 2*bias_span-1] f32 or NULL */
    int64_t bias_span;
    float dropout_p;
    uint64_t dropout_key;
    void *out;  /* [Tq, heads * head_dim], row stride heads * head_dim */
    float *lse; /* [heads, Tq] */
    /* The fields below are used only in backward. */
    const void *d_out; /* same shape and row stride as `out` */
    /* d_q is [Tq, heads * head_dim]; d_k and d_v are [Tk, kv_heads * head_dim]. */
    void *d_q, *d_k, *d_v;
    int64_t d_q_ld, d_k_ld, d_v_ld; /* row strides; 0: the rows are contiguous */
    float *d_position_bias; /* [heads, 2*bias_span-1] f32, overwritten; NULL: not computed */
} fsdp_attention_args;

/* Return the number of keys of sequence b. */
static inline int64_t fsdp_attention_keys(const fsdp_attention_args *args, int64_t b)
{
    return (args->k_ends ? args->k_ends[b] : args->k_offsets[b + 1]) - args->k_offsets[b];
}

/* Return the row stride of a gradient: `ld`, or heads * head_dim if `ld` is 0. */
static inline int64_t fsdp_attention_gradient_ld(const fsdp_attention_args *args, int64_t ld,
                                                 int64_t heads)
{
    return ld ? ld : heads * args->head_dim;
}

/* The arguments of the backward of layer_norm(): dx = rstd (g - mean(g) - n mean(g n)), where n =
 * (x - mean) rstd and g = dy w. dw is the sum of dy n over rows, and dbias is the sum of dy over
 * rows. If dx, dw.dst or dbias.dst is NULL, this gradient is not computed. */
typedef struct fsdp_layer_norm_backward_args {
    const void *dy, *x, *w; /* dy, x [rows, width] of dtype, w [width] of w_dtype */
    const float *mean, *rstd;
    fsdp_dtype dtype, w_dtype;
    int64_t rows, width;
    void *dx; /* elements of `dtype`; must not overlap dy */
    struct {
        /* [width] of `dtype`; if beta is 0, it is overwritten; if beta is 1, the gradient is added
         * to it */
        void *dst;
        fsdp_dtype dtype;
        float beta;
    } dw, dbias;
} fsdp_layer_norm_backward_args;

/* One of the tensors that are passed to row_power_sums(). For each row of the tensor,
 * row_power_sums() adds up |x|^power over the elements x. */
typedef struct fsdp_row_powers {
    const void *x; /* [rows, width] of dtype */
    fsdp_dtype dtype;
    int64_t rows, width;
    double *sums; /* [rows] */
} fsdp_row_powers;

/* A sequence of numbers that combine() combines into one number. */
typedef struct fsdp_numbers {
    const double *numbers; /* [n] */
    int64_t n;
    double *result; /* address at which the result is stored; if n is 0, the result is 0 */
    /* How the numbers are combined. false: pairwise in an aligned binary tree, as tree_sum() does.
     * true: one by one, from the first to the last. */
    bool in_order;
} fsdp_numbers;

/* The results of clip_factor(), in memory of the device. The kernels of an optimizer's step can
 * read them there, so the host need not wait for them. */
typedef struct fsdp_clip_result {
    double norm;
    float scale;     /* the factor by which gradients are multiplied */
    int32_t refused; /* not 0: the step must not change anything */
} fsdp_clip_result;

/* The arguments of clip_factor(). It computes norm = (sums[0] + ... + sums[n - 1])^(1 / power),
 * where the terms are added in this order and in double. If power is INFINITY, norm is the largest
 * of `sums`, and NaN counts as the largest. It also computes scale = min(1, max_norm / (norm +
 * 1e-6)), or scale = 1 if max_norm is INFINITY. If norm is NaN, scale is NaN. The step is refused
 * if one of `losses` is not finite, or if norm is not finite and refuses_norm is true. */
typedef struct fsdp_clip_args {
    const double *sums; /* [n] */
    int64_t n;
    double power, max_norm;
    bool refuses_norm;
    const float *losses; /* [n_losses] */
    int64_t n_losses;
    fsdp_clip_result *result;
} fsdp_clip_args;

/* Return fsdp_clip_result.scale for this norm and max_norm: see fsdp_clip_args. */
static inline float fsdp_clip_scale(double norm, double max_norm)
{
    const double scale = max_norm / (norm + 1e-6);
    return scale > 1.0 || isinf(max_norm) ? 1.0f : (float)scale; /* NaN stays NaN */
}

/* The arguments of an AdamW step for one rank's shard of one tensor (Loshchilov & Hutter 2019,
 * torch.optim.AdamW): g = grad * grad_scale; p *= 1 - lr*wd; m = b1 m + (1-b1) g; v = b2 v + (1-b2)
 * g^2; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps). Scalars are computed in double, as in
 * PyTorch. */
typedef struct fsdp_adamw_args {
    int64_t n;
    float *param;               /* NULL: the parameter is in `halves` */
    void *exp_avg, *exp_avg_sq; /* elements of state_dtype */
    /* float32, bfloat16 or uint8. The new moments are rounded to this dtype. If it is uint8,
     * moments are codes of fsdp_dynamic_map_signed() and fsdp_dynamic_map_unsigned() in
     * src/base/dynamic_map.h. The parameter then consists of rows of `inner` elements. Each row is
     * divided into blocks of FSDP_MAP_BLOCK elements, and the last block of a row may be shorter.
     * absmax1 and absmax2 [n / inner, blocks of a row] are the largest magnitudes of the blocks of
     * exp_avg and exp_avg_sq. */
    fsdp_dtype state_dtype;
    float *absmax1, *absmax2;
    int64_t inner;
    /* If `param` and the arrays of `halves` are NULL, the parameter is stored only in `copy`, and
     * copy_dtype is not float32. */
    fsdp_halves halves;
    const float *grad;
    void *copy; /* if not NULL, the new parameter is also stored here, rounded to copy_dtype */
    fsdp_dtype copy_dtype;
    double lr, beta1, beta2, eps, weight_decay;
    bool decoupled; /* true: AdamW; false: Adam, in which weight decay is added to the gradient */
    int64_t step;   /* counted from 1 */
    float grad_scale;
    /* True: moments of bfloat16 are rounded stochastically, and so is a parameter that is stored
     * only in `copy` as bfloat16. See fsdp_rounding_key() in src/base/philox.h. */
    bool stochastic;
    uint64_t rounding_key; /* a function of seed, step and parameter */
    int64_t first;         /* index of this shard's element 0 in the whole parameter */
} fsdp_adamw_args;

/* The arguments of a step of Schedule-Free AdamW for one rank's shard of one tensor (Defazio et al.
 * 2024, schedulefree.AdamWScheduleFree): g = grad * grad_scale; v = b2 v + (1-b2) g^2; u = g /
 * (sqrt(v / (1-b2^t)) + eps) + wd y; y = y + average (z - y); y += lr (b1 (1 - average) - 1) u; z
 * -= lr u. The parameter is y. If `first` is true, z is set to y before all this.
 *
 * If `grad` is NULL, no step is taken, and only the parameter changes: y = y + average (z - y). The
 * old y is first stored in `kept`, unless that is NULL. If `restores` is true, the parameter is set
 * to `kept` instead. */
typedef struct fsdp_schedule_free_args {
    int64_t n;
    float *param; /* `param`, `halves` and `copy` as in fsdp_adamw_args */
    fsdp_halves halves;
    void *copy;
    fsdp_dtype copy_dtype;
    float *z, *exp_avg_sq;
    const float *grad;
    float *kept; /* [n] or NULL */
    double lr, beta1, beta2, eps, weight_decay, average;
    int64_t step; /* t, counted from 1 */
    bool first, restores;
    float grad_scale;
} fsdp_schedule_free_args;

/* The arguments of a step of torch.optim.SGD: g = grad*grad_scale + wd p; buf = first ? g :
 * momentum buf + (1-dampening) g; g = nesterov ? g + momentum buf : buf; p -= lr g. If momentum is
 * 0, there is no buf, momentum_buffer is NULL, and the update is p -= lr g with g = grad*grad_scale
 * + wd p. */
typedef struct fsdp_sgd_args {
    int64_t n;
    float *param, *momentum_buffer; /* `param`, `halves` and `copy` have the same meanings as in
                                     * fsdp_adamw_args */
    fsdp_halves halves;
    const float *grad;
    void *copy;
    fsdp_dtype copy_dtype;
    double lr, momentum, dampening, weight_decay;
    bool nesterov, first;
    float grad_scale;
} fsdp_sgd_args;

/* The arguments of an Adafactor step for one matrix or some of its rows (Shazeer & Stern 2018,
 * transformers' Adafactor). The step first computes u = row_factor[i] col_factor[j] grad[i, j]
 * grad_scale and u *= lr / divisor. If there is a first moment m, the step computes m = b1 m +
 * (1-b1) u and u = m. Then it computes p *= 1 - lr*wd and p -= u. */
typedef struct fsdp_adafactor_args {
    int64_t rows, cols;
    const float *grad, *row_factor, *col_factor;
    float grad_scale;
    /* Only adafactor() uses the fields below; adafactor_square_sums() ignores them. */
    void *param; /* elements of param_dtype */
    fsdp_dtype param_dtype;
    float *exp_avg; /* the first moment; NULL: no first moment */
    float divisor;
    double lr, beta1, weight_decay;
} fsdp_adafactor_args;

enum {
    FSDP_MAX_SUMMED_TABLES = 8
};

/* The arguments of a sum of rows of tables. For each i in [0, n), let r = rows + i * (1 +
 * n_tables). Row r[0] of dst becomes the sum over all t of row r[1 + t] of tables[t], times
 * `scale`. The tables are added in the order of tree_sum(). All r[0] must be different. Other rows
 * of dst are not written. dst must not overlap a table. */
typedef struct fsdp_tree_sum_rows_args {
    float *dst;                                  /* [*, width] */
    const float *tables[FSDP_MAX_SUMMED_TABLES]; /* [n_tables], each [*, width] */
    int n_tables;                                /* at least 1 */
    const int32_t *rows;                         /* [n, 1 + n_tables], host memory */
    int64_t n, width;
    float scale;
} fsdp_tree_sum_rows_args;

/* Which elements of a matrix share a scale (Note [Float8 scales] in src/base/float8.h). */
typedef enum fsdp_float8_axis {
    FSDP_FLOAT8_TENSOR, /* all elements: one scale */
    FSDP_FLOAT8_ROW,    /* the elements of a row: one scale for each row */
    FSDP_FLOAT8_COLUMN  /* the elements of a column: one scale for each column */
} fsdp_float8_axis;

enum {
    /* A device that multiplies float8 codes themselves requires that k and n are multiples of this
     * number. */
    FSDP_FLOAT8_MULTIPLE = 16
};

/* Return the row stride of transposed codes, whose rows have n elements. */
static inline int64_t fsdp_float8_transposed_ld(int64_t n)
{
    return (n + FSDP_FLOAT8_MULTIPLE - 1) / FSDP_FLOAT8_MULTIPLE * FSDP_FLOAT8_MULTIPLE;
}

/* The arguments of float8_scales() and float8_cast(), for a matrix x [rows, columns]. */
typedef struct fsdp_float8_cast_args {
    const void *x;
    fsdp_dtype dtype; /* dtype of x: float32, bfloat16 or float16 */
    int64_t rows, columns;
    fsdp_float8_format format;
    fsdp_float8_axis axis;
    bool power_of_2; /* used only by float8_scales(); true: round scales down to powers of two */
    float *scales;   /* [1], [rows] or [columns], as `axis` says */
    /* The result of float8_cast(); float8_scales() ignores it. If codes_dtype is FSDP_DTYPE_U8,
     * `codes` gets the codes of x * scale, one byte each. If it is FSDP_DTYPE_BF16, `codes` gets
     * the values of these codes, which bfloat16 represents exactly. */
    void *codes;
    fsdp_dtype codes_dtype;
    /* Used only by float8_cast(), and only if codes_dtype is FSDP_DTYPE_U8. true: `codes` is the
     * transpose of the result, [columns, ld], where ld is fsdp_float8_transposed_ld(rows). `codes`
     * must then be aligned to 16 bytes. In each row, elements from `rows` on are zeros, which add
     * nothing to a product. */
    bool transposed;
} fsdp_float8_cast_args;

/* The arguments of float8_decode(). It computes the values or the transpose of the matrix `codes`
 * [rows, columns]. */
typedef struct fsdp_float8_decode_args {
    const uint8_t *codes;
    fsdp_float8_format format;
    int64_t rows, columns;
    /* If out_dtype is FSDP_DTYPE_BF16, `out` [rows, columns] gets the values of the codes. If it is
     * FSDP_DTYPE_U8, `out` gets the codes themselves, transposed as by float8_cast(). */
    void *out;
    fsdp_dtype out_dtype;
} fsdp_float8_decode_args;

/* The arguments of a product of float8 operands: C [m, n] is computed from the sums op(A) op(B).
 * op(A) is [m, k] and op(B) is [k, n], as in fsdp_gemm_args. The operands are what float8_cast()
 * and float8_decode() have written with ab_dtype.
 *
 * If ab_dtype is FSDP_DTYPE_BF16, C becomes the sums. In this case, a_scale and b_scale must be
 * NULL, c_dtype must be FSDP_DTYPE_F32, and beta must be 0. If ab_dtype is FSDP_DTYPE_U8,
 * float8_multiplies_codes() must have returned true for a product with these fields, k must be the
 * last dimension of both operands (trans_a is false and trans_b is true), and a, b and c must be
 * aligned to 16 bytes. */
typedef struct fsdp_float8_gemm_args {
    int64_t m, n, k;
    const void *a, *b;
    fsdp_dtype ab_dtype;
    fsdp_float8_format a_format, b_format;
    bool trans_a, trans_b;
    /* NULL, or the only scale of each operand, in memory of the device. With scales, C becomes
     * beta * C + sums * (1 / a_scale) * (1 / b_scale). Without scales, C becomes the sums, as with
     * FSDP_DTYPE_BF16. */
    const float *a_scale, *b_scale;
    void *c;
    fsdp_dtype c_dtype;
    float beta; /* 0 or 1 */
} fsdp_float8_gemm_args;

/* The arguments of float8_descale(), which ends a product of float8 operands: out = beta * out +
 * sums * (1 / a_scale) * (1 / b_scale) + bias. The two reciprocals are multiplied first. */
typedef struct fsdp_float8_descale_args {
    const float *sums; /* [rows, columns]; may be the same array as `out` */
    int64_t rows, columns;
    const float *a_scales; /* [1] or, if a_by_row, [rows] */
    const float *b_scales; /* [1] or, if b_by_column, [columns] */
    bool a_by_row, b_by_column;
    const void *bias; /* [columns] of out_dtype, or NULL */
    void *out;
    fsdp_dtype out_dtype;
    float beta; /* 0 or 1 */
} fsdp_float8_descale_args;

typedef struct fsdp_kernels {
    const char *name; /* for example "cpu x86-64-v4" */

    /* --- plain memory --- */
    void (*fill)(fsdp_kernel_context *c, void *dst, fsdp_dtype dtype, double value, int64_t n);
    void (*copy)(fsdp_kernel_context *c, void *dst, const void *src, size_t bytes);
    /* Cast n elements from any dtype to any other. Floats are rounded to nearest even. dst may
     * equal src only if both dtypes have the same size. */
    void (*cast)(fsdp_kernel_context *c, void *dst, fsdp_dtype to, const void *src, fsdp_dtype from,
                 int64_t n);
    /* join() computes n float32 values from their halves, and split() computes the halves of n
     * float32 values: Note [Halves] in src/base/halves.h. @{ */
    void (*join)(fsdp_kernel_context *c, float *dst, fsdp_halves src, int64_t n);
    void (*split)(fsdp_kernel_context *c, fsdp_halves dst, const float *src, int64_t n);
    /* @} */
    /* Set dst[i], for i < n, to random numbers from N(mean, std), computed by Box-Muller from
     * uniform bits of Philox. An element depends only on `key`, mean, std and its index in the
     * whole parameter, which is first + i. So each rank can generate its own rows without
     * generating other rows. */
    void (*normal)(fsdp_kernel_context *c, void *dst, fsdp_dtype dtype, uint64_t key, int64_t first,
                   int64_t n, float mean, float std);

    /* --- element-wise: n elements of `dtype`; `out` may be the same array as an input --- */
    void (*add)(fsdp_kernel_context *c, void *out, const void *x, const void *y, fsdp_dtype dtype,
                int64_t n);
    void (*mul)(fsdp_kernel_context *c, void *out, const void *x, const void *y, fsdp_dtype dtype,
                int64_t n);
    void (*scale)(fsdp_kernel_context *c, void *out, const void *x, float factor, fsdp_dtype dtype,
                  int64_t n);
    void (*activation)(fsdp_kernel_context *c, fsdp_activation a, void *out, const void *x,
                       fsdp_dtype dtype, int64_t n);
    /* Compute dx = dy * a'(x), where x is the input of the activation. dx may equal dy. */
    void (*activation_backward)(fsdp_kernel_context *c, fsdp_activation a, void *dx, const void *dy,
                                const void *x, fsdp_dtype dtype, int64_t n);
    /* Compute out = a(gate) * up (GEGLU, SwiGLU; Shazeer 2020). `out` may be the same array as gate
     * or up. */
    void (*gated)(fsdp_kernel_context *c, fsdp_activation a, void *out, const void *gate,
                  const void *up, fsdp_dtype dtype, int64_t n);
    /* Compute the gradients of gated() with respect to gate and up. Each of d_gate and d_up may be
     * the same array as dy, gate or up. */
    void (*gated_backward)(fsdp_kernel_context *c, fsdp_activation a, void *d_gate, void *d_up,
                           const void *dy, const void *gate, const void *up, fsdp_dtype dtype,
                           int64_t n);
    void (*activated_backward)(fsdp_kernel_context *c, const fsdp_activated_backward_args *args);
    void (*dropout)(fsdp_kernel_context *c, const fsdp_dropout_args *args);

    /* Clamp x [n], which is float16, if any of its elements is infinite: all elements are then
     * clamped to [-64512, 64512]. Otherwise x is unchanged. transformers' T5Block clamps in the
     * same way, to finfo.max - 1000, which is 64512 after rounding to float16. NaN stays NaN. The
     * output `factors` [1 + ceil(n / 4)] contains the factors by which backward multiplies the
     * gradients. If byte 0 of `factors` is 0, backward leaves all gradients unchanged. If there is
     * no backward, `factors` may be NULL. */
    void (*clamp_infinite)(fsdp_kernel_context *c, void *x, uint8_t *factors, int64_t n);
    /* Compute the gradient of clamp_infinite(). dx is 0 where x was clamped, dy / 2 where |x| was
     * equal to the bound, and dy elsewhere. This is the gradient of torch.clamp with tensors as
     * bounds. The bound is 64512, or 65504 if no element was infinite. dx may be the same array as
     * dy. Both are float16. */
    void (*clamp_infinite_backward)(fsdp_kernel_context *c, void *dx, const void *dy,
                                    const uint8_t *factors, int64_t n);

    /* --- rows --- */
    /* Compute RMSNorm (Zhang & Sennrich 2019), which T5 calls T5LayerNorm: y = x rstd w, where rstd
     * = 1 / sqrt(mean(x^2) + eps). Also writes rstd [T] f32, which backward reads. x and y have
     * `dtype`, and w has w_dtype. */
    void (*rms_norm)(fsdp_kernel_context *c, void *y, float *rstd, const void *x, const void *w,
                     fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows, int64_t width, float eps);
    /* Compute the gradients of rms_norm(): dx and dw. dw [width] has dw_dtype. If dw_beta is 0, dw
     * is overwritten. If dw_beta is 1, the gradient is added to dw. If dw or dx is NULL, it is not
     * computed. */
    void (*rms_norm_backward)(fsdp_kernel_context *c, void *dx, void *dw, fsdp_dtype dw_dtype,
                              float dw_beta, const void *dy, const void *x, const float *rstd,
                              const void *w, fsdp_dtype dtype, fsdp_dtype w_dtype, int64_t rows,
                              int64_t width);
    /* Compute LayerNorm (Ba et al. 2016): y = (x - mean) rstd w + bias, where rstd = 1 /
     * sqrt(variance + eps) with the population variance. Also writes mean and rstd [T] f32, which
     * backward reads. x and y have `dtype`; w and bias have w_dtype. bias may be NULL. If y is
     * NULL, only mean and rstd are computed. */
    void (*layer_norm)(fsdp_kernel_context *c, void *y, float *mean, float *rstd, const void *x,
                       const void *w, const void *bias, fsdp_dtype dtype, fsdp_dtype w_dtype,
                       int64_t rows, int64_t width, float eps);
    void (*layer_norm_backward)(fsdp_kernel_context *c, const fsdp_layer_norm_backward_args *args);
    /* Compute the rotary embedding (Su et al. 2021). In each head of row t, the pair of elements j
     * and j + K/2 is rotated by an angle. The cosine of this angle is table[positions[t]][j], and
     * the sine is table[positions[t]][j + K/2]. If `inverse` is true, the rotation is in the
     * opposite direction. x and out [T, heads * K] have `dtype` and may be the same array. table
     * [*, K] is f32. */
    void (*rope)(fsdp_kernel_context *c, void *out, const void *x, fsdp_dtype dtype,
                 const float *table, const int32_t *positions, int64_t tokens, int64_t heads,
                 int64_t head_dim, bool inverse);
    /* Compute out[t] = weight[ids[t]]. The caller must have checked that every id is in [0, V). */
    void (*embedding)(fsdp_kernel_context *c, void *out, fsdp_dtype dtype, const void *weight,
                      fsdp_dtype w_dtype, const int32_t *ids, int64_t tokens, int64_t width);
    /* Compute dw[ids[t]] += dy[t] for all tokens t. The terms of each row of dw are added in the
     * order of the tokens. If beta is 0, dw [V, width] is set to zero first. Tokens whose id is
     * padding_idx are skipped. If padding_idx is -1, no token is skipped. */
    void (*embedding_backward)(fsdp_kernel_context *c, void *dw, fsdp_dtype dw_dtype, float beta,
                               const void *dy, fsdp_dtype dtype, const int32_t *ids, int64_t tokens,
                               int64_t width, int64_t vocab, int32_t padding_idx);
    /* Set out[t] = x[rows[t]]. */
    void (*gather_rows)(fsdp_kernel_context *c, void *out, const void *x, const int32_t *rows,
                        int64_t n, size_t row_bytes);
    /* Compute out[j][t] = x[rows[t]][j]. out [width, n] is f32, and the rows of x [*, width] have
     * `dtype`. */
    void (*gather_transposed)(fsdp_kernel_context *c, float *out, const void *x, fsdp_dtype dtype,
                              const int32_t *rows, int64_t n, int64_t width);
    /* Compute the gradient of gather_transposed(): dx[r][j] becomes the sum of dy[j][t] over all t
     * with rows[t] = r, added in a fixed order. All elements of dx [x_rows, width] are written. */
    void (*gather_transposed_backward)(fsdp_kernel_context *c, float *dx, const float *dy,
                                       const int32_t *rows, int64_t n, int64_t width,
                                       int64_t x_rows);
    /* Set out[rows[t]] = x[t], and set all other rows of `out` to zero. This is the transpose of
     * gather_rows(). */
    void (*scatter_rows)(fsdp_kernel_context *c, void *out, int64_t out_rows, const void *x,
                         const int32_t *rows, int64_t n, size_t row_bytes);
    /* Split the columns of x into n parts: parts[i] [rows, part_bytes] gets bytes [i * part_bytes,
     * (i + 1) * part_bytes) of each row of x [rows, n * part_bytes]. */
    void (*split_columns)(fsdp_kernel_context *c, void *const *parts, const void *x, int n,
                          int64_t rows, size_t part_bytes);
    /* Join n parts to the rows of `out`: the inverse of split_columns(). If a part is NULL, zeros
     * are written to its columns of `out`. */
    void (*join_columns)(fsdp_kernel_context *c, void *out, const void *const *parts, int n,
                         int64_t rows, size_t part_bytes);
    /* Set row i of out [n, width] to the mean of rows [offsets[i], offsets[i + 1]) of x, which are
     * added in order. For an empty range, the mean is 0. The values of `offsets` [n + 1] must begin
     * with 0 and never decrease. */
    void (*segment_mean)(fsdp_kernel_context *c, void *out, const void *x, fsdp_dtype dtype,
                         const int32_t *offsets, int64_t n, int64_t width);
    /* Compute the gradient of segment_mean(). Only rows [0, offsets[n]) of dx are written. */
    void (*segment_mean_backward)(fsdp_kernel_context *c, void *dx, const void *dy,
                                  fsdp_dtype dtype, const int32_t *offsets, int64_t n,
                                  int64_t width);
    /* Compute dbias [n] = beta dbias + the sum over the rows of dy [T, n]. dbias has
     * dbias_dtype. */
    void (*column_sum)(fsdp_kernel_context *c, void *dbias, fsdp_dtype dbias_dtype, float beta,
                       const void *dy, fsdp_dtype dtype, int64_t rows, int64_t n);
    /* Compute y[t][j] = x[t][j] * factors[j] + bias[j]. x and y [rows, width] have `dtype` and may
     * be the same array. bias [width] of `dtype` may be NULL. */
    void (*scale_columns)(fsdp_kernel_context *c, void *y, const void *x, fsdp_dtype dtype,
                          const float *factors, const void *bias, int64_t rows, int64_t width);
    /* Compute out[j] = beta out[j] + the sum over the rows t of x[t][j] * y[t][j] * factors[j]. x
     * and y [rows, width] have `dtype`, and out [width] has out_dtype. */
    void (*column_dots)(fsdp_kernel_context *c, void *out, fsdp_dtype out_dtype, float beta,
                        const void *x, const void *y, fsdp_dtype dtype, const float *factors,
                        int64_t rows, int64_t width);
    /* Set norms[i] to the square root of squares[i], rounded to `dtype`. */
    void (*norms_of_squares)(fsdp_kernel_context *c, float *norms, const double *squares,
                             fsdp_dtype dtype, int64_t n);
    /* Set factors[i] to magnitudes[i] / norms[i], and reciprocals[i] to 1 / norms[i]. Both are 0 if
     * norms[i] is 0. magnitudes [n] has `dtype`. */
    void (*magnitude_factors)(fsdp_kernel_context *c, float *factors, float *reciprocals,
                              const void *magnitudes, fsdp_dtype dtype, const float *norms,
                              int64_t n);
    /* Compute the softmax cross-entropy of logits [rows, V] (of `dtype`, row stride ld >= V) and
     * labels [rows]. A row whose label is negative is ignored. losses [rows] f32 are set to
     * -log(softmax of the label), or to 0 if the row is ignored. If `gradient` is true, the logits
     * are overwritten with (softmax - onehot) * factor, or with 0 if the row is ignored. */
    void (*cross_entropy)(fsdp_kernel_context *c, float *losses, void *logits, fsdp_dtype dtype,
                          const int32_t *labels, int64_t rows, int64_t vocab, int64_t ld,
                          bool gradient, float factor);
    /* Compute the losses and gradients of cross_entropy() for smoothed labels: in each row, every
     * class has the target probability smoothing / V, and the label has (1 - smoothing) in
     * addition. losses [rows] are set to the sum over all classes of -target * log(softmax), and
     * the gradient is (softmax - target) * factor. */
    void (*smoothed_cross_entropy)(fsdp_kernel_context *c, float *losses, void *logits,
                                   fsdp_dtype dtype, const int32_t *labels, int64_t rows,
                                   int64_t vocab, int64_t ld, bool gradient, float factor,
                                   float smoothing);
    /* Compute losses for logits x [rows, width]. The targets t [rows, width] are numbers, in host
     * memory. losses [rows] are set to the mean over the row of (x - t)^2. If `binary` is true,
     * they are set to the mean of the binary cross-entropy of sigmoid(x) and t instead. If
     * `gradient` is true, the logits are overwritten with the gradient of the row's loss, times
     * factor. A row whose first target is NaN is ignored: its loss and its gradient are 0. */
    void (*target_loss)(fsdp_kernel_context *c, float *losses, float *logits, const float *targets,
                        int64_t rows, int64_t width, bool binary, bool gradient, float factor);
    /* Compute *out = factor * the sum of all elements of x [n]. The elements are added in double in
     * a fixed order. On the CPU, it is the order of their indices. */
    void (*sum)(fsdp_kernel_context *c, float *out, const float *x, int64_t n, float factor);
    /* Set index[r] to the index of the largest value of row r. If the largest value occurs several
     * times, index[r] is the index of its first occurrence. */
    void (*argmax)(fsdp_kernel_context *c, int32_t *index, const void *x, fsdp_dtype dtype,
                   int64_t rows, int64_t width);

    /* --- matrix products --- */
    /* The three functions for matrix products fail only if there is not enough memory or, on a
     * card, if cublasLt or an earlier kernel has failed. */
    FSDP_MUST_CHECK fsdp_status (*gemm)(fsdp_kernel_context *c, const fsdp_gemm_args *args);
    FSDP_MUST_CHECK fsdp_status (*attention)(fsdp_kernel_context *c,
                                             const fsdp_attention_args *args);
    FSDP_MUST_CHECK fsdp_status (*attention_backward)(fsdp_kernel_context *c,
                                                      const fsdp_attention_args *args);

    /* --- float8 --- */
    /* Set the scales of x. fsdp_float8_scale() computes each scale from the largest magnitude of
     * the elements that share the scale. If one of these elements is NaN, the scale is NaN. */
    void (*float8_scales)(fsdp_kernel_context *c, const fsdp_float8_cast_args *args);
    /* Cast x * scale to float8. The product is computed in float32 and rounded as
     * fsdp_float8_saturated() does. */
    void (*float8_cast)(fsdp_kernel_context *c, const fsdp_float8_cast_args *args);
    void (*float8_decode)(fsdp_kernel_context *c, const fsdp_float8_decode_args *args);
    FSDP_MUST_CHECK fsdp_status (*float8_gemm)(fsdp_kernel_context *c,
                                               const fsdp_float8_gemm_args *args);
    /* Return true if the device can multiply the codes themselves (ab_dtype is FSDP_DTYPE_U8) in a
     * product with these arguments. The answer depends only on the card, the version of cublasLt,
     * the shape, the formats, c_dtype, and whether there are scales. The addresses are ignored, but
     * if a_scale and b_scale are NULL, there are no scales. If the device multiplies only values,
     * the table has NULL instead of this function. */
    bool (*float8_multiplies_codes)(fsdp_kernel_context *c, const fsdp_float8_gemm_args *args);
    void (*float8_descale)(fsdp_kernel_context *c, const fsdp_float8_descale_args *args);

    /* --- sharding and optimizers (float32 gradients) --- */
    /* Compute dst [n] f32 = scale * the sum over i of the arrays src[i] [n] (of `dtype`). The
     * sources are added as an aligned binary tree over i: ((0+1)+(2+3))+... If one level of the
     * tree has an odd number of terms, the last of them becomes a term of the next level unchanged.
     * dst may be one of the sources. */
    void (*tree_sum)(fsdp_kernel_context *c, float *dst, const void *const *src, int n_sources,
                     fsdp_dtype dtype, int64_t n, float scale);
    void (*tree_sum_rows)(fsdp_kernel_context *c, const fsdp_tree_sum_rows_args *args);
    /* For each of n tensors, set sums[r] to the sum over row r of |x|^power, in double and in a
     * fixed order; power > 0. If power is INFINITY, set sums[r] to the largest |x| of row r. If a
     * row contains NaN, its sum is NaN. */
    void (*row_power_sums)(fsdp_kernel_context *c, const fsdp_row_powers *tensors, size_t n,
                           double power);
    /* For each of n runs of numbers, add up the numbers or, if `largest` is true, find the largest
     * of them. NaN counts as the largest. */
    void (*combine)(fsdp_kernel_context *c, const fsdp_numbers *runs, size_t n, bool largest);
    void (*clip_factor)(fsdp_kernel_context *c, const fsdp_clip_args *args);
    /* Clamp each x[i] to [-limit, limit]. limit is at least 0. NaN stays NaN. */
    void (*clamp)(fsdp_kernel_context *c, float *x, float limit, int64_t n);
    /* Take an optimizer step for n tensors. If `clip` is not NULL, clip->scale is used instead of
     * the grad_scale of each tensor. If clip->refused is not 0, no tensor is changed. @{ */
    void (*adamw)(fsdp_kernel_context *c, const fsdp_adamw_args *tensors, size_t n,
                  const fsdp_clip_result *clip);
    void (*sgd)(fsdp_kernel_context *c, const fsdp_sgd_args *tensors, size_t n,
                const fsdp_clip_result *clip);
    void (*schedule_free)(fsdp_kernel_context *c, const fsdp_schedule_free_args *tensors, size_t n,
                          const fsdp_clip_result *clip);
    /* @} */

    /* --- Adafactor: the kernels of a step, in the order of their calls --- */
    /* Set sums[r] to the sum over row r of ((grad * grad_scale)^2 + eps). The terms are float32,
     * and the sums are double. */
    void (*square_row_sums)(fsdp_kernel_context *c, double *sums, const float *grad, int64_t rows,
                            int64_t cols, float grad_scale, float eps);
    /* Set sums[j] to the sum over column j of ((grad * grad_scale)^2 + eps). The rows are added in
     * the order of the aligned binary tree (see tree_sum). The terms are float32, and the sums are
     * double. */
    void (*square_column_sums)(fsdp_kernel_context *c, double *sums, const float *grad,
                               int64_t rows, int64_t cols, float grad_scale, float eps);
    /* Compute average[i] = beta average[i] + (1 - beta) sums[i] / count. */
    void (*moving_average)(fsdp_kernel_context *c, float *average, const double *sums, double count,
                           double beta, int64_t n);
    /* Compute out[i] = 1 / sqrt(x[i] / divisor). */
    void (*rsqrt)(fsdp_kernel_context *c, float *out, const float *x, float divisor, int64_t n);
    /* Set sums[r] to the sum over row r of u^2, in double, in a fixed order. u is the value that
     * the first formula of fsdp_adafactor_args computes, before it is multiplied by lr /
     * divisor. */
    void (*adafactor_square_sums)(fsdp_kernel_context *c, double *sums,
                                  const fsdp_adafactor_args *args);
    void (*adafactor)(fsdp_kernel_context *c, const fsdp_adafactor_args *args);

    /* --- frozen weights in 4 bits --- */
    /* Compute the values of a part of a tensor in NF4. Each level is multiplied by its block's
     * scale in float32, and the product is rounded to the dtype. NULL on devices that do not have
     * this kernel. */
    void (*nf4_dequantize)(fsdp_kernel_context *c, const fsdp_nf4_args *args);
} fsdp_kernels;

/* --- opening the CPU's kernels (src/kernels/cpu/table.c, context.c) --- */

/* Open the CPU's kernels. `isa` is "x86-64", "x86-64-v3" or "x86-64-v4"; NULL chooses the best ISA
 * that this CPU has. A suffix of "x86-64-v4" chooses how bf16 is multiplied; "x86-64-v4+amx" uses
 * AMX, "x86-64-v4+bf16" uses AVX512-BF16, "x86-64-v4+fma" widens to float32, and "x86-64-v4+onednn"
 * passes all matrix products to oneDNN. Without a suffix, the way that is fastest on this CPU is
 * chosen. Fails with FSDP_ERR_UNSUPPORTED if the CPU lacks what `isa` requests. threads >= 1. */
FSDP_MUST_CHECK fsdp_status fsdp_kernels_cpu_open(const char *isa, int threads,
                                                  fsdp_kernel_context **context,
                                                  const fsdp_kernels **kernels);
void fsdp_kernels_cpu_close(fsdp_kernel_context *context); /* accepts NULL */
/* Return the names of the ISAs that this CPU can run, best first. The list is NULL-terminated and
 * in static storage. */
const char *const *fsdp_kernels_cpu_isas(void);
/* Compute `product` repeatedly for about `seconds` seconds, on one thread. Set *gflops to the rate
 * of the fastest computation, in GFLOP/s. */
FSDP_MUST_CHECK fsdp_status fsdp_kernels_cpu_gemm_rate(fsdp_kernel_context *context,
                                                       const fsdp_gemm_args *product,
                                                       double seconds, double *gflops);
