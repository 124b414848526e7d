/* Attention on a CUDA device. The reference is the CPU's attention in float32, whose operands have
 * the values of the device's operands, widened. (The CPU's own tests compare it with a double
 * loop.) So the device's errors in bfloat16 and float16 are its own. */
#include "tests/cuda/conform.h"

enum {
    MAX_SEQUENCES = 6
};

typedef struct problem {
    int64_t n_sequences, heads, kv_heads, head_dim, window;
    int32_t q_lengths[MAX_SEQUENCES], k_lengths[MAX_SEQUENCES];
    int32_t room[MAX_SEQUENCES]; /* unused rows of k and v after each sequence: k_ends */
    bool has_room, causal, bias;
    int64_t pad;      /* added to the row strides of q, k, v and their gradients */
    int64_t misalign; /* elements between an aligned address and each operand */
    float scale, dropout_p;
    fsdp_dtype dtype;
    uint64_t seed;
} problem;

typedef struct offsets {
    int32_t q[MAX_SEQUENCES + 1], k[MAX_SEQUENCES + 1], k_ends[MAX_SEQUENCES];
    int64_t span; /* larger than every difference of positions */
} offsets;

static offsets offsets_of(const problem *p)
{
    offsets o = {.span = 1};
    for (int64_t b = 0; b < p->n_sequences; b++) {
        o.q[b + 1] = o.q[b] + p->q_lengths[b];
        o.k_ends[b] = o.k[b] + p->k_lengths[b];
        o.k[b + 1] = o.k_ends[b] + (p->has_room ? p->room[b] : 0);
        o.span = p->q_lengths[b] > o.span ? p->q_lengths[b] : o.span;
        o.span = p->k_lengths[b] > o.span ? p->k_lengths[b] : o.span;
    }
    return o;
}

/* A tensor twice: `at` has the problem's dtype and is on the device; `wide` is float32 on the host.
 * Rows have `ld` elements, the first of `at` begins at element `skip`. */
typedef struct tensor {
    conform_array *at, *wide;
    int64_t rows, columns, ld, skip;
} tensor;

typedef struct tensors {
    tensor q, k, v, out, d_out, d_q, d_k, d_v, bias, d_bias, lse;
} tensors;

static tensor make_tensor(conform *x, const problem *p, fsdp_dtype dtype, int64_t rows,
                          int64_t columns, int64_t pad)
{
    tensor y = {.rows = rows, .columns = columns, .ld = columns + pad};
    y.skip = dtype == p->dtype ? p->misalign : 0;
    y.at = conform_output(x, dtype, rows * y.ld + y.skip);
    y.wide = conform_output(x, FSDP_DTYPE_F32, rows * y.ld);
    return y;
}

/* Random values in [-1, 1), the same in both places. Columns of padding stay NaN. */
static void fill_tensor(conform *x, tensor *y, uint64_t seed)
{
    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->columns; j++) {
            const int64_t e = i * y->ld + j;
            set_value(y->at->host, y->at->dtype, y->skip + e, 2 * uniform_of(seed, e) - 1);
            ((float *)y->wide->host)[e] = (float)value_of(y->at->host, y->at->dtype, y->skip + e);
        }
    conform_send(x, y->at);
}

static tensors make_tensors(conform *x, const problem *p)
{
    const offsets o = offsets_of(p);
    const int64_t q = o.q[p->n_sequences], k = o.k[p->n_sequences], biases = 2 * o.span - 1;
    const int64_t width = p->heads * p->head_dim, kv_width = p->kv_heads * p->head_dim;
    tensors y = {.q = make_tensor(x, p, p->dtype, q, width, p->pad),
                 .k = make_tensor(x, p, p->dtype, k, kv_width, 2 * p->pad),
                 .v = make_tensor(x, p, p->dtype, k, kv_width, 3 * p->pad),
                 .out = make_tensor(x, p, p->dtype, q, width, 0),
                 .d_out = make_tensor(x, p, p->dtype, q, width, 0),
                 .d_q = make_tensor(x, p, p->dtype, q, width, 2 * p->pad),
                 .d_k = make_tensor(x, p, p->dtype, k, kv_width, p->pad),
                 .d_v = make_tensor(x, p, p->dtype, k, kv_width, 3 * p->pad),
                 .bias = make_tensor(x, p, FSDP_DTYPE_F32, p->heads, biases, 0),
                 .d_bias = make_tensor(x, p, FSDP_DTYPE_F32, p->heads, biases, 0),
                 .lse = make_tensor(x, p, FSDP_DTYPE_F32, p->heads, q, 0)};
    fill_tensor(x, &y.q, p->seed + 1);
    fill_tensor(x, &y.k, p->seed + 2);
    fill_tensor(x, &y.v, p->seed + 3);
    fill_tensor(x, &y.d_out, p->seed + 4);
    fill_tensor(x, &y.bias, p->seed + 5);
    return y;
}

static void *address(const tensor *y, bool on_device)
{
    return on_device ? (char *)y->at->device + (size_t)y->skip * fsdp_dtype_size(y->at->dtype)
                     : y->wide->host;
}

static fsdp_attention_args make_args(const problem *p, const offsets *o, const tensors *x, bool dev)
{
    return (fsdp_attention_args){.dtype = dev ? p->dtype : FSDP_DTYPE_F32,
                                 .n_sequences = p->n_sequences,
                                 .heads = p->heads,
                                 .kv_heads = p->kv_heads,
                                 .head_dim = p->head_dim,
                                 .q_offsets = o->q,
                                 .k_offsets = o->k,
                                 .k_ends = p->has_room ? o->k_ends : NULL,
                                 .q = address(&x->q, dev),
                                 .k = address(&x->k, dev),
                                 .v = address(&x->v, dev),
                                 .q_ld = x->q.ld,
                                 .k_ld = x->k.ld,
                                 .v_ld = x->v.ld,
                                 .scale = p->scale,
                                 .causal = p->causal,
                                 .window = p->window,
                                 .position_bias = p->bias ? address(&x->bias, dev) : NULL,
                                 .bias_span = o->span,
                                 .dropout_p = p->dropout_p,
                                 .dropout_key = 99,
                                 .out = address(&x->out, dev),
                                 .lse = address(&x->lse, dev),
                                 .d_out = address(&x->d_out, dev),
                                 .d_q = address(&x->d_q, dev),
                                 .d_k = address(&x->d_k, dev),
                                 .d_q_ld = p->pad ? x->d_q.ld : 0,
                                 .d_k_ld = p->pad ? x->d_k.ld : 0,
                                 .d_v_ld = p->pad ? x->d_v.ld : 0,
                                 .d_v = address(&x->d_v, dev),
                                 .d_position_bias = p->bias ? address(&x->d_bias, dev) : NULL};
}

/* Room for the text of a problem. */
typedef struct problem_text {
    char at[400];
} problem_text;

static problem_text describe(const problem *p)
{
    problem_text text;
    int n = snprintf(text.at, sizeof text.at,
                     "%s heads %d/%d dim %d causal %d window %d bias %d dropout %g room %d pad %d "
                     "misalign %d seed %llu lengths",
                     fsdp_dtype_name(p->dtype), (int)p->heads, (int)p->kv_heads, (int)p->head_dim,
                     p->causal, (int)p->window, p->bias, (double)p->dropout_p, p->has_room,
                     (int)p->pad, (int)p->misalign, (unsigned long long)p->seed);
    for (int64_t b = 0; b < p->n_sequences && n < 360; b++)
        n += snprintf(text.at + n, sizeof text.at - (size_t)n, " %d:%d", p->q_lengths[b],
                      p->k_lengths[b]);
    return text;
}

/* Errors are relative to the largest element: the terms of a gradient cancel. */
static void compare(conform *x, const problem *p, const char *what, const tensor *y,
                    double tolerance)
{
    double largest = 0;
    const float *want = y->wide->host;
    conform_fetch(x, y->at);
    for (int64_t i = 0; i < y->wide->n; i++)
        if (isfinite(want[i]))
            largest = fmax(largest, fabs((double)want[i]));
    for (int64_t i = 0; i < y->wide->n; i++) {
        const double got = value_of(y->at->result, y->at->dtype, y->skip + i), e = (double)want[i];
        if (got == e || (isnan(got) && isnan(e)) ||
            fabs(got - e) <= tolerance * (fabs(e) + largest + 0.1))
            continue;
        fsdp_test_fail(x->t, __FILE__, __LINE__, "%s[%lld, %lld] is %.9g, not %.9g: %s", what,
                       (long long)(i / y->ld), (long long)(i % y->ld), got, e, describe(p).at);
        return;
    }
}

/* Half a unit in the last place of the result, and as much for the operands of the second product,
 * which the device may round to the dtype. */
static double tolerance_of(const problem *p)
{
    return p->dtype == FSDP_DTYPE_F32 ? 3e-6 : 1.5 * rounding_of(p->dtype);
}

static fsdp_status run(fsdp_kernel_context *c, const fsdp_kernels *k,
                       const fsdp_attention_args *args)
{
    fsdp_status status = k->attention(c, args);
    if (status == FSDP_OK && !args->k_ends)
        status = k->attention_backward(c, args);
    return status;
}

/* Backward reads `out`. Give the reference the device's, which is rounded. */
static void widen_result(tensor *y)
{
    for (int64_t i = 0; i < y->wide->n; i++)
        ((float *)y->wide->host)[i] = (float)value_of(y->at->result, y->at->dtype, y->skip + i);
}

static void check_backward(conform *x, const problem *p, const tensors *y,
                           const fsdp_attention_args *cpu, const fsdp_attention_args *gpu)
{
    fsdp_test *t = x->t;
    const double tolerance = tolerance_of(p);
    ASSERT_OK(x->k->attention_backward(x->c, cpu));
    ASSERT_OK(x->dk->attention_backward(x->dc, gpu));
    compare(x, p, "d_q", &y->d_q, tolerance);
    compare(x, p, "d_k", &y->d_k, tolerance);
    compare(x, p, "d_v", &y->d_v, tolerance);
    if (p->bias)
        compare(x, p, "d_position_bias", &y->d_bias, tolerance);
}

static void check_problem(conform *x, const problem *p)
{
    fsdp_test *t = x->t;
    const offsets o = offsets_of(p);
    tensors y = make_tensors(x, p);
    const fsdp_attention_args cpu = make_args(p, &o, &y, false), gpu = make_args(p, &o, &y, true);
    ASSERT_OK(x->k->attention(x->c, &cpu));
    ASSERT_OK(x->dk->attention(x->dc, &gpu));
    compare(x, p, "out", &y.out, tolerance_of(p));
    compare(x, p, "lse", &y.lse, 2e-6);
    widen_result(&y.out);
    if (!p->has_room)
        check_backward(x, p, &y, &cpu, &gpu);
    conform_free(x);
}

/* --- random problems --- */

static int64_t below(uint64_t *state, int64_t n)
{
    *state = fsdp_mix64(*state);
    return (int64_t)(*state >> 11) % n;
}

#define PICK(state, array) (array)[below(state, (int64_t)(sizeof(array) / sizeof *(array)))]

static problem random_problem(uint64_t *state, const int64_t *dims, int64_t n_dims)
{
    static const int32_t lengths[] = {0, 1, 3, 8, 31, 32, 33, 63, 64, 65, 70, 100};
    static const int64_t groups[] = {1, 1, 2, 3};
    problem p = {.seed = (uint64_t)below(state, 1 << 20) * 16};
    const bool cross = below(state, 3) == 0;
    p.n_sequences = 1 + below(state, 3);
    p.has_room = below(state, 5) == 0;
    for (int64_t b = 0; b < p.n_sequences; b++) {
        p.q_lengths[b] = PICK(state, lengths);
        p.k_lengths[b] = cross ? PICK(state, lengths) : p.q_lengths[b];
        p.room[b] = (int32_t)below(state, 4) * 5;
    }
    p.kv_heads = 1 + below(state, 2);
    p.heads = p.kv_heads * PICK(state, groups);
    p.head_dim = dims[below(state, n_dims)];
    p.causal = below(state, 2);
    p.window = below(state, 3) == 0 ? 1 + below(state, 60) : 0;
    p.bias = below(state, 2);
    p.pad = below(state, 3) * 4; /* 4: rows are not aligned to 16 bytes in 16-bit dtypes */
    p.misalign = below(state, 5) == 0;
    p.scale = below(state, 2) ? 1.0f : 0.3f;
    p.dropout_p = below(state, 3) == 0 ? 0.3f : 0.0f;
    p.dtype = PICK(state, float_dtypes);
    return p;
}

static void check_random_problems(conform *x, uint64_t seed, int n, const int64_t *dims,
                                  int64_t n_dims)
{
    uint64_t state = seed;
    for (int i = 0; i < n && !x->t->failed; i++) {
        problem p = random_problem(&state, dims, n_dims);
        check_problem(x, &p);
    }
}

/* The emulator's card gets the capability `capability`, 10 times major plus minor, in the devices
 * that are opened while it is set: 90 has wgmma, others multiply by mma.sync. A real card keeps its
 * own. */
static void set_capability(const char *capability)
{
    if (capability)
        setenv("EMU_CAPABILITY", capability, 1);
    else
        unsetenv("EMU_CAPABILITY");
}

static const char *const capabilities[] = {"80", "90"};

TEST(attention_of_random_problems_equals_the_cpu)
{
    static const int64_t dims[] = {0, 1, 5, 8, 16, 20, 32, 33, 64};
    CONFORM_OPEN(x);
    check_random_problems(&x, 1, 50, dims, 9);
    conform_close(&x);
}

/* More columns than a block has at a time. */
TEST(attention_of_wide_heads_equals_the_cpu)
{
    static const int64_t dims[] = {80, 96, 128, 129, 256, 300};
    CONFORM_OPEN(x);
    check_random_problems(&x, 2, 12, dims, 6);
    conform_close(&x);
}

/* Problems in bfloat16 and float16 whose rows are aligned and whose heads have 16 to 128 columns:
 * kernels for tensor cores compute them. */
static problem tensor_problem(uint64_t *state)
{
    static const int64_t dims[] = {16, 24, 32, 64, 64, 80, 128};
    problem p = random_problem(state, dims, 7);
    p.dtype = float_dtypes[1 + below(state, 2)];
    p.pad = below(state, 2) * 8;
    p.misalign = 0;
    return p;
}

static void check_tensor_problems(conform *x, uint64_t seed, int n)
{
    uint64_t state = seed;
    for (int i = 0; i < n && !x->t->failed; i++) {
        const problem p = tensor_problem(&state);
        check_problem(x, &p);
    }
}

TEST(attention_by_wgmma_equals_the_cpu)
{
    CONFORM_OPEN(x);
    check_tensor_problems(&x, 3, 14);
    conform_close(&x);
}

TEST(attention_by_mma_sync_equals_the_cpu)
{
    set_capability("80");
    CONFORM_OPEN(x);
    check_tensor_problems(&x, 4, 10);
    conform_close(&x);
    set_capability(NULL);
}

/* Each combination of bias and dropout has kernels of its own. */
TEST(each_set_of_features_equals_the_cpu)
{
    for (int way = 0; way < 2; way++) {
        set_capability(capabilities[way]);
        CONFORM_OPEN(x);
        for (int i = 0; i < 8; i++) {
            problem p = {.n_sequences = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = i & 4 ? 128 : 64,
                         .q_lengths = {65},
                         .k_lengths = {70},
                         .causal = i & 1,
                         .scale = 0.2f,
                         .dtype = (i >> 2) + way == 1 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F16,
                         .seed = (uint64_t)i};
            p.bias = i & 1;
            p.dropout_p = i & 2 ? 0.1f : 0.0f;
            check_problem(&x, &p);
            CHECK_HERE();
        }
        conform_close(&x);
    }
    set_capability(NULL);
}

/* --- single properties --- */

static problem plain_problem(fsdp_dtype dtype, int64_t head_dim)
{
    return (problem){.n_sequences = 1,
                     .heads = 2,
                     .kv_heads = 1,
                     .head_dim = head_dim,
                     .q_lengths = {70},
                     .k_lengths = {70},
                     .causal = true,
                     .scale = 0.3f,
                     .dtype = dtype,
                     .seed = 1000};
}

/* No sequence, sequences of no queries and no keys: gradients that have elements are zero. */
TEST(empty_sequences_have_zero_gradients)
{
    static const int32_t lengths[][2] = {{0, 0}, {0, 40}, {40, 0}};
    CONFORM_OPEN(x);
    for (int i = 0; i < 9; i++) {
        problem p = plain_problem(float_dtypes[i / 3], 16);
        p.n_sequences = i % 3 ? 2 : 0;
        p.bias = true;
        for (int b = 0; b < 2; b++) {
            p.q_lengths[b] = lengths[i % 3][0];
            p.k_lengths[b] = lengths[i % 3][1];
        }
        check_problem(&x, &p);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* More tiles of queries than there are slices in the sum of the bias gradient's parts. The window
 * keeps the number of scores small. */
TEST(the_bias_gradient_of_many_tiles_equals_the_cpu)
{
    CONFORM_OPEN(x);
    problem p = plain_problem(FSDP_DTYPE_F32, 3);
    p.q_lengths[0] = p.k_lengths[0] = 1100;
    p.window = 9;
    p.bias = true;
    check_problem(&x, &p);
    conform_close(&x);
}

/* Two runs of the same problem, with another one between them that uses the same scratch. */
TEST(two_runs_give_the_same_bits)
{
    static const int64_t dims[] = {16, 64, 128};
    CONFORM_OPEN(x);
    for (int i = 0; i < 9; i++) {
        problem p = plain_problem(float_dtypes[i / 3], dims[i % 3]), other = p;
        p.bias = true;
        p.dropout_p = 0.2f;
        other.q_lengths[0] = other.k_lengths[0] = 33;
        const offsets o = offsets_of(&p), other_o = offsets_of(&other);
        tensors y = make_tensors(&x, &p), z = make_tensors(&x, &p);
        const fsdp_attention_args one = make_args(&p, &o, &y, true),
                                  two = make_args(&p, &o, &z, true),
                                  between = make_args(&other, &other_o, &z, true);
        ASSERT_OK(run(x.dc, x.dk, &one));
        ASSERT_OK(run(x.dc, x.dk, &between));
        ASSERT_OK(run(x.dc, x.dk, &two));
        const tensor *pairs[][2] = {{&y.out, &z.out}, {&y.lse, &z.lse}, {&y.d_q, &z.d_q},
                                    {&y.d_k, &z.d_k}, {&y.d_v, &z.d_v}, {&y.d_bias, &z.d_bias}};
        for (int j = 0; j < 6; j++) {
            conform_array *a = pairs[j][0]->at, *b = pairs[j][1]->at;
            conform_fetch(&x, a);
            conform_fetch(&x, b);
            ASSERT(memcmp(a->result, b->result, (size_t)a->n * fsdp_dtype_size(a->dtype)) == 0);
        }
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* A row with a NaN is not taken for one that sees no key: its result is NaN, and so are the
 * gradients that it contributes to. The other rows are not affected. */
TEST(nan_stays_nan)
{
    static const int64_t dims[] = {8, 64, 128};
    CONFORM_OPEN(x);
    for (int i = 0; i < 9; i++) {
        problem p = plain_problem(float_dtypes[i / 3], dims[i % 3]);
        p.heads = 1;
        const offsets o = offsets_of(&p);
        tensors y = make_tensors(&x, &p);
        set_value(y.q.at->host, p.dtype, 3 * y.q.ld + 5, (double)NAN);
        conform_send(&x, y.q.at);
        const fsdp_attention_args args = make_args(&p, &o, &y, true);
        ASSERT_OK(run(x.dc, x.dk, &args));
        conform_fetch(&x, y.out.at);
        conform_fetch(&x, y.d_q.at);
        conform_fetch(&x, y.d_k.at);
        for (int64_t d = 0; d < p.head_dim; d++) {
            ASSERT(isnan(value_of(y.out.at->result, p.dtype, 3 * y.d_q.ld + d)));
            ASSERT(isnan(value_of(y.d_q.at->result, p.dtype, 3 * y.d_q.ld + d)));
            ASSERT(isnan(value_of(y.d_k.at->result, p.dtype, d)));
            ASSERT(isfinite(value_of(y.out.at->result, p.dtype, 2 * y.out.ld + d)));
            ASSERT(isfinite(value_of(y.out.at->result, p.dtype, 4 * y.d_q.ld + d)));
            ASSERT(isfinite(value_of(y.d_q.at->result, p.dtype, 4 * y.d_q.ld + d)));
        }
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}
