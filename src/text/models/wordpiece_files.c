/* Loads a WordPiece model from vocab.txt. */
#include "src/text/models/wordpiece.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/text/chars/utf8.h"

enum {
    /* largest size of a vocab.txt; the largest known one has 5 MB */
    VOCAB_BYTES_MAX = 64 * 1024 * 1024
};

/* If `text` [length], which is UTF-8, ends with a white space character, return this character's
 * number of bytes; otherwise, return 0. White space is any character with Unicode's property
 * White_Space. */
static size_t space_at_end(const char *text, size_t length)
{
    static const char *const spaces[] = {
        " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\xC2\x85", "\u00A0", "\u1680",
        "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",   "\u2007", "\u2008",
        "\u2009", "\u200A", "\u2028", "\u2029", "\u202F", "\u205F", "\u3000",
    };
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        size_t n = strlen(spaces[i]);
        if (length >= n && memcmp(text + length - n, spaces[i], n) == 0)
            return n;
    }
    return 0;
}

static fsdp_status add_lines(fsdp_vocabulary *vocabulary, const char *text, size_t bytes)
{
    int64_t id = 0;
    for (size_t i = 0, next; i < bytes; i = next, id++) {
        const char *newline = memchr(text + i, '\n', bytes - i);
        size_t length = newline ? (size_t)(newline - text) - i : bytes - i;
        next = i + length + 1;
        for (size_t n; (n = space_at_end(text + i, length));)
            length -= n;
        fsdp_status status = fsdp_vocabulary_add(vocabulary, text + i, length, id);
        fsdp_error_context(status, "line %lld", (long long)id + 1);
        if (status != FSDP_OK)
            return status;
    }
    if (id == 0)
        return fsdp_error(FSDP_ERR_FORMAT, "the file is empty");
    return FSDP_OK;
}

fsdp_status fsdp_wordpiece_parse(const char *name, const char *text, size_t bytes,
                                 const fsdp_wordpiece_options *options, fsdp_token_model **out)
{
    fsdp_vocabulary *vocabulary = NULL;
    size_t valid = fsdp_utf8_valid_length(text, bytes);
    fsdp_status status = FSDP_OK;
    if (valid < bytes)
        status = fsdp_error(FSDP_ERR_FORMAT, "not UTF-8: byte 0x%02x at offset %zu",
                            (unsigned)(unsigned char)text[valid], valid);
    if (status == FSDP_OK)
        status = fsdp_vocabulary_create(&vocabulary);
    if (status == FSDP_OK)
        status = add_lines(vocabulary, text, bytes);
    if (status == FSDP_OK)
        status = fsdp_wordpiece_create(vocabulary, options, out);
    else
        fsdp_vocabulary_destroy(vocabulary);
    fsdp_error_context(status, "%s", name);
    return status;
}

fsdp_status fsdp_wordpiece_load(const char *path, const fsdp_wordpiece_options *options,
                                fsdp_token_model **out)
{
    char *text = NULL;
    size_t bytes = 0;
    FSDP_TRY(fsdp_file_read(path, VOCAB_BYTES_MAX, &text, &bytes));
    fsdp_status status = fsdp_wordpiece_parse(path, text, bytes, options, out);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other =
            fsdp_file_explain(path, "a vocabulary", FSDP_WANTED_TEXT, text, bytes);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(text);
    return status;
}
