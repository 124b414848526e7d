/* Writes the rows of a run as CSV (`--report-to csv`), for spreadsheets and pandas.read_csv(): a
 * line per step and per validation, with the same columns throughout. A column that a row lacks is
 * empty. NaN and infinities are nan, inf and -inf. A complete line is written with one system
 * call. */
#pragma once
#include "src/base/json.h"
#include "src/report/metrics.h"

typedef struct fsdp_metrics_csv fsdp_metrics_csv;

/* Open a file. If `keep_step` is negative, existing lines are deleted. Otherwise the run is resumed
 * after step `keep_step`: the lines up to this step are kept, and later ones are deleted, because
 * the run writes them again. Returns FSDP_ERR_FORMAT if a resumed run finds a file with other
 * columns. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_csv_open(const char *path, int64_t keep_step,
                                                  fsdp_metrics_csv **csv);
void fsdp_metrics_csv_close(fsdp_metrics_csv *csv); /* accepts NULL */
/* Append a row of the kind "step" or "validation". Does nothing for a row of another kind. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_csv_write(fsdp_metrics_csv *csv, fsdp_json_node row);

/* Read the curves of a CSV file of metrics. Its columns may be in any order, and unknown columns
 * are ignored. An incomplete last line is ignored, because the run may still be writing it. Returns
 * FSDP_ERR_FORMAT if the file is not a CSV file of metrics; the message contains the path and the
 * line. */
FSDP_MUST_CHECK fsdp_status fsdp_metrics_csv_read(const char *path, fsdp_metrics_curves *curves);
