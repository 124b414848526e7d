/* fill, copy, cast and normal. */
#include "tests/kernels/operands.h"

static const fsdp_dtype all_dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16,
                                        FSDP_DTYPE_F64, FSDP_DTYPE_I64,  FSDP_DTYPE_I32,
                                        FSDP_DTYPE_U8};
enum {
    N_DTYPES = sizeof all_dtypes / sizeof *all_dtypes
};

TEST(fill_sets_every_element)
{
    static const double values[] = {0.0, 1.0, 3.0, -0.0};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int d = 0; d < N_DTYPES; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int k = 0; k < 4; k++) {
                    operands o = {.n = 0};
                    void *x = operand(&o, all_dtypes[d], sizes[s]);
                    v.at[j].k->fill(v.at[j].c, x, all_dtypes[d], values[k], sizes[s]);
                    for (int64_t i = 0; i < sizes[s]; i++) {
                        double got = value_of(x, all_dtypes[d], i);
                        ASSERT_F32(got, values[k]);
                        ASSERT(d > 3 || !signbit(got) == !signbit(values[k]));
                    }
                    ASSERT(operands_close(&o));
                }
    variants_close(&v);
}

TEST(copy_moves_every_byte)
{
    enum {
        N = 3000001
    };
    variants v = variants_open(t);
    CHECK_HERE();
    operands o = {.n = 0};
    unsigned char *x = operand_bytes(&o, N), *y = operand_bytes(&o, N);
    for (int i = 0; i < N; i++)
        x[i] = (unsigned char)(fsdp_mix64((uint64_t)i) >> 8);
    for (int j = 0; j < v.n; j++)
        for (size_t n = 0; n <= N; n += n < 5 ? 1 : N - n > 4 ? N - n : 1) {
            memset(y, 0xff, N);
            v.at[j].k->copy(v.at[j].c, y, x, n);
            ASSERT(memcmp(x, y, n) == 0);
            ASSERT(n == N || y[n] == 0xff);
        }
    ASSERT(operands_close(&o));
    variants_close(&v);
}

/* Every dtype represents small integers, so all 49 casts keep them. */
TEST(cast_keeps_what_both_dtypes_hold)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int from = 0; from < N_DTYPES; from++)
            for (int to = 0; to < N_DTYPES; to++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                    operands o = {.n = 0};
                    int64_t n = sizes[s];
                    int32_t *whole = operand(&o, FSDP_DTYPE_I32, n);
                    void *x = operand(&o, all_dtypes[from], n), *y = operand(&o, all_dtypes[to], n);
                    for (int64_t i = 0; i < n; i++)
                        whole[i] = (int32_t)(i * 7 % 129);
                    v.at[j].k->cast(v.at[j].c, x, all_dtypes[from], whole, FSDP_DTYPE_I32, n);
                    v.at[j].k->cast(v.at[j].c, y, all_dtypes[to], x, all_dtypes[from], n);
                    for (int64_t i = 0; i < n; i++)
                        ASSERT_F32(value_of(y, all_dtypes[to], i), whole[i]);
                    ASSERT(operands_close(&o));
                }
    variants_close(&v);
}

/* Every float32 with one of 2^16 upper halves and some lower halves, against the scalar
 * conversions; and every half value in the other direction. */
TEST(cast_rounds_as_the_scalar_conversions_do)
{
    enum {
        N = 1 << 16
    };
    static const uint32_t low_halves[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0x1000, 0xefff, 0xffff};
    variants v = variants_open(t);
    CHECK_HERE();
    static uint32_t x[N];
    static uint16_t bf16[N], f16[N], halves[N];
    static float wide[N];
    for (int j = 0; j < v.n; j += 3) {
        const variant *at = &v.at[j];
        for (int low = 0; low < 8; low++) {
            for (uint32_t i = 0; i < N; i++)
                x[i] = i << 16 | low_halves[low];
            at->k->cast(at->c, bf16, FSDP_DTYPE_BF16, x, FSDP_DTYPE_F32, N);
            at->k->cast(at->c, f16, FSDP_DTYPE_F16, x, FSDP_DTYPE_F32, N);
            for (uint32_t i = 0; i < N; i++) {
                ASSERT_INT(bf16[i], fsdp_bf16_from_f32(fsdp_f32_from_bits(x[i])));
                ASSERT_INT(f16[i], fsdp_f16_from_f32(fsdp_f32_from_bits(x[i])));
            }
        }
        for (int i = 0; i < N; i++)
            halves[i] = (uint16_t)i;
        at->k->cast(at->c, wide, FSDP_DTYPE_F32, halves, FSDP_DTYPE_F16, N);
        for (int i = 0; i < N; i++)
            ASSERT_INT(fsdp_bits_from_f32(wide[i]),
                       fsdp_bits_from_f32(fsdp_f32_from_f16(halves[i])));
        at->k->cast(at->c, wide, FSDP_DTYPE_F32, halves, FSDP_DTYPE_BF16, N);
        for (int i = 0; i < N; i++)
            ASSERT_INT(fsdp_bits_from_f32(wide[i]), (uint32_t)i << 16);
    }
    variants_close(&v);
}

/* Odd lengths and offsets: nothing outside [0, n) is written. */
TEST(cast_to_bf16_writes_nothing_outside_at_any_alignment)
{
    enum {
        N = 20000
    };
    static float x[N + 3];
    static uint16_t dst[N + 5];
    static const int64_t lengths[] = {0, 1, 15, 16, 17, 255, 16384, 16401, N};
    variants v = variants_open(t);
    CHECK_HERE();
    fill_uniform(x, FSDP_DTYPE_F32, N + 3, 7, -3.0, 3.0);
    for (int j = 0; j < v.n; j++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int shift = 0; shift < 4; shift++) {
                const int64_t n = lengths[l];
                const float *src = x + (3 - shift);
                memset(dst, 0xee, sizeof dst);
                v.at[j].k->cast(v.at[j].c, dst + shift, FSDP_DTYPE_BF16, src, FSDP_DTYPE_F32, n);
                for (int64_t i = 0; i < n; i++)
                    ASSERT_INT(dst[shift + i], fsdp_bf16_from_f32(src[i]));
                ASSERT_INT(dst[shift + n], 0xeeee);
                ASSERT(shift == 0 || dst[shift - 1] == 0xeeee);
            }
    variants_close(&v);
}

/* Values that rounding twice would get wrong, and values out of range. */
TEST(cast_from_wide_types_rounds_once_and_saturates)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j += 3) {
        const variant *at = &v.at[j];
        double x[6] = {1.0 + 0x1p-8 + 0x1p-40, 1.0 + 0x1p-8, 1e300, -1e300, (double)NAN, 3.99};
        uint16_t bf16[6];
        at->k->cast(at->c, bf16, FSDP_DTYPE_BF16, x, FSDP_DTYPE_F64, 6);
        ASSERT_F32(fsdp_f32_from_bf16(bf16[0]), 1.0 + 0x1p-7);
        ASSERT_F32(fsdp_f32_from_bf16(bf16[1]), 1.0);
        ASSERT_F32(fsdp_f32_from_bf16(bf16[2]), INFINITY);
        ASSERT_F32(fsdp_f32_from_bf16(bf16[3]), -INFINITY);
        ASSERT(isnan(fsdp_f32_from_bf16(bf16[4])));
        int32_t i32[6];
        at->k->cast(at->c, i32, FSDP_DTYPE_I32, x, FSDP_DTYPE_F64, 6);
        ASSERT_INT(i32[2], INT32_MAX);
        ASSERT_INT(i32[3], INT32_MIN);
        ASSERT_INT(i32[4], 0);
        ASSERT_INT(i32[5], 3);
        int64_t i64[3] = {(1LL << 60) + (1LL << 36) + 1, INT64_MAX, INT64_MIN};
        float f[3];
        at->k->cast(at->c, f, FSDP_DTYPE_F32, i64, FSDP_DTYPE_I64, 3);
        for (int i = 0; i < 3; i++)
            ASSERT_F32(f[i], (float)i64[i]);
        uint8_t u8[3];
        at->k->cast(at->c, u8, FSDP_DTYPE_U8, (int64_t[]){255, 256, -1}, FSDP_DTYPE_I64, 3);
        ASSERT_INT(u8[0], 255);
        ASSERT_INT(u8[1], 0);
        ASSERT_INT(u8[2], 255);
    }
    variants_close(&v);
}

/* Box-Muller of the counter's words in double, with a radius drawn in float. */
static double normal_of(uint64_t key, int64_t i)
{
    fsdp_philox bits = fsdp_philox4x32(key, (uint64_t)i / 4, 0);
    int pair = (int)(i % 4 / 2) * 2;
    double u = (double)((float)(bits.v[pair] >> 1) * 0x1p-31f + 0x1p-32f);
    double angle = 2.0 * M_PI * (double)fsdp_uniform_from_bits(bits.v[pair + 1]);
    return sqrt(-2.0 * log(u)) * (i % 2 ? sin(angle) : cos(angle));
}

TEST(normal_draws_any_part_as_the_whole_would)
{
    static const int64_t firsts[] = {0, 1, 3, 255, 256, 16383, 16385, 1LL << 36};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                operands o = {.n = 0};
                int64_t n = sizes[s];
                float *x = operand(&o, FSDP_DTYPE_F32, n);
                uint16_t *h = operand(&o, FSDP_DTYPE_BF16, n);
                v.at[j].k->normal(v.at[j].c, x, FSDP_DTYPE_F32, 42, firsts[f], n, 0.5f, 2.0f);
                v.at[j].k->normal(v.at[j].c, h, FSDP_DTYPE_BF16, 42, firsts[f], n, 0.5f, 2.0f);
                for (int64_t i = 0; i<n; i += n> 20000 ? 13 : 1) {
                    ASSERT_NEAR(x[i], 0.5 + 2.0 * normal_of(42, firsts[f] + i), 4e-6);
                    ASSERT_INT(h[i], fsdp_bf16_from_f32(x[i]));
                }
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}

/* Moments of a million values, each within five standard errors. */
TEST(normal_has_the_moments_of_the_normal_distribution)
{
    enum {
        N = 1 << 20
    };
    static float x[N];
    variants v = variants_open(t);
    CHECK_HERE();
    v.at[0].k->normal(v.at[0].c, x, FSDP_DTYPE_F32, 7, 0, N, 0.0f, 1.0f);
    double sum[5] = {0.0}, neighbors = 0.0;
    for (int i = 0; i < N; i++) {
        double power = 1.0;
        for (int k = 1; k < 5; k++)
            sum[k] += power *= (double)x[i];
        neighbors += (double)x[i] * (double)x[i ^ 1];
    }
    ASSERT_NEAR(sum[1] / N, 0.0, 5.0 / 1024.0);
    ASSERT_NEAR(sum[2] / N, 1.0, 5.0 * sqrt(2.0) / 1024.0);
    ASSERT_NEAR(sum[3] / N, 0.0, 5.0 * sqrt(15.0) / 1024.0);
    ASSERT_NEAR(sum[4] / N, 3.0, 5.0 * sqrt(96.0) / 1024.0);
    ASSERT_NEAR(neighbors / N, 0.0, 5.0 * sqrt(2.0) / 1024.0);
    variants_close(&v);
}
