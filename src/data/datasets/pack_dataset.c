/* Joins rows of CAUSAL_LM to rows of up to max_length tokens.
 *
 * Note [Packing]. When the dataset is opened, every row is read once, to learn its length. A packed
 * row is a list of pieces; a piece is a range of the tokens of one row. The pieces do not depend on
 * seed and epoch. The sampler draws the order of the packed rows of each epoch.
 *
 * Wrapped: the rows are put one after the other, and cut after every max_length tokens. A row must
 * be one document, because a packed row has no positions. The rows are not truncated: max_length is
 * the length of packed rows. A row that spans up to LONG_PIECES packed rows is tokenized again for
 * each of them. The ids of longer rows are kept (long_rows.h). So the work of an epoch is
 * proportional to the number of tokens, even if rows are very long.
 *
 * First-fit and best-fit decreasing do not cut rows. They put whole rows together, in windows of
 * WINDOW_ROWS neighboring rows. A window is closed before the next one begins. The room of a packed
 * row is the number of tokens that can still be added to it. If no packed row of the window has
 * sufficient room for a row, this row begins a new packed row.
 *
 * First-fit: each row, in the order of the file, goes to the first packed row that has sufficient
 * room.
 *
 * Best-fit decreasing: the rows of a window are sorted by length, longest first, with equal lengths
 * in the order of the file. Each row goes to the packed row with the least room that is sufficient;
 * if several have the same room, it goes to the one that was filled last. Packed rows are then
 * sorted by the position of their first rows in the file, and the rows in each packed row by their
 * own positions. */
#include "src/data/datasets/dataset.h"
#include "src/data/rows/rows_form.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/datasets/long_rows.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

enum {
    WINDOW_ROWS = 1 << 16,
    LONG_PIECES = 4
};

typedef struct piece {
    int64_t row;
    int32_t first, len; /* tokens of the row */
} piece;

typedef struct pack_dataset {
    fsdp_dataset *rows; /* owned */
    fsdp_long_rows *long_rows;
    fsdp_packing how; /* never NONE. WRAPPED: rows are cut into pieces; otherwise each piece is a
                         whole row */
    piece *pieces;    /* [n_pieces] */
    size_t n_pieces, pieces_cap;
    size_t *starts; /* [len + 1]: packed row i has pieces [starts[i], starts[i + 1]) */
    size_t len, starts_cap;
    int64_t unused; /* tokens that are in no packed row */
    /* If pieces are whole rows: the number of rows that were cut to max_length, and of the tokens
     * that were cut off. */
    int64_t cut_rows, cut_tokens;
    /* If pieces are whole rows: the counts of rows with special or unknown tokens in their
     * texts. */
    fsdp_left_out marked;
} pack_dataset;

/* ---- building ---- */

static fsdp_status add_piece(pack_dataset *d, int64_t row, int64_t first, int64_t len)
{
    if (!FSDP_GROW(d->pieces, d->pieces_cap, d->n_pieces + 1))
        return FSDP_ERR_NOMEM;
    d->pieces[d->n_pieces++] = (piece){row, (int32_t)first, (int32_t)len};
    return FSDP_OK;
}

/* End the current packed row. It has all pieces that were added since the previous packed row
 * ended. */
static fsdp_status end_packed_row(pack_dataset *d)
{
    if (!FSDP_GROW(d->starts, d->starts_cap, d->len + 2))
        return FSDP_ERR_NOMEM;
    if (d->len == 0)
        d->starts[0] = 0;
    d->starts[++d->len] = d->n_pieces;
    return FSDP_OK;
}

/* Check that a row that will be wrapped is one document. A wrapped row has no positions, so
 * documents that its position_ids separate would become one. */
static fsdp_status check_is_one_document(int64_t row, const fsdp_example *example)
{
    const fsdp_token_list *positions = &example->position_ids;
    for (size_t i = 1; i < positions->len; i++)
        if (positions->ids[i] == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "packing: row %" PRId64 ": position_ids: entry %zu is 0 and begins "
                              "another document, but wrapped rows are joined to one document; "
                              "--packing bfd or first-fit keeps documents apart",
                              row + 1, i);
    return FSDP_OK;
}

/* Set *length to the number of tokens of a row. */
static fsdp_status row_length(const pack_dataset *d, int64_t row, fsdp_example *example,
                              int64_t *length)
{
    FSDP_TRY(fsdp_dataset_get(d->rows, row, example));
    *length = (int64_t)example->source.len;
    return FSDP_OK;
}

/* Add a row to d->long_rows if it has too many pieces to be tokenized again for each of them. */
static fsdp_status keep_if_long(pack_dataset *d, int64_t row, int64_t capacity,
                                const fsdp_example *example)
{
    if (example->source.len > INT32_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "packing: row %" PRId64 " has more than %d tokens",
                          row + 1, INT32_MAX);
    if ((int64_t)example->source.len <= LONG_PIECES * capacity)
        return FSDP_OK;
    const fsdp_status status = fsdp_long_rows_add(d->long_rows, row, example);
    fsdp_error_context(status, "packing: the ids of row %" PRId64, row + 1);
    return status;
}

static fsdp_status wrap_rows(pack_dataset *d, int64_t capacity, fsdp_example *example)
{
    int64_t room = capacity;
    for (int64_t row = 0; row < fsdp_dataset_len(d->rows); row++) {
        int64_t length, at = 0;
        FSDP_TRY(row_length(d, row, example, &length));
        FSDP_TRY(check_is_one_document(row, example));
        FSDP_TRY(keep_if_long(d, row, capacity, example));
        while (at < length) {
            const int64_t n = length - at < room ? length - at : room;
            FSDP_TRY(add_piece(d, row, at, n));
            at += n;
            room -= n;
            if (room)
                continue;
            FSDP_TRY(end_packed_row(d));
            room = capacity;
        }
    }
    if (room == capacity)
        return FSDP_OK;
    if (capacity - room > 1)
        return end_packed_row(d);
    d->unused = 1; /* a row of one token has nothing to predict */
    d->n_pieces--;
    return FSDP_OK;
}

/* ---- whole rows ---- */

typedef struct sized {
    int64_t row;
    int32_t length;
    int32_t bin;
} sized;

/* The packed rows of a window (bins). The room of a bin is the number of tokens that still fit.
 * First-fit uses `rooms`. Best-fit decreasing uses `heads`, `occupied` and `next`, which find bins
 * by their room. */
typedef struct bins {
    int64_t capacity;
    /* [2 * WINDOW_ROWS] The room of bin i is at WINDOW_ROWS + i; a bin that does not exist yet has
     * room for `capacity` tokens. Item k < WINDOW_ROWS is the larger one of items 2 * k and
     * 2 * k + 1. Item 0 is not used. */
    int32_t *rooms;
    int32_t *heads; /* [capacity + 1] for each room: the bin with this room that was filled last, or
                       -1 */
    uint64_t *occupied; /* one bit for each room; 1: a bin has this room */
    int32_t *next; /* [WINDOW_ROWS] for each bin: the bin with the same room that was filled before
                      it */
    int32_t len;
} bins;

static int by_length(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_bin(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->bin != y->bin)
        return x->bin < y->bin ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static fsdp_status bins_init(bins *b, int64_t capacity)
{
    b->capacity = capacity;
    b->rooms = fsdp_calloc((size_t)2 * WINDOW_ROWS, sizeof *b->rooms);
    b->heads = fsdp_calloc((size_t)capacity + 1, sizeof *b->heads);
    b->occupied = fsdp_calloc((size_t)capacity / 64 + 1, sizeof *b->occupied);
    b->next = fsdp_calloc(WINDOW_ROWS, sizeof *b->next);
    if (!b->rooms || !b->heads || !b->occupied || !b->next)
        return FSDP_ERR_NOMEM;
    return FSDP_OK;
}

static void bins_clear(bins *b)
{
    b->len = 0;
    for (int32_t i = 0; i < 2 * WINDOW_ROWS; i++)
        b->rooms[i] = (int32_t)b->capacity;
    memset(b->heads, 0xff, ((size_t)b->capacity + 1) * sizeof *b->heads);
    memset(b->occupied, 0, ((size_t)b->capacity / 64 + 1) * sizeof *b->occupied);
}

static void bins_fini(bins *b)
{
    fsdp_free(b->rooms);
    fsdp_free(b->heads);
    fsdp_free(b->occupied);
    fsdp_free(b->next);
}

static void put_bin(bins *b, int32_t bin, int64_t room)
{
    b->next[bin] = b->heads[room];
    b->heads[room] = bin;
    b->occupied[room / 64] |= UINT64_C(1) << room % 64;
}

/* Among the bins with room for at least `length` tokens, remove and return the one with the least
 * room, and set *room to its room. Return -1 if no bin has enough room. */
static int32_t take_bin(bins *b, int64_t length, int64_t *room)
{
    int64_t word = length / 64;
    uint64_t bits = b->occupied[word] & ~UINT64_C(0) << length % 64;
    while (!bits && ++word <= b->capacity / 64)
        bits = b->occupied[word];
    if (!bits)
        return -1;
    *room = word * 64 + __builtin_ctzll(bits);
    const int32_t bin = b->heads[*room];
    b->heads[*room] = b->next[bin];
    if (b->heads[*room] < 0)
        b->occupied[word] &= ~(UINT64_C(1) << *room % 64);
    return bin;
}

/* Add a row of `length` tokens to a bin, and return this bin: among the bins with sufficient room,
 * the one with the least room, or a new bin if none has sufficient room. */
static int32_t add_to_best_bin(bins *b, int32_t length)
{
    int64_t room = b->capacity;
    int32_t bin = take_bin(b, length, &room);
    if (bin < 0)
        bin = b->len++;
    put_bin(b, bin, room - length);
    return bin;
}

/* Add a row of `length` tokens to the first bin that has sufficient room, or to a new one, and
 * return this bin. */
static int32_t add_to_first_bin(bins *b, int32_t length)
{
    int32_t at = 1;
    while (at < WINDOW_ROWS)
        at = b->rooms[2 * at] >= length ? 2 * at : 2 * at + 1;
    const int32_t bin = at - WINDOW_ROWS;
    b->rooms[at] -= length;
    while (at /= 2)
        b->rooms[at] =
            b->rooms[2 * at] > b->rooms[2 * at + 1] ? b->rooms[2 * at] : b->rooms[2 * at + 1];
    if (bin == b->len)
        b->len++;
    return bin;
}

/* Number the bins in the order of their first rows, and set the `bin` of each row to the new
 * number. `rows` [n] are in the order of the file. `numbers` [number of bins] is scratch memory. */
static void number_bins(sized *rows, size_t n, const bins *b, int32_t *numbers)
{
    int32_t count = 0;
    for (int32_t i = 0; i < b->len; i++)
        numbers[i] = -1;
    for (size_t i = 0; i < n; i++) {
        int32_t *number = &numbers[rows[i].bin];
        if (*number < 0)
            *number = count++;
        rows[i].bin = *number;
    }
}

static int by_row(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return (x->row > y->row) - (x->row < y->row);
}

static fsdp_status pack_window(pack_dataset *d, bins *b, sized *rows, size_t n, int32_t *numbers)
{
    const bool best = d->how == FSDP_PACKING_BFD;
    bins_clear(b);
    if (best)
        qsort(rows, n, sizeof *rows, by_length);
    for (size_t i = 0; i < n; i++)
        rows[i].bin =
            best ? add_to_best_bin(b, rows[i].length) : add_to_first_bin(b, rows[i].length);
    qsort(rows, n, sizeof *rows, by_row);
    number_bins(rows, n, b, numbers);
    qsort(rows, n, sizeof *rows, by_bin);
    for (size_t i = 0; i < n; i++) {
        FSDP_TRY(add_piece(d, rows[i].row, 0, rows[i].length));
        if (i + 1 == n || rows[i + 1].bin != rows[i].bin)
            FSDP_TRY(end_packed_row(d));
    }
    return FSDP_OK;
}

static fsdp_status pack_windows(pack_dataset *d, bins *b, sized *rows, int32_t *numbers,
                                fsdp_example *example)
{
    const int64_t len = fsdp_dataset_len(d->rows);
    size_t n = 0;
    for (int64_t row = 0; row < len; row++) {
        const fsdp_special_in_text *special = fsdp_special_in_text_of_thread();
        const int64_t before = special->count;
        int64_t cut;
        fsdp_unknown_in_text unknown =
            fsdp_unknown_in_next_row(d->marked.unknown_rows, &d->marked.unknown_examples);
        fsdp_unknown_in_text *outer = fsdp_unknown_in_text_watch(&unknown);
        const fsdp_status status = fsdp_dataset_get_cut(d->rows, row, example, &cut);
        fsdp_unknown_in_text_watch(outer);
        FSDP_TRY(status);
        fsdp_left_out_add_unknown(&d->marked, row, &unknown);
        if (special->count > before)
            fsdp_left_out_add_special(&d->marked, row, special->last);
        const int64_t length = (int64_t)example->source.len;
        d->cut_rows += cut > 0;
        d->cut_tokens += cut;
        if (length > b->capacity)
            return fsdp_error(FSDP_ERR_INVALID,
                              "packing: row %" PRId64 " has %" PRId64 " tokens, above %" PRId64,
                              row + 1, length, b->capacity);
        rows[n++] = (sized){.row = row, .length = (int32_t)length};
        if (n == WINDOW_ROWS || row + 1 == len) {
            FSDP_TRY(pack_window(d, b, rows, n, numbers));
            n = 0;
        }
    }
    return FSDP_OK;
}

static fsdp_status fit_rows(pack_dataset *d, int64_t capacity, fsdp_example *example)
{
    bins b = {0};
    sized *rows = fsdp_calloc(WINDOW_ROWS, sizeof *rows);
    int32_t *numbers = fsdp_calloc(WINDOW_ROWS, sizeof *numbers);
    fsdp_status status = rows && numbers ? bins_init(&b, capacity) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = pack_windows(d, &b, rows, numbers, example);
    bins_fini(&b);
    fsdp_free(rows);
    fsdp_free(numbers);
    return status;
}

/* ---- functions of the dataset ---- */

static int64_t pack_len(void *self)
{
    return (int64_t)((const pack_dataset *)self)->len;
}

static fsdp_status reserve(fsdp_token_list *list, size_t more)
{
    return FSDP_GROW(list->ids, list->cap, list->len + more) ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Append the tokens of piece `p`, which is a part of `row`. If pieces are whole rows, also append
 * positions, which begin again at 0 with each document. A wrapped row has no positions: it is one
 * document. */
static fsdp_status append_piece(const pack_dataset *d, const piece *p, const fsdp_example *row,
                                fsdp_example *example)
{
    const size_t first = (size_t)p->first, n = (size_t)p->len;
    fsdp_token_list *source = &example->source, *labels = &example->labels;
    fsdp_token_list *positions = &example->position_ids;
    if (first + n > row->source.len)
        return fsdp_error(FSDP_ERR_IO, "the file has changed: row %" PRId64 " is shorter",
                          p->row + 1);
    FSDP_TRY(reserve(source, n));
    FSDP_TRY(reserve(labels, n));
    memcpy(source->ids + source->len, row->source.ids + first, n * sizeof *source->ids);
    memcpy(labels->ids + labels->len, (row->labels.len ? row->labels.ids : row->source.ids) + first,
           n * sizeof *labels->ids);
    source->len += n;
    labels->len += n;
    if (d->how == FSDP_PACKING_WRAPPED)
        return FSDP_OK;
    FSDP_TRY(reserve(positions, n));
    for (size_t i = 0; i < n; i++)
        positions->ids[positions->len++] =
            row->position_ids.len ? row->position_ids.ids[first + i] : (int32_t)i;
    return FSDP_OK;
}

/* Like append_piece(), for a piece whose row is in d->long_rows. */
static fsdp_status append_kept(const pack_dataset *d, const piece *p, fsdp_example *example)
{
    const size_t n = (size_t)p->len;
    fsdp_token_list *source = &example->source, *labels = &example->labels;
    FSDP_TRY(reserve(source, n));
    FSDP_TRY(reserve(labels, n));
    FSDP_TRY(fsdp_long_rows_read(d->long_rows, p->row, (size_t)p->first, n,
                                 source->ids + source->len, labels->ids + labels->len));
    source->len += n;
    labels->len += n;
    return FSDP_OK;
}

static fsdp_status read_and_append(const pack_dataset *d, const piece *p, fsdp_example *row,
                                   fsdp_example *example)
{
    if (fsdp_long_rows_have(d->long_rows, p->row))
        return append_kept(d, p, example);
    FSDP_TRY(fsdp_dataset_get(d->rows, p->row, row));
    return append_piece(d, p, row, example);
}

static fsdp_status pack_get(void *self, int64_t index, fsdp_example *example)
{
    const pack_dataset *d = self;
    fsdp_example row = {0};
    fsdp_status status = FSDP_OK;
    for (size_t i = d->starts[index]; i < d->starts[index + 1] && status == FSDP_OK; i++)
        status = read_and_append(d, &d->pieces[i], &row, example);
    fsdp_example_fini(&row);
    return status;
}

/* Count what is left out of the rows that were packed. If the pieces are whole rows, all rows are
 * counted, because all of them were read when they were packed. For wrapped rows, all rows are
 * counted, too, unless range->len is below range->rows: then only the first range->len rows are
 * counted. */
static fsdp_status pack_left_out(void *self, const fsdp_row_range *range, fsdp_left_out *sum)
{
    const pack_dataset *d = self;
    const int64_t rows = fsdp_dataset_len(d->rows);
    if (d->how != FSDP_PACKING_WRAPPED) {
        FSDP_TRY(
            fsdp_dataset_left_out_of(d->rows, &(fsdp_row_range){.first = 0, .rows = rows}, sum));
        /* d->marked.special_row and unknown_row count the rows of all files together, so
         * special_file and unknown_file are NULL. */
        const fsdp_left_out none = {.skipped_rows = sum->skipped_rows,
                                    .unused_tokens = sum->unused_tokens,
                                    .counted_rows = rows,
                                    .cut_rows = d->cut_rows,
                                    .cut_tokens = d->cut_tokens};
        *sum = none;
        fsdp_left_out_add(sum, &d->marked);
    } else {
        FSDP_TRY(fsdp_dataset_left_out(d->rows, range->len < range->rows ? range->len : 0, sum));
    }
    sum->unused_tokens += d->unused;
    return FSDP_OK;
}

static void pack_close(void *self)
{
    pack_dataset *d = self;
    fsdp_dataset_close(d->rows);
    fsdp_long_rows_close(d->long_rows);
    fsdp_free(d->pieces);
    fsdp_free(d->starts);
    fsdp_free(d);
}

static const fsdp_dataset_ops pack_ops = {
    .len = pack_len,
    .get = pack_get,
    .close = pack_close,
};

static fsdp_status build(pack_dataset *d, const fsdp_dataset_options *options)
{
    fsdp_example example = {0};
    FSDP_TRY(fsdp_long_rows_create(&d->long_rows));
    fsdp_status status = d->how == FSDP_PACKING_WRAPPED
                             ? wrap_rows(d, options->max_length, &example)
                             : fit_rows(d, options->max_length, &example);
    fsdp_example_fini(&example);
    if (status == FSDP_OK && d->len == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "packing: the rows have fewer than two tokens");
    return status;
}

fsdp_status fsdp_pack_dataset_create(fsdp_dataset *rows, const fsdp_dataset_options *options,
                                     fsdp_dataset **out)
{
    if (options->max_length > INT32_MAX / 2)
        return fsdp_error(FSDP_ERR_INVALID,
                          "packing needs a length of rows (--max-seq-length): the model has no "
                          "limit of its own");
    pack_dataset *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    d->rows = rows;
    d->how = options->packing;
    fsdp_status status = build(d, options);
    if (status == FSDP_OK)
        status = fsdp_dataset_create(&pack_ops, d, out);
    if (status != FSDP_OK) {
        d->rows = NULL; /* the caller still owns the rows */
        pack_close(d);
        return status;
    }
    fsdp_dataset_set_uses(*out, fsdp_dataset_uses(rows) | FSDP_USES_PACKING);
    fsdp_dataset_set_note(*out, fsdp_dataset_note(rows));
    fsdp_dataset_set_left_out(*out, pack_left_out);
    fsdp_dataset_set_file_rows(*out, fsdp_dataset_file_rows(rows));
    return FSDP_OK;
}
