/* See histogram.h. */
#include "src/report/histogram.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/base/bf16.h"

enum {
    POSITIVE = (FSDP_HISTOGRAM_LIMITS - 2) / 2, /* number of limits above 0, except for DBL_MAX */
    MANTISSA_BITS = 23,
    /* The square of a 24-bit mantissa has 48 bits. Its upper and lower half are summed separately.
     */
    HALF_BITS = 24,
    /* A float32 with the biased exponent e and the mantissa m, an integer of 24 bits, is
     * m * 2^(e - EXPONENT_OF_1). */
    EXPONENT_OF_1 = 150
};

static double limits[FSDP_HISTOGRAM_LIMITS];
static pthread_once_t limits_made = PTHREAD_ONCE_INIT;

static void make_limits(void)
{
    double value = 1e-12;
    int n = 0;
    for (; value < 1e20; value *= 1.1) {
        FSDP_ASSERT(n < POSITIVE);
        limits[POSITIVE + 1 + n] = value;
        limits[POSITIVE - 1 - n] = -value;
        n++;
    }
    FSDP_ASSERT(n == POSITIVE);
    limits[FSDP_HISTOGRAM_LIMITS - 1] = DBL_MAX;
}

const double *fsdp_histogram_limits(void)
{
    pthread_once(&limits_made, make_limits);
    return limits;
}

void fsdp_histogram_clear(fsdp_histogram *h)
{
    memset(&h->counts, 0, sizeof h->counts);
    h->least = INFINITY;
    h->most = -INFINITY;
}

/* Return the index of the first limit above `value`. */
static int bucket_of(double value)
{
    int first = 0, end = FSDP_HISTOGRAM_LIMITS - 1;
    while (first < end) {
        const int middle = (first + end) / 2;
        if (limits[middle] > value)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

static void add_value(fsdp_histogram *h, float value)
{
    const uint32_t bits = fsdp_bits_from_f32(value);
    const uint32_t exponent = bits >> MANTISSA_BITS & 0xff;
    int64_t mantissa = (int64_t)(bits & 0x7fffff);
    if (exponent == 0xff) {
        h->counts.not_finite++;
        return;
    }
    if (exponent)
        mantissa |= INT64_C(1) << MANTISSA_BITS;
    const uint32_t place = exponent ? exponent : 1; /* denormals are scaled like exponent 1 */
    const int64_t square = mantissa * mantissa;
    h->counts.buckets[bucket_of((double)value)]++;
    h->counts.sums[place] += bits >> 31 ? -mantissa : mantissa;
    h->counts.square_tops[place] += square >> HALF_BITS;
    h->counts.square_ends[place] += square & ((1 << HALF_BITS) - 1);
    h->least = value < h->least ? value : h->least;
    h->most = value > h->most ? value : h->most;
}

void fsdp_histogram_add(fsdp_histogram *h, const float *values, size_t n)
{
    (void)fsdp_histogram_limits();
    for (size_t i = 0; i < n; i++)
        add_value(h, values[i]);
}

int64_t fsdp_histogram_count(const fsdp_histogram *h)
{
    int64_t n = 0;
    for (int i = 0; i < FSDP_HISTOGRAM_LIMITS; i++)
        n += h->counts.buckets[i];
    return n;
}

double fsdp_histogram_sum(const fsdp_histogram *h)
{
    double sum = 0;
    for (int i = 0; i < FSDP_HISTOGRAM_EXPONENTS; i++)
        sum += ldexp((double)h->counts.sums[i], i - EXPONENT_OF_1);
    return sum;
}

double fsdp_histogram_sum_squares(const fsdp_histogram *h)
{
    double sum = 0;
    for (int i = 0; i < FSDP_HISTOGRAM_EXPONENTS; i++) {
        const double squares =
            ldexp((double)h->counts.square_tops[i], HALF_BITS) + (double)h->counts.square_ends[i];
        sum += ldexp(squares, 2 * (i - EXPONENT_OF_1));
    }
    return sum;
}
