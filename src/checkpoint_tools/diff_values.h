/* Comparing two plain values of checkpoints, part by part. */
#pragma once
#include "src/source/source.h"

/* An item of a source, and its value. */
typedef struct fsdp_diff_value {
    fsdp_source *source;
    const fsdp_source_item *item;
    const fsdp_pickle_value *value;
} fsdp_diff_value;

/* Are all parts of the two the same? Floats and tensors must have the same bits, items of dicts the
 * same order; the order of sets does not matter. FSDP_ERR_FORMAT for a hostile tree of endless
 * paths, and errors of reading a tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_diff_values(const fsdp_diff_value *a, const fsdp_diff_value *b,
                                             bool *same);
