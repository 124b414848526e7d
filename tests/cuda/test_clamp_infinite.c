/* clamp_infinite and its gradient on a CUDA device: the CPU's bits. tests/kernels has a test of the
 * same name that compares the CPU's kernels with a naive loop. */
#include "tests/cuda/shifted.h"

typedef enum content {
    SMALL,    /* below the bounds: backward changes nothing */
    FINITE,   /* up to 65504 */
    INFINITE, /* with infinities of both signs */
    ALL,      /* and with NaN */
    CONTENTS
} content;

static uint16_t element(content what, int64_t i)
{
    static const uint16_t finite[] = {0x7bff, 0x3c00, 0xfbe0, 0x8000, 0x7be1, 0x7be0, 0xfbff, 1};
    if (what == ALL && i % 11 == 3)
        return i % 2 ? 0x7e00 : 0xfc01;
    if (what >= INFINITE && i % 13 == 0)
        return i % 2 ? 0x7c00 : 0xfc00;
    return what == SMALL ? (uint16_t)(i % 0x7b00) : finite[i % 8];
}

typedef struct arrays {
    shifted x, dy, dx;
    conform_array *factors;
} arrays;

static arrays arrays_of(conform *x, content what, int64_t n, int64_t shift)
{
    const arrays a = {shifted_output(x, FSDP_DTYPE_F16, n, shift),
                      shifted_output(x, FSDP_DTYPE_F16, n, shift),
                      shifted_output(x, FSDP_DTYPE_F16, n, shift),
                      conform_output(x, FSDP_DTYPE_U8, 1 + (n + 3) / 4)};
    for (int64_t i = 0; i < n; i++) {
        ((uint16_t *)a.x.host)[i] = element(what, i);
        ((uint16_t *)a.dy.host)[i] = (uint16_t)(1 + i % 5000); /* subnormal numbers, too */
    }
    conform_send(x, a.x.array);
    conform_send(x, a.dy.array);
    return a;
}

static void check(conform *x, content what, int64_t n, int64_t shift, bool in_place)
{
    const arrays a = arrays_of(x, what, n, shift);
    const shifted dx = in_place ? a.dy : a.dx;
    x->k->clamp_infinite(x->c, a.x.host, a.factors->host, n);
    x->dk->clamp_infinite(x->dc, a.x.device, a.factors->device, n);
    conform_equal(x, a.x.array, "clamp_infinite");
    conform_equal(x, a.factors, "factors");
    x->k->clamp_infinite_backward(x->c, dx.host, a.dy.host, a.factors->host, n);
    x->dk->clamp_infinite_backward(x->dc, dx.device, a.dy.device, a.factors->device, n);
    conform_equal(x, dx.array, "clamp_infinite_backward");
    conform_free(x);
}

TEST(clamp_infinite_has_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 12, 2047, 2049, 6155};
    CONFORM_OPEN(x);
    for (int what = 0; what < CONTENTS; what++)
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
            for (int shift = 0; shift < 2; shift++) {
                check(&x, (content)what, counts[n], shift, (what + (int)n) % 2);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* Only the last of many blocks has an infinite element. */
TEST(one_infinite_element_clamps_the_others)
{
    enum {
        N = 20000
    };
    CONFORM_OPEN(x);
    for (int with_factors = 0; with_factors < 2; with_factors++) {
        const arrays a = arrays_of(&x, FINITE, N, 0);
        ((uint16_t *)a.x.host)[N - 1] = 0xfc00;
        conform_send(&x, a.x.array);
        x.k->clamp_infinite(x.c, a.x.host, with_factors ? a.factors->host : NULL, N);
        x.dk->clamp_infinite(x.dc, a.x.device, with_factors ? a.factors->device : NULL, N);
        conform_equal(&x, a.x.array, "clamp_infinite");
        conform_equal(&x, a.factors, "factors");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}
