/* Draws the loss curves of training runs with cairo, as PNG, SVG or PDF. The training loss of each
 * step is a pale line, and the smoothed training loss is a strong line. The validation loss is a
 * dashed line with points. The learning rate is in a small panel below. */
#pragma once
#include <stdio.h>

#include "src/report/metrics.h"

typedef struct fsdp_plot_run {
    const char *label;                 /* UTF-8; the run's name in the legend, which shows it only
                                          if there are several runs */
    const fsdp_metrics_curves *curves; /* borrowed */
} fsdp_plot_run;

typedef struct fsdp_plot_options {
    const char *title; /* UTF-8; NULL: "Training and validation loss" */
    /* Size in pixels, or in points for SVG and PDF, from 300 to 10000. 0 means the default: a width
     * of 1000, a height of 600. */
    int width, height;
    FILE *notes; /* see fsdp_plot_files(); NULL: the lines are not printed */
} fsdp_plot_options;

typedef enum fsdp_plot_format {
    FSDP_PLOT_PNG,
    FSDP_PLOT_SVG,
    FSDP_PLOT_PDF
} fsdp_plot_format;

/* Set *format to the format of the file name's ending. The case of letters does not matter. The
 * format is PNG if there is no ending. Returns FSDP_ERR_INVALID for any other ending. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_format_of(const char *path, fsdp_plot_format *format);

/* Draw runs [n] and write the picture to `path`. On failure, no file is written. `options` may be
 * NULL.
 *
 * @return FSDP_ERR_UNSUPPORTED in a build without cairo; the message names the package that is
 *         needed;
 *         FSDP_ERR_INVALID if no run has a finite loss, if the size or the ending of `path` is not
 *         allowed, or if a text is not UTF-8;
 *         FSDP_ERR_IO if the file cannot be written */
FSDP_MUST_CHECK fsdp_status fsdp_plot_loss(const fsdp_plot_run *runs, size_t n,
                                           const fsdp_plot_options *options, const char *path);

/* Read n runs as fsdp_run_curves_read() does, and draw their curves as fsdp_plot_loss() does. The
 * label of each run is the name of its file or folder. Lines about damaged event files are printed
 * to options->notes. */
FSDP_MUST_CHECK fsdp_status fsdp_plot_files(const char *const *paths, size_t n,
                                            const fsdp_plot_options *options, const char *path);
