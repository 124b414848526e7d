/* Writes and reads files of metrics (`--metrics FILE`). Each line is a JSON object:
 *
 *     {"kind": "step", "step": 1, "epoch": 1, "loss": 10.41, "grad_norm": 3.2, "lr": 0.002, ...}
 *     {"kind": "validation", "step": 100, "epoch": 1, "loss": 6.1, ...}
 *     {"kind": "epoch", ...}   {"kind": "summary", ...}
 *
 * The keys of a line are in the order in which they were set. A number is written as the shortest
 * text that reads back as the same double. NaN and infinities, which JSON lacks, are the strings
 * "NaN", "Infinity" and "-Infinity". A complete line is written with one system call. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_metrics fsdp_metrics;

/* Open a file to write metrics. If `append` is false, existing lines are deleted. If it is true
 * (for a resumed run), they are kept, except for an incomplete last line that a crash left. Returns
 * FSDP_ERR_FORMAT if the last line is not a JSON line, and FSDP_ERR_IO if the file cannot be opened
 * or repaired. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_open(const char *path, bool append, fsdp_metrics **out);
/* Remove from a file the lines of all steps after `step`, and the summary line. A run that
 * resumes after `step` will write these lines again. A missing file is not an error. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_truncate(const char *path, int64_t step);
/* Close the file. Lines that fsdp_metrics_write() has written are already in the file. Accepts
 * NULL. */
void fsdp_metrics_close(fsdp_metrics *metrics);

/* Begin a line of the kind `kind`. *line is set to the JSON object of the line, which the caller
 * fills with fsdp_json_set_*() and fsdp_metrics_set_number(). If an earlier line was begun but not
 * written, it is discarded. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_begin(fsdp_metrics *metrics, const char *kind,
                                               fsdp_json_node *line);
void fsdp_metrics_set_number(fsdp_json_node line, const char *key, double value);
/* Append to the file the line that was begun. On failure, for example FSDP_ERR_IO because the disk
 * is full, the file still ends with the previous line. The message names the file. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_write(fsdp_metrics *metrics);

/* Append a line that was made elsewhere: JSON text of `bytes` bytes that ends with a newline. Fails
 * as fsdp_metrics_write() does. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_append(fsdp_metrics *metrics, const char *line,
                                                size_t bytes);

/* --- reading --- */

/* Called with the JSON object of each line. The object is valid only during the call. */
typedef fsdp_status fsdp_metrics_line_fn(fsdp_json_node line, void *arg);
/* Read a file and call each() for every line. A malformed last line without a newline is ignored,
 * because the run may still be writing it. Any other malformed line is an FSDP_ERR_FORMAT error. If
 * each() fails, its error is returned, with one exception: each() reports a missing key as
 * FSDP_ERR_NOT_FOUND, and FSDP_ERR_FORMAT is returned instead. The error message has the number of
 * the line. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_for_each(const char *path, fsdp_metrics_line_fn *each,
                                                  void *arg);
/* Get the number that `key` has in a line. The strings for NaN and infinities are also read as
 * numbers. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_get_number(fsdp_json_node line, const char *key,
                                                    double *value);

typedef struct fsdp_metrics_point {
    double step;
    double value; /* may be NaN or infinite */
} fsdp_metrics_point;

typedef struct fsdp_metrics_curve {
    fsdp_metrics_point *points; /* owned by the curve; in ascending order of steps */
    size_t len, cap;
} fsdp_metrics_curve;

/* The values that a run reports at its end. A value is NaN if the run's files do not have it. */
typedef struct fsdp_metrics_end {
    bool found; /* false: the files have none of these values, and the other fields are undefined */
    double train_loss, validation_loss, step_s, total_s, host_mib;
} fsdp_metrics_end;

typedef struct fsdp_metrics_curves {
    fsdp_metrics_curve loss, lr;   /* from lines of the kind "step" */
    fsdp_metrics_curve validation; /* the loss in lines of the kind "validation" */
    fsdp_metrics_curve seconds;    /* duration of each step; only CSV and event files have it */
    fsdp_metrics_end end;          /* values at the end of the run; only event files have them */
    bool is_float32;               /* true: values were stored as float32, as in event files */
    char *notes; /* lines about event files that are damaged at their ends; NULL: none; owned */
} fsdp_metrics_curves;

/* Add a point to a curve. A resumed run may repeat steps, so the step number may decrease from one
 * point to the next. If so, the repeated steps replace the earlier ones: the points at the same
 * step and at later steps are removed first. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_curve_add(fsdp_metrics_curve *curve, double step,
                                                   double value);
/* Read the curves of a metrics file. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_read(const char *path, fsdp_metrics_curves *curves);
void fsdp_metrics_curves_fini(fsdp_metrics_curves *curves);
