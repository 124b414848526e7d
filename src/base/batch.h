/* The mask's rule, shared by padded arrays and ready-made rows. */
#pragma once
#include <fsdp/batch.h>

/* Where the ones of a mask [width] lie: [*first, *end). FSDP_ERR_INVALID naming the column if an
 * entry is neither 0 nor 1, all are 0, or the ones have a hole. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_span(const int64_t *mask, int64_t width, int64_t *first,
                                           int64_t *end);
