/* A batch is one block of memory: the struct, then its arrays. Sizes are found first, so that a
 * batch is either whole or not there. */
#include "src/base/batch.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "src/base/alloc.h"

/* What the public struct does not show. */
typedef struct batch {
    fsdp_batch head; /* first, so that the pointers convert */
    atomic_int refs;
} batch;

/* The same arrays, writable while the batch is made. */
typedef struct arrays {
    int32_t *input_ids, *source_offsets, *decoder_input_ids, *labels, *target_offsets;
    int64_t *source_positions, *target_positions; /* NULL if not wanted */
} arrays;

typedef struct sizes {
    int64_t rows, source_tokens, target_tokens;
    bool positions;
} sizes;

static fsdp_status allocate(const sizes *n, arrays *to, fsdp_batch **out)
{
    if (n->source_tokens >= INT32_MAX || n->target_tokens >= INT32_MAX || n->rows >= INT32_MAX)
        return fsdp_error(FSDP_ERR_INVALID,
                          "a batch of %" PRId64 " rows, %" PRId64 " source and %" PRId64
                          " target tokens: at most 2^31 - 1 of each",
                          n->rows, n->source_tokens, n->target_tokens);
    size_t rows = (size_t)n->rows, source = (size_t)n->source_tokens;
    size_t target = (size_t)n->target_tokens;
    size_t wide = n->positions ? source + target : 0; /* int64s come first: aligned */
    size_t narrow = source + 2 * target + 2 * (rows + 1);
    batch *b = fsdp_calloc(1, sizeof *b + wide * sizeof(int64_t) + narrow * sizeof(int32_t));
    if (!b)
        return FSDP_ERR_NOMEM;
    atomic_init(&b->refs, 1);
    static_assert(sizeof(batch) % sizeof(int64_t) == 0, "the arrays follow the struct");
    int64_t *wide_at = (int64_t *)(b + 1);
    int32_t *at = (int32_t *)(wide_at + wide);
    *to = (arrays){0};
    if (n->positions) {
        to->source_positions = wide_at;
        to->target_positions = wide_at + source;
    }
    to->input_ids = at;
    to->decoder_input_ids = at += source;
    to->labels = at += target;
    to->source_offsets = at += target;
    to->target_offsets = at + rows + 1;
    b->head = (fsdp_batch){
        .rows = (int32_t)n->rows,
        .source_tokens = (int32_t)n->source_tokens,
        .target_tokens = (int32_t)n->target_tokens,
        .input_ids = to->input_ids,
        .source_offsets = to->source_offsets,
        .decoder_input_ids = to->decoder_input_ids,
        .labels = to->labels,
        .target_offsets = to->target_offsets,
        .source_positions = to->source_positions,
        .target_positions = to->target_positions,
    };
    *out = &b->head;
    return FSDP_OK;
}

/* Shift the labels right, count those with a loss, find the longest rows. */
static void derive(fsdp_batch *b, const arrays *to, int32_t start_id, int32_t pad_id)
{
    for (int32_t row = 0; row < b->rows; row++) {
        int32_t first = to->target_offsets[row], end = to->target_offsets[row + 1];
        int32_t source_len = to->source_offsets[row + 1] - to->source_offsets[row];
        int32_t previous = start_id;
        for (int32_t i = first; i < end; i++) {
            bool ignored = to->labels[i] == FSDP_IGNORE_INDEX;
            to->decoder_input_ids[i] = previous;
            previous = ignored ? pad_id : to->labels[i];
            b->label_tokens += !ignored;
        }
        if (source_len > b->max_source_len)
            b->max_source_len = source_len;
        if (end - first > b->max_target_len)
            b->max_target_len = end - first;
    }
}

/* Labels without the ignored ones at the end. */
static int32_t kept_labels(const fsdp_batch_row *row)
{
    int32_t n = row->labels_len;
    while (n > 0 && row->labels[n - 1] == FSDP_IGNORE_INDEX)
        n--;
    return n;
}

fsdp_status fsdp_batch_create(const fsdp_batch_row *rows, int32_t count,
                              int32_t decoder_start_token_id, int32_t pad_token_id,
                              fsdp_batch **out)
{
    if (count < 0)
        return fsdp_error(FSDP_ERR_INVALID, "a batch of %d rows", (int)count);
    sizes n = {.rows = count};
    for (int32_t i = 0; i < count; i++) {
        if (rows[i].source_len < 0 || rows[i].labels_len < 0)
            return fsdp_error(FSDP_ERR_INVALID, "row %d: negative length", (int)i);
        n.source_tokens += rows[i].source_len;
        n.target_tokens += kept_labels(&rows[i]);
    }
    arrays to;
    fsdp_batch *b;
    FSDP_TRY(allocate(&n, &to, &b));
    int32_t source = 0, target = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t labels = kept_labels(&rows[i]);
        if (rows[i].source_len)
            memcpy(to.input_ids + source, rows[i].source,
                   (size_t)rows[i].source_len * sizeof(int32_t));
        if (labels)
            memcpy(to.labels + target, rows[i].labels, (size_t)labels * sizeof(int32_t));
        to.source_offsets[i + 1] = source += rows[i].source_len;
        to.target_offsets[i + 1] = target += labels;
    }
    derive(b, &to, decoder_start_token_id, pad_token_id);
    *out = b;
    return FSDP_OK;
}

/* ---- padded arrays ---- */

fsdp_status fsdp_mask_span(const int64_t *mask, int64_t width, int64_t *first, int64_t *end)
{
    int64_t begin = -1, after = -1; /* after: the column behind the first run of ones */
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

static fsdp_status check_id(const char *what, int64_t id, int64_t column, int64_t vocab_size)
{
    if (id >= 0 && id <= INT32_MAX && (vocab_size == 0 || id < vocab_size))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: column %" PRId64 " is %" PRId64 ", not in [0, %" PRId64 ")", what,
                      column, id, vocab_size ? vocab_size : (int64_t)INT32_MAX + 1);
}

/* The columns of one row that are packed, and whether they hold what they should. */
typedef struct span {
    int64_t source_first, source_end, target_end;
} span;

static fsdp_status find_span(const fsdp_padded *p, int64_t row, span *out)
{
    const int64_t *ids = p->input_ids + row * p->source_width;
    span s = {.source_end = p->source_width};
    if (p->attention_mask)
        FSDP_TRY(fsdp_mask_span(p->attention_mask + row * p->source_width, p->source_width,
                                &s.source_first, &s.source_end));
    for (int64_t i = s.source_first; i < s.source_end; i++)
        FSDP_TRY(check_id("input_ids", ids[i], i, p->vocab_size));
    const int64_t *labels = p->labels ? p->labels + row * p->target_width : NULL;
    for (int64_t i = 0; labels && i < p->target_width; i++) {
        if (labels[i] == FSDP_IGNORE_INDEX)
            continue;
        FSDP_TRY(check_id("labels", labels[i], i, p->vocab_size));
        s.target_end = i + 1;
    }
    *out = s;
    return FSDP_OK;
}

static fsdp_status find_spans(const fsdp_padded *p, span *spans, sizes *n)
{
    for (int64_t row = 0; row < p->rows; row++) {
        fsdp_status status = find_span(p, row, &spans[row]);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "row %" PRId64, row);
            return status;
        }
        n->source_tokens += spans[row].source_end - spans[row].source_first;
        n->target_tokens += spans[row].target_end;
    }
    return FSDP_OK;
}

static void fill_from_padded(const fsdp_padded *p, const span *spans, const arrays *to)
{
    int32_t source = 0, target = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        const span *s = &spans[row];
        for (int64_t i = s->source_first; i < s->source_end; i++, source++) {
            to->source_positions[source] = row * p->source_width + i;
            to->input_ids[source] = (int32_t)p->input_ids[row * p->source_width + i];
        }
        for (int64_t i = 0; i < s->target_end; i++, target++) {
            to->target_positions[target] = row * p->target_width + i;
            to->labels[target] = (int32_t)p->labels[row * p->target_width + i];
        }
        to->source_offsets[row + 1] = source;
        to->target_offsets[row + 1] = target;
    }
}

fsdp_status fsdp_batch_from_padded(const fsdp_padded *padded, int32_t decoder_start_token_id,
                                   int32_t pad_token_id, fsdp_batch **out)
{
    if (padded->rows < 0 || padded->source_width < 0 || padded->target_width < 0)
        return fsdp_error(FSDP_ERR_INVALID, "padded arrays with a negative dimension");
    span *spans = fsdp_calloc((size_t)padded->rows, sizeof *spans);
    if (!spans)
        return FSDP_ERR_NOMEM;
    sizes n = {.rows = padded->rows, .positions = true};
    arrays to;
    fsdp_batch *b = NULL;
    fsdp_status status = find_spans(padded, spans, &n);
    if (status == FSDP_OK)
        status = allocate(&n, &to, &b);
    if (status == FSDP_OK) {
        fill_from_padded(padded, spans, &to);
        derive(b, &to, decoder_start_token_id, pad_token_id);
        *out = b;
    }
    fsdp_free(spans);
    return status;
}

/* ---- counting ---- */

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
