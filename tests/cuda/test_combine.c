/* combine and clip_factor on a CUDA device: the bits of the CPU. */
#include "tests/cuda/conform.h"

static const int64_t counts[] = {0,    1,    2,    31,    32,    33,    100,   1023,
                                 1024, 1025, 4097, 32767, 32768, 32769, 70001, 100000};

enum {
    N_COUNTS = 16
};

static conform_array *input(conform *x, int64_t n)
{
    conform_array *a = conform_output(x, FSDP_DTYPE_F64, n);
    for (int64_t i = 0; i < n; i++)
        ((double *)a->host)[i] = uniform_of(7, i) * exp2((double)(i % 40));
    conform_send(x, a);
    return a;
}

static void combine_all(const conform *x, conform_array *const *from, conform_array *to,
                        bool device, int in_order, bool largest)
{
    fsdp_numbers runs[N_COUNTS];
    for (int i = 0; i < N_COUNTS; i++)
        runs[i] = (fsdp_numbers){.numbers = device ? from[i]->device : from[i]->host,
                                 .n = counts[i],
                                 .result = (double *)(device ? to->device : to->host) + i,
                                 .in_order = in_order == 2 ? i % 2 : in_order};
    if (device)
        x->dk->combine(x->dc, runs, N_COUNTS, largest);
    else
        x->k->combine(x->c, runs, N_COUNTS, largest);
    memset(runs, 0, sizeof runs); /* the call has copied them */
}

/* All runs as trees, all in order, and some of both. */
TEST(combine_gives_the_bits_of_the_cpu)
{
    CONFORM_OPEN(x);
    for (int in_order = 0; in_order < 3; in_order++)
        for (int largest = 0; largest < 2; largest++) {
            conform_array *from[N_COUNTS], *to = conform_output(&x, FSDP_DTYPE_F64, N_COUNTS);
            for (int i = 0; i < N_COUNTS; i++)
                from[i] = input(&x, counts[i]);
            combine_all(&x, from, to, false, in_order, largest);
            combine_all(&x, from, to, true, in_order, largest);
            conform_equal(&x, to, "combine");
            conform_free(&x);
            CHECK_HERE();
        }
    conform_close(&x);
}

/* At any place of a tile, of a chunk and behind it. */
TEST(a_nan_is_the_largest_number)
{
    static const int64_t places[] = {0, 1, 31, 32, 1023, 1024, 32767, 32768, 39999};
    CONFORM_OPEN(x);
    for (int i = 0; i < 9; i++)
        for (int kind = 0; kind < 4; kind++) {
            conform_array *from = input(&x, 40000), *to = conform_output(&x, FSDP_DTYPE_F64, 1);
            ((double *)from->host)[places[i]] = (double)NAN;
            conform_send(&x, from);
            x.dk->combine(x.dc, &(fsdp_numbers){from->device, 40000, to->device, kind & 1}, 1,
                          kind & 2);
            conform_fetch(&x, to);
            CHECK_HERE();
            ASSERT(isnan(((double *)to->result)[0]));
            conform_free(&x);
        }
    conform_close(&x);
}

/* --- clip_factor --- */

enum {
    RESULT = sizeof(fsdp_clip_result) / sizeof(double)
};

static void check_clip(conform *x, int64_t n, double power, double max_norm, double odd_sum,
                       float odd_loss, int64_t n_losses)
{
    conform_array *sums = input(x, n);
    conform_array *losses = conform_input(x, FSDP_DTYPE_F32, n_losses, 2, 0.0, 1.0);
    conform_array *result = conform_output(x, FSDP_DTYPE_F64, RESULT);
    if (n && odd_sum != 0.0)
        ((double *)sums->host)[n / 2] = odd_sum;
    if (n_losses && odd_loss != 0.0f)
        ((float *)losses->host)[n_losses - 1] = odd_loss;
    conform_send(x, sums);
    conform_send(x, losses);
    for (int device = 0; device < 2; device++) {
        const fsdp_clip_args args = {.sums = device ? sums->device : sums->host,
                                     .n = n,
                                     .power = power,
                                     .max_norm = max_norm,
                                     .refuses_norm = n % 2,
                                     .losses = device ? losses->device : losses->host,
                                     .n_losses = n_losses,
                                     .result = device ? result->device : result->host};
        if (device)
            x->dk->clip_factor(x->dc, &args);
        else
            x->k->clip_factor(x->c, &args);
    }
    conform_fetch(x, result);
    const fsdp_clip_result *got = result->result, *want = result->host;
    fsdp_test *t = x->t;
    CHECK_HERE();
    const bool exact = power != 3.0; /* pow() of the device is not */
    if (got->norm != want->norm && !(isnan(got->norm) && isnan(want->norm)))
        ASSERT_NEAR(got->norm, want->norm, exact ? 0.0 : 1e-14 * want->norm);
    if (got->scale != want->scale && !(isnan(got->scale) && isnan(want->scale)))
        ASSERT_NEAR(got->scale, want->scale, exact ? 0.0 : 1e-7 * (double)want->scale);
    ASSERT_INT(got->refused != 0, want->refused != 0);
    conform_free(x);
}

TEST(clip_factor_gives_the_bits_of_the_cpu)
{
    static const double powers[] = {1.0, 2.0, (double)INFINITY, 3.0};
    static const double bounds[] = {0.0, 1e6, 1e30, (double)INFINITY};
    static const double odd[] = {0.0, (double)NAN, (double)INFINITY};
    CONFORM_OPEN(x);
    for (int i = 0; i < 10; i++)
        for (int p = 0; p < 4; p++)
            for (int b = 0; b < 4; b++) {
                const int o = (i + p + b) % 3, l = (i + b) % 5 == 0 ? 1 + p % 2 : 0;
                if (isinf(odd[o]) && isinf(bounds[b])) /* infinity over infinity: the sign */
                    continue;
                check_clip(&x, counts[i], powers[p], bounds[b], odd[o], (float)odd[l],
                           counts[(i + p) % 7]);
                CHECK_HERE();
            }
    conform_close(&x);
}
