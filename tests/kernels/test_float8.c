/* Scales, casts, values of codes and products in float8: naive loops over every variant. The scalar
 * conversions are tested in tests/base/test_float8.c. */
#include "src/base/float8.h"
#include "tests/kernels/operands.h"

static const int64_t shapes[][2] = {{1, 1},   {3, 17},    {5, 256}, {2, 300},
                                    {70, 33}, {1, 40007}, {0, 4}};
static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

/* Values of very different size; with `nan`, one row also has a NaN, and one an infinity. */
static double element_of(int64_t i, int64_t columns, bool nan)
{
    static const double magnitudes[] = {1.0, 1e-3, 30.0, 0.0, 1e-8};
    const int64_t row = i / columns;
    if (nan && i == columns)
        return (double)NAN;
    if (nan && i == 0)
        return (double)-INFINITY;
    return (2.0 * uniform_of(1, i) - 1.0) * magnitudes[row % 5];
}

static int64_t index_of_scale(fsdp_float8_axis axis, int64_t row, int64_t column)
{
    return axis == FSDP_FLOAT8_TENSOR ? 0 : axis == FSDP_FLOAT8_ROW ? row : column;
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void check_cast(fsdp_test *t, const variant *at, const fsdp_float8_cast_args *like, bool nan)
{
    operands o = {.n = 0};
    fsdp_float8_cast_args a = *like;
    const int64_t n = a.rows * a.columns;
    const int64_t n_scales = a.axis == FSDP_FLOAT8_TENSOR ? 1
                             : a.axis == FSDP_FLOAT8_ROW  ? a.rows
                                                          : a.columns;
    void *x = operand(&o, a.dtype, n);
    float *most = calloc((size_t)n_scales + 1, sizeof *most);
    for (int64_t i = 0; i < n; i++) {
        set_value(x, a.dtype, i, element_of(i, a.columns, nan));
        float *m = &most[index_of_scale(a.axis, i / a.columns, i % a.columns)];
        const float magnitude = (float)fabs(value_of(x, a.dtype, i));
        *m = isnan(*m) || isnan(magnitude) ? NAN : fmaxf(*m, magnitude);
    }
    a.x = x;
    a.scales = operand(&o, FSDP_DTYPE_F32, n_scales);
    at->k->float8_scales(at->c, &a);
    for (int64_t i = 0; i < n_scales; i++)
        if (!same_float(a.scales[i], fsdp_float8_scale(a.format, most[i], a.power_of_2)))
            FAIL("scale %lld of %lld: %a of %a", (long long)i, (long long)n_scales,
                 (double)a.scales[i], (double)most[i]);
    uint8_t *codes = operand_bytes(&o, (size_t)n);
    uint16_t *values = operand(&o, FSDP_DTYPE_BF16, n), *decoded = operand(&o, FSDP_DTYPE_BF16, n);
    a.codes = codes;
    a.codes_dtype = FSDP_DTYPE_U8;
    at->k->float8_cast(at->c, &a);
    a.codes = values;
    a.codes_dtype = FSDP_DTYPE_BF16;
    at->k->float8_cast(at->c, &a);
    at->k->float8_decode(at->c, &(fsdp_float8_decode_args){.codes = codes,
                                                           .format = a.format,
                                                           .rows = a.rows,
                                                           .columns = a.columns,
                                                           .out = decoded,
                                                           .out_dtype = FSDP_DTYPE_BF16});
    for (int64_t i = 0; i < n; i++) {
        const float scale = a.scales[index_of_scale(a.axis, i / a.columns, i % a.columns)];
        const uint8_t want =
            fsdp_float8_saturated(a.format, (float)value_of(x, a.dtype, i) * scale);
        const float value = fsdp_f32_from_float8(a.format, want);
        if ((codes[i] & 0x7f) != (want & 0x7f) || (!isnan(value) && codes[i] != want) ||
            !same_float(fsdp_f32_from_bf16(values[i]), value) ||
            !same_float(fsdp_f32_from_bf16(decoded[i]), value))
            FAIL("element %lld: code %02x, value %g, decoded %g; want %02x", (long long)i, codes[i],
                 (double)fsdp_f32_from_bf16(values[i]), (double)fsdp_f32_from_bf16(decoded[i]),
                 want);
    }
    free(most);
    ASSERT(operands_close(&o));
}

TEST(scales_and_casts_equal_loops)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int choice = 0; choice < 3 * 2 * 3 * 4; choice++) {
                const fsdp_float8_cast_args a = {.dtype = dtypes[choice % 3],
                                                 .rows = shapes[s][0],
                                                 .columns = shapes[s][1],
                                                 .format = (fsdp_float8_format)(choice / 3 % 2),
                                                 .axis = (fsdp_float8_axis)(choice / 6 % 3),
                                                 .power_of_2 = choice / 18 % 2};
                check_cast(t, &v.at[j], &a, choice / 36);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* --- products --- */

static float value_at(const uint16_t *values, bool transposed, int64_t rows, int64_t columns,
                      int64_t i, int64_t j)
{
    return fsdp_f32_from_bf16(values[transposed ? j * rows + i : i * columns + j]);
}

/* Products of few bits and sums below 2^24 are exact in any order, so the bits are known. */
static void check_products(fsdp_test *t, fsdp_kernel_context *context, const fsdp_kernels *kernels)
{
    enum {
        M = 37,
        N = 50,
        K = 96
    };
    for (int trans = 0; trans < 4; trans++) {
        const bool trans_a = trans & 1, trans_b = trans & 2;
        uint16_t a[M * K], b[K * N];
        float c[M * N];
        for (int i = 0; i < M * K; i++)
            a[i] = fsdp_bf16_from_f32(fsdp_f32_from_e5m2((uint8_t)(0x30 + (i * 37) % 23)));
        for (int i = 0; i < K * N; i++)
            b[i] = fsdp_bf16_from_f32(fsdp_f32_from_e4m3((uint8_t)(0xb0 + (i * 41) % 23)));
        ASSERT_OK(
            kernels->float8_gemm(context, &(fsdp_float8_gemm_args){.m = M,
                                                                   .n = N,
                                                                   .k = K,
                                                                   .a = a,
                                                                   .b = b,
                                                                   .a_format = FSDP_FLOAT8_E5M2,
                                                                   .b_format = FSDP_FLOAT8_E4M3FN,
                                                                   .trans_a = trans_a,
                                                                   .trans_b = trans_b,
                                                                   .ab_dtype = FSDP_DTYPE_BF16,
                                                                   .c = c}));
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0.0;
                for (int k = 0; k < K; k++)
                    sum += (double)value_at(a, trans_a, M, K, i, k) *
                           (double)value_at(b, trans_b, K, N, k, j);
                ASSERT_F32(c[i * N + j], (float)sum);
            }
    }
}

TEST(products_of_small_values_are_exact)
{
    for (const char *const *isa = fsdp_kernels_cpu_isas(); *isa; isa++) {
        fsdp_kernel_context *context;
        const fsdp_kernels *kernels;
        ASSERT_OK(fsdp_kernels_cpu_open(*isa, 2, &context, &kernels));
        check_products(t, context, kernels);
        fsdp_kernels_cpu_close(context);
        CHECK_HERE();
    }
}

static void check_descale(fsdp_test *t, const variant *at, const int64_t shape[2], int choice)
{
    const fsdp_dtype dtype = dtypes[choice % 3];
    const bool by_row = choice / 3 & 1, by_column = choice / 6 & 1, has_bias = choice / 12 & 1;
    const float beta = choice / 24 & 1 ? 1.0f : 0.0f;
    const int64_t rows = shape[0], columns = shape[1], n = rows * columns;
    operands o = {.n = 0};
    float *sums = operand(&o, FSDP_DTYPE_F32, n);
    float *a_scales = operand(&o, FSDP_DTYPE_F32, by_row ? rows : 1);
    float *b_scales = operand(&o, FSDP_DTYPE_F32, by_column ? columns : 1);
    void *bias = operand(&o, dtype, columns), *out = operand(&o, dtype, n);
    void *before = operand(&o, dtype, n);
    for (int64_t i = 0; i < n; i++) {
        sums[i] = (float)uniform_of(2, i) * 1000.0f - 300.0f;
        set_value(out, dtype, i, uniform_of(3, i) - 0.5);
        set_value(before, dtype, i, value_of(out, dtype, i));
    }
    for (int64_t i = 0; i < (by_row ? rows : 1); i++)
        a_scales[i] = 3.0f + (float)i;
    for (int64_t i = 0; i < (by_column ? columns : 1); i++)
        b_scales[i] = 7.0f + (float)i;
    for (int64_t i = 0; i < columns; i++)
        set_value(bias, dtype, i, uniform_of(3, i) - 0.5);
    at->k->float8_descale(at->c, &(fsdp_float8_descale_args){.sums = sums,
                                                             .rows = rows,
                                                             .columns = columns,
                                                             .a_scales = a_scales,
                                                             .b_scales = b_scales,
                                                             .a_by_row = by_row,
                                                             .b_by_column = by_column,
                                                             .bias = has_bias ? bias : NULL,
                                                             .out = out,
                                                             .out_dtype = dtype,
                                                             .beta = beta});
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = i / columns, column = i % columns;
        float want = sums[i] * ((1.0f / a_scales[by_row ? row : 0]) *
                                (1.0f / b_scales[by_column ? column : 0]));
        if (has_bias)
            want += (float)value_of(bias, dtype, column);
        if (beta != 0.0f)
            want = (float)value_of(before, dtype, i) + want;
        set_value(before, dtype, i, (double)want);
        ASSERT(value_of(out, dtype, i) == value_of(before, dtype, i));
    }
    ASSERT(operands_close(&o));
}

TEST(descaling_equals_loops)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int choice = 0; choice < 48; choice++) {
                check_descale(t, &v.at[j], shapes[s], choice);
                CHECK_HERE();
            }
    variants_close(&v);
}
