/* See curve.h. */
#include "src/dashboard/curve.h"

#include <math.h>

#include "src/base/alloc.h"

void fsdp_curve_fini(fsdp_curve *curve)
{
    fsdp_free(curve->buckets);
    *curve = (fsdp_curve){0};
}

static bool is_full(const fsdp_curve *curve, const fsdp_bucket *bucket)
{
    return bucket->n + bucket->not_finite >= (curve->per_bucket ? curve->per_bucket : 1);
}

/* Add the points of `from`, which come after those of `to`. */
static void merge(fsdp_bucket *to, const fsdp_bucket *from)
{
    if (from->n && (!to->n || from->min < to->min))
        to->min = from->min;
    if (from->n && (!to->n || from->max > to->max))
        to->max = from->max;
    to->sum += from->sum;
    to->n += from->n;
    to->not_finite += from->not_finite;
    to->step = from->step;
    to->at = from->at;
}

static void merge_pairs(fsdp_curve *curve)
{
    for (size_t i = 0; i < curve->len / 2; i++) {
        curve->buckets[i] = curve->buckets[2 * i];
        merge(&curve->buckets[i], &curve->buckets[2 * i + 1]);
    }
    curve->len /= 2;
    curve->per_bucket = 2 * (curve->per_bucket ? curve->per_bucket : 1);
}

fsdp_status fsdp_curve_add(fsdp_curve *curve, double step, double at, double value)
{
    const bool finite = isfinite(value);
    const fsdp_bucket point = {.step = step,
                               .at = at,
                               .min = finite ? value : 0,
                               .max = finite ? value : 0,
                               .sum = finite ? value : 0,
                               .n = finite,
                               .not_finite = !finite};
    while (curve->len && curve->buckets[curve->len - 1].step >= step)
        curve->len--;
    if (curve->len && !is_full(curve, &curve->buckets[curve->len - 1])) {
        merge(&curve->buckets[curve->len - 1], &point);
        return FSDP_OK;
    }
    if (curve->len == FSDP_CURVE_BUCKETS)
        merge_pairs(curve);
    if (!FSDP_GROW(curve->buckets, curve->cap, curve->len + 1))
        return FSDP_ERR_NOMEM;
    curve->buckets[curve->len++] = point;
    return FSDP_OK;
}

double fsdp_bucket_mean(const fsdp_bucket *bucket)
{
    return bucket->n ? bucket->sum / bucket->n : (double)NAN;
}
