/* Reads the curves of a run from the files that it wrote. */
#pragma once
#include "src/report/metrics.h"

typedef enum fsdp_run_kind {
    FSDP_RUN_METRICS, /* a file of metrics (--metrics) */
    FSDP_RUN_CSV,     /* a CSV file, whose name ends with .csv (--report-to csv) */
    FSDP_RUN_EVENTS   /* an event file of TensorBoard, or a folder with event files */
} fsdp_run_kind;

/* Find what `run` means. It is a file of one of these kinds; or a folder with metrics.jsonl,
 * event files or metrics.csv, such as --logging-dir; the first of them counts; or a folder with
 * such folders in its folder `runs`, such as --output: the newest of them counts. The caller owns
 * *path. Returns FSDP_ERR_NOT_FOUND if a folder has none of these. A file need not exist. */
FSDP_MUST_CHECK fsdp_status fsdp_run_find(const char *run, fsdp_run_kind *kind, char **path);
/* Read the curves of what fsdp_run_find() finds. Returns FSDP_ERR_INVALID if event files have none
 * of the curves. */
FSDP_MUST_CHECK fsdp_status fsdp_run_curves_read(const char *run, fsdp_metrics_curves *curves);
/* Read the curves of what was found. */
FSDP_MUST_CHECK fsdp_status fsdp_run_curves_read_found(fsdp_run_kind kind, const char *path,
                                                       fsdp_metrics_curves *curves);
/* Set *path to the folder in the folder `runs` that was changed last; NULL if there is none. The
 * caller owns it. */
FSDP_MUST_CHECK fsdp_status fsdp_run_find_newest(const char *runs, char **path);
