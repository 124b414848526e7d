/* The loss curve as a picture: training loss (each step light, smoothed strong), validation loss
 * as points, the learning rate in a small panel below. PNG, SVG or PDF, drawn with cairo. */
#pragma once
#include "src/report/metrics.h"

typedef struct fsdp_plot_run {
    const char *label;                 /* UTF-8; in the legend if there are several runs */
    const fsdp_metrics_curves *curves; /* borrowed */
} fsdp_plot_run;

typedef struct fsdp_plot_options {
    const char *title; /* UTF-8; NULL: "Training and validation loss" */
    int width, height; /* pixels, in SVG and PDF points, 300 to 10000; 0: 1000 x 600 */
} fsdp_plot_options;

typedef enum fsdp_plot_format {
    FSDP_PLOT_PNG,
    FSDP_PLOT_SVG,
    FSDP_PLOT_PDF
} fsdp_plot_format;

/* By the end of the file's name, in any case; a name without one is a PNG. FSDP_ERR_INVALID for
 * another. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_format_of(const char *path, fsdp_plot_format *format);

/* Is cairo in this build? */
bool fsdp_plot_available(void);

/* Draw `runs` [n] and write `path` whole or not at all. options may be NULL.
 *
 * FSDP_ERR_UNSUPPORTED without cairo, naming the package; FSDP_ERR_INVALID if no run has a finite
 * loss, for a name that says another format, or for a text that is not UTF-8; FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n,
                                           const fsdp_plot_options *options, const char *path);

/* The same for JSON-lines files that fsdp_metrics writes; labels are their names. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_files(const char *const *metrics_paths, size_t n,
                                            const fsdp_plot_options *options, const char *path);
