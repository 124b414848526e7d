/* Compares two plain values of checkpoints, with all values inside them. */
#pragma once
#include "src/source/source.h"

/* A plain value, and the item of a source that has this value. */
typedef struct fsdp_diff_value {
    fsdp_source *source;
    const fsdp_source_item *item;
    const fsdp_pickle_value *value;
} fsdp_diff_value;

/* Set *same to true if the two values are the same in all parts, otherwise to false. Floats and
 * tensors must have the same bits. The order of items matters in a dict, but not in a set. Returns
 * FSDP_ERR_FORMAT if the values need too many comparisons. A hostile file can have such values.
 * Also returns the errors of reading a tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_diff_values(const fsdp_diff_value *a, const fsdp_diff_value *b,
                                             bool *same);
