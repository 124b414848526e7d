/* The kernel `sum` on a CUDA device. */
#include "tests/cuda/conform.h"

TEST(sum_equals_the_cpu)
{
    static const int64_t counts[] = {0, 1, 2, 511, 512, 513, 3001};
    CONFORM_OPEN(x);
    for (int i = 0; i < 7; i++) {
        conform_array *values = conform_input(&x, FSDP_DTYPE_F32, counts[i], 7, -1.0, 9.0);
        conform_array *out = conform_output(&x, FSDP_DTYPE_F32, 1);
        x.k->sum(x.c, out->host, values->host, counts[i], 0.25f);
        x.dk->sum(x.dc, out->device, values->device, counts[i], 0.25f);
        conform_near(&x, out, 1e-7, 0.0, "sum");
        conform_free(&x);
        CHECK_HERE();
    }
    conform_close(&x);
}
