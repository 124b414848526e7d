/* Float8 on a CUDA device: scales, codes, values and descaled products have the bits of the CPU,
 * products of codes are those of a double loop, and a layer has the numbers of the CPU. On a card,
 * the sums of codes have about 14 bits (src/kernels/cuda/gemm_float8.c), so tolerances are those of
 * a card. */
#include "src/autograd/float8_linear.h"
#include "tests/autograd/gradcheck.h"
#include "tests/cuda/shifted.h"

static const int64_t shapes[][2] = {{0, 8},  {8, 0},   {1, 1},    {1, 1003},
                                    {3, 24}, {37, 19}, {300, 264}};

enum {
    N_SHAPES = 7
};

static int64_t scales_of(fsdp_float8_axis axis, const int64_t shape[2])
{
    return axis == FSDP_FLOAT8_TENSOR ? 1 : axis == FSDP_FLOAT8_ROW ? shape[0] : shape[1];
}

/* Values from the subnormal numbers of both formats to large ones, with zeros; `special` adds
 * infinity and NaN. */
static shifted make_values(conform *x, fsdp_dtype dtype, int64_t n, int64_t shift, bool special)
{
    const shifted s = shifted_output(x, dtype, n, shift);
    for (int64_t i = 0; i < n; i++) {
        const double u = 2.0 * uniform_of(9, i) - 1.0;
        const double v = i % 7 == 3 ? 0.0 : u * pow(2.0, (double)(i % 13) - 10.0);
        set_value(s.host, dtype, i,
                  special && i == n / 2 ? (n % 2 ? (double)NAN : (double)-INFINITY) : v);
    }
    conform_send(x, s.array);
    return s;
}

typedef struct operand_8 {
    shifted x, scales, codes, values;
    fsdp_float8_cast_args args;
} operand_8;

static void cast(conform *x, const operand_8 *o, fsdp_dtype to, bool device)
{
    fsdp_float8_cast_args a = o->args;
    const fsdp_kernels *k = device ? x->dk : x->k;
    fsdp_kernel_context *c = device ? x->dc : x->c;
    const shifted *out = to == FSDP_DTYPE_U8 ? &o->codes : &o->values;
    a.x = device ? o->x.device : o->x.host;
    a.scales = device ? o->scales.device : o->scales.host;
    a.codes = device ? out->device : out->host;
    a.codes_dtype = to;
    if (to == FSDP_DTYPE_U8)
        k->float8_scales(c, &a);
    k->float8_cast(c, &a);
}

static bool is_nan_code(fsdp_float8_format format, uint8_t code)
{
    return format == FSDP_FLOAT8_E4M3FN ? (code & 0x7f) == 0x7f : (code & 0x7f) > 0x7c;
}

/* The device's codes are those of the CPU, but a NaN may have another code: a card gives every NaN
 * that it computes the same bits, and a CPU keeps bits of an operand. */
static void equal_codes(conform *x, conform_array *a, fsdp_float8_format format, const char *what)
{
    const uint8_t *want = a->host;
    conform_fetch(x, a);
    const uint8_t *got = a->result;
    for (int64_t i = 0; i < a->n; i++)
        if (got[i] != want[i] && !(is_nan_code(format, got[i]) && is_nan_code(format, want[i]))) {
            fsdp_test_fail(x->t, __FILE__, __LINE__,
                           "%s: element %lld of %lld is 0x%02x, on the CPU 0x%02x", what,
                           (long long)i, (long long)a->n, got[i], want[i]);
            return;
        }
}

static operand_8 make_operand(conform *x, int s, int i)
{
    const int64_t n = shapes[s][0] * shapes[s][1], shift = (s + i) % 3 == 0;
    operand_8 o = {.args = {.dtype = float_dtypes[i % 3],
                            .rows = shapes[s][0],
                            .columns = shapes[s][1],
                            .format = (fsdp_float8_format)(i / 3 % 2),
                            .axis = (fsdp_float8_axis)((i + s) % 3),
                            .power_of_2 = (i + s) % 2}};
    o.x = make_values(x, o.args.dtype, n, shift, i > 12);
    o.scales = shifted_output(x, FSDP_DTYPE_F32, scales_of(o.args.axis, shapes[s]), shift);
    o.codes = shifted_output(x, FSDP_DTYPE_U8, n, shift);
    o.values = shifted_output(x, FSDP_DTYPE_BF16, n, shift);
    return o;
}

static void decode(conform *x, const operand_8 *o, const shifted *out, bool device)
{
    const fsdp_float8_decode_args a = {.codes = device ? o->codes.device : o->codes.host,
                                       .format = o->args.format,
                                       .rows = o->args.rows,
                                       .columns = o->args.columns,
                                       .out = device ? out->device : out->host,
                                       .out_dtype = FSDP_DTYPE_BF16};
    if (device)
        x->dk->float8_decode(x->dc, &a);
    else
        x->k->float8_decode(x->c, &a);
}

TEST(scales_codes_and_values_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 15; i++) {
            const operand_8 o = make_operand(&x, s, i);
            const shifted back =
                shifted_output(&x, FSDP_DTYPE_BF16, o.args.rows * o.args.columns, (s + i) % 3 == 0);
            for (int device = 0; device < 2; device++) {
                cast(&x, &o, FSDP_DTYPE_U8, device);
                cast(&x, &o, FSDP_DTYPE_BF16, device);
                decode(&x, &o, &back, device);
            }
            conform_near(&x, o.scales.array, 0.0, 0.0, "scales");
            equal_codes(&x, o.codes.array, o.args.format, "codes");
            conform_near(&x, o.values.array, 0.0, 0.0, "values");
            conform_near(&x, back.array, 0.0, 0.0, "decoded values");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* Every code of both formats. */
TEST(codes_have_the_values_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int format = 0; format < 2; format++) {
        operand_8 o = {.args = {.rows = 16, .columns = 16, .format = (fsdp_float8_format)format}};
        const shifted back = shifted_output(&x, FSDP_DTYPE_BF16, 256, 0);
        o.codes = shifted_output(&x, FSDP_DTYPE_U8, 256, 0);
        for (int i = 0; i < 256; i++)
            ((uint8_t *)o.codes.host)[i] = (uint8_t)i;
        conform_send(&x, o.codes.array);
        decode(&x, &o, &back, false);
        decode(&x, &o, &back, true);
        conform_near(&x, back.array, 0.0, 0.0, "values");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* --- transposed codes --- */

/* Set `twice` to two arrays with the transpose of the codes of `o` on the host, followed by zeros
 * in each row. */
static void expect_transposed(conform *x, const operand_8 *o, conform_array *twice[2])
{
    const int64_t rows = o->args.rows, columns = o->args.columns;
    const int64_t ld = fsdp_float8_transposed_ld(rows);
    for (int k = 0; k < 2; k++) {
        twice[k] = conform_output(x, FSDP_DTYPE_U8, columns * ld);
        memset(twice[k]->host, 0, (size_t)(columns * ld));
        for (int64_t i = 0; i < rows * columns; i++)
            ((uint8_t *)twice[k]->host)[i % columns * ld + i / columns] =
                ((const uint8_t *)o->codes.host)[i];
    }
}

/* On this device codes may be stored transposed: by the cast, and by float8_decode(). The shapes
 * are smaller and larger than the tiles of the kernels, with and without accesses of 16 bytes. */
TEST(transposed_codes_are_those_of_the_transpose)
{
    static const int64_t sides[][2] = {{1, 1},    {37, 24},   {48, 16},  {16, 7},
                                       {160, 80}, {127, 200}, {256, 64}, {300, 63}};
    CONFORM_OPEN(x);
    for (int i = 0; i < 24; i++) {
        const int64_t rows = sides[i % 8][0], columns = sides[i % 8][1], n = rows * columns;
        const int64_t shift = i / 8 == 1;
        operand_8 o = {.args = {.dtype = float_dtypes[i % 3],
                                .rows = rows,
                                .columns = columns,
                                .format = (fsdp_float8_format)(i / 3 % 2),
                                .axis = (fsdp_float8_axis)((i + i / 8) % 3)}};
        conform_array *twice[2];
        o.x = make_values(&x, o.args.dtype, n, shift, false);
        o.scales = shifted_output(&x, FSDP_DTYPE_F32, scales_of(o.args.axis, sides[i % 8]), shift);
        o.codes = shifted_output(&x, FSDP_DTYPE_U8, n, shift);
        cast(&x, &o, FSDP_DTYPE_U8, false);
        cast(&x, &o, FSDP_DTYPE_U8, true);
        expect_transposed(&x, &o, twice);
        fsdp_float8_cast_args a = o.args;
        a.x = o.x.device;
        a.scales = o.scales.device;
        a.codes = twice[0]->device;
        a.codes_dtype = FSDP_DTYPE_U8;
        a.transposed = true;
        x.dk->float8_cast(x.dc, &a);
        x.dk->float8_decode(x.dc, &(fsdp_float8_decode_args){.codes = o.codes.device,
                                                             .rows = rows,
                                                             .columns = columns,
                                                             .out = twice[1]->device,
                                                             .out_dtype = FSDP_DTYPE_U8});
        conform_equal(&x, twice[0], "the cast");
        conform_equal(&x, twice[1], "the transposed codes");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* --- products --- */

static void product(conform *x, const operand_8 *a, const operand_8 *b, bool trans_a, bool trans_b,
                    const shifted *sums, bool device)
{
    const int64_t k = trans_a ? a->args.rows : a->args.columns;
    const fsdp_float8_gemm_args args = {.m = trans_a ? a->args.columns : a->args.rows,
                                        .n = trans_b ? b->args.rows : b->args.columns,
                                        .k = k,
                                        .a = device ? a->values.device : a->values.host,
                                        .b = device ? b->values.device : b->values.host,
                                        .ab_dtype = FSDP_DTYPE_BF16,
                                        .a_format = a->args.format,
                                        .b_format = b->args.format,
                                        .trans_a = trans_a,
                                        .trans_b = trans_b,
                                        .c = device ? sums->device : sums->host};
    fsdp_test *t = x->t;
    ASSERT_OK(device ? x->dk->float8_gemm(x->dc, &args) : x->k->float8_gemm(x->c, &args));
}

static operand_8 matrix(conform *x, int64_t rows, int64_t columns, fsdp_float8_format format)
{
    operand_8 o = {
        .args = {.dtype = FSDP_DTYPE_F32, .rows = rows, .columns = columns, .format = format}};
    o.x = make_values(x, FSDP_DTYPE_F32, rows * columns, 0, false);
    o.scales = shifted_output(x, FSDP_DTYPE_F32, 1, 0);
    o.codes = shifted_output(x, FSDP_DTYPE_U8, rows * columns, 0);
    o.values = shifted_output(x, FSDP_DTYPE_BF16, rows * columns, 0);
    for (int device = 0; device < 2; device++) {
        cast(x, &o, FSDP_DTYPE_U8, device);
        cast(x, &o, FSDP_DTYPE_BF16, device);
    }
    return o;
}

TEST(products_are_those_of_the_cpu)
{
    enum {
        M = 24,
        N = 17,
        K = 40
    };
    CONFORM_OPEN(x);
    for (int i = 0; i < 4; i++) {
        const bool trans_a = i % 2, trans_b = i / 2;
        const operand_8 a = matrix(&x, trans_a ? K : M, trans_a ? M : K, FSDP_FLOAT8_E5M2);
        const operand_8 b = matrix(&x, trans_b ? N : K, trans_b ? K : N, FSDP_FLOAT8_E4M3FN);
        const shifted sums = shifted_output(&x, FSDP_DTYPE_F32, M * N, 0);
        product(&x, &a, &b, trans_a, trans_b, &sums, false);
        product(&x, &a, &b, trans_a, trans_b, &sums, true);
        CHECK_HERE();
        conform_near(&x, sums.array, 1e-5, 30.0, "float8_gemm");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

TEST(descaled_sums_have_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 8; i++) {
            const int64_t rows = shapes[s][0], columns = shapes[s][1], n = rows * columns;
            const bool by_row = i % 2, by_column = i / 2 % 2, has_bias = (i + s) % 3 == 0;
            const fsdp_dtype dtype = float_dtypes[(i + s) % 3];
            const int64_t shift = (s + i) % 4 == 0;
            const shifted sums = shifted_input(&x, FSDP_DTYPE_F32, n, shift, 2, -99.0, 99.0);
            const shifted a =
                shifted_input(&x, FSDP_DTYPE_F32, by_row ? rows : 1, shift, 3, 0.1, 9.0);
            const shifted b =
                shifted_input(&x, FSDP_DTYPE_F32, by_column ? columns : 1, shift, 4, 0.1, 9.0);
            const shifted bias = shifted_input(&x, dtype, columns, shift, 5, -1.0, 1.0);
            const shifted out = shifted_input(&x, dtype, n, shift, 6, -1.0, 1.0);
            for (int device = 0; device < 2; device++) {
                const fsdp_float8_descale_args args = {.sums = device ? sums.device : sums.host,
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .a_scales = device ? a.device : a.host,
                                                       .b_scales = device ? b.device : b.host,
                                                       .a_by_row = by_row,
                                                       .b_by_column = by_column,
                                                       .bias = !has_bias ? NULL
                                                               : device  ? bias.device
                                                                         : bias.host,
                                                       .out = device ? out.device : out.host,
                                                       .out_dtype = dtype,
                                                       .beta = i > 3};
                if (device)
                    x.dk->float8_descale(x.dc, &args);
                else
                    x.k->float8_descale(x.c, &args);
            }
            conform_equal(&x, out.array, "float8_descale");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* --- products of codes --- */

/* A product of codes: op(A) is a [m, k], and op(B) is the transpose of b [n, k]. */
typedef struct code_product {
    int64_t m, n, k;
    fsdp_float8_format a_format, b_format;
    bool scaled, beta;
    fsdp_dtype c_dtype;
} code_product;

static fsdp_float8_gemm_args args_of(const code_product *p)
{
    return (fsdp_float8_gemm_args){.m = p->m,
                                   .n = p->n,
                                   .k = p->k,
                                   .ab_dtype = FSDP_DTYPE_U8,
                                   .a_format = p->a_format,
                                   .b_format = p->b_format,
                                   .trans_b = true,
                                   .c_dtype = p->c_dtype,
                                   .beta = p->beta ? 1.0f : 0.0f};
}

/* An array of finite codes of both signs, most of them of values between 2^-4 and 2^4. */
static conform_array *make_codes(conform *x, fsdp_float8_format format, int64_t n, uint64_t seed)
{
    conform_array *a = conform_output(x, FSDP_DTYPE_U8, n);
    for (int64_t i = 0; i < n; i++) {
        const double u = uniform_of(seed, i) - 0.5;
        ((uint8_t *)a->host)[i] =
            fsdp_float8_saturated(format, (float)(u * pow(2.0, (double)(i % 8) - 2.0)));
    }
    conform_send(x, a);
    return a;
}

/* Compare C with a double loop. `before` are C's elements before the product. */
static void compare_product(conform *x, const code_product *p, const conform_array *a,
                            const conform_array *b, const float scales[2], const double *before,
                            conform_array *c)
{
    conform_fetch(x, c);
    for (int64_t i = 0; i < p->m * p->n && !x->t->failed; i++) {
        double sum = 0.0, magnitude = 0.0;
        for (int64_t k = 0; k < p->k; k++) {
            const uint8_t left = ((const uint8_t *)a->host)[i / p->n * p->k + k];
            const uint8_t right = ((const uint8_t *)b->host)[i % p->n * p->k + k];
            const double term = (double)fsdp_f32_from_float8(p->a_format, left) *
                                (double)fsdp_f32_from_float8(p->b_format, right);
            sum += term;
            magnitude += fabs(term);
        }
        const double factor = p->scaled ? 1.0 / ((double)scales[0] * (double)scales[1]) : 1.0;
        const double want = sum * factor + (p->beta ? before[i] : 0.0);
        const double got = value_of(c->result, p->c_dtype, i);
        /* Some algorithms of cublasLt round the product to the dtype of C before they add C. */
        const double product = p->beta ? fabs(sum * factor) : 0.0;
        const double tolerance = magnitude * factor * 0x1p-11 + 1e-6 * fabs(want) +
                                 1.01 * rounding_of(p->c_dtype) * (fabs(want) + product);
        if (!(fabs(got - want) <= tolerance))
            fsdp_test_fail(x->t, __FILE__, __LINE__,
                           "%lld x %lld x %lld, formats %d %d, scaled %d, beta %d, %s: element "
                           "%lld is %.9g, not %.9g",
                           (long long)p->m, (long long)p->n, (long long)p->k, p->a_format,
                           p->b_format, p->scaled, p->beta, fsdp_dtype_name(p->c_dtype),
                           (long long)i, got, want);
    }
}

static void check_code_product(conform *x, const code_product *p)
{
    fsdp_test *t = x->t;
    const float scales[2] = {3.0f, 0.37f};
    const int64_t n = p->m * p->n;
    fsdp_float8_gemm_args args = args_of(p);
    conform_array *a = make_codes(x, p->a_format, p->m * p->k, 3);
    conform_array *b = make_codes(x, p->b_format, p->n * p->k, 4);
    conform_array *of_scales = conform_output(x, FSDP_DTYPE_F32, 2);
    conform_array *c =
        p->beta ? conform_input(x, p->c_dtype, n, 5, -9.0, 9.0) : conform_output(x, p->c_dtype, n);
    double *before = malloc((size_t)n * sizeof *before);
    for (int64_t i = 0; i < n; i++)
        before[i] = value_of(c->host, p->c_dtype, i);
    memcpy(of_scales->host, scales, sizeof scales);
    conform_send(x, of_scales);
    args.a = a->device;
    args.b = b->device;
    args.c = c->device;
    args.a_scale = p->scaled ? (const float *)of_scales->device : NULL;
    args.b_scale = p->scaled ? (const float *)of_scales->device + 1 : NULL;
    if (!x->dk->float8_multiplies_codes(x->dc, &args))
        FAIL("codes of %lld x %lld x %lld are refused", (long long)p->m, (long long)p->n,
             (long long)p->k);
    if (x->dk->float8_gemm(x->dc, &args) != FSDP_OK)
        FAIL("float8_gemm: %s", fsdp_last_error());
    compare_product(x, p, a, b, scales, before, c);
    free(before);
    conform_free(x);
}

/* True if the card must multiply codes: from compute capability 8.9 on. */
static bool multiplies_codes(conform *x)
{
    fsdp_card card = {0};
    if (fsdp_card_describe(x->gpu->ordinal, &card) != FSDP_OK)
        fsdp_test_fail(x->t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return card.capability >= 89;
}

TEST(products_of_codes_equal_the_double_loop)
{
    static const int64_t extents[][3] = {{16, 16, 16}, {1, 32, 64}, {37, 48, 160}, {130, 64, 256}};
    static const fsdp_float8_format formats[][2] = {{FSDP_FLOAT8_E4M3FN, FSDP_FLOAT8_E4M3FN},
                                                    {FSDP_FLOAT8_E5M2, FSDP_FLOAT8_E4M3FN},
                                                    {FSDP_FLOAT8_E4M3FN, FSDP_FLOAT8_E5M2}};
    CONFORM_OPEN(x);
    if (!multiplies_codes(&x)) {
        const code_product p = {.m = 16, .n = 16, .k = 16, .c_dtype = FSDP_DTYPE_F32};
        const fsdp_float8_gemm_args args = args_of(&p);
        ASSERT(!x.dk->float8_multiplies_codes(x.dc, &args));
        conform_close(&x);
        SKIP("this card does not multiply float8 codes");
    }
    for (int i = 0; i < 36; i++) {
        const bool scaled = i % 3 != 0;
        const code_product p = {.m = extents[i % 4][0],
                                .n = extents[i % 4][1],
                                .k = extents[i % 4][2],
                                .a_format = formats[i / 4 % 3][0],
                                .b_format = formats[i / 4 % 3][1],
                                .scaled = scaled,
                                .beta = scaled && i / 12 == 1,
                                .c_dtype =
                                    scaled ? float_dtypes[(i + i / 12) % 3] : FSDP_DTYPE_F32};
        check_code_product(&x, &p);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* The shapes and formats that cublasLt does not have, which are products of values. */
TEST(other_products_are_not_products_of_codes)
{
    CONFORM_OPEN(x);
    const code_product good = {.m = 32, .n = 48, .k = 64, .c_dtype = FSDP_DTYPE_F32};
    for (int i = 0; i < 6; i++) {
        fsdp_float8_gemm_args args = args_of(&good);
        if (i == 0)
            args.n = 40;
        else if (i == 1)
            args.k = 72;
        else if (i == 2)
            args.a_format = args.b_format = FSDP_FLOAT8_E5M2;
        else if (i == 3)
            args.m = 0;
        else if (i == 4)
            args.k = 0;
        else
            args.n = 0;
        ASSERT(!x.dk->float8_multiplies_codes(x.dc, &args));
        ASSERT(!x.dk->float8_multiplies_codes(x.dc, &args)); /* the same answer again */
    }
    /* A product that is refused leaves no failure behind. */
    ASSERT_OK(fsdp_device_synchronize(x.gpu));
    conform_close(&x);
}

/* --- a layer --- */

enum {
    LAYER_D = 64, /* features in */
    LAYER_N = 48  /* features out */
};

typedef struct layer_results {
    float y[80 * LAYER_N], dx[80 * LAYER_D], dw[LAYER_N * LAYER_D];
    int64_t peak; /* bytes */
} layer_results;

typedef struct layer_case {
    int64_t rows;
    fsdp_dtype dtype;
    fsdp_float8_recipe recipe;
    bool has_bias, gathered;
} layer_case;

static fsdp_tensor *layer_tensor(fsdp_test *t, fsdp_device *device, const layer_case *l,
                                 int64_t rows, int64_t columns, int seed)
{
    return op_random_tensor(t, device, l->dtype, columns ? 2 : 1, (const int64_t[]){rows, columns},
                            (uint64_t)seed);
}

/* Set *w to codes of a weight and *scale to their scale, as a float8 all-gather gives them. */
static void gathered_weight(fsdp_test *t, fsdp_device *device, fsdp_tensor **w, fsdp_tensor **scale)
{
    uint8_t codes[LAYER_N * LAYER_D];
    const float factor = 300.0f;
    const int64_t shape[] = {LAYER_N, LAYER_D}, one = 1;
    for (int i = 0; i < LAYER_N * LAYER_D; i++)
        codes[i] = fsdp_float8_saturated(FSDP_FLOAT8_E4M3FN,
                                         factor * (float)(2.0 * uniform_of(7, i) - 1.0));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_U8, 2, shape, codes, FSDP_TAG_PARAM, w));
    ASSERT_OK(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, &one, &factor, FSDP_TAG_PARAM, scale));
}

/* Run forward and backward of a layer, twice, so that gradients of weights are added to others. On
 * meta, set only results->peak. */
static void run_layer(fsdp_test *t, const char *name, const layer_case *l, layer_results *results)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *w, *w_scale = NULL, *bias = NULL;
    fsdp_memory_stats stats;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = layer_tensor(t, device, l, l->rows, LAYER_D, 1);
    fsdp_tensor *dy = layer_tensor(t, device, l, l->rows, LAYER_N, 2);
    if (l->gathered) {
        gathered_weight(t, device, &w, &w_scale);
    } else {
        w = layer_tensor(t, device, l, LAYER_N, LAYER_D, 3);
        ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    }
    if (l->has_bias)
        bias = layer_tensor(t, device, l, LAYER_N, 0, 4);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    for (int i = 0; i < 2; i++) {
        fsdp_tensor *y = fsdp_float8_linear_of(s, x, w, w_scale, bias, l->recipe);
        ASSERT_OK(fsdp_scope_status(s));
        if (i && !fsdp_device_is_meta(device))
            ASSERT_OK(fsdp_tensor_to_floats(y, results->y));
        ASSERT_OK(fsdp_backward(tape, &y, &dy, 1));
    }
    fsdp_device_memory(device, &stats);
    results->peak = stats.allocated_peak;
    if (!fsdp_device_is_meta(device)) {
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), results->dx));
        if (!l->gathered)
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), results->dw));
    }
    fsdp_tensor_release(x);
    fsdp_tensor_release(dy);
    fsdp_tensor_release(w);
    fsdp_tensor_release(w_scale);
    fsdp_tensor_release(bias);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_device_destroy(device);
}

static void near_floats(fsdp_test *t, const layer_case *l, const char *what, const float *want,
                        const float *got, int64_t n)
{
    double largest = 0.0, difference = 0.0;
    for (int64_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)want[i]));
        difference = fmax(difference, fabs((double)want[i] - (double)got[i]));
    }
    const double tolerance = 2e-3 + (l->dtype == FSDP_DTYPE_F32 ? 0.0 : 0x1p-8);
    if (!(difference <= tolerance * largest))
        FAIL("%s of recipe %d, %lld rows, %s, bias %d, gathered %d: differs by %g; the largest "
             "value "
             "is %g",
             what, l->recipe, (long long)l->rows, fsdp_dtype_name(l->dtype), l->has_bias,
             l->gathered, difference, largest);
}

static void check_layer(fsdp_test *t, const layer_case *l, bool has_codes)
{
    static layer_results cpu, card, meta;
    run_layer(t, "cpu", l, &cpu);
    run_layer(t, "cuda", l, &card);
    run_layer(t, "meta:cuda", l, &meta);
    CHECK_HERE();
    near_floats(t, l, "y", cpu.y, card.y, l->rows * LAYER_N);
    near_floats(t, l, "dx", cpu.dx, card.dx, l->rows * LAYER_D);
    if (!l->gathered)
        near_floats(t, l, "dw", cpu.dw, card.dw, LAYER_N * LAYER_D);
    /* A plan counts codes of one byte. Values have two. */
    if (has_codes)
        ASSERT_INT(card.peak, meta.peak);
    else
        ASSERT(card.peak > meta.peak);
}

/* With 37 rows, zeros are appended to the transposed codes of x and of the gradient. */
TEST(a_layer_has_the_numbers_of_the_cpu_and_the_memory_of_a_plan)
{
    CONFORM_OPEN(x);
    const bool has_codes = multiplies_codes(&x);
    conform_close(&x);
    for (int i = 0; i < 16 && !t->failed; i++)
        check_layer(
            t,
            &(layer_case){.rows = i % 2 ? 37 : 80,
                          .dtype = i / 2 % 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                          .recipe = i < 12 ? (fsdp_float8_recipe)(i / 4) : FSDP_FLOAT8_TENSORWISE,
                          .has_bias = i == 1 || i == 6 || i == 13,
                          .gathered = i >= 12},
            has_codes);
}

/* With one scale for each operand, cublasLt divides by the scales. With several, the sums of each
 * product are stored in float32 first. */
TEST(products_with_one_scale_each_need_no_memory_for_sums)
{
    CONFORM_OPEN(x);
    conform_close(&x);
    static layer_results one, several;
    layer_case l = {.rows = 80, .dtype = FSDP_DTYPE_BF16, .recipe = FSDP_FLOAT8_TENSORWISE};
    run_layer(t, "meta:cuda", &l, &one);
    l.recipe = FSDP_FLOAT8_ROWWISE;
    run_layer(t, "meta:cuda", &l, &several);
    CHECK_HERE();
    ASSERT(several.peak >= one.peak + LAYER_N * LAYER_D * 2); /* half of the sums of one product */
}

/* A card that does not multiply codes gets their values. */
TEST(a_layer_on_an_older_card_has_the_numbers_of_the_cpu)
{
    const char *before = getenv("EMU_CAPABILITY");
    char kept[16];
    snprintf(kept, sizeof kept, "%s", before ? before : "90");
    setenv("EMU_CAPABILITY", "80", 1);
    CONFORM_OPEN(x);
    const bool has_codes = multiplies_codes(&x);
    conform_close(&x);
    for (int i = 0; i < 4 && !t->failed && !has_codes; i++)
        check_layer(t,
                    &(layer_case){.rows = 80,
                                  .dtype = FSDP_DTYPE_BF16,
                                  .recipe = i < 3 ? (fsdp_float8_recipe)i : FSDP_FLOAT8_TENSORWISE,
                                  .gathered = i == 3},
                    false);
    setenv("EMU_CAPABILITY", kept, 1);
    if (has_codes && !t->failed)
        SKIP("this card multiplies codes");
}
