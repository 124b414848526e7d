/* Attention against a double loop in float64, whose gradient is checked by finite differences:
 * packed sequences of odd and empty lengths, cross attention, causal, window, grouped heads,
 * position bias, dropout, all dtypes and ISAs, poisoned memory around the operands, numbers of
 * threads. */
#include <stdio.h>

#include "src/base/alloc_testing.h"
#include "tests/kernels/kernel_test.h"
#include "tests/kernels/naive_dropout.h"

enum {
    MAX_SEQUENCES = 6
};

typedef struct problem {
    int64_t n_sequences, heads, kv_heads, head_dim, window;
    int32_t q_offsets[MAX_SEQUENCES + 1], k_offsets[MAX_SEQUENCES + 1];
    bool causal, bias;
    int64_t pad; /* added to the leading dimensions of q, k and v */
    double scale;
    float dropout_p;
    fsdp_dtype dtype;
    uint64_t seed;
} problem;

static int64_t queries_of(const problem *p)
{
    return p->q_offsets[p->n_sequences];
}

static int64_t keys_of(const problem *p)
{
    return p->k_offsets[p->n_sequences];
}

/* All differences of positions are smaller. */
static int64_t span_of(const problem *p)
{
    int64_t span = 1;
    for (int64_t b = 0; b < p->n_sequences; b++) {
        int64_t q = p->q_offsets[b + 1] - p->q_offsets[b],
                k = p->k_offsets[b + 1] - p->k_offsets[b];
        span = q > span ? q : span;
        span = k > span ? k : span;
    }
    return span;
}

typedef struct tensors {
    matrix q, k, v, out, d_out, d_q, d_k, d_v, bias, d_bias, lse;
} tensors;

static tensors make_tensors(const problem *p)
{
    uint64_t state = p->seed * 7919 + 1;
    int64_t q_width = p->heads * p->head_dim, kv_width = p->kv_heads * p->head_dim;
    int64_t tq = queries_of(p), tk = keys_of(p), biases = 2 * span_of(p) - 1;
    tensors x = {.q = matrix_create(p->dtype, tq, q_width, q_width + p->pad),
                 .k = matrix_create(p->dtype, tk, kv_width, kv_width + 2 * p->pad),
                 .v = matrix_create(p->dtype, tk, kv_width, kv_width + 3 * p->pad),
                 .out = matrix_create(p->dtype, tq, q_width, q_width),
                 .d_out = matrix_create(p->dtype, tq, q_width, q_width),
                 .d_q = matrix_create(p->dtype, tq, q_width, q_width + 2 * p->pad),
                 .d_k = matrix_create(p->dtype, tk, kv_width, kv_width + p->pad),
                 .d_v = matrix_create(p->dtype, tk, kv_width, kv_width + 3 * p->pad),
                 .bias = matrix_create(FSDP_DTYPE_F32, p->heads, biases, biases),
                 .d_bias = matrix_create(FSDP_DTYPE_F32, p->heads, biases, biases),
                 .lse = matrix_create(FSDP_DTYPE_F32, p->heads, tq, tq)};
    matrix_fill_random(&x.q, &state);
    matrix_fill_random(&x.k, &state);
    matrix_fill_random(&x.v, &state);
    matrix_fill_random(&x.d_out, &state);
    matrix_fill_random(&x.bias, &state);
    return x;
}

static void free_tensors(tensors *x)
{
    matrix *all[] = {&x->q,   &x->k,   &x->v,    &x->out,    &x->d_out, &x->d_q,
                     &x->d_k, &x->d_v, &x->bias, &x->d_bias, &x->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        matrix_destroy(all[i]);
}

static fsdp_attention_args make_args(const problem *p, const tensors *x)
{
    return (fsdp_attention_args){.dtype = p->dtype,
                                 .n_sequences = p->n_sequences,
                                 .heads = p->heads,
                                 .kv_heads = p->kv_heads,
                                 .head_dim = p->head_dim,
                                 .q_offsets = p->q_offsets,
                                 .k_offsets = p->k_offsets,
                                 .q = x->q.data,
                                 .k = x->k.data,
                                 .v = x->v.data,
                                 .q_ld = x->q.ld,
                                 .k_ld = x->k.ld,
                                 .v_ld = x->v.ld,
                                 .scale = (float)p->scale,
                                 .causal = p->causal,
                                 .window = p->window,
                                 .position_bias = p->bias ? x->bias.data : NULL,
                                 .bias_span = span_of(p),
                                 .dropout_p = p->dropout_p,
                                 .dropout_key = 99,
                                 .out = x->out.data,
                                 .lse = x->lse.data,
                                 .d_out = x->d_out.data,
                                 .d_q = x->d_q.data,
                                 .d_k = x->d_k.data,
                                 .d_v = x->d_v.data,
                                 .d_q_ld = p->pad ? x->d_q.ld : 0,
                                 .d_k_ld = p->pad ? x->d_k.ld : 0,
                                 .d_v_ld = p->pad ? x->d_v.ld : 0,
                                 .d_position_bias = p->bias ? x->d_bias.data : NULL};
}

/* --- the reference, in float64 --- */

typedef struct reference { /* dense, in the problem's order */
    double *q, *k, *v, *bias, *d_out;
    double *out, *lse, *d_q, *d_k, *d_v, *d_bias;
} reference;

static double *widen(const matrix *x)
{
    double *y = calloc((size_t)(x->rows * x->columns) + 1, sizeof *y);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            y[i * x->columns + j] = matrix_get(x, i, j);
    return y;
}

static double *zeros(const matrix *x)
{
    return calloc((size_t)(x->rows * x->columns) + 1, sizeof(double));
}

static reference make_reference(const tensors *x)
{
    return (reference){.q = widen(&x->q),
                       .k = widen(&x->k),
                       .v = widen(&x->v),
                       .bias = widen(&x->bias),
                       .d_out = widen(&x->d_out),
                       .out = zeros(&x->out),
                       .lse = zeros(&x->lse),
                       .d_q = zeros(&x->d_q),
                       .d_k = zeros(&x->d_k),
                       .d_v = zeros(&x->d_v),
                       .d_bias = zeros(&x->d_bias)};
}

static void free_reference(reference *r)
{
    double *all[] = {r->q,   r->k,   r->v,   r->bias, r->d_out, r->out,
                     r->lse, r->d_q, r->d_k, r->d_v,  r->d_bias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* The factor of `dropout` for element e. */
static double keep_factor(const problem *p, int64_t h, int64_t row, int64_t j)
{
    uint64_t e = ((uint64_t)h << 40) + ((uint64_t)row << 20) + (uint64_t)j;
    if (p->dropout_p == 0.0f)
        return 1.0;
    return kept_by_dropout(99, e, p->dropout_p) ? 1.0 / (1.0 - (double)p->dropout_p) : 0.0;
}

enum {
    MOST_KEYS = 9000
};

/* One query: forward, and also backward if `backward`. */
static void reference_row(const problem *p, reference *r, int64_t b, int64_t h, int64_t i,
                          bool backward)
{
    int64_t q0 = p->q_offsets[b], k0 = p->k_offsets[b], span = span_of(p), dim = p->head_dim;
    int64_t n_q = p->q_offsets[b + 1] - q0, n_k = p->k_offsets[b + 1] - k0;
    int64_t shift = p->causal ? n_k - n_q : 0, kv = h / (p->heads / p->kv_heads);
    double prob[MOST_KEYS], d_p[MOST_KEYS], sum = 0, most = -(double)INFINITY, delta = 0;
    const double *q = r->q + ((q0 + i) * p->heads + h) * dim;
    const double *d_out = r->d_out + ((q0 + i) * p->heads + h) * dim;
    double *out = r->out + ((q0 + i) * p->heads + h) * dim;
    double *d_q = r->d_q + ((q0 + i) * p->heads + h) * dim;
    for (int64_t j = 0; j < n_k; j++) {
        bool seen =
            (!p->causal || j - i <= n_k - n_q) && (p->window == 0 || i + shift - j < p->window);
        prob[j] = -(double)INFINITY;
        if (!seen)
            continue;
        const double *k = r->k + ((k0 + j) * p->kv_heads + kv) * dim;
        double s = 0;
        for (int64_t d = 0; d < dim; d++)
            s += q[d] * k[d];
        prob[j] = (double)(float)p->scale * s;
        if (p->bias)
            prob[j] += r->bias[h * (2 * span - 1) + j - i - shift + span - 1];
        most = fmax(most, prob[j]);
    }
    for (int64_t j = 0; j < n_k; j++)
        sum += prob[j] = isinf(most) ? 0.0 : exp(prob[j] - most);
    r->lse[h * queries_of(p) + q0 + i] = sum > 0 ? most + log(sum) : -(double)INFINITY;
    for (int64_t d = 0; d < dim; d++)
        out[d] = 0;
    for (int64_t j = 0; j < n_k && sum > 0; j++) {
        const double *v = r->v + ((k0 + j) * p->kv_heads + kv) * dim;
        double keep = keep_factor(p, h, q0 + i, j);
        prob[j] /= sum;
        d_p[j] = 0;
        for (int64_t d = 0; d < dim; d++) {
            out[d] += prob[j] * keep * v[d];
            d_p[j] += d_out[d] * v[d] * keep;
        }
        delta += prob[j] * d_p[j];
    }
    for (int64_t j = 0; j < n_k && sum > 0 && backward; j++) {
        if (prob[j] == 0)
            continue;
        double d_s = prob[j] * (d_p[j] - delta), keep = keep_factor(p, h, q0 + i, j);
        double *d_k = r->d_k + ((k0 + j) * p->kv_heads + kv) * dim;
        double *d_v = r->d_v + ((k0 + j) * p->kv_heads + kv) * dim;
        const double *k = r->k + ((k0 + j) * p->kv_heads + kv) * dim;
        for (int64_t d = 0; d < dim; d++) {
            d_q[d] += (double)(float)p->scale * d_s * k[d];
            d_k[d] += (double)(float)p->scale * d_s * q[d];
            d_v[d] += prob[j] * keep * d_out[d];
        }
        if (p->bias)
            r->d_bias[h * (2 * span - 1) + j - i - shift + span - 1] += d_s;
    }
}

static void run_reference(const problem *p, reference *r, bool backward)
{
    for (int64_t b = 0; b < p->n_sequences; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->q_offsets[b + 1] - p->q_offsets[b]; i++)
                reference_row(p, r, b, h, i, backward);
}

/* Sum of out * d_out, whose gradient is what the reference's backward computes. */
static double reference_loss(const problem *p, reference *r)
{
    double loss = 0;
    run_reference(p, r, false);
    for (int64_t i = 0; i < queries_of(p) * p->heads * p->head_dim; i++)
        loss += r->out[i] * r->d_out[i];
    return loss;
}

static void check_slope(fsdp_test *t, const problem *p, reference *r, double *x, double gradient)
{
    double kept = *x, step = 1e-5;
    *x = kept + step;
    double up = reference_loss(p, r);
    *x = kept - step;
    double down = reference_loss(p, r);
    *x = kept;
    ASSERT_NEAR((up - down) / (2 * step), gradient, 1e-7 * (1 + fabs(gradient)));
}

static problem small_problem(void)
{
    return (problem){.n_sequences = 2,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 5,
                     .q_offsets = {0, 4, 9},
                     .k_offsets = {0, 6, 11},
                     .causal = true,
                     .window = 4,
                     .bias = true,
                     .scale = 0.4,
                     .dropout_p = 0.25f,
                     .dtype = FSDP_DTYPE_F32,
                     .seed = 3};
}

TEST(the_reference_gradient_is_the_slope_of_the_reference)
{
    problem p = small_problem();
    tensors x = make_tensors(&p);
    reference r = make_reference(&x);
    run_reference(&p, &r, true);
    for (int64_t i = 0; i < x.q.rows * x.q.columns && !t->failed; i += 3)
        check_slope(t, &p, &r, &r.q[i], r.d_q[i]);
    for (int64_t i = 0; i < x.k.rows * x.k.columns && !t->failed; i += 3) {
        check_slope(t, &p, &r, &r.k[i], r.d_k[i]);
        check_slope(t, &p, &r, &r.v[i], r.d_v[i]);
    }
    for (int64_t i = 0; i < x.bias.rows * x.bias.columns && !t->failed; i++)
        check_slope(t, &p, &r, &r.bias[i], r.d_bias[i]);
    free_reference(&r);
    free_tensors(&x);
}

/* --- kernels against the reference --- */

/* Errors are relative to the largest element: rowsum(dO O) is computed from the rounded output. */
static void compare(fsdp_test *t, const problem *p, const char *what, const matrix *x,
                    const double *expected, double tolerance)
{
    double largest = 0;
    for (int64_t i = 0; i < x->rows * x->columns; i++)
        if (isfinite(expected[i]))
            largest = fmax(largest, fabs(expected[i]));
    for (int64_t i = 0; i < x->rows; i++) {
        for (int64_t j = 0; j < x->columns; j++) {
            double e = expected[i * x->columns + j], got = matrix_get(x, i, j);
            if (got == e || fabs(got - e) <= tolerance * (fabs(e) + largest + 0.3))
                continue;
            FAIL("%s[%lld, %lld] of %s is %.9g, not %.9g (heads %lld/%lld dim %lld causal %d "
                 "window %lld bias %d dropout %g seed %llu)",
                 what, (long long)i, (long long)j, fsdp_dtype_name(p->dtype), got, e,
                 (long long)p->heads, (long long)p->kv_heads, (long long)p->head_dim, p->causal,
                 (long long)p->window, p->bias, (double)p->dropout_p, (unsigned long long)p->seed);
        }
    }
    if (!matrix_is_guarded(x))
        FAIL("%s: memory outside was written", what);
}

static void check_problem(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels,
                          const problem *p)
{
    tensors x = make_tensors(p);
    reference r = make_reference(&x);
    fsdp_attention_args args = make_args(p, &x);
    double tolerance = p->dtype == FSDP_DTYPE_F32 ? 1e-5 : 6 * rounding_of(p->dtype);
    run_reference(p, &r, true);
    fsdp_status status = kernels->attention(context, &args);
    if (status == FSDP_OK)
        status = kernels->attention_backward(context, &args);
    if (status != FSDP_OK) {
        fsdp_test_fail(t, __FILE__, __LINE__, "attention: %s", fsdp_last_error());
    } else {
        compare(t, p, "out", &x.out, r.out, tolerance);
        compare(t, p, "lse", &x.lse, r.lse, p->dtype == FSDP_DTYPE_BF16 ? 1e-4 : 1e-5);
        compare(t, p, "d_q", &x.d_q, r.d_q, tolerance);
        compare(t, p, "d_k", &x.d_k, r.d_k, tolerance);
        compare(t, p, "d_v", &x.d_v, r.d_v, tolerance);
        if (p->bias)
            compare(t, p, "d_position_bias", &x.d_bias, r.d_bias, tolerance);
    }
    free_reference(&r);
    free_tensors(&x);
}

static const fsdp_dtype float_dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

static problem random_problem(uint64_t *state)
{
    static const int64_t lengths[] = {0, 1, 3, 5, 16, 17, 33, 48, 70, 100};
    static const int64_t dims[] = {1, 8, 10, 12, 16, 20, 32, 64};
    static const int64_t groups[] = {1, 1, 2, 3};
    problem p = {.seed = random_bits(state) >> 30};
    bool cross = random_below(state, 3) == 0;
    p.n_sequences = 1 + random_below(state, 4);
    for (int64_t b = 0; b < p.n_sequences; b++) {
        int64_t q = lengths[random_below(state, 10)],
                k = cross ? lengths[random_below(state, 10)] : q;
        p.q_offsets[b + 1] = p.q_offsets[b] + (int32_t)q;
        p.k_offsets[b + 1] = p.k_offsets[b] + (int32_t)k;
    }
    p.kv_heads = 1 + random_below(state, 2);
    p.heads = p.kv_heads * groups[random_below(state, 4)];
    p.head_dim = dims[random_below(state, 8)];
    p.causal = random_below(state, 2);
    p.window = random_below(state, 4) == 0 ? 1 + random_below(state, 40) : 0;
    p.bias = random_below(state, 2);
    p.pad = random_below(state, 2) * 3;
    p.scale = random_below(state, 2) ? 1.0 : 0.3;
    p.dropout_p = random_below(state, 3) == 0 ? 0.3f : 0.0f;
    p.dtype = float_dtypes[random_below(state, 3)];
    return p;
}

TEST_ON_EVERY_ISA(attention_of_random_problems_equals_the_double_loop_on_every_isa, 2)
{
    uint64_t state = 1;
    for (int i = 0; i < 60 && !t->failed; i++) {
        problem p = random_problem(&state);
        check_problem(t, context, kernels, &p);
    }
}

static void append_sequence(problem *p, const int32_t lengths[2])
{
    const int64_t b = p->n_sequences++;
    p->q_offsets[b + 1] = p->q_offsets[b] + lengths[0];
    p->k_offsets[b + 1] = p->k_offsets[b] + lengths[1];
}

/* Sequences of the given lengths (queries, keys), with three query heads on one key/value head. */
static problem decode_problem(const int32_t (*lengths)[2], int n, int64_t head_dim, int64_t window,
                              float dropout_p)
{
    problem p = {.heads = 3,
                 .kv_heads = 1,
                 .head_dim = head_dim,
                 .causal = true,
                 .window = window,
                 .scale = 0.5,
                 .dropout_p = dropout_p,
                 .dtype = float_dtypes[head_dim % 3],
                 .seed = (uint64_t)(head_dim * 1000 + window)};
    for (int b = 0; b < n; b++)
        append_sequence(&p, lengths[b]);
    return p;
}

/* One query at the end of many keys, the first of which a window removes; and sequences of one
 * token, whose query sees itself. */
TEST_ON_EVERY_ISA(decoding_equals_the_double_loop_on_every_isa, 2)
{
    static const int32_t decode[][2] = {{1, 1}, {1, 2}, {1, 17}, {1, 64}, {1, 333}, {2, 150}};
    static const int32_t single[][2] = {{1, 1}, {1, 1}, {0, 0}, {1, 1}};
    static const int64_t dims[] = {1, 3, 10, 20, 33}, windows[] = {0, 1, 5, 16, 100};
    for (int i = 0; i < 25 && !t->failed; i++) {
        float dropout_p = i % 3 ? 0.0f : 0.2f;
        problem p = decode_problem(decode, 6, dims[i / 5], windows[i % 5], dropout_p);
        check_problem(t, context, kernels, &p);
        p = decode_problem(single, 4, dims[i / 5], windows[i % 5], dropout_p);
        check_problem(t, context, kernels, &p);
    }
}

/* Several blocks of queries, and keys that end inside and beyond the size that blocks are rounded
 * to. */
TEST_ON_BEST_ISA(long_sequences_equal_the_double_loop, 2)
{
    static const int32_t lengths[][2] = {{300, 300}, {129, 700}, {400, 131}, {1, 1100}, {257, 1}};
    for (int i = 0; i < 20 && !t->failed; i++) {
        problem p = {.heads = 2,
                     .kv_heads = 1 + i % 2,
                     .head_dim = 16,
                     .causal = i & 1,
                     .window = i & 2 ? 150 : 0,
                     .bias = i & 4,
                     .scale = 0.5,
                     .dropout_p = i & 8 ? 0.1f : 0.0f,
                     .dtype = i % 3 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16,
                     .seed = (uint64_t)i};
        for (int b = 0; b < 2; b++)
            append_sequence(&p, lengths[(i + b) % 5]);
        check_problem(t, context, kernels, &p);
    }
}

/* So many keys that blocks of queries are shorter: half, a quarter, an eighth of their usual
 * length. */
TEST_ON_EVERY_ISA(blocks_for_many_keys_equal_the_double_loop, 2)
{
    static const int32_t lengths[][2] = {{75, 2100}, {45, 4200}, {21, 8300}};
    for (int i = 0; i < 6 && !t->failed; i++) {
        problem p = {.n_sequences = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .head_dim = 20,
                     .causal = i & 1,
                     .window = i == 3 ? 4100 : 0,
                     .bias = i == 1,
                     .scale = 0.5,
                     .dtype = FSDP_DTYPE_BF16,
                     .seed = (uint64_t)i,
                     .q_offsets = {0, lengths[i / 2][0]},
                     .k_offsets = {0, lengths[i / 2][1]}};
        check_problem(t, context, kernels, &p);
    }
}

/* Wide heads, of odd width too, which take several tiles of columns; windows that end before a
 * query's position or leave it no key. */
TEST_ON_BEST_ISA(wide_heads_and_windows_beyond_the_keys_equal_the_double_loop, 1)
{
    static const int64_t dims[] = {65, 80, 96, 128};
    static const int32_t lengths[][2] = {{65, 65}, {70, 13}, {9, 49}, {100, 64}};
    for (int i = 0; i < 32 && !t->failed; i++) {
        problem p = {.heads = 2,
                     .kv_heads = 2,
                     .head_dim = dims[i % 4],
                     .causal = i & 4,
                     .window = i & 8 ? 11 : 0,
                     .bias = i & 16,
                     .scale = 0.2,
                     .dtype = i & 1 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                     .seed = (uint64_t)i};
        for (int b = 0; b < 2; b++)
            append_sequence(&p, lengths[(i / 4 + b) % 4]);
        check_problem(t, context, kernels, &p);
    }
}

/* With head_dim 0 scores are the bias alone, and the gradients of q, k and v are empty. */
TEST_ON_EVERY_ISA(heads_of_no_width_equal_the_double_loop_on_every_isa, 2)
{
    static const int32_t lengths[][2] = {{5, 5}, {1, 33}, {70, 17}, {3, 0}};
    for (int i = 0; i < 12 && !t->failed; i++) {
        problem p = {.heads = 2,
                     .kv_heads = 1 + i % 2,
                     .head_dim = 0,
                     .causal = i & 1,
                     .bias = i & 2,
                     .scale = 0.5,
                     .dtype = float_dtypes[i % 3],
                     .seed = (uint64_t)i};
        for (int b = 0; b < 4; b++)
            append_sequence(&p, lengths[b]);
        check_problem(t, context, kernels, &p);
    }
}

/* If scores are hundreds apart, one key gets all the weight and the exponentials of the others
 * vanish. The values are powers of two, which bfloat16 represents and products keep exactly, so
 * that no rounding changes a score. */
TEST_ON_EVERY_ISA(scores_far_apart_give_all_to_one_key_on_every_isa, 1)
{
    for (int i = 0; i < 4 && !t->failed; i++) {
        problem p = {.n_sequences = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .head_dim = 2,
                     .q_offsets = {0, 20},
                     .k_offsets = {0, 37},
                     .causal = i & 1,
                     .scale = 64,
                     .dtype = i & 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32};
        tensors x = make_tensors(&p);
        for (int64_t q = 0; q < 20; q++)
            for (int64_t d = 0; d < 2; d++)
                matrix_set(&x.q, q, d, d == 0 ? 8 : 0);
        for (int64_t k = 0; k < 37; k++) /* scores are 512 apart; the first is the largest */
            matrix_set(&x.k, k, 0, (double)-k);
        fsdp_attention_args args = make_args(&p, &x);
        ASSERT_OK(kernels->attention(context, &args));
        ASSERT_OK(kernels->attention_backward(context, &args));
        for (int64_t q = 0; q < 20; q++)
            for (int64_t d = 0; d < 2; d++)
                ASSERT_F32((float)matrix_get(&x.out, q, d), (float)matrix_get(&x.v, 0, d));
        for (int64_t q = 0; q < 20; q++)
            ASSERT_NEAR(matrix_get(&x.lse, 0, q), 0.0, 1e-5);
        for (int64_t k = 1; k < 37; k++)
            for (int64_t d = 0; d < 2; d++)
                ASSERT_F32((float)matrix_get(&x.d_v, k, d), 0.0f);
        free_tensors(&x);
    }
}

/* A row with a NaN is not taken for one that sees no key: its result and its logarithm of a sum are
 * NaN, and so are the gradients that it contributes to, even if dropout drops almost everything.
 * The other rows are not affected. */
TEST_ON_EVERY_ISA(nan_stays_nan_on_every_isa, 1)
{
    for (int i = 0; i < 8 && !t->failed; i++) {
        problem p = {.n_sequences = 1,
                     .heads = 1,
                     .kv_heads = 1,
                     .head_dim = 8,
                     .q_offsets = {0, 20},
                     .k_offsets = {0, 37},
                     .causal = i & 1,
                     .scale = 0.5,
                     .dropout_p = i & 4 ? 0.999f : 0.0f,
                     .dtype = i & 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32};
        tensors x = make_tensors(&p);
        matrix_set(&x.q, 3, 5, (double)NAN);
        fsdp_attention_args args = make_args(&p, &x);
        ASSERT_OK(kernels->attention(context, &args));
        ASSERT_OK(kernels->attention_backward(context, &args));
        ASSERT(isnan(matrix_get(&x.lse, 0, 3)) && isfinite(matrix_get(&x.lse, 0, 4)));
        for (int64_t d = 0; d < 8; d++) {
            ASSERT(isnan(matrix_get(&x.out, 3, d)));
            ASSERT(isnan(matrix_get(&x.d_q, 3, d)));
            ASSERT(isnan(matrix_get(&x.d_k, 0, d)));
            ASSERT(isfinite(matrix_get(&x.out, 2, d)) && isfinite(matrix_get(&x.out, 4, d)));
            ASSERT(isfinite(matrix_get(&x.d_q, 4, d)));
        }
        free_tensors(&x);
    }
}

/* The rows of x [n, width], with `room` rows of NaN after each sequence. */
static matrix with_room(const problem *p, const matrix *x, const int32_t *offsets)
{
    matrix wide = matrix_create(p->dtype, offsets[p->n_sequences], x->columns, x->ld + 5);
    for (int64_t i = 0; i < wide.rows; i++)
        for (int64_t j = 0; j < wide.columns; j++)
            matrix_set(&wide, i, j, (double)NAN);
    for (int64_t b = 0; b < p->n_sequences; b++)
        for (int32_t i = p->k_offsets[b]; i < p->k_offsets[b + 1]; i++)
            for (int64_t j = 0; j < wide.columns; j++)
                matrix_set(&wide, offsets[b] + i - p->k_offsets[b], j, matrix_get(x, i, j));
    return wide;
}

/* Keys and values with unused rows after each sequence give the same bits as packed ones. */
static void check_room(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels,
                       const problem *p)
{
    int32_t offsets[MAX_SEQUENCES + 1] = {0}, ends[MAX_SEQUENCES];
    for (int64_t b = 0; b < p->n_sequences; b++) {
        ends[b] = offsets[b] + p->k_offsets[b + 1] - p->k_offsets[b];
        offsets[b + 1] = ends[b] + (int32_t)b * 7;
    }
    tensors packed = make_tensors(p), roomy = make_tensors(p);
    matrix k = with_room(p, &packed.k, offsets), v = with_room(p, &packed.v, offsets);
    fsdp_attention_args args = make_args(p, &packed), again = make_args(p, &roomy);
    again.k = k.data;
    again.v = v.data;
    again.k_ld = k.ld;
    again.v_ld = v.ld;
    again.k_offsets = offsets;
    again.k_ends = ends;
    ASSERT_OK(kernels->attention(context, &args));
    ASSERT_OK(kernels->attention(context, &again));
    ASSERT(memcmp(packed.out.block, roomy.out.block, packed.out.bytes) == 0);
    ASSERT(memcmp(packed.lse.block, roomy.lse.block, packed.lse.bytes) == 0);
    matrix_destroy(&k);
    matrix_destroy(&v);
    free_tensors(&packed);
    free_tensors(&roomy);
}

TEST_ON_EVERY_ISA(unused_rows_after_keys_change_no_bit_on_any_isa, 2)
{
    uint64_t state = 77;
    for (int i = 0; i < 30 && !t->failed; i++) {
        problem p = random_problem(&state);
        check_room(t, context, kernels, &p);
    }
}

TEST(the_number_of_threads_changes_no_bit)
{
    fsdp_kernel_context *context[3];
    const fsdp_kernels *kernels;
    uint64_t state = 40;
    for (int i = 0; i < 3; i++)
        ASSERT_OK(fsdp_kernels_cpu_open(NULL, i + 1, &context[i], &kernels));
    for (int i = 0; i < 20; i++) {
        problem p = random_problem(&state);
        tensors one = make_tensors(&p), many = make_tensors(&p);
        fsdp_attention_args args = make_args(&p, &one), again = make_args(&p, &many);
        ASSERT_OK(kernels->attention(context[0], &args));
        ASSERT_OK(kernels->attention_backward(context[0], &args));
        ASSERT_OK(kernels->attention(context[1 + i % 2], &again));
        ASSERT_OK(kernels->attention_backward(context[1 + i % 2], &again));
        ASSERT(memcmp(one.out.block, many.out.block, one.out.bytes) == 0);
        ASSERT(memcmp(one.lse.block, many.lse.block, one.lse.bytes) == 0);
        ASSERT(memcmp(one.d_q.block, many.d_q.block, one.d_q.bytes) == 0);
        ASSERT(memcmp(one.d_k.block, many.d_k.block, one.d_k.bytes) == 0);
        ASSERT(memcmp(one.d_v.block, many.d_v.block, one.d_v.bytes) == 0);
        ASSERT(memcmp(one.d_bias.block, many.d_bias.block, one.d_bias.bytes) == 0);
        free_tensors(&one);
        free_tensors(&many);
    }
    for (int i = 0; i < 3; i++)
        fsdp_kernels_cpu_close(context[i]);
}

/* v is the identity, so a row of the output is its probabilities after dropout. With equal scores
 * each is 0, with probability p, or 1 / (n (1 - p)). */
TEST(dropout_drops_with_its_probability)
{
    enum {
        LENGTH = 256
    };
    problem p = {.n_sequences = 1,
                 .heads = 1,
                 .kv_heads = 1,
                 .head_dim = LENGTH,
                 .q_offsets = {0, LENGTH},
                 .k_offsets = {0, LENGTH},
                 .scale = 0.0,
                 .dropout_p = 0.2f,
                 .dtype = FSDP_DTYPE_F32};
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    tensors x = make_tensors(&p);
    for (int64_t i = 0; i < LENGTH; i++)
        for (int64_t j = 0; j < LENGTH; j++)
            matrix_set(&x.v, i, j, i == j);
    fsdp_attention_args args = make_args(&p, &x);
    ASSERT_OK(fsdp_kernels_cpu_open(NULL, 1, &context, &kernels));
    ASSERT_OK(kernels->attention(context, &args));
    int64_t dropped = 0;
    for (int64_t i = 0; i < LENGTH; i++) {
        for (int64_t j = 0; j < LENGTH; j++) {
            double got = matrix_get(&x.out, i, j);
            dropped += got == 0;
            if (got != 0)
                ASSERT_NEAR(got, 1.0 / (0.8 * LENGTH), 1e-7);
        }
    }
    /* Standard deviation of the fraction: sqrt(0.2 * 0.8) / 256 = 0.0016. */
    ASSERT_NEAR((double)dropped / (LENGTH * LENGTH), 0.2, 0.008);
    fsdp_kernels_cpu_close(context);
    free_tensors(&x);
}

TEST(running_out_of_memory_is_an_error_without_a_leak)
{
    problem p = small_problem();
    tensors x = make_tensors(&p);
    fsdp_attention_args args = make_args(&p, &x);
    bool failed = true;
    for (long n = 1; n < 80 && failed; n++) {
        fsdp_kernel_context *context;
        const fsdp_kernels *kernels;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_kernels_cpu_open(NULL, 1, &context, &kernels);
        if (status == FSDP_OK) {
            status = kernels->attention(context, &args);
            if (status == FSDP_OK)
                status = kernels->attention_backward(context, &args);
            fsdp_kernels_cpu_close(context);
        }
        fsdp_alloc_fail_at(0);
        failed = status != FSDP_OK;
        ASSERT_INT(status, failed ? FSDP_ERR_NOMEM : FSDP_OK);
    }
    ASSERT(!failed);
    free_tensors(&x);
}
