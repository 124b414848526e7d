/**
 * @file
 * A batch: what a training step knows that is no tensor.
 *
 * Rows are packed one after the other without padding; offsets say where each begins. A mask is
 * turned into offsets here, at the door, and nothing behind it knows of padding.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Label of a position that has no loss, as in torch's cross_entropy. */
#define FSDP_IGNORE_INDEX (-100)

/**
 * Sequence-to-sequence rows. Counted (fsdp_batch_retain/release); constant once made, except for
 * the key of the step, which its maker sets before handing it on.
 *
 * Any of the counts may be 0: a micro-batch past the end of the data has no rows and takes part in
 * the step all the same.
 */
typedef struct fsdp_batch {
    int32_t rows;          /**< n */
    int32_t source_tokens; /**< Ts, == source_offsets[n] */
    int32_t target_tokens; /**< Tt, == target_offsets[n] */
    int32_t label_tokens;  /**< labels that are not FSDP_IGNORE_INDEX: the count of the mean loss */
    int32_t max_source_len; /**< of a row */
    int32_t max_target_len; /**< of a row */

    const int32_t *input_ids;      /**< [Ts] */
    const int32_t *source_offsets; /**< [n + 1]: row i is input_ids[offsets[i] .. offsets[i + 1]) */
    /** [Tt]: decoder_start_token_id, then the labels shifted right by one, with the padding id in
     * place of FSDP_IGNORE_INDEX. */
    const int32_t *decoder_input_ids;
    const int32_t *labels;         /**< [Tt]; a row's trailing ignored labels are not stored */
    const int32_t *target_offsets; /**< [n + 1] */

    /** [Ts], [Tt]: where a token stood in the padded arrays, row * width + column; NULL unless made
     * by fsdp_batch_from_padded(). */
    const int64_t *source_positions, *target_positions;

    /** The key of dropout and of reports: run's seed, epoch from 0, optimizer step from 0 over all
     * epochs, leaf m = a * world_size + rank of micro-step a. */
    uint64_t seed;
    uint32_t epoch, step, leaf;
} fsdp_batch;

/** One row of ids, borrowed by fsdp_batch_create(). */
typedef struct fsdp_batch_row {
    const int32_t *source; /**< [source_len] */
    const int32_t *labels; /**< [labels_len], FSDP_IGNORE_INDEX allowed */
    int32_t source_len, labels_len;
} fsdp_batch_row;

/** Padded arrays, row-major, borrowed by fsdp_batch_from_padded(). */
typedef struct fsdp_padded {
    const int64_t *input_ids;      /**< [rows, source_width] */
    const int64_t *attention_mask; /**< [rows, source_width] of 0 and 1; NULL: all 1 */
    const int64_t *labels;         /**< [rows, target_width]; NULL: no targets */
    int64_t rows, source_width, target_width;
    int64_t vocab_size; /**< ids are below it; 0: not checked */
} fsdp_padded;

/**
 * Pack rows without padding.
 *
 * A row's trailing FSDP_IGNORE_INDEX labels are cut off: the decoder is causal, so that nothing
 * before them depends on them. Ignored labels in the middle keep their position. A row whose labels
 * are all ignored has a decoder sequence of length 0.
 *
 * @param rows  [count]
 * @param count may be 0
 * @param decoder_start_token_id the model's (T5: 0, the padding id)
 * @param pad_token_id stands in the decoder's input where a label is ignored
 * @param out   new reference, ended by fsdp_batch_release()
 * @return FSDP_ERR_INVALID if a length is negative or the tokens are more than INT32_MAX
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                                                       int32_t decoder_start_token_id,
                                                       int32_t pad_token_id, fsdp_batch **out);

/**
 * Pack padded arrays as transformers collates them; padding may be on either side.
 *
 * Position j of a row is packed if its mask is 1; source_positions and target_positions say where
 * the packed tokens came from, for comparisons with padded results.
 *
 * @return FSDP_ERR_INVALID, naming row and column, if a row's mask is neither 0 nor 1, is 0
 *         everywhere, or has a hole (distances across it would be others than the padded model's),
 *         or if an id or label is out of range
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded,
                                                            int32_t decoder_start_token_id,
                                                            int32_t pad_token_id, fsdp_batch **out);

/** One more reference; returns `batch`. Any thread. */
FSDP_API fsdp_batch *fsdp_batch_retain(fsdp_batch *batch);
/** Drop a reference; the last one frees it. Accepts NULL. Any thread. */
FSDP_API void fsdp_batch_release(fsdp_batch *batch);

#ifdef __cplusplus
}
#endif
