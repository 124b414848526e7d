/* Two plain values of checkpoints, part by part. */
#pragma once
#include "src/source/source.h"

/* An item of a source, and its value. */
typedef struct fsdp_diff_value {
    fsdp_source *source;
    const fsdp_source_item *item;
    const fsdp_pickle_value *value;
} fsdp_diff_value;

/* Are all parts of the two the same? Floats and tensors within them to the bit, items of dicts in
 * their order, of sets in any. FSDP_ERR_FORMAT for a hostile tree of endless paths; what reading a
 * tensor returns.
 */
FSDP_MUST_CHECK fsdp_status fsdp_diff_values(const fsdp_diff_value *a, const fsdp_diff_value *b,
                                             bool *same);
