/* Reads tiktoken's files. Each line has the bytes and the rank of a token. The file does not
 * contain merges, but they follow from the tokens: for each way to divide the bytes of a token into
 * two tokens, there is a merge with the rank of the whole token. */
#include "src/text/models/tiktoken.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/models/bpe.h"

enum {
    FILE_BYTES_MAX = 64 * 1024 * 1024, /* largest size of a file; the largest known one has 4 MB */
    /* largest length of a token; the longest known one has 128 bytes */
    TOKEN_BYTES_MAX = 1024,
    BASE64_MAX = (TOKEN_BYTES_MAX + 2) / 3 * 4
};

/* ---- lines ---- */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decode base64 text [length], which must have its padding. The capacity of `out` must be at least
 * length / 4 * 3 bytes. Set *count to the number of bytes. Return false if the text is
 * malformed. */
static bool decode_base64(const char *text, size_t length, char *out, size_t *count)
{
    size_t n = 0;
    if (length == 0 || length % 4 != 0)
        return false;
    size_t padding = text[length - 1] != '=' ? 0 : text[length - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t bits = 0;
        size_t digits = i + 4 == length ? 4 - padding : 4;
        for (size_t k = 0; k < 4; k++) {
            int digit = k < digits ? base64_digit(text[i + k]) : 0;
            if (digit < 0)
                return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        for (size_t k = 0; k + 1 < digits; k++)
            out[n++] = (char)(bits >> (16 - 8 * k));
    }
    *count = n;
    return true;
}

/* Parse the decimal number text [length]. Return false if it is malformed or above
 * FSDP_TOKEN_ID_MAX. */
static bool parse_rank(const char *text, size_t length, int64_t *rank)
{
    *rank = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *rank = *rank * 10 + (text[i] - '0');
        if (*rank > FSDP_TOKEN_ID_MAX)
            return false;
    }
    return length > 0;
}

/* A token as a line of the file describes it. */
typedef struct token_line {
    char bytes[BASE64_MAX / 4 * 3];
    size_t length;
    int64_t rank;
} token_line;

/* Parse a line, which is given without its line end. */
static fsdp_status parse_line(const char *line, size_t length, token_line *out)
{
    int shown = length > 80 ? 80 : (int)length;
    const char *space = memchr(line, ' ', length);
    size_t base64 = space ? (size_t)(space - line) : 0;
    if (base64 > BASE64_MAX)
        return fsdp_error(FSDP_ERR_FORMAT, "a token of more than %d bytes", TOKEN_BYTES_MAX);
    if (!space || !decode_base64(line, base64, out->bytes, &out->length))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "expected the bytes of a token in base64 and its rank, found \"%.*s\"",
                          shown, line);
    if (!parse_rank(space + 1, length - base64 - 1, &out->rank))
        return fsdp_error(FSDP_ERR_FORMAT,
                          "expected a rank from 0 to %d after the token, found "
                          "\"%.*s\"",
                          FSDP_TOKEN_ID_MAX, shown, line);
    return FSDP_OK;
}

static size_t line_length(const char *text, size_t bytes, size_t *next)
{
    const char *newline = memchr(text, '\n', bytes);
    size_t length = newline ? (size_t)(newline - text) : bytes;
    *next = newline ? length + 1 : length;
    while (length && (text[length - 1] == '\r' || text[length - 1] == ' '))
        length--;
    return length;
}

bool fsdp_tiktoken_matches(const char *bytes, size_t count)
{
    size_t next, length = line_length(bytes, count < 4096 ? count : 4096, &next);
    token_line line;
    return length && parse_line(bytes, length, &line) == FSDP_OK;
}

/* ---- the model ---- */

/* A growing list of merges. */
typedef struct merge_list {
    fsdp_bpe_merge *items;
    size_t len, cap;
} merge_list;

/* Add the tokens of a file to two vocabularies. In `raw`, the text of a token is its bytes. In
 * `spelled`, it is the spelling of these bytes in GPT-2's alphabet. */
static fsdp_status add_tokens(const char *text, size_t bytes, fsdp_vocabulary *raw,
                              fsdp_vocabulary *spelled)
{
    size_t number = 0;
    for (size_t i = 0, next; i < bytes; i += next) {
        token_line line;
        char spelling[2 * sizeof line.bytes];
        size_t length = line_length(text + i, bytes - i, &next);
        number++;
        if (!length)
            continue;
        fsdp_status status = parse_line(text + i, length, &line);
        if (status == FSDP_OK && fsdp_vocabulary_find(raw, line.bytes, line.length) >= 0)
            status = fsdp_error(FSDP_ERR_FORMAT, "an earlier line has the same token");
        if (status == FSDP_OK) {
            size_t n = fsdp_byte_alphabet_from_bytes(line.bytes, line.length, spelling);
            status = fsdp_vocabulary_add(spelled, spelling, n, line.rank);
        }
        if (status == FSDP_OK)
            status = fsdp_vocabulary_add(raw, line.bytes, line.length, line.rank);
        fsdp_error_context(status, "line %zu", number);
        if (status != FSDP_OK)
            return status;
    }
    return FSDP_OK;
}

static fsdp_status check_bytes(const fsdp_vocabulary *raw)
{
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        if (fsdp_vocabulary_find(raw, &byte, 1) < 0)
            return fsdp_error(FSDP_ERR_FORMAT, "there is no token for the byte 0x%02X",
                              (unsigned)i);
    }
    return FSDP_OK;
}

static fsdp_status add_merges_of(merge_list *list, const fsdp_vocabulary *raw, int32_t id)
{
    size_t length;
    const char *text = fsdp_vocabulary_text(raw, id, &length);
    for (size_t i = 1; text && i < length; i++) {
        int32_t left = fsdp_vocabulary_find(raw, text, i);
        int32_t right = left < 0 ? -1 : fsdp_vocabulary_find(raw, text + i, length - i);
        if (right < 0)
            continue;
        if (!FSDP_GROW(list->items, list->cap, list->len + 1))
            return FSDP_ERR_NOMEM;
        list->items[list->len++] = (fsdp_bpe_merge){left, right, id, (uint32_t)id};
    }
    return FSDP_OK;
}

/* Add the file's tokens to `raw` and `spelled`, and its merges to `list`. */
static fsdp_status read_tokens(const char *text, size_t bytes, fsdp_vocabulary *raw,
                               fsdp_vocabulary *spelled, merge_list *list)
{
    FSDP_TRY(add_tokens(text, bytes, raw, spelled));
    FSDP_TRY(check_bytes(raw));
    for (int32_t id = 0; id < fsdp_vocabulary_size(raw); id++)
        FSDP_TRY(add_merges_of(list, raw, id));
    return FSDP_OK;
}

fsdp_status fsdp_tiktoken_parse(const char *name, const char *text, size_t bytes,
                                fsdp_token_model **out)
{
    fsdp_vocabulary *raw = NULL, *spelled = NULL;
    merge_list list = {0};
    fsdp_status status = fsdp_vocabulary_create(&raw);
    if (status == FSDP_OK)
        status = fsdp_vocabulary_create(&spelled);
    if (status == FSDP_OK)
        status = read_tokens(text, bytes, raw, spelled, &list);
    if (status == FSDP_OK) {
        const fsdp_bpe_options options = {.ignore_merges = true, .raw_bytes = true};
        status = fsdp_bpe_create(spelled, list.items, list.len, &options, out);
        spelled = NULL;
    }
    fsdp_vocabulary_destroy(raw);
    fsdp_vocabulary_destroy(spelled);
    fsdp_free(list.items);
    fsdp_error_context(status, "%s", name);
    return status;
}

fsdp_status fsdp_tiktoken_load(const char *path, fsdp_token_model **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FSDP_TRY(fsdp_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    fsdp_status status = fsdp_tiktoken_parse(path, text, bytes, out);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other =
            fsdp_file_explain(path, "a tokenizer of tiktoken", FSDP_WANTED_TEXT, text, bytes);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(text);
    return status;
}
