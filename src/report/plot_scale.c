/* Computes the ranges and ticks of axes, and smooths curves. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/report/plot_scale.h"

fsdp_plot_range fsdp_plot_range_empty(void)
{
    return (fsdp_plot_range){(double)INFINITY, -(double)INFINITY};
}

void fsdp_plot_range_add(fsdp_plot_range *range, double value)
{
    if (!isfinite(value))
        return;
    range->low = fmin(range->low, value);
    range->high = fmax(range->high, value);
}

static int compare_values(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

fsdp_status fsdp_plot_range_add_curve(fsdp_plot_range *range, const fsdp_metrics_curve *curve,
                                      double outliers)
{
    double *values = fsdp_calloc(curve->len, sizeof *values);
    size_t n = 0;
    if (!values)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < curve->len; i++)
        if (isfinite(curve->points[i].value))
            values[n++] = curve->points[i].value;
    qsort(values, n, sizeof *values, compare_values);
    size_t left_out = (size_t)(outliers * (double)n);
    if (n) {
        double low = values[0], rest = values[n - 1 - left_out], high = values[n - 1];
        fsdp_plot_range_add(range, low);
        fsdp_plot_range_add(range, high <= rest + (rest - low) / 2 ? high : rest);
    }
    fsdp_free(values);
    return FSDP_OK;
}

void fsdp_plot_range_pad(fsdp_plot_range *range, double share)
{
    if (range->low > range->high)
        *range = (fsdp_plot_range){0, 1};
    double extent = range->high - range->low;
    /* If the extent of the range is at most `least`, treat the range as a single value: its ticks
     * would all have the same text. */
    double least = 1e-9 * fmax(fabs(range->low), fabs(range->high));
    double pad = extent > least ? extent * share : fmax(fabs(range->low) * 0.1, 1e-12);
    range->low -= pad;
    range->high += pad;
}

/* Return the distance between ticks: the smallest number of the form {1, 2, 2.5, 5} x 10^k that is
 * at least `rough`. If `whole` is true, it is also a whole number. */
static double nice_step(double rough, bool whole)
{
    static const double mantissas[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(rough)));
    for (size_t i = 0; i < 5; i++) {
        double step = mantissas[i] * power;
        if (step >= rough * (1 - 1e-12) && (!whole || step == floor(step)))
            return whole ? fmax(step, 1) : step;
    }
    return whole ? 1 : 10 * power;
}

fsdp_plot_ticks fsdp_plot_ticks_for(fsdp_plot_range range, int wanted, bool whole)
{
    fsdp_plot_ticks ticks = {.step = nice_step((range.high - range.low) / wanted, whole)};
    double slack = 1e-9 * ticks.step;
    double first = ceil((range.low - slack) / ticks.step);
    for (int i = 0; i < FSDP_PLOT_MAX_TICKS; i++) {
        double value = (first + i) * ticks.step;
        if (value > range.high + slack)
            break;
        ticks.values[ticks.count++] = value == 0 ? 0 : value; /* no "-0" */
    }
    return ticks;
}

/* Copy `digits` to `text` with a comma before each group of three: "1234567" becomes
 * "1,234,567". */
static void group_thousands(const char *digits, char *text, size_t bytes)
{
    size_t used = 0, sign = digits[0] == '-', n = strlen(digits);
    for (size_t i = 0; i < n && used + 2 < bytes; i++) {
        if (i > sign && (n - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
}

void fsdp_plot_tick_text(double value, double step, char *text, size_t bytes)
{
    char digits[64];
    double largest = fmax(fabs(value), step);
    if (value == 0) {
        snprintf(text, bytes, "0");
    } else if (largest >= 1e9 || step < 0.999e-4) {
        snprintf(digits, sizeof digits, "%.4g", value);
        char *zero = strstr(digits, "e-0"); /* "2e-05" becomes "2e-5" */
        if (zero)
            memmove(zero + 2, zero + 3, strlen(zero + 3) + 1);
        snprintf(text, bytes, "%s", digits);
    } else {
        int decimals = 0;
        while (decimals < 6 && fabs(step - rint(step)) > 1e-6 * step) {
            step *= 10;
            decimals++;
        }
        snprintf(digits, sizeof digits, "%.*f", decimals, value);
        if (decimals)
            snprintf(text, bytes, "%s", digits);
        else
            group_thousands(digits, text, bytes);
    }
}

double fsdp_plot_window(size_t n)
{
    if (n < 20)
        return 1;
    return fmin((double)n / 25 + 1, 200);
}

/* Replace each value by an exponential moving average of this value and of the values that the
 * pass has visited before. Values are visited in descending order if `backward` is true. The
 * average is the weighted sum of the values, divided by the sum of their weights. Each further
 * value that is visited multiplies all earlier weights by `keep`. The division matters only for the
 * first values: later, the sum of the weights is almost 1. */
static void smooth_pass(fsdp_metrics_point *points, size_t n, bool backward, double keep)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        double *value = &points[backward ? n - 1 - i : i].value;
        if (!isfinite(*value))
            continue;
        sum = keep * sum + (1 - keep) * *value;
        weight = keep * weight + (1 - keep);
        *value = sum / weight;
    }
}

fsdp_status fsdp_plot_smooth(const fsdp_metrics_curve *curve, double window,
                             fsdp_metrics_curve *out)
{
    fsdp_metrics_curve smooth = {0};
    double keep = (window - 1) / (window + 1);
    if (!FSDP_GROW(smooth.points, smooth.cap, curve->len))
        return FSDP_ERR_NOMEM;
    if (curve->len)
        memcpy(smooth.points, curve->points, curve->len * sizeof *curve->points);
    smooth.len = curve->len;
    smooth_pass(smooth.points, smooth.len, false, keep);
    smooth_pass(smooth.points, smooth.len, true, keep);
    *out = smooth;
    return FSDP_OK;
}
