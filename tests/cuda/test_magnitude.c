/* The kernels of DoRA on a CUDA device, compared with the CPU. Only column_dots adds in another
 * order than the CPU. */
#include "tests/cuda/shifted.h"

static const int64_t shapes[][2] = {{0, 5},  {5, 0},   {1, 1},    {3, 7},
                                    {9, 32}, {67, 16}, {130, 33}, {3, 1032}};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes
};

/* y[t][j] = x[t][j] factors[j] + bias[j], also in place, and at addresses that are not multiples of
 * 16 bytes. */
TEST(scale_columns_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 12; i++) {
            const int64_t rows = shapes[s][0], width = shapes[s][1], n = rows * width;
            const fsdp_dtype dtype = float_dtypes[i % 3];
            const bool has_bias = i / 3 % 2, in_place = i / 6;
            const int64_t shift = (s + i) % 2;
            const shifted in = shifted_input(&x, dtype, n, shift, 1, -2.0, 2.0);
            const shifted out = in_place ? in : shifted_output(&x, dtype, n, shift);
            const shifted factors = shifted_input(&x, FSDP_DTYPE_F32, width, shift, 2, -2.0, 2.0);
            const shifted bias = shifted_input(&x, dtype, width, shift, 3, -1.0, 1.0);
            x.dk->scale_columns(x.dc, out.device, in.device, dtype, factors.device,
                                has_bias ? bias.device : NULL, rows, width);
            x.k->scale_columns(x.c, out.host, in.host, dtype, factors.host,
                               has_bias ? bias.host : NULL, rows, width);
            conform_equal(&x, out.array, "scale_columns");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

TEST(column_dots_is_near_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; i < 18; i++) {
            const int64_t rows = shapes[s][0], width = shapes[s][1], n = rows * width;
            const fsdp_dtype dtype = float_dtypes[i % 3], out_dtype = float_dtypes[i / 3 % 3];
            const float beta = i / 9 ? 1.0f : 0.0f;
            const int64_t shift = (s + i) % 2;
            const shifted a = shifted_input(&x, dtype, n, shift, 1, -1.0, 1.0);
            const shifted b = shifted_input(&x, dtype, n, shift, 2, -1.0, 1.0);
            const shifted factors = shifted_input(&x, FSDP_DTYPE_F32, width, shift, 3, -2.0, 2.0);
            const shifted out = beta != 0.0f
                                    ? shifted_input(&x, out_dtype, width, shift, 4, -1.0, 1.0)
                                    : shifted_output(&x, out_dtype, width, shift);
            x.dk->column_dots(x.dc, out.device, out_dtype, beta, a.device, b.device, dtype,
                              factors.device, rows, width);
            x.k->column_dots(x.c, out.host, out_dtype, beta, a.host, b.host, dtype, factors.host,
                             rows, width);
            conform_near(&x, out.array,
                         out_dtype == FSDP_DTYPE_F32 ? 1e-6 : 2.0 * rounding_of(out_dtype), 2e-5,
                         "column_dots");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* A norm of 0, the square of which is 0, gives factors of 0. */
TEST(norms_and_factors_give_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 255, 300};
    CONFORM_OPEN(x);
    for (int i = 0; i < 12; i++) {
        const int64_t n = counts[i / 3];
        const fsdp_dtype dtype = float_dtypes[i % 3];
        conform_array *squares = conform_output(&x, FSDP_DTYPE_F64, n);
        for (int64_t j = 0; j < n; j++)
            ((double *)squares->host)[j] = j % 7 ? 9.0 * uniform_of(1, j) : 0.0;
        conform_send(&x, squares);
        conform_array *magnitudes = conform_input(&x, dtype, n, 2, -3.0, 3.0);
        conform_array *norms = conform_output(&x, FSDP_DTYPE_F32, n);
        conform_array *factors = conform_output(&x, FSDP_DTYPE_F32, n);
        conform_array *reciprocals = conform_output(&x, FSDP_DTYPE_F32, n);
        x.dk->norms_of_squares(x.dc, norms->device, squares->device, dtype, n);
        x.k->norms_of_squares(x.c, norms->host, squares->host, dtype, n);
        x.dk->magnitude_factors(x.dc, factors->device, reciprocals->device, magnitudes->device,
                                dtype, norms->device, n);
        x.k->magnitude_factors(x.c, factors->host, reciprocals->host, magnitudes->host, dtype,
                               norms->host, n);
        conform_equal(&x, norms, "norms");
        conform_equal(&x, factors, "factors");
        conform_equal(&x, reciprocals, "reciprocals");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}
