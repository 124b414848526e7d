/* Histograms: the buckets, and sums that have the same bits however the values are divided. */
#include <float.h>
#include <math.h>

#include "src/base/assert.h"
#include "src/report/histogram.h"
#include "tests/test.h"

static fsdp_histogram a, b;

/* Return the index of the only bucket with a value. */
static int bucket_of(float value)
{
    int found = -1;
    fsdp_histogram_clear(&a);
    fsdp_histogram_add(&a, &value, 1);
    for (int i = 0; i < FSDP_HISTOGRAM_LIMITS; i++)
        if (a.counts.buckets[i])
            found = found < 0 ? i : -2;
    return found;
}

TEST(each_value_is_between_the_limits_of_its_bucket)
{
    const double *limits = fsdp_histogram_limits();
    const float values[] = {0,     -0.0f,  1,      -1,      0.1f,    -0.1f,   1e-20f, -1e-20f,
                            1e25f, -1e25f, 1e-12f, -1e-12f, FLT_MAX, FLT_MIN, 1e-45f, 3};
    for (int i = 1; i < FSDP_HISTOGRAM_LIMITS; i++)
        ASSERT(limits[i - 1] < limits[i]);
    ASSERT(limits[FSDP_HISTOGRAM_LIMITS - 1] >= DBL_MAX);
    for (size_t i = 0; i < FSDP_LENGTH(values); i++) {
        const int bucket = bucket_of(values[i]);
        ASSERT(bucket >= 0);
        ASSERT(limits[bucket] > (double)values[i]);
        ASSERT(bucket == 0 || limits[bucket - 1] <= (double)values[i]);
    }
    ASSERT_INT(bucket_of((float)-INFINITY), -1);
    ASSERT_INT(a.counts.not_finite, 1);
}

/* Values of all magnitudes, whose sum in floating point depends on the order. */
static float value_at(uint32_t i)
{
    const uint32_t mixed = i * 2654435761u;
    return ldexpf((float)(int32_t)mixed, (int)(mixed >> 7 & 127) - 100);
}

TEST(sums_do_not_depend_on_how_values_are_divided)
{
    enum {
        N = 5000
    };
    static float values[N];
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        values[i] = value_at(i);
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    fsdp_histogram_clear(&a);
    fsdp_histogram_add(&a, values, N);
    ASSERT_INT(fsdp_histogram_count(&a), N);
    ASSERT(fabs(fsdp_histogram_sum(&a) - sum) <= 1e-12 * sqrt(squares * N));
    ASSERT(fabs(fsdp_histogram_sum_squares(&a) / squares - 1) < 1e-12);
    for (int parts = 2; parts < 9; parts++) {
        static fsdp_histogram whole;
        fsdp_histogram_clear(&whole);
        for (int p = parts - 1; p >= 0; p--) {
            const size_t begin = (size_t)(N * p / parts), end = (size_t)(N * (p + 1) / parts);
            fsdp_histogram_clear(&b);
            fsdp_histogram_add(&b, values + begin, end - begin);
            for (size_t i = 0; i < FSDP_HISTOGRAM_NUMBERS; i++)
                ((int64_t *)&whole.counts)[i] += ((const int64_t *)&b.counts)[i];
        }
        ASSERT(memcmp(&whole.counts, &a.counts, sizeof a.counts) == 0);
    }
    const float some[] = {1.5f, -2.25f, 1e-45f, 3e38f, -3e38f};
    fsdp_histogram_clear(&a);
    fsdp_histogram_add(&a, some, 5);
    ASSERT_F32(fsdp_histogram_sum(&a), -0.75);
    ASSERT_F32(a.least, -3e38f);
    ASSERT_F32(a.most, 3e38f);
}
