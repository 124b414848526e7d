/* A decoder is a list of steps. Each step makes a new list of texts from the previous list. The
 * parts of a Sequence become steps of the same list, even if a Sequence contains another one. */
#include "src/text/parts/token_decoder.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/chars/utf8.h"
#include "src/text/parts/token_json.h"
#include "src/text/regex/regex.h"

typedef enum decode_type {
    DECODE_BPE,
    DECODE_BYTE_LEVEL,
    DECODE_WORD_PIECE,
    DECODE_METASPACE,
    DECODE_REPLACE,
    DECODE_FUSE,
    DECODE_STRIP,
    DECODE_BYTE_FALLBACK,
    DECODE_CTC,
} decode_type;

typedef struct decode_op {
    decode_type type;
    /* the suffix, the prefix, Metaspace's replacement, the pattern or the padding, depending on
     * `type`; owned */
    char *text;
    char *content;     /* REPLACE: the replacement; CTC: the delimiter of words; owned */
    fsdp_regex *regex; /* REPLACE: the pattern, if it is a regular expression; owned */
    bool cleanup;      /* WORD_PIECE and CTC: fsdp_clean_up_tokenization() is applied */
    /* METASPACE: the marks in the first token are removed, not replaced by spaces */
    bool leaves_first;
    uint32_t c; /* STRIP */
    /* STRIP: the largest numbers of characters `c` that are removed at the start and at the end of
     * a token */
    int64_t start, stop;
} decode_op;

struct fsdp_token_decoder {
    decode_op ops[FSDP_TOKEN_PARTS_MAX];
    size_t n;
};

/* ---- from JSON ---- */

static fsdp_status copy_text(fsdp_json_node node, const char *key, char **out)
{
    const char *text;
    FSDP_TRY(fsdp_json_get_str(node, key, &text));
    *out = fsdp_strdup(text);
    return *out ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_bpe(decode_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "suffix"));
    FSDP_TRY(copy_text(node, "suffix", &op->text));
    return *op->text ? FSDP_OK : fsdp_json_mismatch(node, "suffix", "a text that is not empty");
}

static fsdp_status read_byte_level(decode_op *op, fsdp_json_node node)
{
    (void)op;
    return fsdp_token_json_fields(node, "add_prefix_space trim_offsets use_regex");
}

static fsdp_status read_word_piece(decode_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "prefix cleanup"));
    FSDP_TRY(copy_text(node, "prefix", &op->text));
    return fsdp_json_get_bool(node, "cleanup", &op->cleanup);
}

static fsdp_status read_metaspace(decode_op *op, fsdp_json_node node)
{
    const char *scheme;
    uint32_t c;
    bool prefix;
    FSDP_TRY(
        fsdp_token_json_fields(node, "replacement add_prefix_space prepend_scheme split str_rep"));
    FSDP_TRY(fsdp_token_json_char(node, "replacement", &c));
    FSDP_TRY(fsdp_json_opt_str(node, "prepend_scheme", "always", &scheme));
    FSDP_TRY(fsdp_json_opt_bool(node, "add_prefix_space", true, &prefix));
    if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 &&
        strcmp(scheme, "never") != 0)
        return fsdp_json_mismatch(node, "prepend_scheme", "never, first or always");
    op->leaves_first = prefix && strcmp(scheme, "never") != 0;
    return copy_text(node, "replacement", &op->text);
}

static fsdp_status read_replace(decode_op *op, fsdp_json_node node)
{
    const char *pattern;
    bool is_regex;
    FSDP_TRY(fsdp_token_json_fields(node, "pattern content"));
    FSDP_TRY(copy_text(node, "content", &op->content));
    FSDP_TRY(fsdp_token_json_pattern(node, "pattern", &pattern, &is_regex));
    if (is_regex || !*pattern)
        return fsdp_regex_compile(pattern, &op->regex);
    op->text = fsdp_strdup(pattern);
    return op->text ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_strip(decode_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "content start stop"));
    FSDP_TRY(fsdp_token_json_char(node, "content", &op->c));
    FSDP_TRY(fsdp_json_get_i64(node, "start", 0, INT32_MAX, &op->start));
    return fsdp_json_get_i64(node, "stop", 0, INT32_MAX, &op->stop);
}

static fsdp_status read_ctc(decode_op *op, fsdp_json_node node)
{
    FSDP_TRY(fsdp_token_json_fields(node, "pad_token word_delimiter_token cleanup"));
    FSDP_TRY(copy_text(node, "pad_token", &op->text));
    FSDP_TRY(copy_text(node, "word_delimiter_token", &op->content));
    FSDP_TRY(fsdp_json_get_bool(node, "cleanup", &op->cleanup));
    if (!*op->text || !*op->content)
        return fsdp_json_mismatch(node, *op->text ? "word_delimiter_token" : "pad_token",
                                  "a text that is not empty");
    return FSDP_OK;
}

static fsdp_status read_nothing(decode_op *op, fsdp_json_node node)
{
    (void)op;
    return fsdp_token_json_fields(node, "");
}

static fsdp_status add_part(fsdp_token_decoder *decoder, fsdp_json_node node, int depth);

static fsdp_status add_sequence(fsdp_token_decoder *decoder, fsdp_json_node node, int depth)
{
    fsdp_json_node parts;
    FSDP_TRY(fsdp_token_json_fields(node, "decoders"));
    FSDP_TRY(fsdp_json_get_array(node, "decoders", &parts));
    if (depth == FSDP_TOKEN_DEPTH_MAX)
        return fsdp_json_mismatch(node, "decoders", "Sequences that are nested less deeply");
    for (size_t i = 0; i < fsdp_json_len(parts); i++)
        FSDP_TRY(add_part(decoder, fsdp_json_at(parts, i), depth + 1));
    return FSDP_OK;
}

static fsdp_status add_part(fsdp_token_decoder *decoder, fsdp_json_node node, int depth)
{
    static const struct {
        const char *name;
        decode_type type;
        fsdp_status (*read)(decode_op *op, fsdp_json_node node);
    } kinds[] = {{"BPEDecoder", DECODE_BPE, read_bpe},
                 {"ByteFallback", DECODE_BYTE_FALLBACK, read_nothing},
                 {"ByteLevel", DECODE_BYTE_LEVEL, read_byte_level},
                 {"CTC", DECODE_CTC, read_ctc},
                 {"Fuse", DECODE_FUSE, read_nothing},
                 {"Metaspace", DECODE_METASPACE, read_metaspace},
                 {"Replace", DECODE_REPLACE, read_replace},
                 {"Strip", DECODE_STRIP, read_strip},
                 {"WordPiece", DECODE_WORD_PIECE, read_word_piece}};
    const char *type;
    FSDP_TRY(fsdp_token_json_type(node, &type));
    if (strcmp(type, "Sequence") == 0)
        return add_sequence(decoder, node, depth);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, type) != 0)
            continue;
        if (decoder->n == FSDP_TOKEN_PARTS_MAX)
            return fsdp_json_mismatch(node, NULL, "a decoder of at most %d steps",
                                      (int)FSDP_TOKEN_PARTS_MAX);
        decode_op *op = &decoder->ops[decoder->n++];
        *op = (decode_op){.type = kinds[i].type};
        return kinds[i].read(op, node);
    }
    return fsdp_token_json_unknown(
        node, "decoder that is supported",
        "BPEDecoder, ByteFallback, ByteLevel, CTC, Fuse, Metaspace, Replace, Sequence, Strip, "
        "WordPiece");
}

fsdp_status fsdp_token_decoder_from_json(fsdp_json_node node, fsdp_token_decoder **out)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(node);
    if (kind == FSDP_JSON_NONE || kind == FSDP_JSON_NULL) {
        *out = NULL;
        return FSDP_OK;
    }
    fsdp_token_decoder *decoder = fsdp_calloc(1, sizeof *decoder);
    if (!decoder)
        return FSDP_ERR_NOMEM;
    fsdp_status status = add_part(decoder, node, 0);
    if (status != FSDP_OK) {
        fsdp_token_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return FSDP_OK;
}

void fsdp_token_decoder_destroy(fsdp_token_decoder *decoder)
{
    if (!decoder)
        return;
    for (size_t i = 0; i < decoder->n; i++) {
        fsdp_free(decoder->ops[i].text);
        fsdp_free(decoder->ops[i].content);
        fsdp_regex_destroy(decoder->ops[i].regex);
    }
    fsdp_free(decoder);
}

/* ---- steps that treat each text separately ---- */

/* Append text [length] to `out`. Each occurrence of `from`, which is not empty, is replaced by
 * `to`. */
static void append_replaced(fsdp_str *out, const char *text, size_t length, const char *from,
                            const char *to)
{
    const size_t n = strlen(from);
    const char *end = text + length, *at;
    while ((at = memmem(text, (size_t)(end - text), from, n))) {
        fsdp_str_append(out, text, (size_t)(at - text));
        fsdp_str_append(out, to, strlen(to));
        text = at + n;
    }
    fsdp_str_append(out, text, (size_t)(end - text));
}

void fsdp_clean_up_tokenization(const char *text, size_t length, bool word_piece, fsdp_str *out)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    fsdp_str now = {0}, next = {0};
    fsdp_str_append(&now, text, length);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!word_piece && pairs[i][1][1] == 'd')
            continue;
        next.len = 0;
        append_replaced(&next, now.data ? now.data : "", now.len, pairs[i][0], pairs[i][1]);
        const fsdp_str other = now;
        now = next;
        next = other;
    }
    fsdp_str_append(out, now.data ? now.data : "", now.len);
    out->failed |= now.failed || next.failed;
    fsdp_str_fini(&now);
    fsdp_str_fini(&next);
}

static void append_word_piece(const decode_op *op, bool first, const char *text, size_t length,
                              fsdp_str *out)
{
    const size_t n = strlen(op->text);
    fsdp_str spaced = {0};
    if (!first && length >= n && memcmp(text, op->text, n) == 0) {
        text += n;
        length -= n;
    } else if (!first) {
        fsdp_str_append(&spaced, " ", 1);
    }
    fsdp_str_append(&spaced, text, length);
    if (op->cleanup)
        fsdp_clean_up_tokenization(spaced.data ? spaced.data : "", spaced.len, true, out);
    else
        fsdp_str_append(out, spaced.data ? spaced.data : "", spaced.len);
    out->failed |= spaced.failed;
    fsdp_str_fini(&spaced);
}

static fsdp_status append_regex_replaced(const decode_op *op, const char *text, size_t length,
                                         fsdp_regex_work *work, fsdp_str *out)
{
    fsdp_regex_search search = {.regex = op->regex, .work = work, .text = text, .length = length};
    size_t done = 0, begin, end;
    bool found = false;
    if (length)
        FSDP_TRY(fsdp_regex_next(&search, &found, &begin, &end));
    while (found) {
        fsdp_str_append(out, text + done, begin - done);
        fsdp_str_append(out, op->content, strlen(op->content));
        done = end;
        FSDP_TRY(fsdp_regex_next(&search, &found, &begin, &end));
    }
    fsdp_str_append(out, text + done, length - done);
    return FSDP_OK;
}

static void append_stripped(const decode_op *op, const char *text, size_t length, fsdp_str *out)
{
    size_t begin = 0, end = length, bytes;
    for (int64_t i = 0; i < op->start && begin < end; i++, begin += bytes)
        if (fsdp_utf8_decode(text + begin, &bytes) != op->c)
            break;
    for (int64_t i = 0; i < op->stop && end > begin; i++, end -= bytes)
        if (fsdp_utf8_last(text, text + end, &bytes) != op->c)
            break;
    fsdp_str_append(out, text + begin, end - begin);
}

static fsdp_status decode_one(const decode_op *op, size_t i, size_t count, const char *text,
                              size_t length, fsdp_regex_work *work, fsdp_str *out)
{
    switch (op->type) {
    case DECODE_BPE:
        append_replaced(out, text, length, op->text, i + 1 == count ? "" : " ");
        break;
    case DECODE_WORD_PIECE:
        append_word_piece(op, i == 0, text, length, out);
        break;
    case DECODE_METASPACE:
        append_replaced(out, text, length, op->text, i == 0 && op->leaves_first ? "" : " ");
        break;
    case DECODE_STRIP:
        append_stripped(op, text, length, out);
        break;
    default: /* REPLACE */
        if (op->regex)
            return append_regex_replaced(op, text, length, work, out);
        append_replaced(out, text, length, op->text, op->content);
    }
    return FSDP_OK;
}

/* ---- steps in which a result depends on several texts ---- */

/* `text` begins with bytes that are not well-formed UTF-8. Return how many of these bytes one
 * U+FFFD replaces: the bytes of the longest sequence that could be the beginning of a character,
 * but at least one byte. */
static size_t ill_formed_length(const unsigned char *text, size_t left)
{
    const unsigned char first = text[0];
    const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    unsigned char low = 0x80, high = 0xBF;
    if (first < 0xC2 || first > 0xF4)
        return 1;
    if (first == 0xE0 || first == 0xF0)
        low = first == 0xE0 ? 0xA0 : 0x90;
    if (first == 0xED || first == 0xF4)
        high = first == 0xED ? 0x9F : 0x8F;
    size_t n = 1;
    for (; n < length && n < left && text[n] >= low && text[n] <= high; n++) {
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

/* Append bytes [length]. Sequences that are not UTF-8 are replaced by U+FFFD. */
static void append_lossy(fsdp_str *out, const char *bytes, size_t length)
{
    while (length) {
        const size_t valid = fsdp_utf8_valid_length(bytes, length);
        fsdp_str_append(out, bytes, valid);
        bytes += valid;
        length -= valid;
        if (!length)
            break;
        const size_t skip = ill_formed_length((const unsigned char *)bytes, length);
        fsdp_str_append(out, "\xEF\xBF\xBD", 3);
        bytes += skip;
        length -= skip;
    }
}

static fsdp_status decode_byte_level(const fsdp_token_texts *texts, fsdp_token_texts *out)
{
    char *bytes = fsdp_calloc(texts->bytes.len + 1, 1);
    if (!bytes)
        return FSDP_ERR_NOMEM;
    size_t used = 0;
    for (size_t i = 0; i < texts->len; i++) {
        size_t length, count;
        const char *text = fsdp_token_texts_at(texts, i, &length);
        if (!fsdp_byte_alphabet_to_bytes(text, length, bytes + used, &count)) {
            memcpy(bytes + used, text, length);
            count = length;
        }
        used += count;
    }
    append_lossy(&out->bytes, bytes, used);
    fsdp_free(bytes);
    return fsdp_token_texts_end(out);
}

/* Return the byte that a byte piece, such as "<0x0A>", represents, or -1 if `text` is not a byte
 * piece. */
static int byte_of(const char *text, size_t length)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    /* As in Rust's from_str_radix(), the first digit may be a '+': "+A" is 0x0A. */
    if (!isxdigit((unsigned char)text[4]) || (!isxdigit((unsigned char)text[3]) && text[3] != '+'))
        return -1;
    const char digits[3] = {text[3] == '+' ? '0' : text[3], text[4], 0};
    return (int)strtol(digits, NULL, 16);
}

/* `bytes` has the bytes of a run of byte pieces. If they are UTF-8, append them to `out` as one
 * text. Otherwise, append one text U+FFFD for each byte. Afterwards, empty `bytes`. */
static fsdp_status flush_bytes(fsdp_str *bytes, fsdp_token_texts *out)
{
    const size_t n = bytes->len;
    bytes->len = 0;
    if (!n)
        return FSDP_OK;
    if (fsdp_utf8_valid_length(bytes->data, n) == n) {
        fsdp_str_append(&out->bytes, bytes->data, n);
        return fsdp_token_texts_end(out);
    }
    for (size_t i = 0; i < n; i++) {
        fsdp_str_append(&out->bytes, "\xEF\xBF\xBD", 3);
        FSDP_TRY(fsdp_token_texts_end(out));
    }
    return FSDP_OK;
}

static fsdp_status join_bytes(const fsdp_token_texts *texts, fsdp_str *bytes, fsdp_token_texts *out)
{
    for (size_t i = 0; i < texts->len; i++) {
        size_t length;
        const char *text = fsdp_token_texts_at(texts, i, &length);
        const int byte = byte_of(text, length);
        if (byte >= 0) {
            fsdp_str_append(bytes, &(char){(char)byte}, 1);
            if (bytes->failed)
                return fsdp_error_nomem();
            continue;
        }
        FSDP_TRY(flush_bytes(bytes, out));
        fsdp_str_append(&out->bytes, text, length);
        FSDP_TRY(fsdp_token_texts_end(out));
    }
    return flush_bytes(bytes, out);
}

static fsdp_status decode_byte_fallback(const fsdp_token_texts *texts, fsdp_token_texts *out)
{
    fsdp_str bytes = {0};
    fsdp_status status = join_bytes(texts, &bytes, out);
    fsdp_str_fini(&bytes);
    return status;
}

/* Append the text of a token to `out`. Padding (op->text) is removed from it. If `cleanup` is true,
 * its spaces are cleaned up, and the delimiter of words (op->content) is replaced by a space. */
static void append_ctc(const decode_op *op, const char *text, size_t length, fsdp_str *out)
{
    fsdp_str kept = {0}, clean = {0};
    append_replaced(&kept, text, length, op->text, "");
    if (op->cleanup) {
        fsdp_clean_up_tokenization(kept.data ? kept.data : "", kept.len, true, &clean);
        append_replaced(out, clean.data ? clean.data : "", clean.len, op->content, " ");
    } else {
        fsdp_str_append(out, kept.data ? kept.data : "", kept.len);
    }
    out->failed |= kept.failed || clean.failed;
    fsdp_str_fini(&kept);
    fsdp_str_fini(&clean);
}

/* Decode the output of connectionist temporal classification, which has one token for each frame of
 * a sound. A run of equal tokens is reduced to its first token. Tokens that consist only of padding
 * are left out. */
static fsdp_status decode_ctc(const decode_op *op, const fsdp_token_texts *texts,
                              fsdp_token_texts *out)
{
    const char *before = NULL;
    size_t before_length = 0, length;
    for (size_t i = 0; i < texts->len; i++) {
        const char *text = fsdp_token_texts_at(texts, i, &length);
        const bool again = before && before_length == length && memcmp(before, text, length) == 0;
        const size_t used = out->bytes.len;
        before = text;
        before_length = length;
        if (again)
            continue;
        append_ctc(op, text, length, &out->bytes);
        if (out->bytes.failed)
            return fsdp_error_nomem();
        if (out->bytes.len > used)
            FSDP_TRY(fsdp_token_texts_end(out));
    }
    return FSDP_OK;
}

static fsdp_status decode_step(const decode_op *op, fsdp_regex_work *work,
                               const fsdp_token_texts *texts, fsdp_token_texts *out)
{
    size_t length;
    fsdp_token_texts_clear(out);
    if (op->type == DECODE_BYTE_LEVEL)
        return decode_byte_level(texts, out);
    if (op->type == DECODE_BYTE_FALLBACK)
        return decode_byte_fallback(texts, out);
    if (op->type == DECODE_CTC)
        return decode_ctc(op, texts, out);
    if (op->type == DECODE_FUSE) {
        fsdp_str_append(&out->bytes, texts->bytes.data ? texts->bytes.data : "", texts->bytes.len);
        return fsdp_token_texts_end(out);
    }
    for (size_t i = 0; i < texts->len; i++) {
        const char *text = fsdp_token_texts_at(texts, i, &length);
        FSDP_TRY(decode_one(op, i, texts->len, text, length, work, &out->bytes));
        FSDP_TRY(fsdp_token_texts_end(out));
    }
    return FSDP_OK;
}

/* ---- running ---- */

static fsdp_status run_steps(const fsdp_token_decoder *decoder, fsdp_regex_work *work,
                             fsdp_token_texts *texts, fsdp_token_texts *spare)
{
    for (size_t i = 0; i < decoder->n; i++) {
        FSDP_TRY(decode_step(&decoder->ops[i], work, texts, spare));
        const fsdp_token_texts other = *texts;
        *texts = *spare;
        *spare = other;
    }
    return FSDP_OK;
}

fsdp_status fsdp_token_decoder_run(const fsdp_token_decoder *decoder, fsdp_token_texts *texts,
                                   fsdp_str *out)
{
    fsdp_token_texts spare = {0};
    fsdp_regex_work *work = NULL;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; decoder && i < decoder->n && !work && status == FSDP_OK; i++)
        if (decoder->ops[i].regex)
            status = fsdp_regex_work_create(&work);
    if (status == FSDP_OK && decoder)
        status = run_steps(decoder, work, texts, &spare);
    for (size_t i = 0; status == FSDP_OK && i < texts->len; i++) {
        size_t length;
        const char *text = fsdp_token_texts_at(texts, i, &length);
        if (!decoder && i)
            fsdp_str_append(out, " ", 1);
        fsdp_str_append(out, text, length);
    }
    if (status == FSDP_OK && out->failed)
        status = fsdp_error_nomem();
    fsdp_regex_work_destroy(work);
    fsdp_token_texts_fini(&spare);
    return status;
}
