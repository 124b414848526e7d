/* Reads event files of TensorBoard: files that event_file.h writes, and files of other writers,
 * such as PyTorch's SummaryWriter, which transformers and Accelerate use. */
#pragma once
#include "src/report/metrics.h"

/* Return true if the name of the file is that of an event file. */
bool fsdp_event_file_is_named(const char *path);

/* Add to *curves what an event file has: the curves train/loss, train/learning_rate and eval/loss
 * (transformers' names); the time of each step; the values that the run reports at its end. A
 * resumed run repeats steps, and writes to a new file. When the new file is read, the points of the
 * repeated steps, which came from earlier files, are removed from *curves first. An incomplete last
 * record is ignored, because the run may still be writing it. If a record after the first is
 * damaged, reading ends there, and a line with the path and the offset is added to curves->notes.
 * Returns FSDP_ERR_FORMAT if the first record is damaged; the message contains the path and the
 * offset. */
FSDP_MUST_CHECK fsdp_status fsdp_event_file_read(const char *path, fsdp_metrics_curves *curves);
