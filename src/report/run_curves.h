/* Reads the curves of a run from the files that it wrote. */
#pragma once
#include "src/report/metrics.h"

/* Read the curves of `run`, which is one of:
 * - a file of metrics (--metrics),
 * - an event file of TensorBoard,
 * - a folder with event files or with metrics.jsonl, such as --logging-dir,
 * - a folder with such folders in its folder `runs`, such as --output: the newest of them is read.
 * Returns FSDP_ERR_NOT_FOUND if a folder has none of these, and FSDP_ERR_INVALID if event files
 * have none of the curves. */
FSDP_MUST_CHECK fsdp_status fsdp_run_curves_read(const char *run, fsdp_metrics_curves *curves);
/* Set *path to the folder in the folder `runs` that was changed last; NULL if there is none. The
 * caller owns it. */
FSDP_MUST_CHECK fsdp_status fsdp_run_find_newest(const char *runs, char **path);
