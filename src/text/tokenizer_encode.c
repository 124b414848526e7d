/* Encodes texts. tokenizer_internal.h describes the steps. */
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/special_in_text.h"
#include "src/text/tokenizer_internal.h"
#include "src/text/unknown_in_text.h"

/* What the functions below need while they encode a text. */
typedef struct encoder {
    const fsdp_tokenizer *tokenizer;
    fsdp_tokenizer_work *work;
    /* gets the places (offsets) of the tokens; may be NULL if no offsets are wanted */
    fsdp_token_sequence *out;
    fsdp_token_list *list; /* gets the ids: &out->ids, or a list of the caller */
    /* encoding stops after the piece or added token with which list->len reaches this number */
    size_t limit;
    bool tracked, done;
    /* If this is not NULL, no tokens are appended. Instead, examples of what is unknown are added
     * to it, and `searched` is the number of tokens that would have been appended. */
    fsdp_unknown_in_text *unknown;
    size_t searched;
    size_t unknown_added; /* added tokens in the text that are the model's unknown token */
} encoder;

/* ---- appending tokens ---- */

static fsdp_status append_id(fsdp_token_list *list, int32_t id)
{
    if (!FSDP_GROW(list->ids, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->ids[list->len++] = id;
    return FSDP_OK;
}

/* Return the number of white space characters at the beginning of a token or, if at_end is true, at
 * its end. U+0120, which spells a space in GPT-2's alphabet, is counted, too. */
static uint32_t count_spaces(const fsdp_char_classes *classes, const char *text, size_t length,
                             bool at_end)
{
    uint32_t n = 0;
    size_t bytes;
    for (size_t left = length; left > 0; left -= bytes, n++) {
        const uint32_t c = at_end ? fsdp_utf8_last(text, text + left, &bytes)
                                  : fsdp_utf8_decode(text + length - left, &bytes);
        if (c != 0x120 && !(fsdp_char_class(classes, c) & FSDP_CHAR_WHITE))
            break;
    }
    return n;
}

static fsdp_status append_place(encoder *e, fsdp_align align, const char *text, size_t length)
{
    fsdp_token_sequence *out = e->out;
    if (!out->want_places)
        return FSDP_OK;
    if (!FSDP_GROW(out->places, out->places_cap, out->ids.len))
        return FSDP_ERR_NOMEM;
    fsdp_token_place place = {.begin = align.begin, .end = align.end};
    if (out->want_spaces && text) {
        place.leading_spaces = count_spaces(e->tokenizer->classes, text, length, false);
        place.trailing_spaces = count_spaces(e->tokenizer->classes, text, length, true);
    }
    out->places[out->ids.len - 1] = place;
    return FSDP_OK;
}

static fsdp_status append_spans(encoder *e, const fsdp_text_view *piece)
{
    const fsdp_token_model *model = e->tokenizer->model;
    const fsdp_token_spans *spans = &e->work->spans;
    for (size_t i = 0; i < spans->len; i++) {
        const fsdp_token_span *s = &spans->items[i];
        size_t length = 0;
        const char *text = e->out->want_spaces ? model->ops->text_of(model, s->id, &length) : NULL;
        FSDP_TRY(append_id(e->list, s->id));
        FSDP_TRY(append_place(e, fsdp_view_range(piece, s->begin, s->end), text, length));
    }
    return FSDP_OK;
}

/* Search a piece for examples of what is unknown, instead of appending its tokens. */
static fsdp_status search_piece(encoder *e, const fsdp_text_view *piece, bool *done)
{
    size_t tokens;
    FSDP_TRY(fsdp_unknown_in_piece(e->tokenizer->model, e->work->model, piece->data, piece->len,
                                   &e->unknown->examples, &tokens));
    e->searched += tokens;
    *done = e->done = e->searched >= e->limit || fsdp_unknown_examples_full(&e->unknown->examples);
    return FSDP_OK;
}

/* Append the tokens of a piece. This is the fsdp_piece_fn for fsdp_pre_tokenizer_split(). Set *done
 * to true if e->limit is reached. */
static fsdp_status encode_piece(void *arg, const fsdp_text_view *piece, bool *done)
{
    encoder *e = arg;
    const fsdp_token_model *model = e->tokenizer->model;
    if (piece->len > FSDP_TOKEN_PIECE_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "a text of %zu bytes that this tokenizer does not split into words: at "
                          "most %d bytes",
                          piece->len, (int)FSDP_TOKEN_PIECE_MAX);
    if (e->unknown)
        return search_piece(e, piece, done);
    if (!e->out || !e->out->want_places) {
        FSDP_TRY(model->ops->encode_ids(model, e->work->model, piece->data, piece->len, e->list));
    } else {
        e->work->spans.len = 0;
        FSDP_TRY(
            model->ops->encode(model, e->work->model, piece->data, piece->len, &e->work->spans));
        FSDP_TRY(append_spans(e, piece));
    }
    *done = e->done = e->list->len >= e->limit;
    return FSDP_OK;
}

static fsdp_status append_added(encoder *e, const fsdp_added_match *match,
                                const fsdp_text_view *view)
{
    e->searched++;
    if (e->unknown) {
        e->done = e->searched >= e->limit;
        return FSDP_OK;
    }
    FSDP_TRY(append_id(e->list, match->token->id));
    e->done = e->list->len >= e->limit;
    const fsdp_token_model *model = e->tokenizer->model;
    e->unknown_added += match->token->id == model->ops->unk_id(model);
    if (match->token->special)
        fsdp_special_in_text_add(match->token->text);
    if (!e->out || !e->out->want_places)
        return FSDP_OK;
    return append_place(e, fsdp_view_range(view, match->begin, match->end),
                        view->data + match->begin, match->end - match->begin);
}

/* ---- added tokens, normalizer, pre-tokenizer ---- */

/* Encode the part of the text between two added tokens. */
static fsdp_status encode_section(encoder *e, const fsdp_text_view *section)
{
    const fsdp_tokenizer *t = e->tokenizer;
    fsdp_text_view view;
    FSDP_TRY(fsdp_normalizer_apply(t->normalizer, e->work->normalizer, section, e->tracked, &view));
    fsdp_added_search search = {.text = view.data,
                                .length = view.len,
                                .normalized = true,
                                .keep_special = t->split_special_tokens};
    fsdp_added_match match;
    while (!e->done && fsdp_added_tokens_next(t->added, &search, &match)) {
        if (match.token) {
            FSDP_TRY(append_added(e, &match, &view));
            continue;
        }
        fsdp_text_view part = fsdp_view_slice(&view, match.begin, match.end);
        FSDP_TRY(
            fsdp_pre_tokenizer_split(t->pre, e->work->pre, &part, e->tracked, encode_piece, e));
    }
    return FSDP_OK;
}

/* Encode a text, but do not look for unknown tokens. */
static fsdp_status encode_sections(encoder *e, const char *text, size_t length)
{
    const fsdp_tokenizer *t = e->tokenizer;
    const fsdp_text_view view = {.data = text, .len = length, .origin = 0};
    fsdp_added_search search = {
        .text = text, .length = length, .keep_special = t->split_special_tokens};
    fsdp_added_match match;
    if (e->tracked && length > UINT32_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "a text of %zu bytes: at most 4 GiB", length);
    while (!e->done && fsdp_added_tokens_next(t->added, &search, &match)) {
        if (match.token) {
            FSDP_TRY(append_added(e, &match, &view));
            continue;
        }
        fsdp_text_view section = fsdp_view_slice(&view, match.begin, match.end);
        FSDP_TRY(encode_section(e, &section));
    }
    return FSDP_OK;
}

/* The ids of the text begin at index `first`. Count the unknown tokens among them. If there are
 * any, and if examples are wanted, go through the text again to find examples. */
static fsdp_status count_unknown(const encoder *e, const char *text, size_t length, size_t first,
                                 fsdp_unknown_in_text *found)
{
    const fsdp_token_model *model = e->tokenizer->model;
    const int32_t unk = model->ops->unk_id(model);
    /* tokens beyond the limit will be cut off */
    const size_t n = (e->list->len < e->limit ? e->list->len : e->limit) - first;
    const int32_t *ids = n ? e->list->ids + first : NULL;
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ids[i] == unk;
    if (unk < 0 || count <= e->unknown_added)
        return FSDP_OK;
    found->count += (int64_t)(count - e->unknown_added);
    if (found->without_examples || fsdp_unknown_examples_full(&found->examples))
        return FSDP_OK;
    encoder search = *e;
    search.done = false;
    search.searched = 0;
    search.limit = n;
    search.unknown = found;
    return encode_sections(&search, text, length);
}

static fsdp_status encode_text(encoder *e, const char *text, size_t length)
{
    fsdp_unknown_in_text *found = fsdp_unknown_in_text_watched();
    const size_t first = e->list->len;
    e->unknown_added = 0;
    FSDP_TRY(encode_sections(e, text, length));
    return found ? count_unknown(e, text, length, first, found) : FSDP_OK;
}

static fsdp_status check_text(const char *text, size_t length)
{
    const size_t valid = fsdp_utf8_valid_length(text, length);
    if (valid < length)
        return fsdp_error(FSDP_ERR_INVALID, "text is not UTF-8: byte 0x%02x at offset %zu",
                          (unsigned)(unsigned char)text[valid], valid);
    return FSDP_OK;
}

/* ---- ids only ---- */

static fsdp_status append_part(encoder *e, const fsdp_post_part *part, const char *text,
                               size_t length, size_t most)
{
    const size_t before = e->list->len;
    if (part->text < 0) {
        for (size_t i = 0; i < part->count; i++)
            FSDP_TRY(append_id(e->list, part->ids[i]));
        return FSDP_OK;
    }
    e->limit = most > SIZE_MAX - before ? SIZE_MAX : before + most;
    e->done = most == 0; /* a template may have the text twice */
    FSDP_TRY(encode_text(e, text, length));
    if (e->list->len > e->limit)
        e->list->len = e->limit;
    return FSDP_OK;
}

static fsdp_status too_short(int max_length, size_t added)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "max_length %d: the special tokens alone are %zu ids; it must be more",
                      max_length, added);
}

/* Append the ids of a text to `list`. If max_length is not 0, the text is cut so that at most
 * max_length ids are appended. */
static fsdp_status encode_list(const fsdp_tokenizer *tokenizer, fsdp_tokenizer_work *work,
                               const char *text, size_t length, int max_length, bool special,
                               fsdp_token_list *list)
{
    fsdp_post_part parts[FSDP_POST_PARTS_MAX];
    size_t count, most = SIZE_MAX;
    const size_t added = special ? fsdp_post_processor_added(tokenizer->post, false) : 0;
    if (max_length && (size_t)max_length < added)
        return too_short(max_length, added);
    if (max_length)
        most = (size_t)max_length - added;
    FSDP_TRY(fsdp_post_processor_plan(tokenizer->post, false, special, parts, &count));
    encoder e = {
        .tokenizer = tokenizer, .work = work, .list = list, .tracked = tokenizer->always_tracked};
    for (size_t i = 0; i < count; i++)
        FSDP_TRY(append_part(&e, &parts[i], text, length, most));
    return FSDP_OK;
}

static fsdp_status encode_to_list(const fsdp_tokenizer *tokenizer, const char *text, size_t length,
                                  int max_length, bool special, fsdp_token_list *list)
{
    if (max_length < 0)
        return fsdp_error(FSDP_ERR_INVALID, "max_length %d: must be 0 (no limit) or more",
                          max_length);
    FSDP_TRY(check_text(text, length));
    fsdp_tokenizer_work *work;
    const size_t before = list->len;
    if (max_length && tokenizer->truncate_left) {
        const fsdp_encode_options options = {.no_special_tokens = !special,
                                             .max_length = max_length};
        fsdp_encoding encoding = {0};
        fsdp_status status =
            fsdp_tokenizer_encode_pair(tokenizer, text, length, NULL, 0, &options, &encoding);
        for (size_t i = 0; status == FSDP_OK && i < encoding.ids.len; i++)
            status = append_id(list, encoding.ids.ids[i]);
        fsdp_encoding_fini(&encoding);
        if (status != FSDP_OK)
            list->len = before;
        return status;
    }
    FSDP_TRY(fsdp_work_pool_take(tokenizer->pool, &work));
    fsdp_status status = encode_list(tokenizer, work, text, length, max_length, special, list);
    fsdp_work_pool_give(tokenizer->pool, work);
    if (status != FSDP_OK)
        list->len = before;
    return status;
}

fsdp_status fsdp_tokenizer_encode(const fsdp_tokenizer *tokenizer, const char *text, size_t length,
                                  int max_length, fsdp_token_list *list)
{
    return encode_to_list(tokenizer, text, length, max_length, true, list);
}

fsdp_status fsdp_tokenizer_encode_text(const fsdp_tokenizer *tokenizer, const char *text,
                                       size_t length, int max_length, fsdp_token_list *list)
{
    return encode_to_list(tokenizer, text, length, max_length, false, list);
}

/* ---- pairs and offsets ---- */

/* Converts byte offsets to character offsets. The offsets of a text's tokens are nearly in
 * ascending order, so each search begins at the result of the previous one. */
typedef struct character_counter {
    const char *text;
    size_t length;
    /* the result of the last search: `character` is the index of the character that contains
     * `byte` */
    size_t byte, character;
    bool is_ascii;
} character_counter;

static bool continues(const character_counter *c, size_t byte)
{
    return byte < c->length && ((unsigned char)c->text[byte] & 0xC0) == 0x80;
}

/* Return the index of the character that contains the byte at position `byte`. If `byte` is the end
 * of the text, return the number of characters. */
static size_t character_of(character_counter *c, size_t byte)
{
    if (c->is_ascii)
        return byte;
    while (c->byte < byte) {
        c->byte++;
        c->character += !continues(c, c->byte);
    }
    while (c->byte > byte) {
        c->character -= !continues(c, c->byte);
        c->byte--;
    }
    return c->character;
}

/* Convert the byte offsets of a token to character offsets, like BytesToCharOffsetConverter of the
 * tokenizers library. Offsets outside the text do not change. If a token ends at the end of the
 * text, `end` becomes the number of characters. */
static void convert_place(character_counter *c, fsdp_token_place *place)
{
    if (place->begin >= c->length || place->end > c->length)
        return;
    const uint32_t begin = (uint32_t)character_of(c, place->begin);
    place->end = (uint32_t)character_of(c, place->end);
    place->begin = begin;
}

/* Keep only the first `length` tokens of a sequence or, if `left` is true, only the last
 * `length`. */
static void truncate_sequence(fsdp_token_sequence *s, size_t length, bool left)
{
    if (length >= s->ids.len)
        return;
    const size_t first = left ? s->ids.len - length : 0;
    memmove(s->ids.ids, s->ids.ids + first, length * sizeof *s->ids.ids);
    if (s->want_places)
        memmove(s->places, s->places + first, length * sizeof *s->places);
    s->ids.len = length;
}

static fsdp_status encode_sequence(const fsdp_tokenizer *tokenizer, fsdp_tokenizer_work *work,
                                   const char *text, size_t length,
                                   const fsdp_encode_options *options, size_t limit,
                                   fsdp_token_sequence *out)
{
    out->ids.len = 0;
    out->want_places = options->offsets != FSDP_OFFSETS_NONE;
    out->want_spaces = out->want_places && fsdp_post_processor_trims(tokenizer->post);
    encoder e = {.tokenizer = tokenizer,
                 .work = work,
                 .out = out,
                 .list = &out->ids,
                 .limit = limit,
                 .tracked = out->want_places || tokenizer->always_tracked};
    FSDP_TRY(encode_text(&e, text, length));
    if (options->offsets == FSDP_OFFSETS_CHARACTERS) {
        character_counter c = {
            .text = text, .length = length, .is_ascii = fsdp_ascii_length(text, length) == length};
        for (size_t i = 0; i < out->ids.len; i++)
            convert_place(&c, &out->places[i]);
    }
    return FSDP_OK;
}

/* Lower *first and *second, the numbers of tokens of two texts, so that their sum is at most
 * `most`, like the strategy longest_first of the tokenizers library. */
static void longest_first(size_t *first, size_t *second, size_t most)
{
    const bool swap = *first > *second;
    size_t n1 = swap ? *second : *first, n2;
    if (n1 > most)
        n2 = n1;
    else
        n2 = n1 > most - n1 ? n1 : most - n1;
    if (n1 + n2 > most) {
        n1 = most / 2;
        n2 = n1 + most % 2;
    }
    *first = swap ? n2 : n1;
    *second = swap ? n1 : n2;
}

/* Truncate the sequences, so that they have at most `most` tokens together. */
static fsdp_status truncate_pair(fsdp_token_sequence s[2], bool is_pair, size_t most,
                                 fsdp_truncation truncation, bool left)
{
    size_t n[2] = {s[0].ids.len, is_pair ? s[1].ids.len : 0};
    if (n[0] + n[1] <= most)
        return FSDP_OK;
    const size_t remove = n[0] + n[1] - most;
    if (most == 0) {
        n[0] = n[1] = 0;
    } else if (truncation == FSDP_TRUNCATION_LONGEST_FIRST && is_pair) {
        longest_first(&n[0], &n[1], most);
    } else if (truncation == FSDP_TRUNCATION_LONGEST_FIRST) {
        n[0] = most;
    } else {
        const int which = truncation == FSDP_TRUNCATION_ONLY_SECOND;
        if (which && !is_pair)
            return fsdp_error(FSDP_ERR_INVALID,
                              "truncation of the second text, but there is only one");
        if (n[which] <= remove)
            return fsdp_error(FSDP_ERR_INVALID,
                              "the %s text has %zu tokens, and %zu must be left out to fit into "
                              "max_length. Truncate the longest one first, or make it larger",
                              which ? "second" : "first", n[which], remove);
        n[which] -= remove;
    }
    truncate_sequence(&s[0], n[0], left);
    if (is_pair)
        truncate_sequence(&s[1], n[1], left);
    return FSDP_OK;
}

static bool grow_encoding(fsdp_encoding *out, size_t n, bool offsets)
{
    return FSDP_GROW(out->ids.ids, out->ids.cap, n) &&
           FSDP_GROW(out->type_ids, out->type_ids_cap, n) &&
           FSDP_GROW(out->texts, out->texts_cap, n) &&
           (!offsets || FSDP_GROW(out->offsets, out->offsets_cap, n));
}

static fsdp_status append_tokens(const fsdp_post_part *part, const fsdp_token_sequence *s,
                                 bool offsets, fsdp_encoding *out)
{
    const size_t count = part->text < 0 ? part->count : s->ids.len;
    const int32_t *ids = part->text < 0 ? part->ids : s->ids.ids;
    if (!grow_encoding(out, out->ids.len + count, offsets))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const size_t at = out->ids.len++;
        out->ids.ids[at] = ids[i];
        out->type_ids[at] = part->type_id;
        out->texts[at] = (int8_t)part->text;
        if (!offsets)
            continue;
        out->offsets[at] = (fsdp_token_offset){0, 0};
        if (part->text >= 0)
            out->offsets[at] = (fsdp_token_offset){s->places[i].begin, s->places[i].end};
    }
    return FSDP_OK;
}

static fsdp_status encode_pair(const fsdp_tokenizer *tokenizer, fsdp_tokenizer_work *work,
                               const char *const texts[2], const size_t lengths[2],
                               const fsdp_encode_options *options, fsdp_encoding *out)
{
    const bool is_pair = texts[1] != NULL, special = !options->no_special_tokens;
    const bool left = options->truncate_left || tokenizer->truncate_left;
    const bool offsets = options->offsets != FSDP_OFFSETS_NONE;
    fsdp_post_part parts[FSDP_POST_PARTS_MAX];
    size_t count, most = SIZE_MAX;
    const size_t added = special ? fsdp_post_processor_added(tokenizer->post, is_pair) : 0;
    if (options->max_length && (size_t)options->max_length < added)
        return too_short(options->max_length, added);
    if (options->max_length)
        most = (size_t)options->max_length - added;
    for (int i = 0; i <= (int)is_pair; i++)
        /* To truncate a pair, the lengths of both texts are needed. So pairs are encoded without a
         * limit. */
        FSDP_TRY(encode_sequence(tokenizer, work, texts[i], lengths[i], options,
                                 left || is_pair ? SIZE_MAX : most, &work->sequences[i]));
    FSDP_TRY(truncate_pair(work->sequences, is_pair, most, options->truncation, left));
    FSDP_TRY(fsdp_post_processor_plan(tokenizer->post, is_pair, special, parts, &count));
    for (int i = 0; i <= (int)is_pair && offsets; i++)
        fsdp_post_processor_trim(tokenizer->post, &work->sequences[i]);
    for (size_t i = 0; i < count; i++)
        FSDP_TRY(append_tokens(&parts[i], &work->sequences[parts[i].text > 0], offsets, out));
    return FSDP_OK;
}

fsdp_status fsdp_tokenizer_encode_pair(const fsdp_tokenizer *tokenizer, const char *text,
                                       size_t length, const char *pair, size_t pair_length,
                                       const fsdp_encode_options *options, fsdp_encoding *encoding)
{
    static const fsdp_encode_options defaults = {0};
    const char *const texts[2] = {text, pair};
    const size_t lengths[2] = {length, pair_length};
    fsdp_tokenizer_work *work;
    options = options ? options : &defaults;
    encoding->ids.len = 0;
    if (options->max_length < 0)
        return fsdp_error(FSDP_ERR_INVALID, "max_length %d: must be 0 (no limit) or more",
                          options->max_length);
    FSDP_TRY(check_text(text, length));
    if (pair)
        FSDP_TRY(check_text(pair, pair_length));
    FSDP_TRY(fsdp_work_pool_take(tokenizer->pool, &work));
    fsdp_status status = encode_pair(tokenizer, work, texts, lengths, options, encoding);
    fsdp_work_pool_give(tokenizer->pool, work);
    return status;
}

void fsdp_encoding_fini(fsdp_encoding *encoding)
{
    fsdp_token_list_fini(&encoding->ids);
    fsdp_free(encoding->type_ids);
    fsdp_free(encoding->offsets);
    fsdp_free(encoding->texts);
    *encoding = (fsdp_encoding){0};
}
