/**
 * @file
 * A batch: the inputs of one rank in one micro-step, as arrays in host memory.
 *
 * Sequences are packed one after the other without padding, and offsets give the first token of
 * each sequence. fsdp_batch_from_padded() removes padding, so no other code has to handle it.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Label of a position that has no loss: ignore_index of torch's cross_entropy. */
#define FSDP_IGNORE_INDEX (-100)

/** What a model is trained to do. It determines the form of the labels. */
typedef enum fsdp_task {
    FSDP_TASK_SEQ2SEQ,        /**< each source has a target: T5 */
    FSDP_TASK_CAUSAL_LM,      /**< predict the next token: Llama, GPT-2 */
    FSDP_TASK_CLASSIFICATION, /**< predict one class for each sequence: BERT */
    FSDP_TASK_MASKED_LM       /**< predict the tokens of a sequence that were replaced: BERT's
                                   pretraining */
} fsdp_task;

/** What the labels of CLASSIFICATION are: problem_type of transformers' config.json. */
typedef enum fsdp_problem_type {
    FSDP_PROBLEM_SINGLE_LABEL, /**< "single_label_classification": one class; cross-entropy */
    /** "regression": num_labels numbers, usually one; mean squared error */
    FSDP_PROBLEM_REGRESSION,
    /** "multi_label_classification": a number from 0 to 1 for each class, usually 0 or 1; binary
     * cross-entropy with logits */
    FSDP_PROBLEM_MULTI_LABEL
} fsdp_problem_type;

/**
 * Packed sequences. Reference counted (fsdp_batch_retain/release). A batch does not change after
 * its creation. There is one exception: the code that has created the batch sets seed, epoch, step
 * and micro_batch before it passes the batch to other code.
 *
 * Sequences are independent: attention stays within a sequence, and positions count from the start
 * of the sequence. If a row that is packed into the batch holds several documents, each document is
 * one sequence of the batch. Every count, including the number of rows, may be 0. A rank for which
 * no data is left has a micro-batch without rows and still takes part in the step.
 */
typedef struct fsdp_batch {
    fsdp_task task;
    int32_t rows;           /**< n: number of sequences */
    int32_t source_tokens;  /**< Ts, == source_offsets[n] */
    int32_t target_tokens;  /**< Tt; SEQ2SEQ: == target_offsets[n]; else 0 */
    int32_t n_labels;       /**< length of `labels`: Tt, Ts or n, depending on the task */
    int32_t label_tokens;   /**< number of labels that are not FSDP_IGNORE_INDEX; the mean loss is
                                 the sum of losses divided by this number */
    int32_t max_source_len; /**< number of tokens of the longest source sequence */
    int32_t max_target_len; /**< number of tokens of the longest target sequence */

    const int32_t *input_ids;      /**< [Ts] */
    const int32_t *position_ids;   /**< [Ts] index of each token in its sequence */
    const int32_t *token_type_ids; /**< [Ts] segment of each token, for BERT; NULL: all 0 */
    const int32_t *source_offsets; /**< [n + 1]; sequence i is input_ids[source_offsets[i] ..
                                        source_offsets[i + 1]) */
    /** [Tt], for each sequence: decoder_start_token_id, then all labels of the sequence but the
     * last one. Where a label is FSDP_IGNORE_INDEX, the id is pad_token_id. */
    const int32_t *decoder_input_ids;
    /** SEQ2SEQ: [Tt], without the ignored labels at the end of each sequence. CAUSAL_LM: [Ts],
     * shifted by one token: the label of token i is what fsdp_batch_row.labels has for token i + 1.
     * No token follows the last token of a sequence, so its label is FSDP_IGNORE_INDEX. There is
     * one exception: if a row has one label more than tokens, the last token of the row gets this
     * label. CLASSIFICATION: [n] classes. MASKED_LM: [Ts], the token that belongs in each place,
     * or FSDP_IGNORE_INDEX. */
    const int32_t *labels;
    const int32_t *target_offsets; /**< [n + 1] */
    /** If the task is CLASSIFICATION and its problem type is not SINGLE_LABEL: the numbers that are
     * to be predicted, [n, num_targets]. For a row without labels, they are NaN. The field `labels`
     * then contains FSDP_IGNORE_INDEX for each row whose targets are NaN, and 0 for every other
     * row. For all other tasks and problem types, `targets` is NULL. */
    const float *targets;
    int32_t num_targets; /**< number of targets of each row; 0 if `targets` is NULL */

    /** [Ts] for the source and [Tt] for the target: the index of each token in the padded array
     * that it came from. The index of row r and column c is r * width + c. Both pointers are NULL
     * if fsdp_batch_create() created the batch, because there is no padded array then. */
    const int64_t *source_positions, *target_positions;

    /** Identity of the batch, for dropout and reports. `seed` is the seed of the run. `epoch`
     * counts from 0. `step` is the optimizer step, counted from 0 over all epochs. `micro_batch` is
     * micro_step * world_size + rank. */
    uint64_t seed;
    uint32_t epoch, step, micro_batch;
} fsdp_batch;

/** The form of the batches of a model. fsdp_model_info.format has it for each model. */
typedef struct fsdp_batch_format {
    fsdp_task task;
    int32_t decoder_start_token_id; /**< SEQ2SEQ: the first id of each decoder sequence. For T5, it
                                         is 0, which is also the padding id */
    int32_t pad_token_id; /**< SEQ2SEQ: the decoder input that replaces an ignored label */
    fsdp_problem_type problem_type; /**< CLASSIFICATION */
    int32_t num_targets; /**< CLASSIFICATION: num_labels, unless problem_type is SINGLE_LABEL */
} fsdp_batch_format;

/** One row of ids, borrowed by fsdp_batch_create(). */
typedef struct fsdp_batch_row {
    const int32_t *source; /**< [source_len] */
    /** [labels_len]; may contain FSDP_IGNORE_INDEX. CAUSAL_LM: labels are not shifted. There are
     * source_len of them, or source_len + 1 if the last label is the token after the source. NULL
     * means that the labels are the source itself. CLASSIFICATION: one class, or no label.
     * MASKED_LM: source_len labels, or no labels, which means that no token has a loss. */
    const int32_t *labels;
    int32_t source_len, labels_len;
    const int32_t *position_ids;   /**< [source_len]; a document begins at each 0; NULL: one
                                        document */
    const int32_t *token_type_ids; /**< [source_len]; NULL: all 0 */
    /** CLASSIFICATION: [targets_len] the numbers to predict, for a format whose problem_type is not
     * SINGLE_LABEL. NULL: the row has no targets. */
    const float *targets;
    int32_t targets_len; /**< num_targets of the format, or 0 */
} fsdp_batch_row;

/** Padded arrays, row-major, borrowed by fsdp_batch_from_padded(). */
typedef struct fsdp_padded {
    const int64_t *input_ids;      /**< [rows, source_width] */
    const int64_t *attention_mask; /**< [rows, source_width] of 0 and 1; NULL: all 1 */
    /** [rows, target_width]; NULL: none. CAUSAL_LM and MASKED_LM: target_width equals
     * source_width, and labels are not shifted. CLASSIFICATION: target_width is 1. */
    const int64_t *labels;
    const int64_t *position_ids;   /**< [rows, source_width], see fsdp_batch_row; NULL: one
                                        document per row */
    const int64_t *token_type_ids; /**< [rows, source_width]; NULL: all 0 */
    const float *targets; /**< CLASSIFICATION: [rows, num_targets of the format]; NULL: none */
    int64_t rows, source_width, target_width;
    int64_t vocab_size; /**< ids must be less than this; 0: not checked */
    int64_t n_classes;  /**< CLASSIFICATION: labels must be less than this; 0: not checked */
} fsdp_padded;

/**
 * Pack rows without padding.
 *
 * SEQ2SEQ: labels at the end of a row that are FSDP_IGNORE_INDEX are removed. The decoder is
 * causal, so the results for earlier labels do not change. All other labels keep their places in
 * the row. If all labels of a row are FSDP_IGNORE_INDEX, its decoder sequence has length 0.
 *
 * @param rows   [count]
 * @param count  may be 0
 * @param format NULL: SEQ2SEQ with decoder_start_token_id 0 and pad_token_id 0, as for T5
 * @param out    new reference; release with fsdp_batch_release()
 * @return FSDP_ERR_INVALID if a row is invalid: a length is negative or does not fit the task; a
 *         label is negative but not FSDP_IGNORE_INDEX; an entry of position_ids is neither 0 nor
 *         one more than the entry before it; or there are several documents in a row, and the task
 *         is not CAUSAL_LM or MASKED_LM. The message names the row. Also FSDP_ERR_INVALID if
 *         `count` is negative or the batch has too many tokens for int32
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                                                       const fsdp_batch_format *format,
                                                       fsdp_batch **out);

/**
 * Pack arrays that are padded like the results of transformers' data collators. Padding may be on
 * either side.
 *
 * Position j of a row is packed if its mask is 1. source_positions and target_positions record
 * where the packed tokens came from, for comparison with padded results.
 *
 * @param format NULL: SEQ2SEQ with decoder_start_token_id 0 and pad_token_id 0
 * @return FSDP_ERR_INVALID if a value of the mask is neither 0 nor 1; if the mask of a row has no
 *         1, or has a 0 between two 1s (packing would change the distance between their tokens); if
 *         an id, class or label is out of range; or if a position is invalid. The message names the
 *         row and the column. Also FSDP_ERR_INVALID if a dimension is negative or 2^31 - 1 or more,
 *         or if the labels of CAUSAL_LM or MASKED_LM are not as wide as input_ids
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded,
                                                            const fsdp_batch_format *format,
                                                            fsdp_batch **out);

/** Add a reference; returns `batch`. Any thread. */
FSDP_API fsdp_batch *fsdp_batch_retain(fsdp_batch *batch);
/** Drop a reference. When the last one is dropped, the batch is freed. Accepts NULL. Any thread. */
FSDP_API void fsdp_batch_release(fsdp_batch *batch);

#ifdef __cplusplus
}
#endif
