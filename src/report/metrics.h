/* Metrics as JSON lines: one object a line, for `--metrics FILE` and everything that reads it.
 *
 *     {"kind": "step", "step": 1, "epoch": 1, "loss": 10.41, "grad_norm": 3.2, "lr": 0.002, ...}
 *     {"kind": "validation", "step": 100, "epoch": 1, "loss": 6.1, ...}
 *     {"kind": "epoch", ...}   {"kind": "summary", ...}
 *
 * Keys stand in the order in which they were set. Numbers are the shortest that read back as the
 * same double; NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity" and
 * "-Infinity". A line is written whole as soon as it is complete. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_metrics fsdp_metrics;

/* `append`: keep what is there (a resumed run); a last line that a crash cut short is removed.
 * FSDP_ERR_FORMAT if the file then ends in something that is no JSON line; FSDP_ERR_IO. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_open(const char *path, bool append, fsdp_metrics **out);
/* Take out of the file what a run wrote after `step`, and its summary: lines of a run that goes on
 * from there follow. No file is no error. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_cut(const char *path, int64_t step);
/* Accepts NULL. What every successful write has written is in the file already. */
void fsdp_metrics_close(fsdp_metrics *metrics);

/* Begin a line of `kind`: *line is its object, to be filled with fsdp_json_set_* and
 * fsdp_metrics_set_number. A line begun and not written is given up by the next begin. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_begin(fsdp_metrics *metrics, const char *kind,
                                               fsdp_json_node *line);
void fsdp_metrics_set_number(fsdp_json_node line, const char *key, double value);
/* Append the line that was begun. FSDP_ERR_IO (a full disk) names the file, which then ends with
 * the line before. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_write(fsdp_metrics *metrics);

/* --- reading ------------------------------------------------------------------------------------
 */

/* Called for each line's object, which lives during the call. */
typedef fsdp_status fsdp_metrics_line_fn(fsdp_json_node line, void *arg);
/* Walk a file. A last line without a newline is left out if it is incomplete: the file may belong
 * to a run under way. Any other malformed line, and a key that `each` does not find, is
 * FSDP_ERR_FORMAT with its number. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_each(const char *path, fsdp_metrics_line_fn *each,
                                              void *arg);
/* A number, or one of the strings that stand for a number JSON lacks. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_get_number(fsdp_json_node line, const char *key,
                                                    double *value);

typedef struct fsdp_metrics_point {
    double step;
    double value; /* may be NaN or infinite */
} fsdp_metrics_point;

typedef struct fsdp_metrics_curve {
    fsdp_metrics_point *points; /* steps ascend; owned */
    size_t len, cap;
} fsdp_metrics_curve;

typedef struct fsdp_metrics_curves {
    fsdp_metrics_curve loss, lr;   /* of the lines of kind "step" */
    fsdp_metrics_curve validation; /* the loss of the lines of kind "validation" */
} fsdp_metrics_curves;

/* The curves, for plots. Where a run was resumed and steps come a second time, the later line
 * counts. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_read(const char *path, fsdp_metrics_curves *curves);
void fsdp_metrics_curves_fini(fsdp_metrics_curves *curves);
