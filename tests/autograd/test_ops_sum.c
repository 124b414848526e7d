/* sum: see gradcheck.h for what each op_check tests. */
#include "tests/autograd/gradcheck.h"

static fsdp_tensor *run_sum(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_sum(s, in[0]);
}

static void naive_sum(const op_case *c, const double *const *in, double *out)
{
    out[0] = 0.0;
    for (int64_t i = 0; i < op_numel(c, 0); i++)
        out[0] += in[0][i];
}

TEST(sum_equals_loops_and_differences)
{
    static const op_case cases[] = {
        {.name = "sum", .in = {{2, {5, 9}}}},
        {.name = "sum of one", .in = {{1, {1}}}},
        {.name = "sum of a vector", .in = {{1, {17}}}},
        {.name = "sum of three dimensions", .in = {{3, {2, 3, 34}}}},
        {.name = "sum of many", .in = {{2, {64, 63}}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = cases[i];
        c.run = run_sum;
        c.naive = naive_sum;
        c.n_in = 1;
        op_check(t, &c);
    }
}
