/* fill and copy on a CUDA device. */
#include "tests/cuda/shifted.h"

static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_F64, FSDP_DTYPE_BF16, FSDP_DTYPE_F16,
                                    FSDP_DTYPE_I64, FSDP_DTYPE_I32, FSDP_DTYPE_U8};
static const int64_t counts[] = {0, 1, 31, 257, 4099};

TEST(fill_equals_the_cpu)
{
    CONFORM_OPEN(x);
    for (int d = 0; d < 7; d++)
        for (int n = 0; n < 5; n++) {
            conform_array *a = conform_output(&x, dtypes[d], counts[n]);
            x.k->fill(x.c, a->host, dtypes[d], 3.7, counts[n]);
            x.dk->fill(x.dc, a->device, dtypes[d], 3.7, counts[n]);
            conform_equal(&x, a, fsdp_dtype_name(dtypes[d]));
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

TEST(copy_equals_the_cpu)
{
    CONFORM_OPEN(x);
    for (int n = 0; n < 5; n++) {
        conform_array *a = conform_input(&x, FSDP_DTYPE_F16, counts[n], 1, -1.0, 1.0);
        conform_array *b = conform_output(&x, FSDP_DTYPE_F16, counts[n]);
        x.k->copy(x.c, b->host, a->host, (size_t)counts[n] * 2);
        x.dk->copy(x.dc, b->device, a->device, (size_t)counts[n] * 2);
        conform_equal(&x, b, "copy");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}

/* Values out of range, values that rounding twice would get wrong, and all alignments. */
TEST(fill_rounds_once_and_writes_nothing_else)
{
    static const double values[] = {1.0 + 0x1p-8 + 0x1p-40,
                                    -1.0 - 0x1p-11 - 0x1p-50,
                                    300.0,
                                    -1.0,
                                    1e300,
                                    (double)INFINITY,
                                    -0.0,
                                    (double)NAN};
    CONFORM_OPEN(x);
    for (int d = 0; d < 7; d++)
        for (int v = 0; v < 8; v++) {
            const int64_t n = 1000 + v;
            shifted a = shifted_output(&x, dtypes[d], n, v % 3);
            x.k->fill(x.c, a.host, dtypes[d], values[v], n);
            x.dk->fill(x.dc, a.device, dtypes[d], values[v], n);
            if (isnan(values[v]))
                conform_near(&x, a.array, 0.0, 0.0, fsdp_dtype_name(dtypes[d]));
            else
                conform_equal(&x, a.array, fsdp_dtype_name(dtypes[d]));
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}
