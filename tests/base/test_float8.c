/* The 8-bit formats: all 256 codes and all bfloat16 values, compared with a search for the nearest
 * value; edges by hand. */
#include "src/base/float8.h"
#include "tests/test.h"

/* The value of a code from its definition: sign, exponent with this bias, mantissa. */
static double value_of(fsdp_float8_format format, int code)
{
    const int mantissa_bits = format == FSDP_FLOAT8_E4M3FN ? 3 : 2;
    const int bias = format == FSDP_FLOAT8_E4M3FN ? 7 : 15;
    const int magnitude = code & 0x7f, exponent = magnitude >> mantissa_bits;
    const double mantissa =
        (double)(magnitude & ((1 << mantissa_bits) - 1)) / (double)(1 << mantissa_bits);
    double value = exponent ? ldexp(1.0 + mantissa, exponent - bias) : ldexp(mantissa, 1 - bias);
    if (format == FSDP_FLOAT8_E4M3FN && magnitude == 0x7f)
        value = (double)NAN;
    if (format == FSDP_FLOAT8_E5M2 && exponent == 31)
        value = magnitude & 3 ? (double)NAN : (double)INFINITY;
    return code & 0x80 ? -value : value;
}

TEST(every_code_has_the_value_of_its_definition)
{
    for (int f = 0; f < 2; f++)
        for (int code = 0; code < 256; code++) {
            const fsdp_float8_format format = (fsdp_float8_format)f;
            const double want = value_of(format, code);
            const float got = fsdp_f32_from_float8(format, (uint8_t)code);
            ASSERT(isnan(want) ? isnan(got) : (double)got == want);
            ASSERT(isnan(want) || !signbit(want) == !signbit(got));
        }
}

static int last_finite(fsdp_float8_format format)
{
    return format == FSDP_FLOAT8_E4M3FN ? 0x7e : 0x7b;
}

/* The code of the value nearest to a finite magnitude; of two equally near ones the even one. The
 * candidate after the last finite code has the value that the format would have with one more
 * exponent, which decides what overflows. */
static int nearest(fsdp_float8_format format, double magnitude)
{
    const int last = last_finite(format);
    const double after = format == FSDP_FLOAT8_E4M3FN ? 480.0 : 65536.0;
    int best = 0;
    if (magnitude > after)
        return last + 1;
    for (int code = 0; code <= last + 1; code++) {
        const double value = code <= last ? value_of(format, code) : after;
        const double best_value = best <= last ? value_of(format, best) : after;
        const double distance = fabs(value - magnitude), least = fabs(best_value - magnitude);
        if (distance < least || (distance == least && code % 2 == 0))
            best = code;
    }
    return best;
}

static void check_cast(fsdp_test *t, float f)
{
    for (int i = 0; i < 2; i++) {
        const fsdp_float8_format format = (fsdp_float8_format)i;
        const int sign = signbit(f) ? 0x80 : 0, last = last_finite(format);
        const int plain = i == 0 ? fsdp_e4m3_from_f32(f) : fsdp_e5m2_from_f32(f);
        const int saturated = fsdp_float8_saturated(format, f);
        int want = isnan(f) ? 0x7f : isinf(f) ? last + 1 : nearest(format, fabs((double)f));
        const int want_saturated = isnan(f) ? 0x7f : want > last ? last : want;
        if (want > last && !isnan(f))
            want = format == FSDP_FLOAT8_E4M3FN ? 0x7f : 0x7c; /* NaN or infinity */
        if (plain != (want | sign) || saturated != (want_saturated | sign))
            FAIL("%s of %a: %02x and, saturated, %02x; want %02x and %02x",
                 fsdp_float8_name(format), (double)f, (unsigned)plain, (unsigned)saturated,
                 (unsigned)(want | sign), (unsigned)(want_saturated | sign));
    }
}

TEST(every_bfloat16_is_cast_to_the_nearest_value)
{
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        check_cast(t, fsdp_f32_from_bf16((uint16_t)bits));
        CHECK_HERE();
    }
}

/* The middle between two neighbors, one float32 more and one less; every float16, too. */
TEST(ties_go_to_the_even_code)
{
    for (int i = 0; i < 2; i++) {
        const fsdp_float8_format format = (fsdp_float8_format)i;
        for (int code = 0; code <= last_finite(format); code++) {
            const double next = code < last_finite(format)     ? value_of(format, code + 1)
                                : format == FSDP_FLOAT8_E4M3FN ? 480.0
                                                               : 65536.0;
            const float middle = (float)((value_of(format, code) + next) / 2);
            for (int sign = -1; sign <= 1; sign += 2) {
                check_cast(t, (float)sign * middle);
                check_cast(t, (float)sign * nextafterf(middle, INFINITY));
                check_cast(t, (float)sign * nextafterf(middle, 0.0f));
                CHECK_HERE();
            }
        }
    }
    for (uint32_t bits = 0; bits <= 0xffff; bits++) {
        check_cast(t, fsdp_f32_from_f16((uint16_t)bits));
        CHECK_HERE();
    }
}

/* The figures are those of torchao's amax_to_scale(). */
TEST(the_scale_is_that_of_torchao)
{
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, 0.0f, false), 4.48e14f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, 3.0f, false), 149.3333282470703125f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, 3.0f, true), 128.0f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, 7.0f, true), 64.0f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E5M2, 7.0f, false), 8192.0f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, INFINITY, false), 0.0f);
    ASSERT_F32(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, INFINITY, true), 0.0f);
    ASSERT(isnan(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, NAN, true)));
    ASSERT(isnan(fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, NAN, false)));
}
