/* Compares two plain values of checkpoints, part by part. */
#pragma once
#include "src/source/source.h"

/* A plain item of a source, and its value. */
typedef struct fsdp_diff_value {
    fsdp_source *source;
    const fsdp_source_item *item;
    const fsdp_pickle_value *value;
} fsdp_diff_value;

/* Set *same to whether all parts of the two values are the same. Floats and tensors must have the
 * same bits, and items of dicts must have the same order; the order of items in sets does not
 * matter. Returns FSDP_ERR_FORMAT if a hostile tree makes the comparison too long, and the errors
 * of reading a tensor. */
FSDP_MUST_CHECK fsdp_status fsdp_diff_values(const fsdp_diff_value *a, const fsdp_diff_value *b,
                                             bool *same);
