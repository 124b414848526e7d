/* Internals of batches: the function that builds a batch, and the function that reads a row of an
 * attention mask. */
#pragma once
#include <fsdp/batch.h>

/* The arrays of a batch, writable while it is being built. */
typedef struct fsdp_batch_arrays {
    int32_t *input_ids, *position_ids, *token_type_ids; /* token_type_ids: NULL if no row has any */
    int32_t *source_offsets, *decoder_input_ids, *labels, *target_offsets;
    float *targets; /* NULL unless labels are real numbers */
    /* NULL if fsdp_batch_build() was called without `origins`. */
    int64_t *source_positions, *target_positions;
} fsdp_batch_arrays;

/* Create a batch, as fsdp_batch_create() does. If `origins` is true, the batch also has
 * source_positions and target_positions, which the caller fills in through *arrays. */
FSDP_MUST_CHECK fsdp_status fsdp_batch_build(const fsdp_batch_row *rows, int32_t count,
                                             const fsdp_batch_format *format, bool origins,
                                             fsdp_batch_arrays *arrays, fsdp_batch **out);

/* Set [*first, *end) to the columns of mask [width] that are 1. Return FSDP_ERR_INVALID if an entry
 * is neither 0 nor 1, if there is a zero between ones, or if all entries are 0. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_span(const int64_t *mask, int64_t width, int64_t *first,
                                           int64_t *end);
