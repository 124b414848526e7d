/* gather_transposed and its backward on a CUDA device. */
#include "tests/cuda/conform.h"

static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
static const int64_t counts[] = {0, 1, 127, 128, 129, 1023};
static const int64_t widths[] = {0, 1, 12, 67};
enum {
    X_ROWS = 33,
    MOST = 1023
};

/* Row 5 does not occur. Rows 0 and X_ROWS - 1 do if n is large enough. */
static void fill_rows(int32_t *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        rows[i] = (int32_t)((i * 7 + i / 50) % X_ROWS);
        rows[i] = rows[i] == 5 ? 6 : rows[i];
    }
}

TEST(gather_transposed_equals_the_cpu)
{
    int32_t rows[MOST];
    CONFORM_OPEN(x);
    for (int d = 0; d < 3; d++)
        for (int i = 0; i < 6; i++)
            for (int w = 0; w < 4; w++) {
                const int64_t n = counts[i], width = widths[w];
                conform_array *in = conform_input(&x, dtypes[d], X_ROWS * width, 1, -2.0, 2.0);
                conform_array *out = conform_output(&x, FSDP_DTYPE_F32, n * width);
                fill_rows(rows, n);
                x.k->gather_transposed(x.c, out->host, in->host, dtypes[d], rows, n, width);
                x.dk->gather_transposed(x.dc, out->device, in->device, dtypes[d], rows, n, width);
                memset(rows, 0xff, sizeof rows);
                conform_equal(&x, out, fsdp_dtype_name(dtypes[d]));
                conform_free(&x);
                CHECK_HERE();
            }
    conform_close(&x);
}

TEST(gather_transposed_backward_equals_the_cpu)
{
    int32_t rows[MOST];
    CONFORM_OPEN(x);
    for (int i = 0; i < 6; i++)
        for (int w = 0; w < 4; w++) {
            const int64_t n = counts[i], width = widths[w];
            conform_array *in = conform_input(&x, FSDP_DTYPE_F32, n * width, 1, -2.0, 2.0);
            conform_array *out = conform_output(&x, FSDP_DTYPE_F32, X_ROWS * width);
            fill_rows(rows, n);
            x.k->gather_transposed_backward(x.c, out->host, in->host, rows, n, width, X_ROWS);
            x.dk->gather_transposed_backward(x.dc, out->device, in->device, rows, n, width, X_ROWS);
            memset(rows, 0xff, sizeof rows);
            conform_near(&x, out, 1e-5, 1e-5, "dx");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
