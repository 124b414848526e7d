/* Draws the loss curve: training loss (each step in a light colour, smoothed in a strong one),
 * validation loss as points, and the learning rate in a small panel below. PNG, SVG or PDF, drawn
 * with cairo. */
#pragma once
#include "src/report/metrics.h"

typedef struct fsdp_plot_run {
    const char *label;                 /* UTF-8; shown in the legend if there are several runs */
    const fsdp_metrics_curves *curves; /* borrowed */
} fsdp_plot_run;

typedef struct fsdp_plot_options {
    const char *title; /* UTF-8; NULL: "Training and validation loss" */
    int width, height; /* pixels (points for SVG and PDF), 300 to 10000; 0: 1000 x 600 */
} fsdp_plot_options;

typedef enum fsdp_plot_format {
    FSDP_PLOT_PNG,
    FSDP_PLOT_SVG,
    FSDP_PLOT_PDF
} fsdp_plot_format;

/* The format given by the file's ending, ignoring case; PNG if the name has none. FSDP_ERR_INVALID
 * for any other ending. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_format_of(const char *path, fsdp_plot_format *format);

/* Was the program built with cairo? */
bool fsdp_plot_available(void);

/* Draw `runs` [n] and write `path`, whole or not at all. options may be NULL.
 *
 * FSDP_ERR_UNSUPPORTED without cairo, naming the package; FSDP_ERR_INVALID if no run has a finite
 * loss, for a name with the ending of another format, or for a text that is not UTF-8; FSDP_ERR_IO.
 */
FSDP_MUST_CHECK fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n,
                                           const fsdp_plot_options *options, const char *path);

/* The same for JSON-lines files written by fsdp_metrics; labels are the files' names. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_files(const char *const *metrics_paths, size_t n,
                                            const fsdp_plot_options *options, const char *path);
