/* Internals of batches: the function that builds them, and the check that all code uses for
 * attention masks. */
#pragma once
#include <fsdp/batch.h>

/* The arrays of a batch, writable while it is being built. */
typedef struct fsdp_batch_arrays {
    int32_t *input_ids, *position_ids, *token_type_ids; /* token_type_ids: NULL if no row has any */
    int32_t *source_offsets, *decoder_input_ids, *labels, *target_offsets;
    int64_t *source_positions, *target_positions; /* NULL if `origins` is false */
} fsdp_batch_arrays;

/* Create a batch, as fsdp_batch_create() does. With `origins`, the batch also has source_positions
 * and target_positions, which the caller fills in through *arrays. */
FSDP_MUST_CHECK fsdp_status fsdp_batch_build(const fsdp_batch_row *rows, int32_t count,
                                             const fsdp_batch_format *format, bool origins,
                                             fsdp_batch_arrays *arrays, fsdp_batch **out);

/* Find the range [*first, *end) of the ones in mask [width]. Returns FSDP_ERR_INVALID if an entry
 * is neither 0 nor 1, if there is a zero between ones (the message names the column), or if all
 * entries are 0. */
FSDP_MUST_CHECK fsdp_status fsdp_mask_span(const int64_t *mask, int64_t width, int64_t *first,
                                           int64_t *end);
