/* The arithmetic of a plot: ranges, ticks, smoothing. */
#pragma once
#include "src/report/metrics.h"

enum {
    FSDP_PLOT_MAX_TICKS = 12
};

typedef struct fsdp_plot_range {
    double low, high; /* finite; low < high after fsdp_plot_range_pad */
} fsdp_plot_range;

typedef struct fsdp_plot_ticks {
    double values[FSDP_PLOT_MAX_TICKS];
    int count;
    double step;
} fsdp_plot_ticks;

/* Return a range without values, which has low > high. */
fsdp_plot_range fsdp_plot_range_empty(void);
/* Extend the range to `value`. A value that is not finite is ignored. */
void fsdp_plot_range_add(fsdp_plot_range *range, double value);
/* Extend the range to the points of `curve`. The highest points (`outliers` is their fraction; 0.01
 * means one point in 100) are left out if they would stretch the range of the other points by more
 * than half. So a few spikes do not flatten a curve, but the first steps of a falling loss remain
 * visible. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_range_add_curve(fsdp_plot_range *range,
                                                      const fsdp_metrics_curve *curve,
                                                      double outliers);
/* Widen the range by `share` of its extent on both sides. A range that is empty or has a single
 * value is also widened, so that low < high. */
void fsdp_plot_range_pad(fsdp_plot_range *range, double share);

/* Choose the ticks of a range. They are those multiples of a step that are within the range. The
 * step is 1, 2, 2.5 or 5 times a power of ten, and large enough to give at most `wanted` + 1 ticks.
 * If `whole` is true, ticks are whole numbers. */
fsdp_plot_ticks fsdp_plot_ticks_for(fsdp_plot_range range, int wanted, bool whole);
/* Write the text of a tick, with the decimals that the distance between ticks needs: "0.25",
 * "12,000", "2e-5". */
void fsdp_plot_tick_text(double value, double step, char *text, size_t bytes);

/* Smooth a curve with an exponential moving average over about `window` points. The average is
 * taken once forward and once backward, so that the result does not lag. The backward pass starts
 * at the last value and leaves it unchanged. Points that are not finite stay as they are and do not
 * influence other points. The caller owns `smooth`. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_smooth(const fsdp_metrics_curve *curve, double window,
                                             fsdp_metrics_curve *smooth);
/* Return the window for a curve of n points: 1 (no smoothing) if n is below 20, else n / 25 + 1,
 * but at most 200. */
double fsdp_plot_window(size_t n);
