/* add, mul, scale and clamp on a CUDA device: each result is one float32 operation and one
 * rounding, so its bits are the CPU's. */
#include "tests/cuda/shifted.h"

/* Around the groups of 16 bytes and the blocks of 256 threads. */
static const int64_t counts[] = {0, 1, 3, 4, 7, 8, 9, 255, 1025, 2049, 6151};

typedef enum operation {
    ADD,
    MUL,
    SCALE,
    CLAMP, /* float32 only */
    OPERATIONS
} operation;

static const char *const names[OPERATIONS] = {"add", "mul", "scale", "clamp"};

static void run(const fsdp_kernels *k, fsdp_kernel_context *c, operation op, void *out,
                const void *x, const void *y, fsdp_dtype dtype, int64_t n)
{
    if (op == ADD)
        k->add(c, out, x, y, dtype, n);
    else if (op == MUL)
        k->mul(c, out, x, y, dtype, n);
    else if (op == SCALE)
        k->scale(c, out, x, -0.3f, dtype, n);
    else
        k->clamp(c, out, 1.5f, n);
}

/* The output is apart (place 0), over the first input (1), or over the second (2). */
static void check(conform *x, operation op, fsdp_dtype dtype, int64_t n, const int64_t shift[3],
                  int place)
{
    shifted a = shifted_input(x, dtype, n, shift[0], 1, -4.0, 4.0);
    shifted b = shifted_input(x, dtype, n, shift[1], 2, -4.0, 4.0);
    shifted out = place == 0 ? shifted_output(x, dtype, n, shift[2]) : place == 1 ? a : b;
    run(x->k, x->c, op, out.host, a.host, b.host, dtype, n);
    run(x->dk, x->dc, op, out.device, a.device, b.device, dtype, n);
    conform_equal(x, out.array, names[op]);
    conform_free(x);
}

TEST(arithmetic_has_the_bits_of_the_cpu)
{
    static const int64_t shifts[][3] = {{0, 0, 0}, {1, 1, 1}, {0, 3, 0}};
    CONFORM_OPEN(x);
    for (operation op = ADD; op < OPERATIONS; op++)
        for (int d = 0; d < (op == CLAMP ? 1 : 3); d++)
            for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
                for (int s = 0; s < 3; s++) {
                    /* clamp() works in place. */
                    const int places = op == SCALE ? 2 : 3;
                    check(&x, op, float_dtypes[d], counts[n], shifts[s],
                          op == CLAMP ? 1 : ((int)n + s) % places);
                    CHECK_HERE();
                }
    conform_close(&x);
}

/* NaN, infinity, numbers that overflow, and subnormal numbers. */
TEST(arithmetic_of_extreme_values_is_that_of_the_cpu)
{
    static const double values[] = {(double)NAN,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    3e38,
                                    -3e38,
                                    65504.0,
                                    -0.0,
                                    0.0,
                                    1e-39,
                                    -1e-39,
                                    6e-8,
                                    1.5};
    enum {
        N = sizeof values / sizeof *values
    };
    CONFORM_OPEN(x);
    for (operation op = ADD; op < OPERATIONS; op++)
        for (int d = 0; d < (op == CLAMP ? 1 : 3); d++) {
            const fsdp_dtype dtype = float_dtypes[d];
            conform_array *a = conform_output(&x, dtype, N * N);
            conform_array *b = conform_output(&x, dtype, N * N);
            for (int i = 0; i < N * N; i++) {
                set_value(a->host, dtype, i, values[i / N]);
                set_value(b->host, dtype, i, values[i % N]);
            }
            conform_send(&x, a);
            conform_send(&x, b);
            run(x.k, x.c, op, a->host, a->host, b->host, dtype, N * N);
            run(x.dk, x.dc, op, a->device, a->device, b->device, dtype, N * N);
            conform_near(&x, a, 0.0, 0.0, names[op]);
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* So many elements that the threads of the largest grid have several groups each. */
TEST(a_large_array_is_computed_to_its_end)
{
    enum {
        N = (1 << 23) + 12345
    };
    CONFORM_OPEN(x);
    conform_array *a = conform_output(&x, FSDP_DTYPE_F32, N);
    for (int64_t i = 0; i < N; i++)
        ((float *)a->host)[i] = (float)i;
    conform_send(&x, a);
    x.k->scale(x.c, a->host, a->host, 0.3f, FSDP_DTYPE_F32, N);
    x.dk->scale(x.dc, a->device, a->device, 0.3f, FSDP_DTYPE_F32, N);
    conform_equal(&x, a, "scale");
    conform_close(&x);
}
