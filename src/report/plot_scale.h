/* Computes the ranges and ticks of a plot's axes, and smooths its curves. */
#pragma once
#include "src/report/metrics.h"

enum {
    FSDP_PLOT_MAX_TICKS = 12
};

typedef struct fsdp_plot_range {
    double low, high; /* low > high: the range is empty */
} fsdp_plot_range;

typedef struct fsdp_plot_ticks {
    double values[FSDP_PLOT_MAX_TICKS];
    int count;
    double step;
} fsdp_plot_ticks;

/* Return an empty range. */
fsdp_plot_range fsdp_plot_range_empty(void);
/* Extend the range to `value`. A value that is not finite is ignored. */
void fsdp_plot_range_add(fsdp_plot_range *range, double value);
/* Extend the range to the points of `curve`. The highest points may be left out, so that a few
 * spikes do not flatten the curve. `outliers` is the largest fraction of the points that may be
 * left out: 0.01 means the highest 1 % of the points. Points are left out only if the range would
 * otherwise be more than 1.5 times as large. If the high losses of the first steps are more than
 * this fraction of the points, they stay in the range. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_range_add_curve(fsdp_plot_range *range,
                                                      const fsdp_metrics_curve *curve,
                                                      double outliers);
/* Extend the range on each side by the fraction `share` of its extent. An empty range first becomes
 * [0, 1]. A range with a single value also gets wider, so that low < high. */
void fsdp_plot_range_pad(fsdp_plot_range *range, double share);

/* Choose the ticks of a range: all multiples of a step that are within the range. The step is 1, 2,
 * 2.5 or 5 times a power of ten. It is large enough that there are at most `wanted` + 1 ticks. If
 * `whole` is true, the step is a whole number. */
fsdp_plot_ticks fsdp_plot_ticks_for(fsdp_plot_range range, int wanted, bool whole);
/* Write the text of the tick at `value` to text [bytes]: "0.25", "12,000", "2e-5". `step` is the
 * distance between ticks, and determines the number of decimals. */
void fsdp_plot_tick_text(double value, double step, char *text, size_t bytes);

/* Smooth a curve with an exponential moving average over about `window` points. The points are
 * averaged in two passes: first forward, then backward over the results of the first pass. With the
 * first pass alone, the smoothed curve would lag behind the points. The backward pass does not
 * change the last value. Points that are not finite are not changed, and they do not influence
 * other points. The caller owns smooth->points. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_smooth(const fsdp_metrics_curve *curve, double window,
                                             fsdp_metrics_curve *smooth);
/* Return the smoothing window for a curve of n points. It is 1 if n is below 20, which means no
 * smoothing. Otherwise it is n / 25 + 1, but at most 200. */
double fsdp_plot_window(size_t n);
