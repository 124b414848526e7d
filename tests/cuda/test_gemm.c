/* Matrix products on a CUDA device: all layouts and dtypes, odd sizes, leading dimensions and
 * alignments, against a double loop. */
#include "tests/cuda/conform.h"

typedef struct problem {
    int64_t m, n, k, pad_a, pad_b, pad_c; /* pad: leading dimension minus row length */
    int64_t skip;                         /* elements before A, B, C and the bias */
    bool trans_a, trans_b, beta, bias;
    fsdp_dtype dtype, c_dtype;
    uint64_t seed;
} problem;

typedef struct matrices {
    conform_array *a, *b, *c, *bias;
    double *before; /* C's elements before the product */
    int64_t lda, ldb, ldc;
} matrices;

static matrices make_matrices(conform *x, const problem *p)
{
    const int64_t a_rows = p->trans_a ? p->k : p->m, b_rows = p->trans_b ? p->n : p->k;
    matrices o = {.lda = (p->trans_a ? p->m : p->k) + p->pad_a,
                  .ldb = (p->trans_b ? p->k : p->n) + p->pad_b,
                  .ldc = p->n + p->pad_c};
    o.a = conform_input(x, p->dtype, p->skip + a_rows * o.lda, p->seed, -1.0, 1.0);
    o.b = conform_input(x, p->dtype, p->skip + b_rows * o.ldb, p->seed + 1, -1.0, 1.0);
    o.bias = conform_input(x, p->dtype, p->skip + p->n, p->seed + 2, -1.0, 1.0);
    const int64_t c = p->skip + p->m * o.ldc;
    /* Without beta, C stays NaN, since it need not be initialized. */
    o.c = p->beta ? conform_input(x, p->c_dtype, c, p->seed + 3, -1.0, 1.0)
                  : conform_output(x, p->c_dtype, c);
    o.before = malloc((size_t)c * sizeof *o.before + 1);
    for (int64_t i = 0; i < c; i++)
        o.before[i] = value_of(o.c->host, p->c_dtype, i);
    return o;
}

static const void *at(const conform_array *a, int64_t element)
{
    return (char *)a->device + (size_t)element * fsdp_dtype_size(a->dtype);
}

static fsdp_gemm_args args_of(const problem *p, const matrices *o)
{
    return (fsdp_gemm_args){.m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .a = at(o->a, p->skip),
                            .b = at(o->b, p->skip),
                            .c = (void *)(uintptr_t)at(o->c, p->skip),
                            .lda = o->lda,
                            .ldb = o->ldb,
                            .ldc = o->ldc,
                            .trans_a = p->trans_a,
                            .trans_b = p->trans_b,
                            .ab_dtype = p->dtype,
                            .c_dtype = p->c_dtype,
                            .beta = p->beta ? 1.0f : 0.0f,
                            .bias = p->bias ? at(o->bias, p->skip) : NULL};
}

/* Sets *magnitude to the sum of the absolute values of the terms. */
static double element(const problem *p, const matrices *o, int64_t i, int64_t j, double *magnitude)
{
    double sum = 0.0;
    *magnitude = 0.0;
    for (int64_t l = 0; l < p->k; l++) {
        const int64_t a = p->trans_a ? l * o->lda + i : i * o->lda + l;
        const int64_t b = p->trans_b ? j * o->ldb + l : l * o->ldb + j;
        const double term = value_of(o->a->host, p->dtype, p->skip + a) *
                            value_of(o->b->host, p->dtype, p->skip + b);
        sum += term;
        *magnitude += fabs(term);
    }
    if (p->beta)
        sum += o->before[p->skip + i * o->ldc + j];
    if (p->bias)
        sum += value_of(o->bias->host, p->dtype, p->skip + j);
    *magnitude += p->beta + p->bias;
    return sum;
}

/* The elements between the rows keep their bits. */
static void check_gaps(fsdp_test *t, const problem *p, const matrices *o)
{
    const size_t width = fsdp_dtype_size(p->c_dtype);
    for (int64_t i = 0; i < o->c->n; i++)
        if (i < p->skip || (i - p->skip) % o->ldc >= p->n)
            ASSERT(memcmp((char *)o->c->result + (size_t)i * width,
                          (char *)o->c->host + (size_t)i * width, width) == 0);
}

static void compare(fsdp_test *t, const problem *p, const matrices *o, int64_t stride)
{
    for (int64_t i = 0; i < p->m; i += stride)
        for (int64_t j = i % stride; j < p->n; j += stride) {
            double magnitude;
            const double sum = element(p, o, i, j, &magnitude);
            /* A bias of another dtype or of any alignment is added to C before the product. With
             * beta, C is then rounded twice. */
            const double roundings = p->bias && p->beta ? 2.1 : 1.01;
            /* The terms of an odd extent's rest are rounded before the others are added. */
            const double rest = p->k > 1024 ? (double)(p->k % 64) + p->beta : 0.0;
            /* Some algorithms of cublasLt round the product to the dtype of C before they add C. */
            const double before = p->beta ? o->before[p->skip + i * o->ldc + j] : sum;
            const double product = rounding_of(p->c_dtype) * fabs(sum - before);
            const double tolerance =
                1e-6 * magnitude + rest * rounding_of(p->c_dtype) + product +
                roundings * rounding_of(p->c_dtype) * (fabs(sum) + (p->bias ? magnitude : 0.0));
            const double got = value_of(o->c->result, p->c_dtype, p->skip + i * o->ldc + j);
            if (!(fabs(got - sum) <= tolerance))
                FAIL("%lld x %lld x %lld %c%c %s->%s beta %d bias %d skip %lld: C[%lld, %lld] is "
                     "%.9g, not %.9g",
                     (long long)p->m, (long long)p->n, (long long)p->k, p->trans_a ? 't' : 'n',
                     p->trans_b ? 't' : 'n', fsdp_dtype_name(p->dtype), fsdp_dtype_name(p->c_dtype),
                     p->beta, p->bias, (long long)p->skip, (long long)i, (long long)j, got, sum);
        }
    check_gaps(t, p, o);
}

static void check_problem(conform *x, const problem *p, int64_t stride)
{
    fsdp_test *t = x->t;
    matrices o = make_matrices(x, p);
    const fsdp_gemm_args args = args_of(p, &o);
    if (x->dk->gemm(x->dc, &args) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "gemm: %s", fsdp_last_error());
    conform_fetch(x, o.c);
    if (!t->failed)
        compare(t, p, &o, stride);
    free(o.before);
    conform_free(x);
}

static uint64_t below(uint64_t *state, uint64_t n)
{
    *state = fsdp_mix64(*state + 1);
    return *state % n;
}

static problem random_problem(uint64_t *state)
{
    static const int64_t some[] = {1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 65, 100};
    problem p = {.m = some[below(state, 12)], .n = some[below(state, 12)]};
    p.k = some[below(state, 12)];
    p.trans_a = below(state, 2);
    p.trans_b = below(state, 2);
    p.beta = below(state, 2);
    p.bias = below(state, 2);
    p.pad_a = (int64_t)(below(state, 2) * below(state, 20));
    p.pad_b = (int64_t)(below(state, 2) * below(state, 20));
    p.pad_c = (int64_t)(below(state, 2) * below(state, 20));
    p.skip = (int64_t)(below(state, 2) * below(state, 9));
    p.dtype = float_dtypes[below(state, 3)];
    p.c_dtype = below(state, 2) ? p.dtype : FSDP_DTYPE_F32;
    p.seed = *state;
    return p;
}

TEST(products_of_random_shapes_equal_the_double_loop)
{
    CONFORM_OPEN(x);
    uint64_t state = 17;
    for (int i = 0; i < 200 && !t->failed; i++) {
        const problem p = random_problem(&state);
        check_problem(&x, &p, p.m * p.n > 2000 ? 5 : 1);
    }
    conform_close(&x);
}

/* One row or one column: the products of generation. */
TEST(products_of_vectors_equal_the_double_loop)
{
    CONFORM_OPEN(x);
    for (int i = 0; i < 24 && !t->failed; i++) {
        const fsdp_dtype dtype = float_dtypes[i % 3];
        const problem p = {.m = i & 1 ? 1 : 67,
                           .n = i & 1 ? 67 : 1,
                           .k = i < 12 ? 130 : 1,
                           .trans_a = (i & 2) != 0,
                           .trans_b = (i & 4) != 0,
                           .bias = (i & 8) != 0,
                           .dtype = dtype,
                           .c_dtype = i < 18 ? dtype : FSDP_DTYPE_F32,
                           .seed = (uint64_t)i};
        check_problem(&x, &p, 1);
    }
    conform_close(&x);
}

/* Note [Odd extents] in gemm.c: each extent that is contiguous in memory is computed in two parts.
 */
TEST(products_with_an_odd_long_extent_equal_the_double_loop)
{
    CONFORM_OPEN(x);
    for (int i = 0; i < 48 && !t->failed; i++) {
        const fsdp_dtype dtype = float_dtypes[i % 3];
        const int longest = i / 16;
        problem p = {.m = longest == 0 ? 1027 : 8,
                     .n = longest == 1 ? 1027 : 16,
                     .k = longest == 2 ? 1027 : 24,
                     .trans_a = (i & 1) != 0,
                     .trans_b = (i & 2) != 0,
                     .beta = (i & 4) != 0,
                     .bias = (i & 8) != 0,
                     .dtype = dtype,
                     .c_dtype = i % 5 ? dtype : FSDP_DTYPE_F32,
                     .seed = (uint64_t)i};
        /* Row strides are multiples of 8. */
        p.pad_a = (p.trans_a ? p.m : p.k) % 8 ? 5 : 8;
        p.pad_b = (p.trans_b ? p.k : p.n) % 8 ? 5 : 0;
        p.pad_c = p.n % 8 ? 61 : 0;
        check_problem(&x, &p, 1);
    }
    conform_close(&x);
}

/* Without columns of A, C becomes beta C + bias. Without rows or columns of C, nothing happens. */
TEST(empty_products_equal_the_double_loop)
{
    CONFORM_OPEN(x);
    for (int i = 0; i < 96 && !t->failed; i++) {
        const fsdp_dtype dtype = float_dtypes[i % 3];
        const problem p = {.m = i % 12 ? 19 : 0,
                           .n = i % 12 == 1 ? 0
                                : i < 48    ? 64
                                            : 37,
                           .k = i % 12 < 2 ? 5 : 0,
                           .pad_c = i & 8 ? 8 : 0,
                           .skip = i % 5 == 4,
                           .beta = (i & 1) != 0,
                           .bias = (i & 2) != 0,
                           .dtype = dtype,
                           .c_dtype = i & 4 ? dtype : FSDP_DTYPE_F32,
                           .seed = (uint64_t)i};
        check_problem(&x, &p, 1);
    }
    conform_close(&x);
}

/* A bias that cublasLt cannot add is in C before the product. So C is rounded once if beta is 0:
 * bits are equal to those with a bias that cublasLt adds. */
TEST(a_bias_at_any_address_gives_the_same_bits)
{
    CONFORM_OPEN(x);
    for (int d = 1; d < 3; d++) {
        const problem p = {.m = 9,
                           .n = 40,
                           .k = 1,
                           .bias = true,
                           .dtype = float_dtypes[d],
                           .c_dtype = float_dtypes[d],
                           .seed = 5};
        matrices o = make_matrices(&x, &p);
        conform_array *moved = conform_output(&x, p.dtype, p.n + 1);
        memcpy((char *)moved->host + 2, o.bias->host, (size_t)p.n * 2);
        conform_send(&x, moved);
        fsdp_gemm_args args = args_of(&p, &o);
        ASSERT_OK(x.dk->gemm(x.dc, &args));
        conform_fetch(&x, o.c);
        memcpy(o.c->host, o.c->result, (size_t)o.c->n * 2);
        args.bias = at(moved, 1);
        ASSERT_OK(x.dk->gemm(x.dc, &args));
        conform_equal(&x, o.c, "bias");
        free(o.before);
        conform_free(&x);
    }
    conform_close(&x);
}

/* More shapes than a context keeps (FSDP_GEMM_MOST_PLANS). */
TEST(plans_are_dropped_when_there_are_too_many)
{
    CONFORM_OPEN(x);
    const problem p = {
        .m = 1, .n = 3, .k = 2, .dtype = FSDP_DTYPE_F32, .c_dtype = FSDP_DTYPE_F32, .seed = 7};
    matrices o = make_matrices(&x, &p);
    fsdp_gemm_args args = args_of(&p, &o);
    for (int i = 0; i < 4110; i++) {
        args.ldc = 3 + i % 4100; /* there is only one row */
        ASSERT_OK(x.dk->gemm(x.dc, &args));
    }
    conform_fetch(&x, o.c);
    compare(t, &p, &o, 1);
    free(o.before);
    conform_close(&x);
}
