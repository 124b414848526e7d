/* A curve of any length in a fixed amount of memory. Neighboring points share a bucket, which
 * keeps their smallest, largest and mean value, so no peak is lost. When all buckets are full,
 * pairs of them are merged, and a bucket takes twice as many points from then on. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

enum {
    FSDP_CURVE_BUCKETS = 512 /* maximum number of buckets; an even number */
};

typedef struct fsdp_bucket {
    double step, at;      /* step of the last point, and seconds of training until then */
    double min, max, sum; /* over the finite points */
    int32_t n;            /* number of finite points */
    int32_t not_finite;   /* number of points that are NaN or infinite */
} fsdp_bucket;

typedef struct fsdp_curve {
    fsdp_bucket *buckets; /* [len]; owned */
    size_t len, cap;
    int32_t per_bucket; /* points of a full bucket; 0 means 1 */
} fsdp_curve;

void fsdp_curve_fini(fsdp_curve *curve);
/* Add a point. A run that was resumed from an earlier checkpoint repeats steps. So first remove the
 * buckets that have a point at `step` or later. */
FSDP_MUST_CHECK fsdp_status fsdp_curve_add(fsdp_curve *curve, double step, double at, double value);
/* Return the mean of the finite points of a bucket; NaN if there are none. */
double fsdp_bucket_mean(const fsdp_bucket *bucket);
