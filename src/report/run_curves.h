/* Reads the curves of a run from the files that it wrote. */
#pragma once
#include "src/report/metrics.h"

typedef enum fsdp_run_kind {
    FSDP_RUN_METRICS, /* a file of metrics (--metrics) */
    FSDP_RUN_CSV,     /* a CSV file, whose name ends with .csv (--report-to csv) */
    FSDP_RUN_EVENTS   /* an event file of TensorBoard, or a folder with event files */
} fsdp_run_kind;

/* Find the files of a run, and set *kind and *path to them. `run` may be a file of one of these
 * kinds, which need not exist. It may be a folder with metrics.jsonl, event files or metrics.csv,
 * such as the folder of --logging-dir; if it has several of these, the first in this order is
 * taken. Or it may be a folder with a subfolder `runs` whose folders have such files, such as the
 * folder of --output; the newest folder in `runs` is taken. The caller owns *path. Returns
 * FSDP_ERR_NOT_FOUND if a folder has none of these. */
FSDP_MUST_CHECK fsdp_status fsdp_run_find(const char *run, fsdp_run_kind *kind, char **path);
/* Read the curves of the files that fsdp_run_find() finds. Returns FSDP_ERR_INVALID if event files
 * have none of the curves. */
FSDP_MUST_CHECK fsdp_status fsdp_run_curves_read(const char *run, fsdp_metrics_curves *curves);
/* Read the curves of the files `kind` and `path` that fsdp_run_find() has returned. */
FSDP_MUST_CHECK fsdp_status fsdp_run_curves_read_found(fsdp_run_kind kind, const char *path,
                                                       fsdp_metrics_curves *curves);
/* Set *path to the most recently changed folder in the folder `runs`, or to NULL if there is none.
 * The caller owns *path. */
FSDP_MUST_CHECK fsdp_status fsdp_run_find_newest(const char *runs, char **path);
