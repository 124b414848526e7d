/* Reports the rows of a run. Each row is passed on to all outputs that were chosen. The outputs are
 * the file of metrics, CSV, TensorBoard's event files, and the program of --tracker-command. A row
 * is the JSON object of a line of metrics.h. There is one more kind of row, "config", with the
 * options of the run in its object "config". It goes to TensorBoard, as a text, and to the program.
 * In a row of the kind "log", which an accelerator writes, the user chooses the keys, which are
 * also the names in TensorBoard. Such a key has at most FSDP_TRACKING_KEY_BYTES bytes with its NUL,
 * and such a row at most FSDP_TRACKING_MAX_KEYS numbers. */
#pragma once
#include "src/base/json.h"
#include "src/report/histogram.h"
#include "src/report/tracker_command.h"

typedef struct fsdp_tracking fsdp_tracking;

enum {
    FSDP_TRACKING_KEY_BYTES = 64,
    FSDP_TRACKING_MAX_KEYS = 64
};

typedef struct fsdp_tracking_options {
    /* The outputs, from `metrics` to `command`; NULL: not wanted. */
    const char *metrics; /* file of JSON lines */
    const char *csv;     /* CSV file of the rows of a run */
    const char *log_csv; /* CSV file of rows of the kind "log"; its rows are always kept */
    const char *events;  /* folder of event files */
    const char *command; /* program that gets the rows */
    bool resumed;        /* the run continues after step `step` of an earlier run */
    bool append;         /* keep all lines of `metrics` */
    int64_t step;
    fsdp_tracker_say_fn *say; /* gets messages about the program; may be NULL */
    void *context;
} fsdp_tracking_options;

/* Open the outputs that were chosen. Strings of `options` are not kept. The folders of `csv` and
 * `metrics` must exist. */
FSDP_MUST_CHECK fsdp_status fsdp_tracking_open(const fsdp_tracking_options *options,
                                               fsdp_tracking **tracking);
/* Close everything. If there is a program, wait at most `seconds` until it ends, then end it by
 * signals. Accepts NULL. */
void fsdp_tracking_close(fsdp_tracking *tracking, double seconds);

/* Begin a row, as fsdp_metrics_begin() does. */
FSDP_MUST_CHECK fsdp_status fsdp_tracking_begin(fsdp_tracking *tracking, const char *kind,
                                                fsdp_json_node *row);
/* Pass on the row that was begun. If a file cannot be written, return its error; the outputs that
 * come after this file do not get the row. */
FSDP_MUST_CHECK fsdp_status fsdp_tracking_write(fsdp_tracking *tracking);
/* Write a histogram to the event files. No effect without event files. */
FSDP_MUST_CHECK fsdp_status fsdp_tracking_histogram(fsdp_tracking *tracking, int64_t step,
                                                    const char *tag,
                                                    const fsdp_histogram *histogram);
