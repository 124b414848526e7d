/* Makes batches. The examples of a batch may depend on the seed and the epoch, which an fsdp_draw
 * contains (fsdp_dataset_draw()). */
#pragma once
#include <fsdp/data.h>

/* Like fsdp_collate(), but the examples are read with *draw (fsdp_dataset_draw()). */
FSDP_MUST_CHECK fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices,
                                               int32_t count, const fsdp_draw *draw,
                                               const fsdp_batch_format *format, fsdp_batch **out);
