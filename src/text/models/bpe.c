/* The BPE model. It turns a piece into a list of symbols (characters or bytes), and bpe_merge.c
 * then merges adjacent symbols.
 *
 * Note [Parts of a piece]. Tokenizers such as Llama 2's have no pre-tokenizer, so a piece is a
 * whole text, in which U+2581 replaces each space. Merging a whole text takes long, and the cache
 * of words does not help. Such a piece is therefore split before each U+2581 that follows another
 * character, if no merge can cross that boundary. A merge can cross it only if the right token of
 * the merge begins with U+2581, and the left token ends with the last byte of the character before
 * the U+2581. If no merge can cross the boundaries, the tokens of the parts are the tokens of the
 * piece. */
#include "src/text/models/bpe.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/models/bpe_merge.h"
#include "src/text/models/token_work.h"

static const char mark[] = "\xE2\x96\x81"; /* U+2581 */

enum {
    MARK_BYTES = sizeof mark - 1
};

typedef struct bpe {
    fsdp_token_model base;
    fsdp_vocabulary *vocabulary;
    fsdp_merge_table *merges;
    char *unk_token; /* NULL: unknown characters are left out */
    char *prefix, *suffix;
    size_t prefix_length, suffix_length;
    bool fuse_unk, byte_fallback, ignore_merges, raw_bytes;
    bool splits_at_mark; /* pieces are split before U+2581; see Note [Parts of a piece] */
    /* joins_mark[b]: there is a merge whose left token ends with the byte b and whose right token
     * begins with U+2581 */
    bool joins_mark[256];
    int32_t unk_id; /* -1: unk_token is not in the vocabulary */
    /* With raw_bytes, the id of the token of each byte. Otherwise, the id of the token of each
     * ASCII character. -1: there is no such token. */
    int32_t unit_ids[256];
    int32_t byte_pieces[256];
} bpe;

static const bpe *bpe_of(const fsdp_token_model *model)
{
    return (const bpe *)model;
}

/* ---- symbols ---- */

/* The symbols of a piece. `items` is in slot 0 of the scratch memory of `work`. */
typedef struct symbol_list {
    const bpe *model;
    fsdp_token_work *work;
    fsdp_bpe_symbol *items;
    size_t len, cap;
    /* number of bytes of an unknown token that has been found but not added yet, because it may
     * become longer; 0: there is none */
    uint32_t unknown;
} symbol_list;

static fsdp_status add_symbol(symbol_list *s, int32_t id, size_t length)
{
    if (s->len == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        fsdp_bpe_symbol *items = fsdp_token_work_scratch(s->work, 0, cap * sizeof *items);
        if (!items)
            return FSDP_ERR_NOMEM;
        s->items = items;
        s->cap = cap;
    }
    s->items[s->len++] = (fsdp_bpe_symbol){id, (uint32_t)length};
    return FSDP_OK;
}

static fsdp_status add_pending_unknown(symbol_list *s)
{
    uint32_t length = s->unknown;
    s->unknown = 0;
    return length ? add_symbol(s, s->model->unk_id, length) : FSDP_OK;
}

/* If the vocabulary has a byte piece for each byte of `unit` [length], add these pieces and set
 * *added to true. Otherwise, set *added to false. */
static fsdp_status add_byte_pieces(symbol_list *s, const char *unit, size_t length, bool *added)
{
    *added = true;
    for (size_t i = 0; i < length; i++)
        *added = *added && s->model->byte_pieces[(unsigned char)unit[i]] >= 0;
    for (size_t i = 0; *added && i < length; i++)
        FSDP_TRY(add_symbol(s, s->model->byte_pieces[(unsigned char)unit[i]], 1));
    return FSDP_OK;
}

/* Add byte pieces or an unknown token for `unit` [length], a character whose text is not in the
 * vocabulary. This character covers `bytes` bytes of the piece. An unknown token is added only when
 * its end is known. So the byte pieces of a character are added before an unknown token that
 * precedes this character in the text. The tokenizers library has the same order. */
static fsdp_status add_unknown(symbol_list *s, const char *unit, size_t length, size_t bytes)
{
    const bpe *model = s->model;
    if (model->byte_fallback) {
        bool added;
        FSDP_TRY(add_byte_pieces(s, unit, length, &added));
        if (added)
            return FSDP_OK;
    }
    if (!model->unk_token)
        return FSDP_OK;
    if (model->unk_id < 0)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "the text contains \"%.*s\", which the vocabulary does not contain, and "
                          "neither does it contain the unknown token \"%s\"",
                          (int)length, unit, model->unk_token);
    if (!model->fuse_unk)
        FSDP_TRY(add_pending_unknown(s));
    s->unknown += (uint32_t)bytes;
    return FSDP_OK;
}

static fsdp_status add_unit(symbol_list *s, int32_t id, const char *unit, size_t length,
                            size_t bytes)
{
    if (id < 0)
        return add_unknown(s, unit, length, bytes);
    if (s->unknown)
        FSDP_TRY(add_pending_unknown(s));
    return add_symbol(s, id, bytes);
}

/* Write to `text` how the vocabulary spells a unit, which is the character or byte `unit` [bytes].
 * Unless the unit is the first one of the piece, the continuing_subword_prefix is put before it. If
 * the unit is the last one, the end_of_word_suffix is put after it. The capacity of `text` must
 * suffice for the prefix, the unit and the suffix. Return the length of the text. */
static size_t spell_unit(const bpe *model, const char *unit, size_t bytes, bool first, bool last,
                         char *text)
{
    size_t n = 0;
    if (!first && model->prefix_length) {
        memcpy(text, model->prefix, model->prefix_length);
        n = model->prefix_length;
    }
    if (model->raw_bytes) {
        n += fsdp_byte_alphabet_from_bytes(unit, 1, text + n);
    } else {
        memcpy(text + n, unit, bytes);
        n += bytes;
    }
    if (last && model->suffix_length) {
        memcpy(text + n, model->suffix, model->suffix_length);
        n += model->suffix_length;
    }
    return n;
}

static fsdp_status add_affixed_units(symbol_list *s, const char *piece, size_t length)
{
    const bpe *model = s->model;
    char *text =
        fsdp_token_work_scratch(s->work, 1, model->prefix_length + model->suffix_length + 4);
    if (!text)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0, bytes; i < length; i += bytes) {
        bytes = model->raw_bytes ? 1 : fsdp_character_length(piece + i, length - i);
        size_t n = spell_unit(model, piece + i, bytes, i == 0, i + bytes == length, text);
        FSDP_TRY(add_unit(s, fsdp_vocabulary_find(model->vocabulary, text, n), text, n, bytes));
    }
    return FSDP_OK;
}

static fsdp_status add_bytes(symbol_list *s, const char *piece, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        int32_t id = s->model->unit_ids[(unsigned char)piece[i]];
        fsdp_byte_spelling unit = {{0}, 0};
        if (id < 0)
            unit = fsdp_byte_alphabet_spell((uint8_t)piece[i]);
        FSDP_TRY(add_unit(s, id, unit.text, unit.length, 1));
    }
    return FSDP_OK;
}

static fsdp_status add_characters(symbol_list *s, const char *piece, size_t length)
{
    for (size_t i = 0, bytes; i < length; i += bytes) {
        bytes = fsdp_character_length(piece + i, length - i);
        int32_t id = (unsigned char)piece[i] < 0x80
                         ? s->model->unit_ids[(unsigned char)piece[i]]
                         : fsdp_vocabulary_find(s->model->vocabulary, piece + i, bytes);
        FSDP_TRY(add_unit(s, id, piece + i, bytes, bytes));
    }
    return FSDP_OK;
}

static fsdp_status add_units(symbol_list *s, const char *piece, size_t length)
{
    if (s->model->prefix_length || s->model->suffix_length)
        FSDP_TRY(add_affixed_units(s, piece, length));
    else if (s->model->raw_bytes)
        FSDP_TRY(add_bytes(s, piece, length));
    else
        FSDP_TRY(add_characters(s, piece, length));
    return add_pending_unknown(s);
}

/* ---- splitting ---- */

/* If the whole piece is a token, set *id to its id. Otherwise, set *id to -1. */
static fsdp_status find_whole_piece(const bpe *model, fsdp_token_work *work, const char *piece,
                                    size_t length, int32_t *id)
{
    *id = -1;
    if (length > fsdp_vocabulary_longest(model->vocabulary))
        return FSDP_OK;
    if (model->raw_bytes) {
        char *text = fsdp_token_work_scratch(work, 0, 2 * length);
        if (!text)
            return FSDP_ERR_NOMEM;
        length = fsdp_byte_alphabet_from_bytes(piece, length, text);
        piece = text;
    }
    *id = fsdp_vocabulary_find(model->vocabulary, piece, length);
    return FSDP_OK;
}

static fsdp_status add_spans(fsdp_token_spans *spans, const fsdp_bpe_symbol *symbols, size_t count,
                             size_t length)
{
    if (!FSDP_GROW(spans->items, spans->cap, spans->len + count))
        return FSDP_ERR_NOMEM;
    size_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = begin + symbols[i].length;
        end = end < length ? end : length;
        spans->items[spans->len++] =
            (fsdp_token_span){symbols[i].id, (uint32_t)begin, (uint32_t)end};
        begin = end;
    }
    return FSDP_OK;
}

/* Split a piece into spans. This is the fsdp_split_fn of the model. */
static fsdp_status split(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                         size_t length, fsdp_token_spans *spans)
{
    const bpe *model = bpe_of(base);
    if (model->ignore_merges) {
        int32_t id;
        FSDP_TRY(find_whole_piece(model, work, piece, length, &id));
        if (id >= 0)
            return fsdp_token_spans_add(spans, id, 0, length);
    }
    symbol_list s = {.model = model, .work = work};
    FSDP_TRY(add_units(&s, piece, length));
    FSDP_TRY(fsdp_merge_table_apply(model->merges, work, s.items, &s.len));
    return add_spans(spans, s.items, s.len, length);
}

static bool is_mark(const char *p)
{
    return memcmp(p, mark, MARK_BYTES) == 0;
}

/* Return the length of the first part into which a piece is split; see Note [Parts of a piece]. */
static size_t part_length(const bpe *model, const char *piece, size_t length)
{
    const char *end = piece + length, *p = piece + 1;
    while ((size_t)(end - p) >= MARK_BYTES && p < end &&
           (p = memchr(p, mark[0], (size_t)(end - p) - (MARK_BYTES - 1)))) {
        bool after_mark = p - piece >= MARK_BYTES && is_mark(p - MARK_BYTES);
        if (is_mark(p) && !after_mark && !model->joins_mark[(unsigned char)p[-1]])
            return (size_t)(p - piece);
        p++;
    }
    return length;
}

static fsdp_status encode(const fsdp_token_model *base, fsdp_token_work *work, const char *piece,
                          size_t length, fsdp_token_spans *spans)
{
    const bpe *model = bpe_of(base);
    if (!model->splits_at_mark)
        return fsdp_token_work_encode(base, work, split, piece, length, 0, spans);
    size_t before = spans->len;
    for (size_t i = 0, n; i < length; i += n) {
        n = part_length(model, piece + i, length - i);
        fsdp_status status = fsdp_token_work_encode(base, work, split, piece + i, n, i, spans);
        if (status != FSDP_OK) {
            spans->len = before;
            return status;
        }
    }
    return FSDP_OK;
}

static fsdp_status encode_ids(const fsdp_token_model *base, fsdp_token_work *work,
                              const char *piece, size_t length, fsdp_token_list *list)
{
    const bpe *model = bpe_of(base);
    if (!model->splits_at_mark)
        return fsdp_token_work_encode_ids(base, work, split, piece, length, list);
    size_t before = list->len;
    for (size_t i = 0, n; i < length; i += n) {
        n = part_length(model, piece + i, length - i);
        fsdp_status status = fsdp_token_work_encode_ids(base, work, split, piece + i, n, list);
        if (status != FSDP_OK) {
            list->len = before;
            return status;
        }
    }
    return FSDP_OK;
}

/* ---- properties ---- */

static int32_t id_of(const fsdp_token_model *model, const char *text, size_t length)
{
    return fsdp_vocabulary_find(bpe_of(model)->vocabulary, text, length);
}

static const char *text_of(const fsdp_token_model *model, int32_t id, size_t *length)
{
    return fsdp_vocabulary_text(bpe_of(model)->vocabulary, id, length);
}

static int32_t size(const fsdp_token_model *model)
{
    return fsdp_vocabulary_size(bpe_of(model)->vocabulary);
}

static int32_t unk_id(const fsdp_token_model *model)
{
    return bpe_of(model)->unk_id;
}

static void destroy(fsdp_token_model *base)
{
    bpe *model = (bpe *)base;
    fsdp_vocabulary_destroy(model->vocabulary);
    fsdp_merge_table_destroy(model->merges);
    fsdp_free(model->unk_token);
    fsdp_free(model->prefix);
    fsdp_free(model->suffix);
    fsdp_free(model);
}

static const fsdp_token_model_ops bpe_ops = {
    .type = "BPE",
    .encode = encode,
    .encode_ids = encode_ids,
    .id_of = id_of,
    .text_of = text_of,
    .size = size,
    .unk_id = unk_id,
    .destroy = destroy,
};

/* ---- creating ---- */

static fsdp_status copy_options(bpe *model, const fsdp_bpe_options *options)
{
    model->fuse_unk = options->fuse_unk;
    model->byte_fallback = options->byte_fallback;
    model->ignore_merges = options->ignore_merges;
    model->raw_bytes = options->raw_bytes;
    const char *prefix = options->continuing_subword_prefix, *suffix = options->end_of_word_suffix;
    if ((options->unk_token && !(model->unk_token = fsdp_strdup(options->unk_token))) ||
        !(model->prefix = fsdp_strdup(prefix ? prefix : "")) ||
        !(model->suffix = fsdp_strdup(suffix ? suffix : "")))
        return FSDP_ERR_NOMEM;
    model->prefix_length = strlen(model->prefix);
    model->suffix_length = strlen(model->suffix);
    return FSDP_OK;
}

static fsdp_status find_units(bpe *model)
{
    const fsdp_vocabulary *vocabulary = model->vocabulary;
    const char *unk = model->unk_token;
    model->unk_id = unk ? fsdp_vocabulary_find(vocabulary, unk, strlen(unk)) : -1;
    for (int i = 0; i < 256; i++) {
        fsdp_byte_spelling unit = {{(char)i}, 1};
        if (model->raw_bytes)
            unit = fsdp_byte_alphabet_spell((uint8_t)i);
        model->unit_ids[i] = fsdp_vocabulary_find(vocabulary, unit.text, unit.length);
        model->byte_pieces[i] = fsdp_vocabulary_byte_piece(vocabulary, (uint8_t)i);
        if (model->raw_bytes && model->byte_fallback && model->unit_ids[i] < 0)
            return fsdp_error(
                FSDP_ERR_UNSUPPORTED,
                "a byte-level vocabulary with byte_fallback that has no token \"%.*s\" "
                "for the byte 0x%02X",
                unit.length, unit.text, (unsigned)i);
    }
    return FSDP_OK;
}

/* Return true if the text of a token and the part of the piece that became this token may end with
 * different bytes. This is so if the text of the token ends with the unknown token or with a byte
 * piece. */
static bool ends_unlike_piece(const bpe *model, const char *text, size_t length)
{
    size_t unk = model->unk_token ? strlen(model->unk_token) : 0;
    if (unk && length >= unk && memcmp(text + length - unk, model->unk_token, unk) == 0)
        return true;
    return length >= 6 && memcmp(text + length - 6, "<0x", 3) == 0 && text[length - 1] == '>';
}

/* Return true if every character of a piece becomes a symbol. Otherwise, characters may be left
 * out, and then merges may join symbols that are not adjacent in the piece. */
static bool keeps_all_characters(const bpe *model)
{
    bool has_pieces = model->byte_fallback;
    for (int i = 0; i < 256; i++)
        has_pieces = has_pieces && model->byte_pieces[i] >= 0;
    return model->unk_token || has_pieces;
}

/* Set the fields splits_at_mark and joins_mark of the model. */
static void find_joined_marks(bpe *model, const fsdp_bpe_merge *merges, size_t count)
{
    model->splits_at_mark = !model->raw_bytes && !model->ignore_merges && !model->prefix_length &&
                            !model->suffix_length && keeps_all_characters(model) &&
                            fsdp_vocabulary_find(model->vocabulary, mark, MARK_BYTES) >= 0;
    for (size_t i = 0; i < count && model->splits_at_mark; i++) {
        size_t left_length, right_length;
        const char *left = fsdp_vocabulary_text(model->vocabulary, merges[i].left, &left_length);
        const char *right = fsdp_vocabulary_text(model->vocabulary, merges[i].right, &right_length);
        if (!left_length || right_length < MARK_BYTES || !is_mark(right))
            continue;
        if (ends_unlike_piece(model, left, left_length))
            model->splits_at_mark = false;
        model->joins_mark[(unsigned char)left[left_length - 1]] = true;
    }
}

static fsdp_status check_merges(const fsdp_vocabulary *vocabulary, const fsdp_bpe_merge *merges,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t length;
        if (!fsdp_vocabulary_text(vocabulary, merges[i].left, &length) ||
            !fsdp_vocabulary_text(vocabulary, merges[i].right, &length) ||
            !fsdp_vocabulary_text(vocabulary, merges[i].result, &length))
            return fsdp_error(FSDP_ERR_INVALID,
                              "merge %zu of the ids %d and %d to %d: not all of them are tokens", i,
                              (int)merges[i].left, (int)merges[i].right, (int)merges[i].result);
    }
    return FSDP_OK;
}

static void set_fingerprint(bpe *model)
{
    uint64_t h = fsdp_hash_step(fsdp_vocabulary_fingerprint(model->vocabulary),
                                fsdp_merge_table_fingerprint(model->merges));
    unsigned flags = (unsigned)model->fuse_unk | (unsigned)model->byte_fallback << 1 |
                     (unsigned)model->ignore_merges << 2 | (unsigned)model->raw_bytes << 3 |
                     (unsigned)(model->unk_token != NULL) << 4;
    h = fsdp_hash_bytes(h ^ flags, model->prefix, model->prefix_length);
    h = fsdp_hash_bytes(h, model->suffix, model->suffix_length);
    model->base.fingerprint = fsdp_hash_step(h, (uint64_t)(uint32_t)model->unk_id);
}

static fsdp_status init(bpe *model, const fsdp_bpe_merge *merges, size_t count,
                        const fsdp_bpe_options *options)
{
    FSDP_TRY(copy_options(model, options));
    FSDP_TRY(check_merges(model->vocabulary, merges, count));
    FSDP_TRY(find_units(model));
    FSDP_TRY(fsdp_merge_table_create(merges, count, &model->merges));
    find_joined_marks(model, merges, count);
    set_fingerprint(model);
    return FSDP_OK;
}

fsdp_status fsdp_bpe_create(fsdp_vocabulary *vocabulary, const fsdp_bpe_merge *merges, size_t count,
                            const fsdp_bpe_options *options, fsdp_token_model **out)
{
    bpe *model = fsdp_calloc(1, sizeof *model);
    if (!model) {
        fsdp_vocabulary_destroy(vocabulary);
        return FSDP_ERR_NOMEM;
    }
    model->base.ops = &bpe_ops;
    model->vocabulary = vocabulary;
    fsdp_status status = init(model, merges, count, options);
    if (status != FSDP_OK) {
        destroy(&model->base);
        return status;
    }
    *out = &model->base;
    return FSDP_OK;
}
