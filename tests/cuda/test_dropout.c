/* Dropout on a CUDA device: the CPU's bits. tests/kernels/test_elementwise.c compares the CPU's
 * kernels with the definition in src/base/philox.h. */
#include "tests/cuda/shifted.h"

TEST(dropout_has_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 7, 8, 9, 16, 2047, 2049, 4099};
    static const float probabilities[] = {0.0f, 0.1f, 0.5f, 0.99999f, 1.0f};
    CONFORM_OPEN(x);
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 9 * 5; i++) {
            const int64_t n = counts[i % 9], shift = i % 2;
            const float p = probabilities[i / 9];
            const uint64_t key = fsdp_mix64((uint64_t)i);
            shifted a = shifted_input(&x, float_dtypes[d], n, shift, 1, -4.0, 4.0);
            shifted out = i % 4 < 2 ? a : shifted_output(&x, float_dtypes[d], n, shift);
            x.k->dropout(x.c, &(fsdp_dropout_args){.out = out.host,
                                                   .x = a.host,
                                                   .dtype = float_dtypes[d],
                                                   .n = n,
                                                   .p = p,
                                                   .key = key});
            x.dk->dropout(x.dc, &(fsdp_dropout_args){.out = out.device,
                                                     .x = a.device,
                                                     .dtype = float_dtypes[d],
                                                     .n = n,
                                                     .p = p,
                                                     .key = key});
            conform_equal(&x, out.array, fsdp_dtype_name(float_dtypes[d]));
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* With relu before, and with an addend after, which may be the output. */
TEST(dropout_with_relu_or_an_addend_has_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 7, 8, 9, 2047, 4099};
    CONFORM_OPEN(x);
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 7 * 4; i++) {
            const int64_t n = counts[i % 7], shift = i % 2;
            const bool adds = i / 7 % 2;
            shifted a = shifted_input(&x, float_dtypes[d], n, shift, 1, -4.0, 4.0);
            shifted b = shifted_input(&x, float_dtypes[d], n, shift, 2, -4.0, 4.0);
            shifted out = i / 14 ? adds ? b : a : shifted_output(&x, float_dtypes[d], n, shift);
            fsdp_dropout_args args = {.dtype = float_dtypes[d],
                                      .n = n,
                                      .x = a.host,
                                      .out = out.host,
                                      .p = 0.3f,
                                      .key = fsdp_mix64((uint64_t)i),
                                      .relu = !adds,
                                      .addend = adds ? b.host : NULL};
            x.k->dropout(x.c, &args);
            args.x = a.device;
            args.out = out.device;
            args.addend = adds ? b.device : NULL;
            x.dk->dropout(x.dc, &args);
            conform_equal(&x, out.array, fsdp_dtype_name(float_dtypes[d]));
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* A dropped NaN or infinity becomes 0. */
TEST(dropped_elements_are_zero)
{
    enum {
        N = 64
    };
    CONFORM_OPEN(x);
    conform_array *a = conform_output(&x, FSDP_DTYPE_F32, N);
    for (int i = 0; i < N; i++)
        ((float *)a->host)[i] = i % 2 ? INFINITY : NAN;
    conform_send(&x, a);
    x.k->dropout(
        x.c,
        &(fsdp_dropout_args){
            .out = a->host, .x = a->host, .dtype = FSDP_DTYPE_F32, .n = N, .p = 0.5f, .key = 3});
    x.dk->dropout(x.dc, &(fsdp_dropout_args){.out = a->device,
                                             .x = a->device,
                                             .dtype = FSDP_DTYPE_F32,
                                             .n = N,
                                             .p = 0.5f,
                                             .key = 3});
    conform_near(&x, a, 0.0, 0.0, "dropout");
    conform_close(&x);
}

/* An element whose random number is the threshold is kept, and is dropped with a probability that
 * is 2^-16 larger. */
TEST(the_threshold_itself_is_kept)
{
    enum {
        N = 24
    };
    CONFORM_OPEN(x);
    for (int e = 0; e < N; e++) {
        const uint32_t word = fsdp_philox4x32(11, (uint64_t)e / 8, 0).v[e % 8 / 2];
        const float p = (float)(e % 2 ? word >> 16 : word & 0xffffu) * 0x1p-16f;
        for (int more = 0; more < 2; more++) {
            conform_array *a = conform_input(&x, FSDP_DTYPE_F32, N, 1, 1.0, 2.0);
            x.k->dropout(x.c, &(fsdp_dropout_args){.out = a->host,
                                                   .x = a->host,
                                                   .dtype = FSDP_DTYPE_F32,
                                                   .n = N,
                                                   .p = p + (float)more * 0x1p-16f,
                                                   .key = 11});
            x.dk->dropout(x.dc, &(fsdp_dropout_args){.out = a->device,
                                                     .x = a->device,
                                                     .dtype = FSDP_DTYPE_F32,
                                                     .n = N,
                                                     .p = p + (float)more * 0x1p-16f,
                                                     .key = 11});
            conform_equal(&x, a, "dropout");
            ASSERT((((float *)a->result)[e] != 0.0f) == !more);
            conform_free(&x);
        }
    }
    conform_close(&x);
}
