/* GEMM against a double loop in float64: all layouts, dtypes and ISAs, odd sizes, leading
 * dimensions, poisoned memory around the operands, numbers of threads. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/alloc_testing.h"
#include "src/kernels/cpu/product_testing.h"
#include "tests/kernels/kernel_test.h"

typedef struct problem {
    int64_t m, n, k, pad_a, pad_b, pad_c; /* pad: leading dimension minus row length */
    bool trans_a, trans_b, beta, bias;
    fsdp_dtype dtype, c_dtype;
    uint64_t seed;
} problem;

typedef struct operands {
    matrix a, b, c, bias;
} operands;

static operands make_operands(const problem *p)
{
    uint64_t state = p->seed * 1000003;
    int64_t a_columns = p->trans_a ? p->m : p->k, b_columns = p->trans_b ? p->k : p->n;
    operands o = {
        .a = matrix_create(p->dtype, p->trans_a ? p->k : p->m, a_columns, a_columns + p->pad_a),
        .b = matrix_create(p->dtype, p->trans_b ? p->n : p->k, b_columns, b_columns + p->pad_b),
        .c = matrix_create(p->c_dtype, p->m, p->n, p->n + p->pad_c),
        .bias = matrix_create(p->dtype, 1, p->n, p->n)};
    matrix_fill_random(&o.a, &state);
    matrix_fill_random(&o.b, &state);
    matrix_fill_random(&o.bias, &state);
    if (p->beta) /* otherwise C stays poisoned, since it need not be initialized */
        matrix_fill_random(&o.c, &state);
    return o;
}

static void free_operands(operands *o)
{
    matrix_destroy(&o->a);
    matrix_destroy(&o->b);
    matrix_destroy(&o->c);
    matrix_destroy(&o->bias);
}

static fsdp_gemm_args make_args(const problem *p, const operands *o)
{
    return (fsdp_gemm_args){.m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .a = o->a.data,
                            .b = o->b.data,
                            .c = o->c.data,
                            .lda = o->a.ld,
                            .ldb = o->b.ld,
                            .ldc = o->c.ld,
                            .trans_a = p->trans_a,
                            .trans_b = p->trans_b,
                            .ab_dtype = p->dtype,
                            .c_dtype = p->c_dtype,
                            .beta = p->beta ? 1.0f : 0.0f,
                            .bias = p->bias ? o->bias.data : NULL};
}

/* Compares every `stride`-th row and column of C, including the first and the last. */
static void compare(fsdp_test *t, const problem *p, const operands *o, const matrix *before,
                    int64_t stride)
{
    for (int64_t i = 0; i < p->m; i = i + stride < p->m || i == p->m - 1 ? i + stride : p->m - 1) {
        for (int64_t j = 0; j < p->n;
             j = j + stride < p->n || j == p->n - 1 ? j + stride : p->n - 1) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < p->k; l++) {
                double x = p->trans_a ? matrix_get(&o->a, l, i) : matrix_get(&o->a, i, l);
                double y = p->trans_b ? matrix_get(&o->b, j, l) : matrix_get(&o->b, l, j);
                sum += x * y;
                magnitude += fabs(x * y);
            }
            double extra = (p->beta ? matrix_get(before, i, j) : 0.0) +
                           (p->bias ? matrix_get(&o->bias, 0, j) : 0.0);
            sum += extra;
            double tolerance = 1e-6 * (magnitude + fabs(extra)) +
                               1.01 * rounding_of(p->c_dtype) * fabs(sum) + 1e-7;
            double got = matrix_get(&o->c, i, j);
            if (!(fabs(got - sum) <= tolerance))
                FAIL("%lld x %lld x %lld %c%c %s->%s beta %d bias %d: C[%lld, %lld] is %.9g, not "
                     "%.9g",
                     (long long)p->m, (long long)p->n, (long long)p->k, p->trans_a ? 't' : 'n',
                     p->trans_b ? 't' : 'n', fsdp_dtype_name(p->dtype), fsdp_dtype_name(p->c_dtype),
                     p->beta, p->bias, (long long)i, (long long)j, got, sum);
        }
    }
    ASSERT(matrix_is_guarded(&o->c));
}

static matrix matrix_copy(const matrix *x)
{
    matrix y = matrix_create(x->dtype, x->rows, x->columns, x->ld);
    memcpy(y.block, x->block, x->bytes);
    return y;
}

static void check_problem(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels,
                          const problem *p, int64_t stride)
{
    operands o = make_operands(p);
    matrix before = matrix_copy(&o.c);
    fsdp_gemm_args args = make_args(p, &o);
    fsdp_status status = kernels->gemm(context, &args);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "gemm: %s", fsdp_last_error());
    else
        compare(t, p, &o, &before, stride);
    matrix_destroy(&before);
    free_operands(&o);
}

static const fsdp_dtype float_dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

static problem random_problem(uint64_t *state)
{
    static const int64_t sizes[] = {1, 2, 7, 12, 15, 16, 17, 20, 31, 33, 48, 64, 65, 100, 130, 257};
    problem p = {.seed = random_bits(state) >> 20};
    p.m = sizes[random_below(state, 16)];
    p.n = sizes[random_below(state, 16)];
    p.k = sizes[random_below(state, 16)];
    p.trans_a = random_below(state, 2);
    p.trans_b = random_below(state, 2);
    p.beta = random_below(state, 2);
    p.bias = random_below(state, 2);
    p.pad_a = random_below(state, 2) * random_below(state, 20);
    p.pad_b = random_below(state, 2) * random_below(state, 20);
    p.pad_c = random_below(state, 2) * random_below(state, 20);
    p.dtype = float_dtypes[random_below(state, 3)];
    p.c_dtype = random_below(state, 2) ? p.dtype : FSDP_DTYPE_F32;
    return p;
}

TEST_ON_EVERY_ISA(products_of_random_shapes_equal_the_double_loop_on_every_isa, 2)
{
    uint64_t state = 17;
    for (int i = 0; i < 120 && !t->failed; i++) {
        problem p = random_problem(&state);
        check_problem(t, context, kernels, &p, p.m * p.n > 4000 ? 7 : 1);
    }
}

/* Forward, data gradient and weight gradient of a layer, with token counts around the tile's size,
 * and with few rows, for which C is split by columns. */
TEST_ON_EVERY_ISA(products_of_training_shapes_equal_the_double_loop_on_every_isa, 2)
{
    static const int64_t tokens[] = {1, 16, 127, 255, 257, 300, 531, 1040};
    for (int i = 0; i < 8 && !t->failed; i++) {
        for (int d = 0; d < 3 && !t->failed; d++) {
            fsdp_dtype dtype = float_dtypes[d];
            problem forward = {.m = tokens[i],
                               .n = 192,
                               .k = 64,
                               .trans_b = true,
                               .bias = true,
                               .dtype = dtype,
                               .c_dtype = dtype,
                               .seed = 3};
            problem data = {
                .m = tokens[i], .n = 64, .k = 192, .dtype = dtype, .c_dtype = dtype, .seed = 4};
            problem weight = {.m = 192,
                              .n = 64,
                              .k = tokens[i],
                              .trans_a = true,
                              .dtype = dtype,
                              .c_dtype = FSDP_DTYPE_F32,
                              .seed = 5};
            problem again = weight;
            again.beta = true;
            problem wide = {.m = tokens[i] % 100,
                            .n = 9001,
                            .k = 24,
                            .trans_b = i % 2,
                            .dtype = dtype,
                            .c_dtype = i % 3 ? dtype : FSDP_DTYPE_F32,
                            .seed = 6};
            const problem all[] = {forward, data, weight, again, wide};
            for (int j = 0; j < 5 && !t->failed; j++)
                check_problem(t, context, kernels, &all[j], 13);
        }
    }
}

/* Our tiles split k from 512 or 2048 bf16 on, or from half as many f32, and in other cases from
 * 8192 on: then C is added to, or sums are kept in scratch. */
TEST_ON_EVERY_ISA(long_reductions_equal_the_double_loop_on_every_isa, 1)
{
    static const int64_t lengths[] = {513, 1027, 2049, 4110, 8210};
    for (int i = 0; i < 64 && !t->failed; i++) {
        problem p = {.m = 45 + i,
                     .n = 64 + i,
                     .k = lengths[i % 5],
                     .trans_a = (i & 4) != 0,
                     .trans_b = (i & 8) != 0,
                     .beta = (i & 16) != 0,
                     .bias = (i & 2) != 0,
                     .dtype = float_dtypes[i % 3],
                     .c_dtype = i & 32 ? float_dtypes[i % 3] : FSDP_DTYPE_F32,
                     .seed = (uint64_t)i};
        check_problem(t, context, kernels, &p, 29);
    }
}

/* Packing and blocks of our tiles have limits at 512 columns, 512 of k and 512 KiB of A. */
TEST_ON_BEST_ISA(products_of_several_blocks_equal_the_double_loop, 2)
{
    uint64_t state = 23;
    for (int i = 0; i < 24 && !t->failed; i++) {
        problem p = random_problem(&state);
        p.m = 500 + (int64_t)random_below(&state, 2200);
        p.n = 1 + (int64_t)random_below(&state, 700);
        p.k = 1 + (int64_t)random_below(&state, 1300);
        p.dtype = float_dtypes[i % 2];
        p.c_dtype = i % 4 < 2 ? p.dtype : FSDP_DTYPE_F32;
        check_problem(t, context, kernels, &p, 1009);
    }
}

/* From about 2^31 multiplications on, a reduction over tokens by oneDNN is not padded. */
static void check_large_weight_gradients(fsdp_test *t, const char *isa)
{
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    ASSERT_OK(fsdp_kernels_cpu_open(isa, 2, &context, &kernels));
    for (int d = 0; d < 2 && !t->failed; d++) {
        problem p = {.m = 4096,
                     .n = 1030,
                     .k = 517,
                     .trans_a = true,
                     .beta = d,
                     .dtype = float_dtypes[d],
                     .c_dtype = FSDP_DTYPE_F32,
                     .seed = 8};
        check_problem(t, context, kernels, &p, 129);
    }
    fsdp_kernels_cpu_close(context);
}

/* With the best ISA's own products, and with oneDNN's. */
TEST(large_weight_gradients_equal_the_double_loop)
{
    const char *const *isas = fsdp_kernels_cpu_isas();
    for (int i = 0; i < 2 && isas[i]; i++)
        check_large_weight_gradients(t, isas[i]);
}

/* The second of two splits of k is shorter by a lane. Its blocks of A could have more rows than
 * those of the first, for which scratch was allocated, or its tiles could be further apart. If C is
 * bfloat16, sums follow them in scratch. */
TEST_ON_EVERY_ISA(a_shorter_last_split_stays_within_its_scratch, 1)
{
    for (int i = 0; i < 3; i++) {
        problem p = {.m = 1100, /* more than a block has */
                     .n = 40,
                     .k = i == 2 ? 513 : 514,
                     .trans_a = true,
                     .dtype = i == 2 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16,
                     .c_dtype = i == 1 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                     .seed = (uint64_t)i};
        check_problem(t, context, kernels, &p, 3);
    }
}

/* The same values in f32. */
static matrix widened(const matrix *x)
{
    matrix y = matrix_create(FSDP_DTYPE_F32, x->rows, x->columns, x->ld);
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++)
            matrix_set(&y, i, j, matrix_get(x, i, j));
    return y;
}

/* x86-64-v4+fma multiplies bf16 with the same result as any x86-64-v4 multiplies the same values in
 * f32, if k is one split. */
TEST(bf16_that_is_widened_multiplies_as_f32_does)
{
    fsdp_kernel_context *context[2];
    const fsdp_kernels *kernels;
    uint64_t state = 31;
    if (strcmp(fsdp_kernels_cpu_isas()[0], "x86-64-v4") != 0)
        SKIP("this CPU has no AVX-512");
    ASSERT_OK(fsdp_kernels_cpu_open("x86-64-v4+fma", 1, &context[0], &kernels));
    ASSERT_OK(fsdp_kernels_cpu_open("x86-64-v4", 1, &context[1], &kernels));
    for (int round = 0; round < 40 && !t->failed; round++) {
        problem p = random_problem(&state);
        p.m += 31; /* so that f32 products also use tiles */
        p.beta = p.bias = false;
        p.dtype = FSDP_DTYPE_BF16;
        p.c_dtype = FSDP_DTYPE_F32;
        operands o = make_operands(&p);
        operands wide = {.a = widened(&o.a),
                         .b = widened(&o.b),
                         .c = matrix_create(FSDP_DTYPE_F32, p.m, p.n, p.n + p.pad_c)};
        fsdp_gemm_args args = make_args(&p, &o);
        p.dtype = FSDP_DTYPE_F32;
        fsdp_gemm_args wide_args = make_args(&p, &wide);
        ASSERT_OK(kernels->gemm(context[0], &args));
        ASSERT_OK(kernels->gemm(context[1], &wide_args));
        for (int64_t i = 0; i < p.m; i++)
            for (int64_t j = 0; j < p.n; j++)
                ASSERT(matrix_get(&o.c, i, j) == matrix_get(&wide.c, i, j));
        free_operands(&o);
        free_operands(&wide);
    }
    for (int i = 0; i < 2; i++)
        fsdp_kernels_cpu_close(context[i]);
}

/* Products as in generation, whose B is read where it is. */
TEST_ON_EVERY_ISA(products_of_few_rows_equal_the_double_loop_on_every_isa, 2)
{
    uint64_t state = 77;
    for (int round = 0; round < 60 && !t->failed; round++) {
        problem p = random_problem(&state);
        p.trans_a = false;
        p.m = 1 + (int64_t)random_below(&state, 17);
        p.n = 1 + (int64_t)random_below(&state, 300);
        p.k = 1 + (int64_t)random_below(&state, round % 4 ? 100 : 2500);
        check_problem(t, context, kernels, &p, 1);
    }
}

/* The text that is generated for a prompt does not depend on the rest of its batch. */
TEST(a_row_of_few_has_the_bits_that_it_has_alone)
{
    uint64_t state = 78;
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    if (fsdp_kernels_cpu_open("x86-64-v3", 2, &context, &kernels) != FSDP_OK)
        SKIP("this CPU has no AVX2");
    for (int round = 0; round < 24; round++) {
        problem p = random_problem(&state);
        p.trans_a = false;
        p.beta = false;
        p.m = 2 + (int64_t)random_below(&state, 15);
        operands all = make_operands(&p), row = make_operands(&p);
        fsdp_gemm_args args = make_args(&p, &all), one = make_args(&p, &row);
        ASSERT_OK(kernels->gemm(context, &args));
        one.m = 1;
        one.a = (const char *)one.a + fsdp_dtype_size(p.dtype) * (size_t)((p.m - 1) * one.lda);
        ASSERT_OK(kernels->gemm(context, &one));
        for (int64_t j = 0; j < p.n; j++)
            ASSERT(matrix_get(&all.c, p.m - 1, j) == matrix_get(&row.c, 0, j));
        free_operands(&all);
        free_operands(&row);
    }
    fsdp_kernels_cpu_close(context);
}

TEST_ON_BEST_ISA(an_empty_reduction_leaves_bias_or_zero_or_c, 1)
{
    for (int i = 0; i < 4 && !t->failed; i++) {
        problem p = {.m = 33,
                     .n = 20,
                     .k = 0,
                     .trans_a = true,
                     .beta = i & 1,
                     .bias = (i & 2) != 0,
                     .dtype = FSDP_DTYPE_BF16,
                     .c_dtype = FSDP_DTYPE_F32};
        check_problem(t, context, kernels, &p, 1);
        p = (problem){.m = 0, .n = 20, .k = 5, .dtype = FSDP_DTYPE_F32};
        check_problem(t, context, kernels, &p, 1);
    }
}

/* If the CPU has AMX, x86-64-v4 uses it; otherwise asking for it is an error. */
TEST(amx_is_the_default_or_missing)
{
    fsdp_kernel_context *context[2];
    const fsdp_kernels *kernels;
    uint64_t state = 12;
    if (fsdp_kernels_cpu_open("x86-64-v4+amx", 1, &context[0], &kernels) != FSDP_OK) {
        ASSERT_ERROR(fsdp_kernels_cpu_open("x86-64-v4+amx", 1, &context[0], &kernels),
                     FSDP_ERR_UNSUPPORTED, "this CPU lacks 'x86-64-v4+amx'");
        return;
    }
    ASSERT_OK(fsdp_kernels_cpu_open(NULL, 1, &context[1], &kernels));
    for (int round = 0; round < 8 && !t->failed; round++) {
        problem p = random_problem(&state);
        p.m += 31;
        p.dtype = FSDP_DTYPE_BF16;
        operands one = make_operands(&p), other = make_operands(&p);
        fsdp_gemm_args args = make_args(&p, &one), again = make_args(&p, &other);
        ASSERT_OK(kernels->gemm(context[0], &args));
        ASSERT_OK(kernels->gemm(context[1], &again));
        ASSERT(memcmp(one.c.block, other.c.block, one.c.bytes) == 0);
        free_operands(&one);
        free_operands(&other);
    }
    for (int i = 0; i < 2; i++)
        fsdp_kernels_cpu_close(context[i]);
}

/* With AMX no bf16 product goes to oneDNN, whose bits depend on shapes. So a column of C has the
 * same bits whatever the other columns, and a row whatever the other rows, even in products of few
 * rows. */
TEST(amx_gives_rows_and_columns_the_same_bits_in_any_product)
{
    uint64_t state = 79;
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    if (fsdp_kernels_cpu_open("x86-64-v4+amx", 1, &context, &kernels) != FSDP_OK)
        SKIP("this CPU has no AMX");
    for (int round = 0; round < 40 && !t->failed; round++) {
        problem p = random_problem(&state);
        p.dtype = FSDP_DTYPE_BF16;
        p.c_dtype = FSDP_DTYPE_F32;
        p.beta = p.bias = false;
        operands all = make_operands(&p), some = make_operands(&p);
        fsdp_gemm_args args = make_args(&p, &all), part = make_args(&p, &some);
        part.m = 1 + random_below(&state, p.m);
        part.n = 1 + random_below(&state, p.n);
        const int64_t row = p.m - part.m, column = p.n - part.n;
        part.a = (const char *)part.a + 2 * (args.trans_a ? row : row * args.lda);
        part.b = (const char *)part.b + 2 * (args.trans_b ? column * args.ldb : column);
        ASSERT_OK(kernels->gemm(context, &args));
        ASSERT_OK(kernels->gemm(context, &part));
        for (int64_t i = 0; i < part.m; i++)
            for (int64_t j = 0; j < part.n; j++)
                ASSERT(matrix_get(&all.c, row + i, column + j) == matrix_get(&some.c, i, j));
        free_operands(&all);
        free_operands(&some);
    }
    fsdp_kernels_cpu_close(context);
}

static void check_threads(fsdp_test *t, const char *isa)
{
    uint64_t state = 5;
    fsdp_kernel_context *context[3];
    const fsdp_kernels *kernels;
    for (int i = 0; i < 3; i++)
        ASSERT_OK(fsdp_kernels_cpu_open(isa, i + 1, &context[i], &kernels));
    for (int round = 0; round < 24; round++) {
        problem p = random_problem(&state);
        p.m *= 5;
        p.n *= 3;
        operands one = make_operands(&p), many = make_operands(&p);
        fsdp_gemm_args args = make_args(&p, &one), again = make_args(&p, &many);
        ASSERT_OK(kernels->gemm(context[0], &args));
        ASSERT_OK(kernels->gemm(context[1 + round % 2], &again));
        ASSERT(memcmp(one.c.block, many.c.block, one.c.bytes) == 0);
        free_operands(&one);
        free_operands(&many);
    }
    for (int i = 0; i < 3; i++)
        fsdp_kernels_cpu_close(context[i]);
}

TEST(the_number_of_threads_changes_no_bit)
{
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa && !t->failed; isa++)
        check_threads(t, *isa);
}

/* An ISA whose products are oneDNN's: the second best is x86-64-v4+onednn, or another without
 * tiles. */
static const char *onednn_isa(void)
{
    return fsdp_kernels_cpu_isas()[1];
}

/* With hundreds of token counts the cache stays bounded, and results are correct after primitives
 * were freed. */
TEST(the_primitive_cache_is_bounded)
{
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    fsdp_cpu_products *products;
    ASSERT_OK(fsdp_kernels_cpu_open(onednn_isa(), 1, &context, &kernels));
    ASSERT_OK(fsdp_kernel_context_products(context, &products));
    for (int i = 0; i < 700 && !t->failed; i++) {
        problem p = {.m = 16, .n = 1 + i, .k = 8, .trans_b = true, .dtype = FSDP_DTYPE_F32};
        check_problem(t, context, kernels, &p, i % 50 ? 100 : 1);
        ASSERT(fsdp_cpu_products_count(products) <= 513);
    }
    problem first = {.m = 16, .n = 1, .k = 8, .trans_b = true, .dtype = FSDP_DTYPE_F32};
    check_problem(t, context, kernels, &first, 1);
    fsdp_kernels_cpu_close(context);
}

/* Multiply in a child process, with one operand that is an element too short, and return its exit
 * status: 0 if nothing was noticed. */
static int multiply_short(const char *isa, const problem *p, int operand)
{
    const pid_t child = fork();
    if (child != 0) {
        int status = -1;
        waitpid(child, &status, 0);
        return status;
    }
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    (void)!freopen("/dev/null", "w", stderr);
    if (fsdp_kernels_cpu_open(isa, 1, &context, &kernels) != FSDP_OK)
        _exit(1);
    operands o = make_operands(p);
    fsdp_gemm_args args = make_args(p, &o);
    const size_t sizes[] = {(size_t)(p->m * p->k), (size_t)(p->k * p->n), (size_t)(p->m * p->n)};
    float *less = calloc(sizes[operand] - 1, sizeof *less);
    if (operand == 0)
        args.a = less;
    else if (operand == 1)
        args.b = less;
    else
        args.c = less;
    _exit(kernels->gemm(context, &args) == FSDP_OK ? 0 : 1);
}

/* Tiles are not instrumented, but what they access is checked: see
 * Note [Inner loops under sanitizers] in src/kernels/cpu/isa/inner_loop.h. */
TEST(asan_finds_products_beyond_the_end_of_an_operand)
{
#if !defined(__SANITIZE_ADDRESS__)
    if (true)
        SKIP("not built with AddressSanitizer");
#endif
    const problem p = {
        .m = 48, .n = 48, .k = 40, .dtype = FSDP_DTYPE_F32, .c_dtype = FSDP_DTYPE_F32};
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++) {
        /* oneDNN is not instrumented. It multiplies in x86-64-v4+onednn and, because there are no
         * tiles without AVX2, in x86-64. */
        const bool by_tiles = strcmp(*isa, "x86-64") != 0 && !strstr(*isa, "+onednn");
        for (int operand = 0; operand < 3 && by_tiles; operand++)
            if (multiply_short(*isa, &p, operand) == 0)
                fsdp_test_fail(t, __FILE__, __LINE__, "%s: operand %d", *isa, operand);
    }
}

/* Token counts share primitives if they round up to the same multiple of 16. */
TEST(token_counts_share_primitives)
{
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    fsdp_cpu_products *products;
#ifndef FSDP_HAVE_DNNL
    SKIP("built without oneDNN");
#endif
    ASSERT_OK(fsdp_kernels_cpu_open(onednn_isa(), 1, &context, &kernels));
    ASSERT_OK(fsdp_kernel_context_products(context, &products));
    for (int64_t tokens = 17; tokens <= 32 && !t->failed; tokens++) {
        problem forward = {.m = tokens, .n = 48, .k = 40, .trans_b = true, .dtype = FSDP_DTYPE_F32};
        problem weight = {.m = 48, .n = 40, .k = tokens, .trans_a = true, .dtype = FSDP_DTYPE_F32};
        check_problem(t, context, kernels, &forward, 1);
        check_problem(t, context, kernels, &weight, 1);
    }
    ASSERT_INT(fsdp_cpu_products_count(products), 2);
    fsdp_kernels_cpu_close(context);
}

static void check_out_of_memory(fsdp_test *t, const char *isa)
{
    problem p = {.m = 40, .n = 24, .k = 24, .trans_b = true, .dtype = FSDP_DTYPE_F32};
    operands o = make_operands(&p);
    fsdp_gemm_args args = make_args(&p, &o);
    bool failed = true;
    for (long n = 1; n < 40 && failed; n++) {
        fsdp_kernel_context *context;
        const fsdp_kernels *kernels;
        fsdp_alloc_fail_at(n);
        fsdp_status status = fsdp_kernels_cpu_open(isa, 1, &context, &kernels);
        if (status == FSDP_OK) {
            status = kernels->gemm(context, &args);
            fsdp_kernels_cpu_close(context);
        }
        fsdp_alloc_fail_at(0);
        failed = status != FSDP_OK;
        ASSERT_INT(status, failed ? FSDP_ERR_NOMEM : FSDP_OK);
    }
    ASSERT(!failed);
    free_operands(&o);
}

TEST(running_out_of_memory_is_an_error_without_a_leak)
{
    check_out_of_memory(t, NULL);
    check_out_of_memory(t, onednn_isa());
}

TEST(an_isa_is_chosen_by_name)
{
    fsdp_kernel_context *context;
    const fsdp_kernels *kernels;
    const char *const *isas = fsdp_kernels_cpu_isas();
    char name[32];
    ASSERT_OK(fsdp_kernels_cpu_open(NULL, 1, &context, &kernels));
    snprintf(name, sizeof name, "cpu %s", isas[0]);
    ASSERT_STR(kernels->name, name);
    fsdp_kernels_cpu_close(context);
    ASSERT_OK(fsdp_kernels_cpu_open("x86-64", 1, &context, &kernels));
    ASSERT_STR(kernels->name, "cpu x86-64");
    double rate = 0;
    enum {
        N = 64
    };
    static float a[N * N], b[N * N], c[N * N];
    const fsdp_gemm_args product = {.m = N,
                                    .n = N,
                                    .k = N,
                                    .a = a,
                                    .b = b,
                                    .c = c,
                                    .lda = N,
                                    .ldb = N,
                                    .ldc = N,
                                    .ab_dtype = FSDP_DTYPE_F32,
                                    .c_dtype = FSDP_DTYPE_F32};
    ASSERT_OK(fsdp_kernels_cpu_gemm_rate(context, &product, 0.001, &rate));
    ASSERT(rate > 0 && rate < 1e5); /* other programs may use the cores too */
    fsdp_kernels_cpu_close(context);
    for (const char *const *isa = isas; *isa; isa++) {
        ASSERT_OK(fsdp_kernels_cpu_open(*isa, 1, &context, &kernels));
        fsdp_kernels_cpu_close(context);
    }
    ASSERT_ERROR(fsdp_kernels_cpu_open("sparc", 1, &context, &kernels), FSDP_ERR_UNSUPPORTED,
                 "sparc");
    ASSERT_ERROR(fsdp_kernels_cpu_open("x86-64-v4+", 1, &context, &kernels), FSDP_ERR_UNSUPPORTED,
                 "'x86-64-v4+'");
    ASSERT_ERROR(fsdp_kernels_cpu_open(NULL, 0, &context, &kernels), FSDP_ERR_INVALID, "threads");
}
