/* Builds batches and counts their references. A batch is one block of memory: the struct, followed
 * by its arrays. fsdp_batch_build() first checks all rows and computes the sizes of the arrays. It
 * then allocates the block, which fails only if there is no memory, and fills it. */
#include "src/batch/batch.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "src/base/alloc.h"

/* A batch and its reference count. Callers see only `head`. */
typedef struct batch {
    /* must be first, because a pointer to `head` is cast to a pointer to the batch */
    fsdp_batch head;
    atomic_int refs;
} batch;

typedef struct sizes {
    int64_t sequences, source_tokens, target_tokens, labels;
    /* Number of labels of each row if the labels are real numbers. 0: the labels are classes or
     * ids. */
    int64_t targets;
    /* `types`: the batch has token_type_ids. `origins`: the batch has source_positions and
     * target_positions. */
    bool types, origins;
} sizes;

/* ---- sizes ---- */

/* Return the number of labels of a row, without the ignored labels at its end. */
static int32_t kept_labels(const fsdp_batch_row *row)
{
    int32_t n = row->labels_len;
    while (n > 0 && row->labels[n - 1] == FSDP_IGNORE_INDEX)
        n--;
    return n;
}

/* Return true if token i of the row is the first token of a document. */
static bool begins(const fsdp_batch_row *row, int32_t i)
{
    return i == 0 || (row->position_ids && row->position_ids[i] == 0);
}

static fsdp_status check_positions(const fsdp_batch_row *row, int32_t index)
{
    for (int32_t i = 0; row->position_ids && i < row->source_len; i++) {
        int32_t at = row->position_ids[i];
        if (at != 0 && (i == 0 || at != row->position_ids[i - 1] + 1))
            return fsdp_error(FSDP_ERR_INVALID,
                              "row %d: position_ids: entry %d is %d; positions count up by one "
                              "from the 0 at which a document begins",
                              (int)index, (int)i, (int)at);
    }
    return FSDP_OK;
}

static fsdp_status check_labels(const fsdp_batch_row *row, int32_t index, fsdp_task task)
{
    if (task == FSDP_TASK_CAUSAL_LM && row->labels && row->labels_len != row->source_len &&
        row->labels_len != row->source_len + 1)
        return fsdp_error(FSDP_ERR_INVALID, "row %d: %d labels for %d ids", (int)index,
                          (int)row->labels_len, (int)row->source_len);
    if (task == FSDP_TASK_MASKED_LM && row->labels && row->labels_len != row->source_len)
        return fsdp_error(FSDP_ERR_INVALID, "row %d: %d labels for %d ids", (int)index,
                          (int)row->labels_len, (int)row->source_len);
    if (task == FSDP_TASK_CLASSIFICATION && row->labels_len > 1)
        return fsdp_error(FSDP_ERR_INVALID, "row %d: %d labels, not one class", (int)index,
                          (int)row->labels_len);
    for (int32_t i = 0; row->labels && i < row->labels_len; i++)
        if (row->labels[i] < 0 && row->labels[i] != FSDP_IGNORE_INDEX)
            return fsdp_error(FSDP_ERR_INVALID, "row %d: labels: entry %d is %d; ignored is %d",
                              (int)index, (int)i, (int)row->labels[i], FSDP_IGNORE_INDEX);
    return FSDP_OK;
}

/* Check the labels of a row, which are real numbers. */
static fsdp_status check_targets(const fsdp_batch_row *row, int32_t index, const sizes *n)
{
    if (row->targets_len == 0 && (n->targets == 0 || row->labels_len == 0))
        return FSDP_OK;
    if (n->targets == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "row %d: %d labels that are numbers, but the model's labels are classes",
                          (int)index, (int)row->targets_len);
    if (row->targets_len != n->targets)
        return fsdp_error(FSDP_ERR_INVALID,
                          "row %d: %d labels that are numbers, but the model has %d labels",
                          (int)index, (int)row->targets_len, (int)n->targets);
    for (int32_t i = 0; i < row->targets_len; i++)
        if (!isfinite(row->targets[i]))
            return fsdp_error(FSDP_ERR_INVALID, "row %d: label %d is not finite", (int)index,
                              (int)i);
    return FSDP_OK;
}

static fsdp_status measure_row(const fsdp_batch_row *row, int32_t index, fsdp_task task, sizes *n)
{
    if (row->source_len < 0 || row->labels_len < 0 || row->targets_len < 0)
        return fsdp_error(FSDP_ERR_INVALID, "row %d: negative length", (int)index);
    FSDP_TRY(check_positions(row, index));
    FSDP_TRY(check_labels(row, index, task));
    FSDP_TRY(check_targets(row, index, n));
    int64_t documents = row->source_len == 0;
    for (int32_t i = 0; i < row->source_len; i++)
        documents += begins(row, i);
    if (documents > 1 && task != FSDP_TASK_CAUSAL_LM && task != FSDP_TASK_MASKED_LM)
        return fsdp_error(FSDP_ERR_INVALID,
                          "row %d: several documents in a row are for causal and masked language "
                          "models only",
                          (int)index);
    n->sequences += documents;
    n->source_tokens += row->source_len;
    n->target_tokens += task == FSDP_TASK_SEQ2SEQ ? kept_labels(row) : 0;
    n->types |= row->token_type_ids != NULL;
    return FSDP_OK;
}

static fsdp_status measure_rows(const fsdp_batch_row *rows, int32_t count, fsdp_task task, sizes *n)
{
    for (int32_t i = 0; i < count; i++)
        FSDP_TRY(measure_row(&rows[i], i, task, n));
    n->labels = task == FSDP_TASK_SEQ2SEQ          ? n->target_tokens
                : task == FSDP_TASK_CLASSIFICATION ? n->sequences
                                                   : n->source_tokens;
    if (n->source_tokens < INT32_MAX && n->target_tokens < INT32_MAX && n->sequences < INT32_MAX)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "a batch of %" PRId64 " rows, %" PRId64 " source and %" PRId64
                      " target tokens: at most 2^31 - 2 of each",
                      n->sequences, n->source_tokens, n->target_tokens);
}

/* ---- memory ---- */

static int32_t *take_array(int32_t **at, int64_t n)
{
    int32_t *array = *at;
    *at += n;
    return array;
}

static fsdp_status allocate_batch(const sizes *n, fsdp_task task, fsdp_batch_arrays *to,
                                  fsdp_batch **out)
{
    const int64_t source = n->source_tokens, target = n->target_tokens, sequences = n->sequences;
    size_t wide =
        n->origins ? (size_t)(source + target) : 0; /* the int64 arrays come first, for alignment */
    size_t narrow =
        (size_t)((n->types ? 3 : 2) * source + target + n->labels + n->targets * sequences) +
        2 * (size_t)(sequences + 1);
    static_assert(sizeof(float) == sizeof(int32_t), "targets are in the same block");
    batch *b = fsdp_calloc(1, sizeof *b + wide * sizeof(int64_t) + narrow * sizeof(int32_t));
    if (!b)
        return FSDP_ERR_NOMEM;
    atomic_init(&b->refs, 1);
    static_assert(sizeof(batch) % sizeof(int64_t) == 0, "the arrays follow the struct");
    int64_t *wide_at = (int64_t *)(b + 1);
    int32_t *at = (int32_t *)(wide_at + wide);
    *to = (fsdp_batch_arrays){.source_positions = n->origins ? wide_at : NULL,
                              .target_positions = n->origins ? wide_at + source : NULL};
    to->input_ids = take_array(&at, source);
    to->position_ids = take_array(&at, source);
    to->token_type_ids = n->types ? take_array(&at, source) : NULL;
    to->decoder_input_ids = take_array(&at, target);
    to->labels = take_array(&at, n->labels);
    to->source_offsets = take_array(&at, sequences + 1);
    to->target_offsets = take_array(&at, sequences + 1);
    to->targets = n->targets ? (float *)take_array(&at, n->targets * sequences) : NULL;
    b->head = (fsdp_batch){
        .task = task,
        .rows = (int32_t)sequences,
        .source_tokens = (int32_t)source,
        .target_tokens = (int32_t)target,
        .n_labels = (int32_t)n->labels,
        .input_ids = to->input_ids,
        .position_ids = to->position_ids,
        .token_type_ids = to->token_type_ids,
        .source_offsets = to->source_offsets,
        .decoder_input_ids = to->decoder_input_ids,
        .labels = to->labels,
        .target_offsets = to->target_offsets,
        .targets = to->targets,
        .num_targets = (int32_t)n->targets,
        .source_positions = to->source_positions,
        .target_positions = to->target_positions,
    };
    *out = &b->head;
    return FSDP_OK;
}

/* ---- filling ---- */

static void copy_ids(int32_t *to, const int32_t *from, int32_t n)
{
    if (n)
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* Copy the source tokens of one row to the batch, from token index `token` on, and set their
 * positions and offsets. The row's first sequence has index `sequence` in the batch. Return the
 * index after the row's last sequence. */
static int32_t fill_source(const fsdp_batch_row *row, const fsdp_batch_arrays *to, int32_t token,
                           int32_t sequence)
{
    int32_t position = 0;
    copy_ids(to->input_ids + token, row->source, row->source_len);
    if (row->token_type_ids)
        copy_ids(to->token_type_ids + token, row->token_type_ids, row->source_len);
    for (int32_t i = 0; i < row->source_len; i++) {
        if (i > 0 && begins(row, i)) {
            to->source_offsets[++sequence] = token + i;
            position = 0;
        }
        to->position_ids[token + i] = position++;
    }
    to->source_offsets[++sequence] = token + row->source_len;
    return sequence;
}

/* Set the labels of one row of a causal model. As in transformers, the label of token i is
 * row->labels[i + 1]. If the row has no labels, the label of token i is the next token,
 * row->source[i + 1]. The last token of a document has no next token in its document, so its label
 * is FSDP_IGNORE_INDEX. The last token of the row is an exception if the row has one more label
 * than tokens: the last label is then the label of this token. */
static void fill_successors(const fsdp_batch_row *row, int32_t *labels)
{
    const int32_t *from = row->labels ? row->labels : row->source;
    const int32_t known = row->labels ? row->labels_len : row->source_len;
    for (int32_t i = 0; i < row->source_len; i++) {
        bool ends = i + 1 < row->source_len && begins(row, i + 1);
        labels[i] = ends || i + 1 >= known ? FSDP_IGNORE_INDEX : from[i + 1];
    }
}

/* Set the labels of one row of a masked language model. */
static void fill_masked(const fsdp_batch_row *row, int32_t *labels)
{
    for (int32_t i = 0; i < row->source_len; i++)
        labels[i] = row->labels ? row->labels[i] : FSDP_IGNORE_INDEX;
}

/* Set the labels of row `index`, which are real numbers. If the row has no labels, set them to
 * NaN. */
static void fill_targets(const fsdp_batch_row *row, int32_t index, int32_t n, float *targets)
{
    for (int32_t i = 0; i < n; i++)
        targets[index * (int64_t)n + i] = row->targets_len ? row->targets[i] : NAN;
}

static void fill_rows(const fsdp_batch_row *rows, int32_t count, const fsdp_batch *b,
                      const fsdp_batch_arrays *to)
{
    int32_t token = 0, sequence = 0, target = 0;
    for (int32_t i = 0; i < count; i++) {
        const fsdp_batch_row *row = &rows[i];
        int32_t first = sequence;
        sequence = fill_source(row, to, token, sequence);
        if (b->task == FSDP_TASK_SEQ2SEQ) {
            int32_t labels = kept_labels(row);
            copy_ids(to->labels + target, row->labels, labels);
            to->target_offsets[sequence] = target += labels;
        } else if (b->task == FSDP_TASK_CAUSAL_LM) {
            fill_successors(row, to->labels + token);
        } else if (b->task == FSDP_TASK_MASKED_LM) {
            fill_masked(row, to->labels + token);
        } else if (to->targets) {
            to->labels[first] = row->targets_len ? 0 : FSDP_IGNORE_INDEX;
            fill_targets(row, first, b->num_targets, to->targets);
        } else {
            to->labels[first] = row->labels_len ? row->labels[0] : FSDP_IGNORE_INDEX;
        }
        token += row->source_len;
    }
}

/* ---- decoder input, number of labels, longest sequences ---- */

/* For each sequence, set the decoder's input to the start token, followed by all labels but the
 * last. An ignored label becomes the padding token. */
static void fill_decoder_input(const fsdp_batch *b, const fsdp_batch_arrays *to,
                               const fsdp_batch_format *format)
{
    for (int32_t row = 0; row < b->rows; row++) {
        int32_t previous = format->decoder_start_token_id;
        for (int32_t i = to->target_offsets[row]; i < to->target_offsets[row + 1]; i++) {
            to->decoder_input_ids[i] = previous;
            previous = to->labels[i] == FSDP_IGNORE_INDEX ? format->pad_token_id : to->labels[i];
        }
    }
}

static int32_t longest_sequence(const int32_t *offsets, int32_t n)
{
    int32_t most = 0;
    for (int32_t i = 0; i < n; i++)
        if (offsets[i + 1] - offsets[i] > most)
            most = offsets[i + 1] - offsets[i];
    return most;
}

static void fill_derived(fsdp_batch *b, const fsdp_batch_arrays *to,
                         const fsdp_batch_format *format)
{
    fill_decoder_input(b, to, format);
    for (int32_t i = 0; i < b->n_labels; i++)
        b->label_tokens += b->labels[i] != FSDP_IGNORE_INDEX;
    b->max_source_len = longest_sequence(b->source_offsets, b->rows);
    b->max_target_len = longest_sequence(b->target_offsets, b->rows);
}

fsdp_status fsdp_batch_build(const fsdp_batch_row *rows, int32_t count,
                             const fsdp_batch_format *format, bool origins,
                             fsdp_batch_arrays *arrays, fsdp_batch **out)
{
    static const fsdp_batch_format seq2seq = {0};
    const fsdp_batch_format *f = format ? format : &seq2seq;
    fsdp_batch *b;
    if (count < 0)
        return fsdp_error(FSDP_ERR_INVALID, "a batch of %d rows", (int)count);
    if (f->num_targets < 0)
        return fsdp_error(FSDP_ERR_INVALID, "%d labels of a row", (int)f->num_targets);
    const bool numbers =
        f->task == FSDP_TASK_CLASSIFICATION && f->problem_type != FSDP_PROBLEM_SINGLE_LABEL;
    sizes n = {.origins = origins, .targets = numbers ? f->num_targets : 0};
    FSDP_TRY(measure_rows(rows, count, f->task, &n));
    FSDP_TRY(allocate_batch(&n, f->task, arrays, &b));
    fill_rows(rows, count, b, arrays);
    fill_derived(b, arrays, f);
    *out = b;
    return FSDP_OK;
}

fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                              const fsdp_batch_format *format, fsdp_batch **out)
{
    fsdp_batch_arrays arrays;
    return fsdp_batch_build(rows, count, format, false, &arrays, out);
}

/* ---- reference counting ---- */

fsdp_batch *fsdp_batch_retain(fsdp_batch *b)
{
    atomic_fetch_add_explicit(&((batch *)b)->refs, 1, memory_order_relaxed);
    return b;
}

void fsdp_batch_release(fsdp_batch *b)
{
    if (b && atomic_fetch_sub_explicit(&((batch *)b)->refs, 1, memory_order_acq_rel) == 1)
        fsdp_free(b);
}
