/* Reads JSON: parses text into a document, and has typed getters whose errors give the position. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/json_internal.h"
#include "src/base/repr.h"
#include "src/base/str.h"

/* ---- preparing the text ------------------------------------------------------------------------
 *
 * find_literals() runs before jansson reads the text. It limits the nesting, and refuses half of a
 * surrogate pair. It also finds the numbers that jansson cannot represent (integers beyond 64 bits,
 * NaN and infinities), and the strings that begin with \u0000. If there are any, jansson reads a
 * changed copy of the text. In the copy, each of these numbers is replaced by a string that
 * consists of \u0000 and the text of the number. Each string that begins with \u0000 gets one more
 * \u0000 there, so that it differs from a replaced number (json_internal.h). */

typedef struct literal {
    size_t at, bytes; /* a number: its offset and length in the original text. A string that begins
                         with \u0000: the offset after its opening quote, and length 0 */
} literal;

typedef struct scan {
    const char *name, *text;
    size_t bytes;
    int64_t first_line;
    literal *literals;
    size_t n_literals, cap;
    const char *key; /* [key_bytes], in `text`: the last key that was scanned; NULL: none */
    size_t key_bytes;
} scan;

static const char raw_open[] = "\"\\u0000", raw_close[] = "\"";
enum {
    OPEN_BYTES = sizeof raw_open - 1,
    CLOSE_BYTES = sizeof raw_close - 1,
    RAW_EXTRA = OPEN_BYTES + CLOSE_BYTES
};

/* Return the number of bytes by which a literal makes the copy longer than the original text. */
static size_t extra_bytes(const literal *l)
{
    return l->bytes ? RAW_EXTRA : OPEN_BYTES - 1;
}

static fsdp_status error_at(const scan *s, size_t at, const char *what)
{
    int64_t line = s->first_line;
    size_t start = 0;
    for (size_t i = 0; i < at && i < s->bytes; i++) {
        if (s->text[i] == '\n') {
            line++;
            start = i + 1;
        }
    }
    return fsdp_error(FSDP_ERR_FORMAT, "%s: line %lld, column %zu: %s", s->name, (long long)line,
                      at - start + 1, what);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* If a valid integer that does not fit in 64 bits begins at `p`, return its length, else 0. */
static size_t big_integer(const char *p, const char *end)
{
    const char *digits = p + (*p == '-');
    const char *q = digits;
    while (q < end && is_digit(*q))
        q++;
    size_t n = (size_t)(q - digits);
    if (n < 19 || *digits == '0' || (q < end && (*q == '.' || *q == 'e' || *q == 'E')))
        return 0;
    if (n > 19)
        return (size_t)(q - p);
    char copy[24] = {0};
    memcpy(copy, p, (size_t)(q - p));
    errno = 0;
    (void)strtoll(copy, NULL, 10);
    return errno == ERANGE ? (size_t)(q - p) : 0;
}

static size_t constant_length(const char *p, const char *end)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(end - p) >= n && memcmp(p, words[i], n) == 0)
            return n;
    }
    return 0;
}

static fsdp_status add_literal(scan *s, size_t at, size_t bytes)
{
    if (!FSDP_GROW(s->literals, s->cap, s->n_literals + 1))
        return FSDP_ERR_NOMEM;
    s->literals[s->n_literals++] = (literal){at, bytes};
    return FSDP_OK;
}

/* Return the UTF-16 unit of the escape \uXXXX at `at`, or -1 if there is no such escape. */
static int unit_at(const scan *s, size_t at)
{
    int unit = 0;
    if (s->bytes - at < 6 || s->text[at] != '\\' || s->text[at + 1] != 'u')
        return -1;
    for (size_t i = at + 2; i < at + 6; i++) {
        const char c = s->text[i];
        const int digit = is_digit(c)              ? c - '0'
                          : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                          : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                                   : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static fsdp_status refuse_half(const scan *s, size_t at)
{
    char what[256];
    fsdp_text t = {what, sizeof what};
    if (s->key)
        fsdp_text_printf(&t, "%.*s: ", s->key_bytes < 60 ? (int)s->key_bytes : 60, s->key);
    fsdp_text_printf(
        &t,
        "\"%.6s\" is half of a surrogate pair, which is no character and has no UTF-8; "
        "remove it, or write \\ufffd in its place",
        s->text + at);
    return error_at(s, at, what);
}

/* Set *after to where the scan continues after the backslash at `at`: after a surrogate pair, or
 * after the character that follows the backslash. Refuse half of a surrogate pair. */
static fsdp_status skip_escape(const scan *s, size_t at, size_t *after)
{
    const int unit = unit_at(s, at);
    *after = at + 2;
    if (unit < 0xd800 || unit >= 0xe000)
        return FSDP_OK;
    const int low = unit_at(s, at + 6);
    if (unit >= 0xdc00 || low < 0xdc00 || low >= 0xe000)
        return refuse_half(s, at);
    *after = at + 12;
    return FSDP_OK;
}

/* Return true if a colon follows, so that the string before `at` is a key. */
static bool colon_follows(const scan *s, size_t at)
{
    while (at < s->bytes && s->text[at] && strchr(" \t\r\n", s->text[at]))
        at++;
    return at < s->bytes && s->text[at] == ':';
}

/* Skip the string that begins at `at`. If the string has no end, *after is the end of the text, and
 * jansson reports the error later. */
static fsdp_status skip_string(scan *s, size_t at, size_t *after)
{
    size_t i = at + 1;
    const bool begins_with_nul = unit_at(s, i) == 0;
    while (i < s->bytes && s->text[i] != '"') {
        if (s->text[i] == '\\')
            FSDP_TRY(skip_escape(s, i, &i));
        else
            i++;
    }
    *after = i < s->bytes ? i + 1 : s->bytes;
    if (i < s->bytes && colon_follows(s, *after)) {
        s->key = s->text + at + 1;
        s->key_bytes = i - at - 1;
    } else if (begins_with_nul) {
        return add_literal(s, at + 1, 0);
    }
    return FSDP_OK;
}

static fsdp_status find_literals(scan *s)
{
    const char *end = s->text + s->bytes;
    int depth = 0;
    for (size_t i = 0; i < s->bytes;) {
        char c = s->text[i];
        size_t literal_bytes = 0;
        if (c == '"') {
            FSDP_TRY(skip_string(s, i, &i));
            continue;
        }
        if (c == '{' || c == '[') {
            if (++depth > FSDP_JSON_MAX_DEPTH)
                return error_at(s, i, "nested too deeply");
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (is_digit(c) || c == '-' || c == 'N' || c == 'I') {
            literal_bytes = constant_length(s->text + i, end);
            if (!literal_bytes && c != 'N' && c != 'I')
                literal_bytes = big_integer(s->text + i, end);
            if (literal_bytes) {
                FSDP_TRY(add_literal(s, i, literal_bytes));
                i += literal_bytes;
                continue;
            }
            while (i < s->bytes && (is_digit(s->text[i]) || strchr("+-.eENI", s->text[i])) &&
                   s->text[i])
                i++;
            continue;
        }
        i++;
    }
    return FSDP_OK;
}

static char *with_literals_replaced(const scan *s, size_t *bytes)
{
    char *copy = fsdp_calloc(s->bytes + s->n_literals * RAW_EXTRA + 1, 1);
    if (!copy)
        return NULL;
    char *out = copy;
    size_t from = 0;
    for (size_t i = 0; i < s->n_literals; i++) {
        const literal *l = &s->literals[i];
        memcpy(out, s->text + from, l->at - from);
        out += l->at - from;
        from = l->at + l->bytes;
        if (!l->bytes) { /* a string; its opening quote was copied above */
            memcpy(out, raw_open + 1, OPEN_BYTES - 1);
            out += OPEN_BYTES - 1;
            continue;
        }
        memcpy(out, raw_open, OPEN_BYTES);
        out += OPEN_BYTES;
        memcpy(out, s->text + l->at, l->bytes);
        out += l->bytes;
        memcpy(out, raw_close, CLOSE_BYTES);
        out += CLOSE_BYTES;
    }
    memcpy(out, s->text + from, s->bytes - from);
    *bytes = (size_t)(out - copy) + s->bytes - from;
    return copy;
}

/* jansson reads a copy of the text, in which some literals have been replaced by longer strings.
 * `at` is a position in this copy. Return the same position in the original text. */
static size_t original_position(const scan *s, size_t at)
{
    size_t grown = 0;
    for (size_t i = 0; i < s->n_literals && s->literals[i].at + grown < at; i++)
        grown += extra_bytes(&s->literals[i]);
    return at > grown ? at - grown : 0;
}

static fsdp_status load_text(scan *s, json_t **root)
{
    FSDP_TRY(find_literals(s));
    char *copy = NULL;
    size_t bytes = s->bytes;
    if (s->n_literals && !(copy = with_literals_replaced(s, &bytes)))
        return FSDP_ERR_NOMEM;
    json_error_t error;
    *root = json_loadb(copy ? copy : s->text, bytes, JSON_ALLOW_NUL, &error);
    fsdp_free(copy);
    if (*root)
        return FSDP_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return fsdp_error_nomem();
    size_t at = error.position > 0 ? (size_t)error.position - 1 : 0;
    return error_at(s, original_position(s, at), error.text);
}

/* ---- documents ------------------------------------------------------------------------------- */

static fsdp_status document_create(const char *name, json_t *root, fsdp_json **doc)
{
    fsdp_json *d = fsdp_calloc(1, sizeof *d);
    char *copy = fsdp_strdup(name);
    if (!d || !copy || !root) {
        fsdp_free(d);
        fsdp_free(copy);
        json_decref(root);
        return fsdp_error_nomem();
    }
    d->name = copy;
    d->root = root;
    *doc = d;
    return FSDP_OK;
}

fsdp_status fsdp_json_parse(const char *name, int64_t first_line, const char *text, size_t bytes,
                            fsdp_json **doc)
{
    scan s = {.name = name, .text = text, .bytes = bytes, .first_line = first_line};
    json_t *root = NULL;
    fsdp_status status = load_text(&s, &root);
    fsdp_free(s.literals);
    return status == FSDP_OK ? document_create(name, root, doc) : status;
}

fsdp_status fsdp_json_read(const char *path, fsdp_json **doc)
{
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_file_read(path, FSDP_JSON_MAX_BYTES, &text, &bytes));
    fsdp_status status = fsdp_json_parse(path, 1, text, bytes, doc);
    if (status == FSDP_ERR_FORMAT) {
        const fsdp_status other = fsdp_file_explain(path, "JSON", FSDP_WANTED_TEXT, text, bytes);
        status = other == FSDP_OK ? status : other;
    }
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_json_create(const char *name, fsdp_json **doc)
{
    return document_create(name, json_object(), doc);
}

void fsdp_json_destroy(fsdp_json *doc)
{
    if (!doc)
        return;
    json_decref(doc->root);
    fsdp_free(doc->name);
    fsdp_free(doc);
}

const char *fsdp_json_name(const fsdp_json *doc)
{
    return doc->name;
}

fsdp_json_node fsdp_json_root(fsdp_json *doc)
{
    return (fsdp_json_node){.doc = doc, .value = doc->root};
}

/* ---- lookup ---------------------------------------------------------------------------------- */

const char *fsdp_json_raw_number(const json_t *value)
{
    if (!json_is_string(value) || json_string_length(value) == 0)
        return NULL;
    const char *text = json_string_value(value);
    return text[0] == 0 && text[1] != 0 ? text + 1 : NULL;
}

const char *fsdp_json_string(const json_t *value, size_t *length)
{
    const char *text = json_string_value(value);
    *length = json_string_length(value);
    if (*length && text[0] == 0) { /* a string that begins with a NUL is stored with an additional
                                      NUL */
        text++;
        --*length;
    }
    return text;
}

fsdp_json_kind fsdp_json_kind_of(fsdp_json_node node)
{
    if (!node.value)
        return FSDP_JSON_NONE;
    switch (json_typeof(node.value)) {
    case JSON_OBJECT:
        return FSDP_JSON_OBJECT;
    case JSON_ARRAY:
        return FSDP_JSON_ARRAY;
    case JSON_STRING: {
        const char *raw = fsdp_json_raw_number(node.value);
        if (!raw)
            return FSDP_JSON_STRING;
        return is_digit(raw[0]) || is_digit(raw[1]) ? FSDP_JSON_INT : FSDP_JSON_REAL;
    }
    case JSON_INTEGER:
        return FSDP_JSON_INT;
    case JSON_REAL:
        return FSDP_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return FSDP_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return FSDP_JSON_NULL;
}

const char *fsdp_json_literal(fsdp_json_node node)
{
    return fsdp_json_raw_number(node.value);
}

size_t fsdp_json_len(fsdp_json_node node)
{
    return json_is_object(node.value) ? json_object_size(node.value) : json_array_size(node.value);
}

static fsdp_json_node at_iterator(fsdp_json_node object, void *it)
{
    fsdp_json_node found = {.doc = object.doc, .parent = object.value};
    if (it) {
        found.value = json_object_iter_value(it);
        found.key = json_object_iter_key(it);
    }
    return found;
}

fsdp_json_node fsdp_json_find(fsdp_json_node node, const char *key)
{
    return at_iterator(node, json_object_iter_at(node.value, key));
}

fsdp_json_node fsdp_json_at(fsdp_json_node node, size_t index)
{
    return (fsdp_json_node){.doc = node.doc,
                            .value = json_array_get(node.value, index),
                            .parent = node.value,
                            .index = index};
}

fsdp_json_node fsdp_json_first(fsdp_json_node object)
{
    return at_iterator(object, json_object_iter(object.value));
}

fsdp_json_node fsdp_json_next(fsdp_json_node value)
{
    fsdp_json_node object = {.doc = value.doc, .value = value.parent};
    void *it = json_object_iter_at(object.value, value.key);
    return at_iterator(object, json_object_iter_next(object.value, it));
}

bool fsdp_json_has(fsdp_json_node node, const char *key)
{
    json_t *value = json_object_get(node.value, key);
    return value && !json_is_null(value);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Append the path from `from` to `container`, such as "a.b[2]", to `t`. Return false if `container`
 * is not in `from`. Error messages use this function. It has to search, because nodes do not store
 * their paths. The search has at most one result, because a container occurs only once in a
 * document. */
static bool put_path_to(fsdp_text *t, json_t *from, const json_t *container)
{
    if (from == container)
        return true;
    fsdp_text before = *t;
    if (json_is_object(from)) {
        for (void *it = json_object_iter(from); it; it = json_object_iter_next(from, it)) {
            fsdp_text_printf(t, "%s%s", before.at[-1] == ' ' ? "" : ".", json_object_iter_key(it));
            if (put_path_to(t, json_object_iter_value(it), container))
                return true;
            *t = before;
        }
    } else if (json_is_array(from)) {
        for (size_t i = 0; i < json_array_size(from); i++) {
            fsdp_text_printf(t, "[%zu]", i);
            if (put_path_to(t, json_array_get(from, i), container))
                return true;
            *t = before;
        }
    }
    return false;
}

/* Append the beginning of a string. A NUL is written as \u0000. */
static void put_string(fsdp_text *t, const json_t *value)
{
    size_t length;
    const char *text = fsdp_json_string(value, &length);
    const size_t shown = length < 40 ? length : 40;
    fsdp_text_printf(t, "\"");
    for (size_t at = 0; at < shown; at++) {
        const size_t n = strnlen(text + at, shown - at);
        fsdp_text_printf(t, "%.*s%s", (int)n, text + at, n < shown - at ? "\\u0000" : "");
        at += n;
    }
    fsdp_text_printf(t, "%s\"", length > shown ? "..." : "");
}

static void put_value(fsdp_text *t, json_t *value)
{
    char number[FSDP_REPR_BYTES];
    const char *raw = fsdp_json_raw_number(value);
    if (raw) {
        fsdp_text_printf(t, "%.40s", raw);
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        fsdp_text_printf(t, "an object");
        break;
    case JSON_ARRAY:
        fsdp_text_printf(t, "a list");
        break;
    case JSON_STRING:
        put_string(t, value);
        break;
    case JSON_INTEGER:
        fsdp_text_printf(t, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        fsdp_f64_repr(json_real_value(value), number);
        fsdp_text_printf(t, "%s", number);
        break;
    case JSON_TRUE:
        fsdp_text_printf(t, "true");
        break;
    case JSON_FALSE:
        fsdp_text_printf(t, "false");
        break;
    case JSON_NULL:
        fsdp_text_printf(t, "null");
        break;
    }
}

/* Return the node of `key` in `node`, or `node` itself if `key` is NULL. */
static fsdp_json_node node_of_key(fsdp_json_node node, const char *key)
{
    return key ? fsdp_json_find(node, key) : node;
}

static fsdp_status mismatch(fsdp_json_node node, const char *key, const char *expected)
{
    if (key && node.value && !json_is_object(node.value))
        return mismatch(node, NULL, "an object");
    fsdp_json_node found = node_of_key(node, key);
    char where[320] = " ", what[96] = "";
    fsdp_text t = {where + 1, sizeof where - 1};
    if (found.parent) {
        put_path_to(&t, node.doc->root, found.parent);
        if (json_is_array(found.parent))
            fsdp_text_printf(&t, "[%zu]", found.index);
        else
            fsdp_text_printf(&t, "%s%s", t.at[-1] == ' ' ? "" : ".", key ? key : found.key);
        fsdp_text_printf(&t, ": ");
    } else if (key) {
        fsdp_text_printf(&t, "%s: ", key);
    }
    if (!found.value)
        return fsdp_error(FSDP_ERR_NOT_FOUND, "%s:%smissing, expected %s", node.doc->name, where,
                          expected);
    t = (fsdp_text){what, sizeof what};
    put_value(&t, found.value);
    return fsdp_error(FSDP_ERR_FORMAT, "%s:%sexpected %s, found %s", node.doc->name, where,
                      expected, what);
}

fsdp_status fsdp_json_mismatch(fsdp_json_node node, const char *key, const char *expected, ...)
{
    char what[256];
    va_list args;
    va_start(args, expected);
    vsnprintf(what, sizeof what, expected, args);
    va_end(args);
    return mismatch(node, key, what);
}

/* ---- getters --------------------------------------------------------------------------------- */

fsdp_status fsdp_json_get_i64(fsdp_json_node node, const char *key, int64_t min, int64_t max,
                              int64_t *out)
{
    json_t *value = node_of_key(node, key).value;
    bool fits = json_is_integer(value);
    int64_t v = json_integer_value(value);
    if (fits && v >= min && v <= max) {
        *out = v;
        return FSDP_OK;
    }
    bool too_large = (fits && v > max) || (fsdp_json_raw_number(value) && max < INT64_MAX);
    if (too_large || (min != 0 && min != 1 && min != INT64_MIN))
        return fsdp_json_mismatch(node, key, "an integer from %lld to %lld", (long long)min,
                                  (long long)max);
    return mismatch(node, key,
                    min == 1   ? "a positive integer"
                    : min == 0 ? "an integer, 0 or more"
                               : "an integer of 64 bits");
}

fsdp_status fsdp_json_opt_i64(fsdp_json_node node, const char *key, int64_t min, int64_t max,
                              int64_t fallback, int64_t *out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_i64(node, key, min, max, out);
    *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_json_get_f64(fsdp_json_node node, const char *key, double *out)
{
    fsdp_json_node found = node_of_key(node, key);
    const char *raw = fsdp_json_raw_number(found.value);
    double v = raw ? strtod(raw, NULL) : json_number_value(found.value);
    if (!(raw || json_is_number(found.value)) || !isfinite(v))
        return mismatch(node, key, "a finite number");
    *out = v;
    return FSDP_OK;
}

fsdp_status fsdp_json_opt_f64(fsdp_json_node node, const char *key, double fallback, double *out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_f64(node, key, out);
    *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_json_get_bool(fsdp_json_node node, const char *key, bool *out)
{
    json_t *value = node_of_key(node, key).value;
    if (!json_is_boolean(value))
        return mismatch(node, key, "true or false");
    *out = json_is_true(value);
    return FSDP_OK;
}

fsdp_status fsdp_json_opt_bool(fsdp_json_node node, const char *key, bool fallback, bool *out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_bool(node, key, out);
    *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_json_get_str(fsdp_json_node node, const char *key, const char **out)
{
    json_t *value = node_of_key(node, key).value;
    size_t length;
    if (!json_is_string(value) || fsdp_json_raw_number(value))
        return mismatch(node, key, "a string");
    const char *text = fsdp_json_string(value, &length);
    if (strlen(text) < length)
        return mismatch(node, key, "a string without \\u0000 (remove the escape)");
    *out = text;
    return FSDP_OK;
}

fsdp_status fsdp_json_get_strn(fsdp_json_node node, const char *key, const char **out,
                               size_t *length)
{
    json_t *value = node_of_key(node, key).value;
    if (!json_is_string(value) || fsdp_json_raw_number(value))
        return mismatch(node, key, "a string");
    *out = fsdp_json_string(value, length);
    return FSDP_OK;
}

fsdp_status fsdp_json_opt_str(fsdp_json_node node, const char *key, const char *fallback,
                              const char **out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_str(node, key, out);
    *out = fallback;
    return FSDP_OK;
}

fsdp_status fsdp_json_get_object(fsdp_json_node node, const char *key, fsdp_json_node *out)
{
    fsdp_json_node found = node_of_key(node, key);
    if (!json_is_object(found.value))
        return mismatch(node, key, "an object");
    *out = found;
    return FSDP_OK;
}

fsdp_status fsdp_json_opt_object(fsdp_json_node node, const char *key, fsdp_json_node *out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_object(node, key, out);
    *out = (fsdp_json_node){.doc = node.doc};
    return FSDP_OK;
}

fsdp_status fsdp_json_get_array(fsdp_json_node node, const char *key, fsdp_json_node *out)
{
    fsdp_json_node found = node_of_key(node, key);
    if (!json_is_array(found.value))
        return mismatch(node, key, "a list");
    *out = found;
    return FSDP_OK;
}

fsdp_status fsdp_json_opt_array(fsdp_json_node node, const char *key, fsdp_json_node *out)
{
    if (fsdp_json_has(node, key))
        return fsdp_json_get_array(node, key, out);
    *out = (fsdp_json_node){.doc = node.doc};
    return FSDP_OK;
}

fsdp_status fsdp_json_get_i64s(fsdp_json_node node, const char *key, int64_t min, int64_t max,
                               int64_t **items, size_t *count)
{
    fsdp_json_node array;
    FSDP_TRY(fsdp_json_get_array(node, key, &array));
    size_t n = fsdp_json_len(array);
    int64_t *values = fsdp_calloc(n, sizeof *values);
    if (!values)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        fsdp_status status = fsdp_json_get_i64(fsdp_json_at(array, i), NULL, min, max, &values[i]);
        if (status != FSDP_OK) {
            fsdp_free(values);
            return status;
        }
    }
    *items = values;
    *count = n;
    return FSDP_OK;
}
