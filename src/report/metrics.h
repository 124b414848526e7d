/* Metrics as JSON lines, one object per line, for `--metrics FILE` and its readers.
 *
 *     {"kind": "step", "step": 1, "epoch": 1, "loss": 10.41, "grad_norm": 3.2, "lr": 0.002, ...}
 *     {"kind": "validation", "step": 100, "epoch": 1, "loss": 6.1, ...}
 *     {"kind": "epoch", ...}   {"kind": "summary", ...}
 *
 * Keys are in the order in which they were set. Numbers are the shortest text that reads back as
 * the same double. NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity" and
 * "-Infinity". A line is written with one call when it is complete. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_metrics fsdp_metrics;

/* Open a file for metrics. If `append` is true (for a resumed run), keep the existing lines, but
 * remove a last line that a crash left incomplete. Returns FSDP_ERR_FORMAT if the file ends in
 * something that is not a JSON line, and FSDP_ERR_IO if it cannot be opened or repaired. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_open(const char *path, bool append, fsdp_metrics **out);
/* Remove the lines that a run wrote after `step`, and its summary, because a run that resumes after
 * `step` will write them again. A missing file is not an error. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_truncate(const char *path, int64_t step);
/* Accepts NULL. Every line that was written successfully is already in the file. */
void fsdp_metrics_close(fsdp_metrics *metrics);

/* Begin a line of `kind`. *line is the object of the line; fill it with fsdp_json_set_* and
 * fsdp_metrics_set_number(). Beginning another line discards a line that was not written. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_begin(fsdp_metrics *metrics, const char *kind,
                                               fsdp_json_node *line);
void fsdp_metrics_set_number(fsdp_json_node line, const char *key, double value);
/* Append the line that was begun. On failure, e.g. FSDP_ERR_IO for a full disk, the message names
 * the file, which still ends with the previous line. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_write(fsdp_metrics *metrics);

/* --- reading --- */

/* Called with the object of each line. The object is valid during the call. */
typedef fsdp_status fsdp_metrics_line_fn(fsdp_json_node line, void *arg);
/* Read a file line by line. An incomplete last line without a newline is ignored, since the run may
 * still be writing it. Any other malformed line gives FSDP_ERR_FORMAT with the line's number. So
 * does FSDP_ERR_NOT_FOUND from `each`, which means that a key is missing. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_for_each(const char *path, fsdp_metrics_line_fn *each,
                                                  void *arg);
/* Get a number. NaN and infinities, which JSON lacks, are read from their strings. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_get_number(fsdp_json_node line, const char *key,
                                                    double *value);

typedef struct fsdp_metrics_point {
    double step;
    double value; /* may be NaN or infinite */
} fsdp_metrics_point;

typedef struct fsdp_metrics_curve {
    fsdp_metrics_point *points; /* in ascending order of steps; owned */
    size_t len, cap;
} fsdp_metrics_curve;

typedef struct fsdp_metrics_curves {
    fsdp_metrics_curve loss, lr;   /* from lines of kind "step" */
    fsdp_metrics_curve validation; /* losses from lines of kind "validation" */
} fsdp_metrics_curves;

/* Read the curves for plots. If a step occurs twice, because a run was resumed, the later line
 * counts. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_read(const char *path, fsdp_metrics_curves *curves);
void fsdp_metrics_curves_fini(fsdp_metrics_curves *curves);
