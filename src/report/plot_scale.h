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

/* A range without values: low > high. */
fsdp_plot_range fsdp_plot_range_empty(void);
/* Values that are not finite are ignored. */
void fsdp_plot_range_add(fsdp_plot_range *range, double value);
/* Adds the points of `curve`. Leaves out the highest fraction `outliers` of them (0.01: one in 100)
 * if they would stretch the range of the rest by half or more, so that a few spikes do not flatten
 * a curve but the first steps of a falling loss remain visible. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_range_add_curve(fsdp_plot_range *range,
                                                      const fsdp_metrics_curve *curve,
                                                      double outliers);
/* Widens the range by `share` of its extent on both sides, and an empty or single value to some
 * range. */
void fsdp_plot_range_pad(fsdp_plot_range *range, double share);

/* Multiples of 1, 2, 2.5 or 5 times a power of ten within the range, at most `wanted` + 1 of them;
 * `whole`: only whole numbers. */
fsdp_plot_ticks fsdp_plot_ticks_for(fsdp_plot_range range, int wanted, bool whole);
/* "0.25", "12,000", "2e-5": with as many decimals as the distance of the ticks needs. */
void fsdp_plot_tick_text(double value, double step, char *text, size_t bytes);

/* An exponential moving average over about `window` points, applied once forward and once backward
 * so that it does not lag; the last value is that of the forward pass. Points that are not finite
 * are kept and do not count. `smooth` is owned by the caller. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_smooth(const fsdp_metrics_curve *curve, double window,
                                             fsdp_metrics_curve *smooth);
/* The window for a curve of n points: 1 (no smoothing) below 20, else n / 25, at most 200. */
double fsdp_plot_window(size_t n);
