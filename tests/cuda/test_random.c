/* normal on a CUDA device. Its bits are those of the CPU: a model begins with the same weights on
 * both. (So no tolerance is needed, although the formula has a logarithm and a cosine.) */
#include "tests/cuda/shifted.h"

TEST(normal_has_the_bits_of_the_cpu)
{
    static const int64_t firsts[] = {0, 1, 2, 3, 4, 255, 16385, 1LL << 36};
    static const int64_t counts[] = {0, 1, 2, 3, 4, 5, 1023, 2050};
    CONFORM_OPEN(x);
    for (int d = 0; d < 3; d++)
        for (int f = 0; f < 8; f++)
            for (int n = 0; n < 8; n++) {
                const uint64_t key = fsdp_mix64((uint64_t)n);
                shifted a = shifted_output(&x, float_dtypes[d], counts[n], (f + n) % 2);
                x.k->normal(x.c, a.host, float_dtypes[d], key, firsts[f], counts[n], 0.5f, 0.7f);
                x.dk->normal(x.dc, a.device, float_dtypes[d], key, firsts[f], counts[n], 0.5f,
                             0.7f);
                conform_equal(&x, a.array, fsdp_dtype_name(float_dtypes[d]));
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

/* Values of 2^17 counters, so that most radii and angles appear. */
TEST(many_normal_values_have_the_bits_of_the_cpu)
{
    enum {
        N = 1 << 19
    };
    CONFORM_OPEN(x);
    conform_array *a = conform_output(&x, FSDP_DTYPE_F32, N);
    x.k->normal(x.c, a->host, FSDP_DTYPE_F32, 7, 0, N, 0.0f, 1.0f);
    x.dk->normal(x.dc, a->device, FSDP_DTYPE_F32, 7, 0, N, 0.0f, 1.0f);
    conform_equal(&x, a, "normal");
    conform_close(&x);
}
