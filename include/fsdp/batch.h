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

/** What a model is trained to do, which says what its labels are. */
typedef enum fsdp_task {
    FSDP_TASK_SEQ2SEQ,       /**< a target for each source: T5 */
    FSDP_TASK_CAUSAL_LM,     /**< each token's successor: Llama, GPT-2 */
    FSDP_TASK_CLASSIFICATION /**< one class for each sequence: BERT */
} fsdp_task;

/**
 * Packed sequences. Counted (fsdp_batch_retain/release); constant once made, except for the key of
 * the step, which its maker sets before handing it on.
 *
 * Sequences never see each other: attention is within one, positions count from its beginning. A
 * row that holds several documents is as many sequences here. Any of the counts may be 0: a
 * micro-batch past the end of the data has no rows and takes part in the step all the same.
 */
typedef struct fsdp_batch {
    fsdp_task task;
    int32_t rows;          /**< n: sequences */
    int32_t source_tokens; /**< Ts, == source_offsets[n] */
    int32_t target_tokens; /**< Tt, == target_offsets[n]; 0 but for SEQ2SEQ */
    int32_t n_labels;      /**< entries of labels: Tt, Ts or n, by task */
    int32_t label_tokens;  /**< labels that are not FSDP_IGNORE_INDEX: the count of the mean loss */
    int32_t max_source_len; /**< of a sequence */
    int32_t max_target_len; /**< of a sequence */

    const int32_t *input_ids;      /**< [Ts] */
    const int32_t *position_ids;   /**< [Ts]: index within the sequence */
    const int32_t *token_type_ids; /**< [Ts]: BERT's segments; NULL: all 0 */
    const int32_t *source_offsets; /**< [n + 1]: row i is input_ids[offsets[i] .. offsets[i + 1]) */
    /** [Tt]: decoder_start_token_id, then the labels shifted right by one, with the padding id in
     * place of FSDP_IGNORE_INDEX. */
    const int32_t *decoder_input_ids;
    /** SEQ2SEQ [Tt], without a row's trailing ignored ones. CAUSAL_LM [Ts]: already shifted, what
     * should follow each token; a sequence's last is ignored. CLASSIFICATION [n]: classes. */
    const int32_t *labels;
    const int32_t *target_offsets; /**< [n + 1] */

    /** [Ts], [Tt]: where a token stood in the padded arrays, row * width + column; NULL unless made
     * by fsdp_batch_from_padded(). */
    const int64_t *source_positions, *target_positions;

    /** The key of dropout and of reports: run's seed, epoch from 0, optimizer step from 0 over all
     * epochs, leaf m = a * world_size + rank of micro-step a. */
    uint64_t seed;
    uint32_t epoch, step, leaf;
} fsdp_batch;

/** What the model wants of a batch: fsdp_model_batch_format(). */
typedef struct fsdp_batch_format {
    fsdp_task task;
    int32_t decoder_start_token_id; /**< SEQ2SEQ: T5's is 0, the padding id */
    int32_t pad_token_id;           /**< SEQ2SEQ: decoder input where a label is ignored */
} fsdp_batch_format;

/** One row of ids, borrowed by fsdp_batch_create(). */
typedef struct fsdp_batch_row {
    const int32_t *source; /**< [source_len] */
    /** [labels_len], FSDP_IGNORE_INDEX allowed. CAUSAL_LM: source_len of them, not shifted yet, or
     * one more, which follows the last token; NULL: the source itself. CLASSIFICATION: one class,
     * or none. */
    const int32_t *labels;
    int32_t source_len, labels_len;
    const int32_t *position_ids;   /**< [source_len]: a document begins at each 0; NULL: one */
    const int32_t *token_type_ids; /**< [source_len]; NULL: 0 */
} fsdp_batch_row;

/** Padded arrays, row-major, borrowed by fsdp_batch_from_padded(). */
typedef struct fsdp_padded {
    const int64_t *input_ids;      /**< [rows, source_width] */
    const int64_t *attention_mask; /**< [rows, source_width] of 0 and 1; NULL: all 1 */
    /** [rows, target_width]; NULL: none. CAUSAL_LM: target_width is source_width and labels are not
     * shifted. CLASSIFICATION: target_width is 1. */
    const int64_t *labels;
    const int64_t *position_ids;   /**< [rows, source_width], see fsdp_batch_row; NULL: one a row */
    const int64_t *token_type_ids; /**< [rows, source_width]; NULL: 0 */
    int64_t rows, source_width, target_width;
    int64_t vocab_size; /**< ids are below it; 0: not checked */
    int64_t n_classes;  /**< CLASSIFICATION: labels are below it; 0: not checked */
} fsdp_padded;

/**
 * Pack rows without padding.
 *
 * SEQ2SEQ: a row's trailing FSDP_IGNORE_INDEX labels are cut off: the decoder is causal, so that
 * nothing before them depends on them. Ignored labels in the middle keep their position. A row
 * whose labels are all ignored has a decoder sequence of length 0.
 *
 * @param rows   [count]
 * @param count  may be 0
 * @param format NULL: SEQ2SEQ with ids 0, T5's
 * @param out    new reference, ended by fsdp_batch_release()
 * @return FSDP_ERR_INVALID, naming the row, if a length is negative or does not fit the task, if
 *         positions do neither count up nor begin at 0, or if the tokens are more than INT32_MAX
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                                                       const fsdp_batch_format *format,
                                                       fsdp_batch **out);

/**
 * Pack padded arrays as transformers collates them; padding may be on either side.
 *
 * Position j of a row is packed if its mask is 1; source_positions and target_positions say where
 * the packed tokens came from, for comparisons with padded results.
 *
 * @param format NULL: SEQ2SEQ with ids 0
 * @return FSDP_ERR_INVALID, naming row and column, if a row's mask is neither 0 nor 1, is 0
 *         everywhere, or has a hole (distances across it would be others than the padded model's),
 *         if an id, class or label is out of range, or positions are none
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded,
                                                            const fsdp_batch_format *format,
                                                            fsdp_batch **out);

/** One more reference; returns `batch`. Any thread. */
FSDP_API fsdp_batch *fsdp_batch_retain(fsdp_batch *batch);
/** Drop a reference; the last one frees it. Accepts NULL. Any thread. */
FSDP_API void fsdp_batch_release(fsdp_batch *batch);

#ifdef __cplusplus
}
#endif
