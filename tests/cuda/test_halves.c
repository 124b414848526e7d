/* join and split on a CUDA device: Note [Halves] in src/base/halves.h, with the CPU's bits for
 * every kind of float32, NaN too. */
#include "src/base/halves.h"
#include "tests/cuda/shifted.h"

/* Each upper half comes with one lower half on either side of every bound that they are compared
 * with. */
static uint32_t bits_of(int64_t i)
{
    static const uint32_t lows[] = {0,      1,      0x3fff, 0x4000, 0x7fff, 0x8000,
                                    0x8001, 0x8000, 0xaaaa, 0xc000, 0xffff};
    return (uint32_t)(i & 0xffff) << 16 | lows[i % 11];
}

typedef struct arrays {
    shifted x, hi, lo, marks;
} arrays;

static arrays arrays_of(conform *x, int64_t n, int64_t shift)
{
    return (arrays){shifted_output(x, FSDP_DTYPE_F32, n, shift),
                    shifted_output(x, FSDP_DTYPE_BF16, n, shift),
                    shifted_output(x, FSDP_DTYPE_BF16, n, shift),
                    shifted_output(x, FSDP_DTYPE_BF16, fsdp_halves_words(n), shift)};
}

static fsdp_halves on_host(const arrays *a)
{
    return (fsdp_halves){a->hi.host, a->lo.host, a->marks.host};
}

static fsdp_halves on_device(const arrays *a)
{
    return (fsdp_halves){a->hi.device, a->lo.device, a->marks.device};
}

/* Splits, compares the halves, joins the device's halves, and compares with the values. */
static void check(conform *x, int64_t n, int64_t shift)
{
    const arrays a = arrays_of(x, n, shift);
    shifted back = shifted_output(x, FSDP_DTYPE_F32, n, shift);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(i);
        memcpy((char *)a.x.host + 4 * i, &bits, 4);
    }
    conform_send(x, a.x.array);
    x->k->split(x->c, on_host(&a), a.x.host, n);
    x->k->join(x->c, back.host, on_host(&a), n);
    x->dk->split(x->dc, on_device(&a), a.x.device, n);
    x->dk->join(x->dc, back.device, on_device(&a), n);
    conform_equal(x, a.hi.array, "hi");
    conform_equal(x, a.lo.array, "lo");
    conform_equal(x, a.marks.array, "marks");
    conform_equal(x, back.array, "join");
    conform_free(x);
}

TEST(halves_have_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0,   1,   3,    4,    5,    15,   16,   17,   31,   127,
                                     128, 129, 1023, 1024, 1025, 2047, 2049, 4099, 65536};
    CONFORM_OPEN(x);
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
        for (int shift = 0; shift < 2; shift++) {
            check(&x, counts[n], shift);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* Marks that are set in the unused bits of the last word have no effect. */
TEST(join_reads_marks_of_its_own_elements_only)
{
    enum {
        N = 19
    };
    CONFORM_OPEN(x);
    const arrays a = arrays_of(&x, N, 0);
    for (int i = 0; i < N; i++) {
        ((uint16_t *)a.hi.host)[i] = 0x3f80;
        ((uint16_t *)a.lo.host)[i] = 0x8000;
    }
    ((uint16_t *)a.marks.host)[0] = 0x5a5a;
    ((uint16_t *)a.marks.host)[1] = 0xfffa;
    conform_send(&x, a.hi.array);
    conform_send(&x, a.lo.array);
    conform_send(&x, a.marks.array);
    x.k->join(x.c, a.x.host, on_host(&a), N);
    x.dk->join(x.dc, a.x.device, on_device(&a), N);
    conform_equal(&x, a.x.array, "join");
    conform_close(&x);
}
