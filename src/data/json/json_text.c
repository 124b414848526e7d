/* See json_text.h. This file accepts fewer rows than the JSON parser, and no row that the parser
 * refuses. It must return the same text as the parser; tests/fuzz/fuzz_json_text.c compares the
 * two. */
#include "src/data/json/json_text.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/text/chars/utf8.h"

enum {
    MAX_DEPTH = 32,       /* maximum nesting of arrays and objects in the value of a key */
    MAX_NUMBER_BYTES = 64 /* maximum length of a number */
};

/* A position in the row: bytes [at, end) have not been read yet. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r'))
        c->at++;
}

/* Skip white space, and take a byte if it is `byte`. */
static bool take(cursor *c, char byte)
{
    skip_space(c);
    if (c->at == c->end || *c->at != byte)
        return false;
    c->at++;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Take four hexadecimal digits and return their value, or -1 if the next four characters are not
 * such digits. */
static int32_t take_unit(cursor *c)
{
    int32_t unit = 0;
    if (c->end - c->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(*c->at++);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

/* Append a character to a text. Does nothing if `text` is NULL. */
static void append_character(fsdp_str *text, uint32_t c)
{
    if (!text)
        return;
    char bytes[4];
    size_t n = 0;
    if (c < 0x80) {
        bytes[n++] = (char)c;
    } else if (c < 0x800) {
        bytes[n++] = (char)(0xC0 | c >> 6);
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        bytes[n++] = (char)(0xE0 | c >> 12);
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    } else {
        bytes[n++] = (char)(0xF0 | c >> 18);
        bytes[n++] = (char)(0x80 | (c >> 12 & 0x3F));
        bytes[n++] = (char)(0x80 | (c >> 6 & 0x3F));
        bytes[n++] = (char)(0x80 | (c & 0x3F));
    }
    fsdp_str_append(text, bytes, n);
}

/* Take the four hexadecimal digits after \u. If they are the first half of a surrogate pair, also
 * take the second half, which is another escape. Return false if one half comes without the other,
 * because the JSON parser refuses such a text. */
static bool take_character(cursor *c, fsdp_str *text)
{
    const int32_t high = take_unit(c);
    if (high < 0 || (high >= 0xDC00 && high < 0xE000))
        return false;
    if (high < 0xD800 || high >= 0xE000) {
        append_character(text, (uint32_t)high);
        return true;
    }
    if (c->end - c->at < 2 || c->at[0] != '\\' || c->at[1] != 'u')
        return false;
    c->at += 2;
    const int32_t low = take_unit(c);
    if (low < 0xDC00 || low >= 0xE000)
        return false;
    append_character(text, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
    return true;
}

/* Take what follows a backslash. */
static bool take_escape(cursor *c, fsdp_str *text)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    if (c->at == c->end)
        return false;
    const char name = *c->at++;
    if (name == 'u')
        return take_character(c, text);
    const char *found = memchr(names, name, sizeof names - 1);
    if (found && text)
        fsdp_str_append(text, &bytes[found - names], 1);
    return found != NULL;
}

/* Take the rest of a string whose opening quote has been taken, including its closing quote. `text`
 * may be NULL. */
static bool take_string(cursor *c, fsdp_str *text)
{
    if (text)
        text->len = 0;
    for (;;) {
        const char *begin = c->at;
        while (c->at < c->end && (unsigned char)*c->at >= 0x20 && *c->at != '"' && *c->at != '\\')
            c->at++;
        const size_t n = (size_t)(c->at - begin);
        if (fsdp_utf8_valid_length(begin, n) < n)
            return false;
        if (text)
            fsdp_str_append(text, begin, n);
        if (c->at == c->end || (unsigned char)*c->at < 0x20)
            return false;
        if (*c->at++ == '"')
            return true;
        if (!take_escape(c, text))
            return false;
    }
}

/* Take a key without escapes, and the colon after it. Return false for a key with an escape,
 * because it may be another spelling of an equal key. The JSON parser then reads the row. */
static bool take_key(cursor *c, const char **key, size_t *bytes)
{
    if (!take(c, '"'))
        return false;
    *key = c->at;
    while (c->at < c->end && (unsigned char)*c->at >= 0x20 && *c->at != '"' && *c->at != '\\')
        c->at++;
    *bytes = (size_t)(c->at - *key);
    if (c->at == c->end || *c->at != '"' || fsdp_utf8_valid_length(*key, *bytes) < *bytes)
        return false;
    c->at++;
    return take(c, ':');
}

/* ---- values that are skipped ---- */

static size_t skip_digits(cursor *c)
{
    const char *begin = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
        c->at++;
    return (size_t)(c->at - begin);
}

/* Skip the fraction and the exponent of a number. Return false if the exponent has more than two
 * digits, because only the parser checks whether a number is too large. */
static bool skip_fraction(cursor *c)
{
    if (c->at < c->end && *c->at == '.') {
        c->at++;
        if (!skip_digits(c))
            return false;
    }
    if (c->at == c->end || (*c->at != 'e' && *c->at != 'E'))
        return true;
    c->at++;
    if (c->at < c->end && (*c->at == '+' || *c->at == '-'))
        c->at++;
    const size_t digits = skip_digits(c);
    return digits == 1 || digits == 2;
}

static bool skip_number(cursor *c)
{
    const char *begin = c->at;
    if (c->at < c->end && *c->at == '-')
        c->at++;
    if (c->at < c->end && *c->at == '0')
        c->at++;
    else if (!skip_digits(c))
        return false;
    return skip_fraction(c) && c->at - begin <= MAX_NUMBER_BYTES;
}

/* Skip null, true or false. Return false for NaN and Infinity, which only the parser reads. */
static bool skip_word(cursor *c)
{
    static const char *const words[] = {"null", "true", "false"};
    for (size_t i = 0; i < FSDP_LENGTH(words); i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(c->end - c->at) >= n && memcmp(c->at, words[i], n) == 0) {
            c->at += n;
            return true;
        }
    }
    return false;
}

static bool skip_scalar(cursor *c)
{
    skip_space(c);
    if (c->at == c->end)
        return false;
    if (*c->at == '"') {
        c->at++;
        return take_string(c, NULL);
    }
    return *c->at == '-' || (*c->at >= '0' && *c->at <= '9') ? skip_number(c) : skip_word(c);
}

/* Skip a value. The local array `open` is a stack of closing brackets, one for each array and
 * object that has begun and not ended. */
static bool skip_value(cursor *c)
{
    char open[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        const char *key;
        size_t bytes;
        const bool object = take(c, '{');
        if (object || take(c, '[')) {
            if (depth == MAX_DEPTH)
                return false;
            open[depth++] = object ? '}' : ']';
            if (!take(c, open[depth - 1])) { /* the array or object has entries */
                if (object && !take_key(c, &key, &bytes))
                    return false;
                continue;
            }
            depth--;
        } else if (!skip_scalar(c)) {
            return false;
        }
        while (depth && take(c, open[depth - 1]))
            depth--;
        if (!depth)
            return true;
        if (!take(c, ',') || (open[depth - 1] == '}' && !take_key(c, &key, &bytes)))
            return false;
    }
}

/* ---- rows ---- */

/* Add `key`, which is not the key of the text, to found->others. Return false if the key occurs
 * twice, or if there are too many keys. The JSON parser then reads the row. */
static bool add_other(fsdp_json_text *found, const char *key, size_t bytes, bool is_null)
{
    for (size_t i = 0; i < found->n_others; i++)
        if (found->others[i].bytes == bytes && memcmp(found->others[i].name, key, bytes) == 0)
            return false;
    if (found->n_others == FSDP_JSON_TEXT_MAX_OTHERS)
        return false;
    found->others[found->n_others++] = (fsdp_json_text_key){key, bytes, is_null};
    return true;
}

/* Take a key and its value. Set *any to true if the text is found in this entry. If an earlier
 * entry had the text, *any is true already. */
static bool take_entry(cursor *c, const char *key, fsdp_json_text *found, bool *any)
{
    const char *name;
    size_t bytes;
    if (!take_key(c, &name, &bytes))
        return false;
    if (bytes == strlen(key) && memcmp(name, key, bytes) == 0) {
        const bool again = *any;
        *any = true;
        return !again && take(c, '"') && take_string(c, &found->text);
    }
    skip_space(c);
    const bool is_null = c->at < c->end && *c->at == 'n';
    return skip_value(c) && add_other(found, name, bytes, is_null);
}

bool fsdp_json_find_text(const char *row, size_t length, const char *key, fsdp_json_text *found)
{
    cursor c = {row, row + length};
    bool any = false;
    found->n_others = 0;
    if (!take(&c, '{'))
        return false;
    do {
        if (!take_entry(&c, key, found, &any))
            return false;
    } while (take(&c, ','));
    if (!any || !take(&c, '}'))
        return false;
    skip_space(&c);
    return c.at == c.end && !found->text.failed;
}

void fsdp_json_text_fini(fsdp_json_text *found)
{
    fsdp_str_fini(&found->text);
    found->n_others = 0;
}
