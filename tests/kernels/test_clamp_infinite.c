/* float16's clamp of infinite values and its gradient: naive loops, every variant's bits. */
#include "tests/kernels/operands.h"

static const int64_t numels[] = {0, 1, 7, 8, 9, 255, 16384, 16385, 40007};

typedef enum content {
    FINITE,   /* up to 65504 */
    WITH_NAN, /* the same with NaN */
    INFINITE, /* and with infinities of both signs */
    ALL,
    CONTENTS
} content;

static uint16_t element(content what, int64_t i)
{
    static const uint16_t finite[] = {0x7bff, 0x3c00, 0xfbe0, 0x8000, 0x7be1, 0x7be0, 0xfbff, 1};
    if ((what == WITH_NAN || what == ALL) && i % 11 == 3)
        return i % 2 ? 0x7e00 : 0xfc01;
    if ((what == INFINITE || what == ALL) && i % 13 == 0)
        return i % 2 ? 0x7c00 : 0xfc00;
    return finite[i % 8];
}

static bool holds(content what, int64_t n, float value)
{
    bool any = false;
    for (int64_t i = 0; i < n; i++)
        any |= fabsf(fsdp_f32_from_f16(element(what, i))) == value;
    return any;
}

/* torch.clamp(x, -bound, bound) and its gradient. */
static void check(fsdp_test *t, const variant *at, content what, int64_t n)
{
    operands o = {.n = 0};
    const bool infinite = holds(what, n, (float)INFINITY);
    const float bound = infinite ? 64512.0f : 65504.0f;
    uint16_t *x = operand(&o, FSDP_DTYPE_F16, n), *alone = operand(&o, FSDP_DTYPE_F16, n);
    uint16_t *dy = operand(&o, FSDP_DTYPE_F16, n), *dx = operand(&o, FSDP_DTYPE_F16, n);
    uint8_t *factors = operand_bytes(&o, 1 + (size_t)(n + 3) / 4);
    for (int64_t i = 0; i < n; i++) {
        x[i] = alone[i] = element(what, i);
        dy[i] = (uint16_t)(1 + i % 5000); /* subnormal numbers, too */
    }
    at->k->clamp_infinite(at->c, x, factors, n);
    at->k->clamp_infinite(at->c, alone, NULL, n);
    at->k->clamp_infinite_backward(at->c, dx, dy, factors, n);
    ASSERT((factors[0] != 0) == (infinite || holds(what, n, bound)));
    for (int64_t i = 0; i < n; i++) {
        const uint16_t before = element(what, i);
        const float value = fsdp_f32_from_f16(before), magnitude = fabsf(value);
        const bool clamped = magnitude > bound; /* false for NaN */
        const float factor = clamped ? 0.0f : magnitude == bound ? 0.5f : 1.0f;
        ASSERT_INT(x[i], clamped ? fsdp_f16_from_f32(copysignf(bound, value)) : before);
        ASSERT_INT(alone[i], x[i]);
        ASSERT_INT(dx[i], fsdp_f16_from_f32(factor * fsdp_f32_from_f16(dy[i])));
    }
    at->k->clamp_infinite_backward(at->c, dy, dy, factors, n);
    ASSERT(memcmp(dx, dy, (size_t)n * sizeof *dx) == 0);
    ASSERT(operands_close(&o));
}

TEST(infinite_values_become_finite_and_pass_no_gradient)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int what = 0; what < CONTENTS; what++)
            for (size_t s = 0; s < sizeof numels / sizeof *numels; s++) {
                check(t, &v.at[j], (content)what, numels[s]);
                CHECK_HERE();
            }
    variants_close(&v);
}
