/* Writes event files, which TensorBoard reads: scalars, texts and histograms of a run. The file is
 * a sequence of records (TFRecord), each with the masked CRC-32C of its length and of its data. The
 * data is a protobuf message, tensorflow.Event. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/report/histogram.h"

typedef struct fsdp_event_file fsdp_event_file;

typedef struct fsdp_event_scalar {
    const char *tag; /* name of the scalar, such as "train/loss" */
    double value;    /* written as float32, as TensorBoard's writers do; may be NaN or infinite */
} fsdp_event_scalar;

enum {
    FSDP_EVENT_NO_PURGE = -1
};

/* Create a file in `dir`, which is created if it does not exist. The name has the form that
 * TensorBoard's own writers use: events.out.tfevents.<seconds>.<host>.<process>.<counter>. An
 * existing file is never changed. A resumed run repeats some steps: `purge_step` is the first of
 * them. In the older files in `dir`, TensorBoard will then ignore the values of this step and of
 * all later steps. With FSDP_EVENT_NO_PURGE, it ignores no values. */
FSDP_MUST_CHECK fsdp_status fsdp_event_file_create(const char *dir, int64_t purge_step,
                                                   fsdp_event_file **file);
void fsdp_event_file_close(fsdp_event_file *file); /* accepts NULL */
const char *fsdp_event_file_path(const fsdp_event_file *file);

/* Append the scalars of a step, all in one event. Returns FSDP_ERR_IO if the disk is full. In this
 * case, nothing of the event remains in the file, which ends with the previous event. */
FSDP_MUST_CHECK fsdp_status fsdp_event_file_scalars(fsdp_event_file *file, int64_t step,
                                                    const fsdp_event_scalar *scalars, size_t n);
/* Append a text, which TensorBoard shows as Markdown. `text` is UTF-8. */
FSDP_MUST_CHECK fsdp_status fsdp_event_file_text(fsdp_event_file *file, int64_t step,
                                                 const char *tag, const char *text);
/* Append a histogram. A histogram without a value is left out. */
FSDP_MUST_CHECK fsdp_status fsdp_event_file_histogram(fsdp_event_file *file, int64_t step,
                                                      const char *tag,
                                                      const fsdp_histogram *histogram);
