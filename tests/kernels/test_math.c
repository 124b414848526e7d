/* The polynomials of src/kernels/cpu/isa/vec.h and vector.h against libm in double, over dense
 * ranges, without fused operations. */
#include <float.h>

#include "src/kernels/cpu/isa/philox.h"
#include "src/kernels/cpu/isa/vec.h"
#include "src/kernels/cpu/isa/vector.h"
#include "tests/test.h"

/* Error in units of the last place of the float nearest to `want`. */
static double error_of(float got, double want)
{
    int exponent;
    float nearest = fabsf((float)want);
    double ulp = 0x1p-149;
    if (nearest >= FLT_MIN) {
        frexpf(nearest, &exponent);
        ulp = ldexp(1.0, exponent - 24);
    }
    return fabs((double)got - want) / ulp;
}

typedef struct range {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
    double low, high, bound;
} range;

#define ONE_LANE(f)                                                                                \
    static float f##_lane(float x)                                                                 \
    {                                                                                              \
        return fsdp_vec_##f(fsdp_vec_set(x))[FSDP_VEC - 1];                                        \
    }
ONE_LANE(exp)
ONE_LANE(tanh)
ONE_LANE(erf)
static float sigmoid_lane(float x)
{
    fsdp_vec slope;
    return fsdp_vec_sigmoid(fsdp_vec_set(x), &slope)[FSDP_VEC - 1];
}

static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static const range ranges[] = {
    {"exp", exp_lane, exp, -87.0, 88.0, 1.0},
    {"exp", exp_lane, exp, -1.0, 1.0, 0.9},
    {"log", fsdp_log, log, 1e-9, 4.0, 1.0},
    {"log", fsdp_log, log, 0.9, 1.1, 1.0},
    {"tanh", tanh_lane, tanh, -10.0, 10.0, 1.5},
    {"tanh", tanh_lane, tanh, -1e-3, 1e-3, 1.5},
    {"erf", erf_lane, erf, -5.0, 5.0, 1.6},
    {"erf", erf_lane, erf, -1e-3, 1e-3, 1.6},
    {"erf", erf_lane, erf, 0.9, 0.95, 1.6},
    {"sigmoid", sigmoid_lane, exact_sigmoid, -80.0, 20.0, 3.0},
};

TEST(functions_are_within_their_bounds_of_libm)
{
    enum {
        POINTS = 1000000
    };
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++)
        for (int i = 0; i < POINTS; i++) {
            const range *g = &ranges[r];
            float x = (float)(g->low + (g->high - g->low) * i / POINTS);
            double error = error_of(g->f(x), g->exact((double)x));
            if (!(error <= g->bound))
                FAIL("%s(%.9g): %.3f units in the last place", g->name, (double)x, error);
        }
}

/* Inputs of every exponent. */
TEST(functions_hold_at_every_magnitude)
{
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 9973)
        for (int sign = 0; sign < 2; sign++) {
            float x = fsdp_f32_from_bits(bits | (uint32_t)sign << 31);
            if (x >= -87.0f && x <= 88.0f)
                ASSERT(error_of(exp_lane(x), exp((double)x)) <= 1.0);
            ASSERT(error_of(tanh_lane(x), tanh((double)x)) <= 1.5);
            ASSERT(error_of(erf_lane(x), erf((double)x)) <= 1.6);
            if (!sign && x >= FLT_MIN)
                ASSERT(error_of(fsdp_log(x), log((double)x)) <= 1.0);
        }
}

TEST(functions_of_special_values)
{
    ASSERT(isnan(exp_lane(NAN)) && isnan(tanh_lane(NAN)) && isnan(erf_lane(NAN)));
    ASSERT(isnan(sigmoid_lane(NAN)));
    ASSERT_F32(exp_lane(-INFINITY), 0.0);
    ASSERT_F32(exp_lane(0.0f), 1.0);
    ASSERT_F32(exp_lane(-88.0f), 0.0); /* below 2^-126 */
    ASSERT_F32(exp_lane(-1e30f), 0.0);
    ASSERT_F32(tanh_lane(INFINITY), 1.0);
    ASSERT_F32(tanh_lane(-INFINITY), -1.0);
    ASSERT_F32(erf_lane(INFINITY), 1.0);
    ASSERT_F32(erf_lane(-INFINITY), -1.0);
    ASSERT_F32(sigmoid_lane(INFINITY), 1.0);
    ASSERT_F32(sigmoid_lane(-INFINITY), 0.0);
    ASSERT_F32(fsdp_log(1.0f), 0.0);
    ASSERT(signbit(tanh_lane(-0.0f)));
}

/* The block of counters equals the scalar generator, even where the low word of the counter
 * overflows. */
TEST(philox_block_equals_the_scalar_generator)
{
    static const uint64_t firsts[] = {0, 1, 0xffffffe0u, UINT64_MAX - 20};
    uint32_t bits[4 * FSDP_PHILOX_COUNTERS];
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++) {
        fsdp_philox_block(bits, 0x0123456789abcdefu, firsts[f]);
        for (uint64_t i = 0; i < FSDP_PHILOX_COUNTERS; i++) {
            fsdp_philox want = fsdp_philox4x32(0x0123456789abcdefu, firsts[f] + i, 0);
            ASSERT(memcmp(bits + 4 * i, want.v, sizeof want.v) == 0);
        }
    }
}
