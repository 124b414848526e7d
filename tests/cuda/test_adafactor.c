/* The kernels of Adafactor on a CUDA device. */
#include "tests/cuda/conform.h"

static const int64_t matrices[][2] = {{0, 5},   {1, 1},    {3, 17},    {17, 3},   {33, 1},  {7, 64},
                                      {64, 65}, {65, 128}, {100, 257}, {130, 40}, {2, 2500}};
enum {
    N_MATRICES = 11
};

static float *from(const conform_array *a, bool device, int64_t skip)
{
    return (float *)(device ? a->device : a->host) + skip;
}

static void check_square_sums(conform *x, int64_t rows, int64_t cols, int64_t skip)
{
    fsdp_test *t = x->t;
    conform_array *grad = conform_input(x, FSDP_DTYPE_F32, rows * cols + skip, 1, -2.0, 2.0);
    conform_array *row = conform_output(x, FSDP_DTYPE_F64, rows);
    conform_array *col = conform_output(x, FSDP_DTYPE_F64, cols);
    /* Sums of squares of similar size would be exact in double, in any order. */
    for (int64_t i = 0; i < rows * cols; i++)
        from(grad, 0, skip)[i] *= exp2f((float)(fsdp_mix64((uint64_t)i) % 41) - 20.0f);
    conform_send(x, grad);
    x->k->square_row_sums(x->c, row->host, from(grad, 0, skip), rows, cols, 0.3f, 1e-9f);
    x->dk->square_row_sums(x->dc, row->device, from(grad, 1, skip), rows, cols, 0.3f, 1e-9f);
    x->k->square_column_sums(x->c, col->host, from(grad, 0, skip), rows, cols, 0.3f, 1e-9f);
    x->dk->square_column_sums(x->dc, col->device, from(grad, 1, skip), rows, cols, 0.3f, 1e-9f);
    conform_near(x, row, 1e-12, 0.0, "square_row_sums");
    CHECK_HERE();
    conform_equal(x, col, "square_column_sums");
    conform_free(x);
}

/* Sums over columns have the CPU's bits. */
TEST(square_sums_equal_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_MATRICES; s++)
        for (int skip = 0; skip < 2; skip++) {
            check_square_sums(&x, matrices[s][0], matrices[s][1], skip);
            CHECK_HERE();
        }
    check_square_sums(&x, 64 * 64 + 3, 2, 0); /* the tree needs three kernels */
    CHECK_HERE();
    check_square_sums(&x, 64 * 64, 3, 0);
    CHECK_HERE();
    check_square_sums(&x, 2, 17000, 0);
    conform_close(&x);
}

static void check_adafactor(conform *x, fsdp_dtype dtype, bool momentum, int64_t rows, int64_t cols,
                            int64_t skip)
{
    fsdp_test *t = x->t;
    const int64_t n = rows * cols;
    conform_array *grad = conform_input(x, FSDP_DTYPE_F32, n + skip, 1, -2.0, 2.0);
    conform_array *row = conform_input(x, FSDP_DTYPE_F32, rows, 2, 0.5, 2.0);
    conform_array *col = conform_input(x, FSDP_DTYPE_F32, cols + skip, 3, 0.5, 2.0);
    conform_array *exp_avg = conform_input(x, FSDP_DTYPE_F32, n + skip, 4, -1.0, 1.0);
    conform_array *param = conform_input(x, dtype, n + skip, 5, -1.0, 1.0);
    conform_array *sums = conform_output(x, FSDP_DTYPE_F64, rows);
    for (int device = 0; device < 2; device++) {
        const fsdp_adafactor_args args = {.rows = rows,
                                          .cols = cols,
                                          .grad = from(grad, device, skip),
                                          .row_factor = from(row, device, 0),
                                          .col_factor = from(col, device, skip),
                                          .grad_scale = 0.3f,
                                          .param = (char *)from(param, device, 0) +
                                                   (size_t)skip * fsdp_dtype_size(dtype),
                                          .param_dtype = dtype,
                                          .exp_avg = momentum ? from(exp_avg, device, skip) : NULL,
                                          .divisor = 1.3f,
                                          .lr = 0.1,
                                          .beta1 = momentum ? 0.9 : 0.0,
                                          .weight_decay = 0.05};
        if (device) {
            x->dk->adafactor_square_sums(x->dc, sums->device, &args);
            x->dk->adafactor(x->dc, &args);
        } else {
            x->k->adafactor_square_sums(x->c, sums->host, &args);
            x->k->adafactor(x->c, &args);
        }
    }
    conform_near(x, sums, 1e-12, 0.0, "adafactor_square_sums");
    CHECK_HERE();
    conform_equal(x, exp_avg, "exp_avg");
    CHECK_HERE();
    conform_equal(x, param, "param");
    conform_free(x);
}

/* Updates have the CPU's bits. */
TEST(adafactor_equals_the_cpu)
{
    CONFORM_OPEN(x);
    for (int s = 0; s < N_MATRICES; s++)
        for (int d = 0; d < 3; d++)
            for (int i = 0; i < 4; i++) {
                const bool momentum = i & 1;
                check_adafactor(&x, float_dtypes[d], momentum, matrices[s][0], matrices[s][1],
                                i / 2);
                CHECK_HERE();
            }
    conform_close(&x);
}

TEST(moving_average_and_rsqrt_give_the_bits_of_the_cpu)
{
    static const int64_t counts[] = {0, 1, 255, 1000};
    CONFORM_OPEN(x);
    for (int s = 0; s < 4; s++) {
        const int64_t n = counts[s];
        conform_array *average = conform_input(&x, FSDP_DTYPE_F32, n, 1, 0.0, 1.0);
        conform_array *sums = conform_output(&x, FSDP_DTYPE_F64, n);
        conform_array *out = conform_output(&x, FSDP_DTYPE_F32, n);
        for (int64_t i = 0; i < n; i++)
            ((double *)sums->host)[i] = 100.0 * uniform_of(7, i);
        conform_send(&x, sums);
        x.k->moving_average(x.c, average->host, sums->host, 17.0, 0.9, n);
        x.dk->moving_average(x.dc, average->device, sums->device, 17.0, 0.9, n);
        conform_equal(&x, average, "moving_average");
        CHECK_HERE();
        x.k->rsqrt(x.c, out->host, average->host, 0.7f, n);
        x.dk->rsqrt(x.dc, out->device, average->device, 0.7f, n);
        conform_equal(&x, out, "rsqrt");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}
