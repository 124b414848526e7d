/* Histograms of numbers, with the buckets of TensorBoard's writers: their limits grow by a tenth
 * from 1e-12 to 1e20, on both sides of 0. Counts and sums are integers, so histograms of the parts
 * of a tensor are added without rounding. The result has the same bits, however the tensor was
 * divided. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    FSDP_HISTOGRAM_LIMITS = 1550, /* the last limit is DBL_MAX */
    FSDP_HISTOGRAM_EXPONENTS = 256
};

/* The part of a histogram that is added up when histograms are merged; all zeros if the histogram
 * is empty. All fields are int64_t, so ranks can reduce the struct as an array. */
typedef struct fsdp_histogram_counts {
    /* buckets[i]: number of values that are below limit i, but not below limit i - 1 */
    int64_t buckets[FSDP_HISTOGRAM_LIMITS];
    /* For the values whose float32 exponent is e: sums[e] is the sum of their signed mantissas.
     * Their squared mantissas are split into an upper and a lower half of 24 bits; square_tops[e]
     * is the sum of the upper halves, and square_ends[e] the sum of the lower halves. */
    int64_t sums[FSDP_HISTOGRAM_EXPONENTS];
    int64_t square_tops[FSDP_HISTOGRAM_EXPONENTS], square_ends[FSDP_HISTOGRAM_EXPONENTS];
    int64_t not_finite; /* number of values that are NaN or infinite, and are in no bucket and in no
                           sum */
} fsdp_histogram_counts;

enum {
    FSDP_HISTOGRAM_NUMBERS = sizeof(fsdp_histogram_counts) / sizeof(int64_t)
};

typedef struct fsdp_histogram {
    fsdp_histogram_counts counts;
    float least, most; /* smallest and largest finite value; INFINITY and -INFINITY if there are
                        * none */
} fsdp_histogram;

/* Make the histogram empty. */
void fsdp_histogram_clear(fsdp_histogram *histogram);
void fsdp_histogram_add(fsdp_histogram *histogram, const float *values, size_t n);

/* Return the limits of the buckets [FSDP_HISTOGRAM_LIMITS]. */
const double *fsdp_histogram_limits(void);
int64_t fsdp_histogram_count(const fsdp_histogram *histogram); /* number of finite values */
double fsdp_histogram_sum(const fsdp_histogram *histogram);
double fsdp_histogram_sum_squares(const fsdp_histogram *histogram);
