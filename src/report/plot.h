/* Draws loss curves with cairo, as PNG, SVG or PDF: the training loss (each step in a light colour,
 * the smoothed loss in a strong colour), the validation loss as points, and the learning rate in a
 * small panel below. */
#pragma once
#include "src/report/metrics.h"

typedef struct fsdp_plot_run {
    const char *label;                 /* UTF-8; shown in the legend if there are several runs */
    const fsdp_metrics_curves *curves; /* borrowed */
} fsdp_plot_run;

typedef struct fsdp_plot_options {
    const char *title; /* UTF-8; NULL: "Training and validation loss" */
    int width, height; /* in pixels (in points for SVG and PDF), 300 to 10000; 0: 1000 x 600 */
} fsdp_plot_options;

typedef enum fsdp_plot_format {
    FSDP_PLOT_PNG,
    FSDP_PLOT_SVG,
    FSDP_PLOT_PDF
} fsdp_plot_format;

/* Get the format from the file's ending, ignoring case. Without an ending it is PNG. Returns
 * FSDP_ERR_INVALID for any other ending. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_format_of(const char *path, fsdp_plot_format *format);

/* Was the program built with cairo? */
bool fsdp_plot_available(void);

/* Draw `runs` [n] and write the picture to `path`. On failure, no file is written. options may be
 * NULL.
 *
 * Returns FSDP_ERR_UNSUPPORTED, with the name of the package that is needed, in a build without
 * cairo; FSDP_ERR_INVALID if no run has a finite loss, if `path` has an ending other than .png,
 * .svg and .pdf, or if a text is not UTF-8; FSDP_ERR_IO if the file cannot be written. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n,
                                           const fsdp_plot_options *options, const char *path);

/* Draw the curves of files that fsdp_metrics wrote. The labels are the names of the files. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_files(const char *const *metrics_paths, size_t n,
                                            const fsdp_plot_options *options, const char *path);
