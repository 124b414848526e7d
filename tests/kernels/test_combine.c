/* combine against a naive tree, and clip_factor against the formula. */
#include "tests/kernels/operands.h"

enum {
    MOST = 5000
};

static double join_two(bool largest, double a, double b)
{
    if (largest)
        return isnan(a) || isnan(b) ? (double)NAN : fmax(a, b);
    return a + b;
}

/* Level by level: neighbors are joined; an odd last one moves up. */
static double tree_of(bool largest, double *level, int64_t n)
{
    while (n > 1) {
        for (int64_t i = 0; i < n / 2; i++)
            level[i] = join_two(largest, level[2 * i], level[2 * i + 1]);
        if (n % 2)
            level[n / 2] = level[n - 1];
        n = (n + 1) / 2;
    }
    return n ? level[0] : 0.0;
}

static double chain_of(bool largest, const double *x, int64_t n)
{
    double sum = n ? x[0] : 0.0;
    for (int64_t i = 1; i < n; i++)
        sum = join_two(largest, sum, x[i]);
    return sum;
}

static void fill_doubles(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = uniform_of(7, i) * exp2((double)(i % 40));
}

static void check_run(fsdp_test *t, const variant *v, int64_t n, bool in_order, bool largest)
{
    operands o = {.n = 0};
    double *x = operand(&o, FSDP_DTYPE_F64, n), *result = operand(&o, FSDP_DTYPE_F64, 2);
    double *level = operand(&o, FSDP_DTYPE_F64, n);
    fill_doubles(x, n);
    memcpy(level, x, (size_t)n * sizeof *x);
    const double want = in_order ? chain_of(largest, x, n) : tree_of(largest, level, n);
    const fsdp_numbers runs[] = {{x, n, &result[0], in_order}, {x, n ? 1 : 0, &result[1], true}};
    v->k->combine(v->c, runs, 2, largest);
    ASSERT(memcmp(&result[0], &want, sizeof want) == 0);
    ASSERT_F32(result[1], n ? x[0] : 0.0);
    ASSERT(operands_close(&o));
}

TEST(combine_is_an_aligned_binary_tree_or_a_chain)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int64_t n = 0; n <= MOST; n += n < 70 ? 1 : 493)
            for (int kind = 0; kind < 4; kind++) {
                check_run(t, &v.at[j], n, kind & 1, kind & 2);
                CHECK_HERE();
            }
    variants_close(&v);
}

TEST(a_nan_is_the_largest_number)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int at = 0; at < 11; at++)
        for (int kind = 0; kind < 4; kind++) {
            double x[11], result;
            fill_doubles(x, 11);
            x[at] = (double)NAN;
            v.at[0].k->combine(v.at[0].c, &(fsdp_numbers){x, 11, &result, kind & 1}, 1, kind & 2);
            ASSERT(isnan(result));
        }
    variants_close(&v);
}

/* --- clip_factor --- */

static fsdp_clip_result clip_of(const variant *v, const double *sums, int64_t n, double power,
                                double max_norm, bool refuses_norm)
{
    fsdp_clip_result result;
    memset(&result, 0xff, sizeof result);
    v->k->clip_factor(v->c, &(fsdp_clip_args){.sums = sums,
                                              .n = n,
                                              .power = power,
                                              .max_norm = max_norm,
                                              .refuses_norm = refuses_norm,
                                              .result = &result});
    return result;
}

TEST(clip_factor_equals_the_formula)
{
    static const double sums[] = {9.0, 0.0, 16.0, 2.0},
                        powers[] = {1.0, 2.0, (double)INFINITY, 3.0};
    static const double bounds[] = {0.0, 0.5, 100.0, (double)INFINITY};
    const double norms[] = {27.0, sqrt(27.0), 16.0, cbrt(27.0)};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int p = 0; p < 4; p++)
            for (int b = 0; b < 4; b++) {
                const fsdp_clip_result r = clip_of(&v.at[j], sums, 4, powers[p], bounds[b], true);
                const double scale = bounds[b] / (norms[p] + 1e-6);
                ASSERT_NEAR(r.norm, norms[p], 1e-12);
                ASSERT_F32(r.scale, (float)(scale > 1.0 ? 1.0 : scale));
                ASSERT_INT(r.refused, 0);
            }
    const fsdp_clip_result none = clip_of(&v.at[0], NULL, 0, 2.0, 1.0, true);
    ASSERT_F32(none.norm, 0.0);
    ASSERT_F32(none.scale, 1.0);
    variants_close(&v);
}

/* A norm that is not finite refuses the step only if it is asked to; a loss always does. */
TEST(what_is_not_finite_refuses_the_step)
{
    const double odd[] = {(double)NAN, (double)INFINITY};
    variants v = variants_open(t);
    CHECK_HERE();
    const variant *at = &v.at[0];
    for (int i = 0; i < 2; i++)
        for (int asked = 0; asked < 2; asked++) {
            const double sums[] = {1.0, odd[i], 1.0};
            const float losses[] = {1.0f, (float)odd[i], 1.0f};
            fsdp_clip_result r = clip_of(at, sums, 3, 2.0, 1.0, asked);
            ASSERT_INT(r.refused != 0, asked);
            ASSERT(i == 0 ? isnan(r.norm) && isnan(r.scale) : isinf(r.norm) && r.scale == 0.0f);
            fsdp_clip_args args = {.sums = sums,
                                   .n = 1,
                                   .power = 2.0,
                                   .max_norm = 1.0,
                                   .refuses_norm = asked,
                                   .losses = losses,
                                   .n_losses = 3,
                                   .result = &r};
            at->k->clip_factor(at->c, &args);
            ASSERT(r.refused != 0 && r.norm == 1.0);
            args.n_losses = 1;
            at->k->clip_factor(at->c, &args);
            ASSERT_INT(r.refused, 0);
        }
    variants_close(&v);
}
