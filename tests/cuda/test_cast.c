/* cast on a CUDA device: all pairs of dtypes, with the CPU's bits. A NaN that is cast is a NaN on
 * both, but may have other bits. */
#include "tests/cuda/shifted.h"

static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16, FSDP_DTYPE_F64,
                                    FSDP_DTYPE_I64, FSDP_DTYPE_I32,  FSDP_DTYPE_U8};
enum {
    N_DTYPES = sizeof dtypes / sizeof *dtypes
};

/* Values that rounding twice would get wrong, values out of range, and others. */
static const double reals[] = {0.0,
                               -0.0,
                               1.0 + 0x1p-8 + 0x1p-40,
                               1.0 + 0x1p-8,
                               -1.0 - 0x1p-11 - 0x1p-50,
                               1.0 + 0x1p-11 + 0x1p-26,
                               1.0 + 0x1p-24 + 0x1p-52,
                               3.99,
                               -3.99,
                               255.5,
                               256.0,
                               -1.0,
                               65519.0,
                               65520.0,
                               2147483647.5,
                               -2147483649.0,
                               0x1p63,
                               -0x1p63,
                               1e300,
                               -1e300,
                               (double)INFINITY,
                               -(double)INFINITY,
                               (double)NAN,
                               0x1.8p-25,
                               0x1.1p-24,
                               1e-40,
                               0x1p-149};
static const int64_t integers[] = {0,
                                   1,
                                   -1,
                                   255,
                                   256,
                                   -129,
                                   INT32_MAX,
                                   INT32_MIN,
                                   1LL << 33 | 77,
                                   (1LL << 60) + (1LL << 36) + 1,
                                   -(1LL << 60) - (1LL << 36) - 1,
                                   (1LL << 53) + 1,
                                   (1LL << 54) + 3,
                                   INT64_MAX,
                                   INT64_MIN,
                                   (257LL << 40) + 1};
enum {
    N_REALS = sizeof reals / sizeof *reals,
    N_INTEGERS = sizeof integers / sizeof *integers
};

/* Element i of an array of `dtype`: one of the values above, or some other one. */
static void set_element(void *p, fsdp_dtype dtype, int64_t i)
{
    const double other = ldexp(uniform_of(1, i) - 0.5, (int)(i % 50) - 20);
    const double real = i < N_REALS ? reals[i] : other;
    const int64_t integer = i < N_INTEGERS ? integers[i] : (int64_t)fsdp_mix64((uint64_t)i);
    if (dtype == FSDP_DTYPE_F64)
        ((double *)p)[i] = real;
    else if (dtype == FSDP_DTYPE_I64)
        ((int64_t *)p)[i] = integer;
    else if (dtype == FSDP_DTYPE_I32)
        ((int32_t *)p)[i] = (int32_t)(uint32_t)(uint64_t)integer;
    else if (dtype == FSDP_DTYPE_U8)
        ((uint8_t *)p)[i] = (uint8_t)integer;
    else
        set_value(p, dtype, i, real);
}

static void check(conform *x, fsdp_dtype to, fsdp_dtype from, int64_t n, int64_t shift,
                  bool in_place)
{
    shifted a = shifted_output(x, from, n, shift);
    for (int64_t i = 0; i < n; i++)
        set_element(a.host, from, i);
    conform_send(x, a.array);
    shifted b = in_place ? a : shifted_output(x, to, n, shift);
    if (in_place)
        b.array->dtype = to;
    x->k->cast(x->c, b.host, to, a.host, from, n);
    x->dk->cast(x->dc, b.device, to, a.device, from, n);
    if (fsdp_dtype_is_floating(to))
        conform_near(x, b.array, 0.0, 0.0, fsdp_dtype_name(from));
    else
        conform_equal(x, b.array, fsdp_dtype_name(from));
    conform_free(x);
}

TEST(all_casts_round_as_on_the_cpu)
{
    static const int64_t counts[] = {0, 1, 3, 8, 9, 777};
    CONFORM_OPEN(x);
    for (int from = 0; from < N_DTYPES; from++)
        for (int to = 0; to < N_DTYPES; to++)
            for (int n = 0; n < 6; n++) {
                check(&x, dtypes[to], dtypes[from], counts[n], n % 2, false);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* Both addresses are multiples of 16 bytes. In place only if both dtypes have one size. */
TEST(casts_of_aligned_arrays_are_those_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int from = 0; from < N_DTYPES; from++)
        for (int to = 0; to < N_DTYPES; to++) {
            const bool same_size = fsdp_dtype_size(dtypes[from]) == fsdp_dtype_size(dtypes[to]);
            for (int in_place = 0; in_place <= same_size; in_place++) {
                check(&x, dtypes[to], dtypes[from], 2047, 0, in_place);
                check(&x, dtypes[to], dtypes[from], 2048, 0, in_place);
                CHECK_HERE();
            }
        }
    conform_close(&x);
}

/* Every bfloat16 and float16 becomes the same float32, and the same number in the other dtype. */
TEST(every_half_is_cast_as_on_the_cpu)
{
    enum {
        N = 1 << 16
    };
    static const fsdp_dtype halves[] = {FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    CONFORM_OPEN(x);
    for (int h = 0; h < 2; h++)
        for (int d = 0; d < 3; d++) {
            conform_array *a = conform_output(&x, halves[h], N);
            conform_array *b = conform_output(&x, float_dtypes[d], N);
            for (int i = 0; i < N; i++)
                ((uint16_t *)a->host)[i] = (uint16_t)i;
            conform_send(&x, a);
            x.k->cast(x.c, b->host, b->dtype, a->host, a->dtype, N);
            x.dk->cast(x.dc, b->device, b->dtype, a->device, a->dtype, N);
            conform_near(&x, b, 0.0, 0.0, fsdp_dtype_name(halves[h]));
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
