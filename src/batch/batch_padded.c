/* Builds a batch from padded arrays. The padding is removed, so that no other code has to handle
 * it. */
#include <inttypes.h>

#include "src/base/alloc.h"
#include "src/batch/batch.h"

fsdp_status fsdp_mask_span(const int64_t *mask, int64_t width, int64_t *first, int64_t *end)
{
    /* `after` is the first column after the first sequence of consecutive ones */
    int64_t begin = -1, after = -1;
    for (int64_t i = 0; i < width; i++) {
        if (mask[i] != 0 && mask[i] != 1)
            return fsdp_error(FSDP_ERR_INVALID,
                              "attention_mask: column %" PRId64 " is %" PRId64 ", not 0 or 1", i,
                              mask[i]);
        if (mask[i] && after >= 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "attention_mask: a hole at column %" PRId64
                              "; only padding at the ends can be packed",
                              after);
        if (mask[i] && begin < 0)
            begin = i;
        if (!mask[i] && begin >= 0 && after < 0)
            after = i;
    }
    if (begin < 0)
        return fsdp_error(FSDP_ERR_INVALID, "attention_mask is 0 everywhere");
    *first = begin;
    *end = after >= 0 ? after : width;
    return FSDP_OK;
}

/* The rows of a batch without their padding. pack_row() fills in one row after another. All arrays
 * of all rows are in one block of memory. The block is large enough for all columns of the padded
 * arrays. */
typedef struct packing {
    const fsdp_padded *p;
    fsdp_task task;
    /* Number of labels of each row if the labels are real numbers. 0: the labels are classes or
     * ids. */
    int32_t num_targets;
    fsdp_batch_row *rows; /* [p->rows] */
    int64_t *first;       /* [p->rows]: each row's first column that is not padding */
    int32_t *at;          /* the first unused element of the block */
} packing;

static fsdp_status out_of_range(const char *what, int64_t id, int64_t column, int64_t limit)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: column %" PRId64 " is %" PRId64 ", not in [0, %" PRId64 ")", what,
                      column, id, limit ? limit : (int64_t)INT32_MAX + 1);
}

/* Convert columns [first, end) of the row `wide` of a padded array to int32. Set *out to the
 * result, or to NULL if `wide` is NULL. Values must be in [0, limit) or, if limit is 0, in [0,
 * INT32_MAX]. If `labels` is true, the value FSDP_IGNORE_INDEX is also allowed. `what` is the name
 * of the array in error messages. */
static fsdp_status narrow_to_int32(packing *k, const char *what, const int64_t *wide, int64_t first,
                                   int64_t end, int64_t limit, bool labels, const int32_t **out)
{
    int32_t *to = k->at;
    *out = NULL;
    if (!wide)
        return FSDP_OK;
    for (int64_t i = first; i < end; i++) {
        bool ignored = labels && wide[i] == FSDP_IGNORE_INDEX;
        if (!ignored && (wide[i] < 0 || wide[i] > INT32_MAX || (limit && wide[i] >= limit)))
            return out_of_range(what, wide[i], i, limit);
        *k->at++ = (int32_t)wide[i];
    }
    *out = to;
    return FSDP_OK;
}

static const int64_t *row_of(const int64_t *array, int64_t row, int64_t width)
{
    return array ? array + row * width : NULL;
}

static bool has_label_for_each_token(fsdp_task task)
{
    return task == FSDP_TASK_CAUSAL_LM || task == FSDP_TASK_MASKED_LM;
}

static fsdp_status pack_row(packing *k, int64_t row)
{
    const fsdp_padded *p = k->p;
    const bool by_token = has_label_for_each_token(k->task);
    const int64_t width = p->source_width;
    int64_t first = 0, end = width;
    fsdp_batch_row *to = &k->rows[row];
    if (p->attention_mask)
        FSDP_TRY(fsdp_mask_span(row_of(p->attention_mask, row, width), width, &first, &end));
    FSDP_TRY(narrow_to_int32(k, "input_ids", row_of(p->input_ids, row, width), first, end,
                             p->vocab_size, false, &to->source));
    FSDP_TRY(narrow_to_int32(k, "position_ids", row_of(p->position_ids, row, width), first, end, 0,
                             false, &to->position_ids));
    FSDP_TRY(narrow_to_int32(k, "token_type_ids", row_of(p->token_type_ids, row, width), first, end,
                             0, false, &to->token_type_ids));
    int64_t label_first = by_token ? first : 0, label_end = by_token ? end : p->target_width;
    int64_t limit = k->task == FSDP_TASK_CLASSIFICATION ? p->n_classes : p->vocab_size;
    FSDP_TRY(narrow_to_int32(k, "labels", row_of(p->labels, row, p->target_width), label_first,
                             label_end, limit, true, &to->labels));
    to->source_len = (int32_t)(end - first);
    to->labels_len = to->labels ? (int32_t)(label_end - label_first) : 0;
    if (k->num_targets && p->targets) {
        to->targets = p->targets + row * k->num_targets;
        to->targets_len = k->num_targets;
        to->labels_len = 0;
    }
    k->first[row] = first;
    return FSDP_OK;
}

/* For each token of the batch, record its position in the padded arrays. */
static void fill_origins(const packing *k, const fsdp_batch *b, const fsdp_batch_arrays *to)
{
    int64_t source = 0, target = 0;
    for (int64_t row = 0; row < k->p->rows; row++) {
        for (int64_t i = 0; i < k->rows[row].source_len; i++)
            to->source_positions[source++] = row * k->p->source_width + k->first[row] + i;
        if (b->task != FSDP_TASK_SEQ2SEQ)
            continue;
        for (int64_t i = 0; target < b->target_offsets[row + 1]; i++)
            to->target_positions[target++] = row * k->p->target_width + i;
    }
}

static fsdp_status pack_rows(packing *k, const fsdp_batch_format *format, fsdp_batch **out)
{
    fsdp_batch_arrays arrays;
    for (int64_t row = 0; row < k->p->rows; row++) {
        fsdp_status status = pack_row(k, row);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "row %" PRId64, row);
            return status;
        }
    }
    FSDP_TRY(fsdp_batch_build(k->rows, (int32_t)k->p->rows, format, true, &arrays, out));
    fill_origins(k, *out, &arrays);
    return FSDP_OK;
}

static fsdp_status check_shape(const fsdp_padded *p, fsdp_task task)
{
    if (p->rows < 0 || p->source_width < 0 || p->target_width < 0)
        return fsdp_error(FSDP_ERR_INVALID, "padded arrays with a negative dimension");
    if (p->rows >= INT32_MAX || p->source_width >= INT32_MAX || p->target_width >= INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "padded arrays of 2^31 rows or columns, or more");
    if (has_label_for_each_token(task) && p->labels && p->target_width != p->source_width)
        return fsdp_error(FSDP_ERR_INVALID,
                          "labels are %" PRId64 " columns wide, input_ids %" PRId64,
                          p->target_width, p->source_width);
    return FSDP_OK;
}

fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded, const fsdp_batch_format *format,
                                   fsdp_batch **out)
{
    packing k = {.p = padded, .task = format ? format->task : FSDP_TASK_SEQ2SEQ};
    if (k.task == FSDP_TASK_CLASSIFICATION && format->problem_type != FSDP_PROBLEM_SINGLE_LABEL)
        k.num_targets = format->num_targets;
    FSDP_TRY(check_shape(padded, k.task));
    const size_t rows = (size_t)padded->rows;
    const size_t width = (size_t)(3 * padded->source_width + padded->target_width);
    int32_t *block = fsdp_calloc(rows * width, sizeof *block);
    k.at = block;
    k.rows = fsdp_calloc(rows, sizeof *k.rows);
    k.first = fsdp_calloc(rows, sizeof *k.first);
    fsdp_status status = block && k.rows && k.first ? pack_rows(&k, format, out) : FSDP_ERR_NOMEM;
    fsdp_free(k.first);
    fsdp_free(k.rows);
    fsdp_free(block);
    return status;
}
