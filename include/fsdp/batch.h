/**
 * @file
 * A batch: the inputs of a training step, as arrays in host memory.
 *
 * Rows are packed one after the other without padding, and offsets give the first token of each
 * row. Attention masks are converted to offsets here; no later code handles padding.
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

/** What a model is trained to do. It determines the form of the labels. */
typedef enum fsdp_task {
    FSDP_TASK_SEQ2SEQ,       /**< each source has a target: T5 */
    FSDP_TASK_CAUSAL_LM,     /**< predict the next token: Llama, GPT-2 */
    FSDP_TASK_CLASSIFICATION /**< predict one class for each sequence: BERT */
} fsdp_task;

/**
 * Packed sequences. Reference counted (fsdp_batch_retain/release). A batch does not change after
 * its creation, except for seed, epoch, step and micro_batch, which the creator sets before it
 * passes the batch on.
 *
 * Sequences are independent: attention stays within a sequence, and positions count from the start
 * of the sequence. A row that holds several documents is several sequences here. Every count,
 * including the number of rows, may be 0. A rank for which no data is left has a micro-batch
 * without rows and still takes part in the step.
 */
typedef struct fsdp_batch {
    fsdp_task task;
    int32_t rows;          /**< n: number of sequences */
    int32_t source_tokens; /**< Ts, == source_offsets[n] */
    int32_t target_tokens; /**< Tt, == target_offsets[n]; 0 unless SEQ2SEQ */
    int32_t n_labels;      /**< length of `labels`: Tt, Ts or n, depending on the task */
    int32_t label_tokens;  /**< labels other than FSDP_IGNORE_INDEX: the divisor of the mean loss */
    int32_t max_source_len; /**< tokens of the longest source sequence */
    int32_t max_target_len; /**< tokens of the longest target sequence */

    const int32_t *input_ids;      /**< [Ts] */
    const int32_t *position_ids;   /**< [Ts] index within the sequence */
    const int32_t *token_type_ids; /**< [Ts] BERT's segments; NULL: all 0 */
    const int32_t *source_offsets; /**< [n + 1]; sequence i is input_ids[source_offsets[i] ..
                                        source_offsets[i + 1]) */
    /** [Tt]: for each sequence, decoder_start_token_id, then the labels of the sequence except the
     * last one. The padding id replaces FSDP_IGNORE_INDEX. */
    const int32_t *decoder_input_ids;
    /** SEQ2SEQ: [Tt], without the trailing ignored labels of each row. CAUSAL_LM: [Ts], already
     * shifted: the label of a token is the token that follows it, and the label of the last token
     * of a sequence is FSDP_IGNORE_INDEX. CLASSIFICATION: [n] classes. */
    const int32_t *labels;
    const int32_t *target_offsets; /**< [n + 1] */

    /** [Ts] and [Tt]: position of each token in the padded arrays, row * width + column; NULL
     * unless fsdp_batch_from_padded() created the batch. */
    const int64_t *source_positions, *target_positions;

    /** These identify the batch, for dropout and reports. seed is the seed of the run. epoch counts
     * from 0. step is the optimizer step and counts from 0 over all epochs. micro_batch is
     * micro_step * world_size + rank. */
    uint64_t seed;
    uint32_t epoch, step, micro_batch;
} fsdp_batch;

/** The form in which a model needs its batches: fsdp_model_info.format. */
typedef struct fsdp_batch_format {
    fsdp_task task;
    int32_t decoder_start_token_id; /**< SEQ2SEQ: the first id of each decoder sequence; T5: 0,
                                         which is also the padding id */
    int32_t pad_token_id; /**< SEQ2SEQ: the decoder input that replaces an ignored label */
} fsdp_batch_format;

/** One row of ids, borrowed by fsdp_batch_create(). */
typedef struct fsdp_batch_row {
    const int32_t *source; /**< [source_len] */
    /** [labels_len]; may contain FSDP_IGNORE_INDEX. CAUSAL_LM: source_len labels, not shifted, or
     * source_len + 1 labels, the last of which is the token after the source. NULL: the labels are
     * the source itself. CLASSIFICATION: one class, or none. */
    const int32_t *labels;
    int32_t source_len, labels_len;
    const int32_t *position_ids;   /**< [source_len]; a document begins at each 0; NULL: one
                                        document */
    const int32_t *token_type_ids; /**< [source_len]; NULL: all 0 */
} fsdp_batch_row;

/** Padded arrays, row-major, borrowed by fsdp_batch_from_padded(). */
typedef struct fsdp_padded {
    const int64_t *input_ids;      /**< [rows, source_width] */
    const int64_t *attention_mask; /**< [rows, source_width] of 0 and 1; NULL: all 1 */
    /** [rows, target_width]; NULL: none. CAUSAL_LM: target_width equals source_width, and labels
     * are not shifted. CLASSIFICATION: target_width is 1. */
    const int64_t *labels;
    const int64_t *position_ids;   /**< [rows, source_width], see fsdp_batch_row; NULL: one
                                        document per row */
    const int64_t *token_type_ids; /**< [rows, source_width]; NULL: all 0 */
    int64_t rows, source_width, target_width;
    int64_t vocab_size; /**< ids must be less than this; 0: not checked */
    int64_t n_classes;  /**< CLASSIFICATION: labels must be less than this; 0: not checked */
} fsdp_padded;

/**
 * Pack rows without padding.
 *
 * SEQ2SEQ: trailing FSDP_IGNORE_INDEX labels of a row are removed. The decoder is causal, so no
 * earlier position depends on them. Ignored labels before the last label that counts keep their
 * position. A row whose labels are all ignored has a decoder sequence of length 0.
 *
 * @param rows   [count]
 * @param count  may be 0
 * @param format NULL: SEQ2SEQ with ids 0, as in T5
 * @param out    new reference; release with fsdp_batch_release()
 * @return FSDP_ERR_INVALID, naming the row, if a length is negative or does not fit the task, if a
 *         position is neither 0 nor one more than the position before it, or if there are more than
 *         INT32_MAX tokens
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                                                       const fsdp_batch_format *format,
                                                       fsdp_batch **out);

/**
 * Pack padded arrays, as transformers' data collators make them. Padding may be on either side.
 *
 * Position j of a row is packed if its mask is 1. source_positions and target_positions record
 * where the packed tokens came from, for comparison with padded results.
 *
 * @param format NULL: SEQ2SEQ with ids 0
 * @return FSDP_ERR_INVALID, naming row and column, if a value of the mask is neither 0 nor 1; if
 *         the mask of a row has no 1, or has a 0 between two 1s (packing would change the distance
 *         between their tokens); if an id, class or label is out of range; or if positions are
 *         invalid
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded,
                                                            const fsdp_batch_format *format,
                                                            fsdp_batch **out);

/** Add a reference; returns `batch`. Any thread. */
FSDP_API fsdp_batch *fsdp_batch_retain(fsdp_batch *batch);
/** Drop a reference; the last one frees the batch. Accepts NULL. Any thread. */
FSDP_API void fsdp_batch_release(fsdp_batch *batch);

#ifdef __cplusplus
}
#endif
