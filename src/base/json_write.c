/* Builds JSON documents, and prints them as Python's json.dumps does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/json_internal.h"
#include "src/base/repr.h"
#include "src/base/str.h"

/* ---- building -------------------------------------------------------------------------------- */

static void record_failure(fsdp_json *doc, fsdp_status status)
{
    if (doc->status == FSDP_OK)
        doc->status = status;
}

static json_t *make_string(fsdp_json *doc, const char *value)
{
    json_t *made = value ? json_string(value) : json_null();
    if (made)
        return made;
    json_t *empty = json_string("");
    /* json_string() has failed for one of two reasons: `value` is not UTF-8, or memory has run out.
     * If even `empty` could not be created, memory has run out. Otherwise, assume that `value` is
     * not UTF-8. */
    record_failure(doc, empty ? FSDP_ERR_INVALID : FSDP_ERR_NOMEM);
    return empty;
}

/* Set `key` to `value` and take ownership of `value`. If `value` is NULL, its allocation has
 * failed. */
static void set_value(fsdp_json_node object, const char *key, json_t *value)
{
    if (object.doc->status != FSDP_OK && !object.value) {
        json_decref(value);
        /* `object` could not be created, and the document has recorded that failure */
        return;
    }
    FSDP_ASSERT(json_is_object(object.value));
    if (value && json_object_set_new(object.value, key, value) == 0)
        return;
    /* Find out why setting the key failed. If the key is not UTF-8, make_string() records
     * FSDP_ERR_INVALID. record_failure() then changes nothing, because a document keeps only its
     * first failure. */
    json_decref(make_string(object.doc, key));
    record_failure(object.doc, FSDP_ERR_NOMEM);
}

static void append_value(fsdp_json_node array, json_t *value)
{
    if (array.doc->status != FSDP_OK && !array.value) {
        json_decref(value);
        return;
    }
    FSDP_ASSERT(json_is_array(array.value));
    if (!value || json_array_append_new(array.value, value) != 0)
        record_failure(array.doc, FSDP_ERR_NOMEM);
}

static json_t *make_number(double value)
{
    if (isfinite(value))
        return json_real(value);
    const char *raw = isnan(value) ? "\0NaN" : value > 0 ? "\0Infinity" : "\0-Infinity";
    return json_stringn_nocheck(raw, 1 + strlen(raw + 1));
}

static json_t *make_unsigned(uint64_t value)
{
    char raw[32] = {0};
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    const int digits = snprintf(raw + 1, sizeof raw - 1, "%llu", (unsigned long long)value);
    return json_stringn_nocheck(raw, 1 + (size_t)digits);
}

void fsdp_json_set_i64(fsdp_json_node object, const char *key, int64_t value)
{
    set_value(object, key, json_integer(value));
}

void fsdp_json_set_u64(fsdp_json_node object, const char *key, uint64_t value)
{
    set_value(object, key, make_unsigned(value));
}

void fsdp_json_set_f64(fsdp_json_node object, const char *key, double value)
{
    set_value(object, key, make_number(value));
}

void fsdp_json_set_bool(fsdp_json_node object, const char *key, bool value)
{
    set_value(object, key, json_boolean(value));
}

void fsdp_json_set_str(fsdp_json_node object, const char *key, const char *value)
{
    set_value(object, key, make_string(object.doc, value));
}

/* Return the length of the UTF-8 sequence that `s` begins with; 0 if there is none. */
static size_t sequence_length(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t code = n < 2 ? s[0] : s[0] & (0x7fu >> n);
    if (s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) /* also true for the NUL at the end of the text */
            return 0;
        code = code << 6 | (s[i] & 0x3f);
    }
    return n > 1 && (code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) ? 0
                                                                                              : n;
}

void fsdp_json_set_any_str(fsdp_json_node object, const char *key, const char *value)
{
    fsdp_str text = {0};
    for (const unsigned char *at = (const unsigned char *)value; at && *at;) {
        const size_t n = sequence_length(at);
        if (n > 0)
            fsdp_str_append(&text, (const char *)at, n);
        else
            fsdp_str_printf(&text, "\\x%02X", *at);
        at += n > 0 ? n : 1;
    }
    if (text.failed)
        record_failure(object.doc, FSDP_ERR_NOMEM);
    else
        set_value(object, key, make_string(object.doc, !value ? NULL : text.data ? text.data : ""));
    fsdp_str_fini(&text);
}

static json_t *make_stringn(const char *value, size_t length)
{
    fsdp_str text = {0};
    if (!length || value[0])
        return json_stringn_nocheck(value, length);
    fsdp_str_append(&text, "", 1); /* the additional NUL that json_internal.h describes */
    fsdp_str_append(&text, value, length);
    json_t *made = text.failed ? NULL : json_stringn_nocheck(text.data, text.len);
    fsdp_str_fini(&text);
    return made;
}

void fsdp_json_set_strn(fsdp_json_node object, const char *key, const char *value, size_t length)
{
    set_value(object, key, make_stringn(value, length));
}

void fsdp_json_set_shared(fsdp_json_node object, const char *key, fsdp_json_node node)
{
    set_value(object, key, json_incref(node.value));
}

fsdp_json_node fsdp_json_set_object(fsdp_json_node object, const char *key)
{
    set_value(object, key, json_object());
    return fsdp_json_find(object, key);
}

fsdp_json_node fsdp_json_set_array(fsdp_json_node object, const char *key)
{
    set_value(object, key, json_array());
    return fsdp_json_find(object, key);
}

void fsdp_json_remove(fsdp_json_node object, const char *key)
{
    json_object_del(object.value, key);
}

void fsdp_json_append_i64(fsdp_json_node array, int64_t value)
{
    append_value(array, json_integer(value));
}

void fsdp_json_append_u64(fsdp_json_node array, uint64_t value)
{
    append_value(array, make_unsigned(value));
}

void fsdp_json_append_i64s(fsdp_json_node array, const int64_t *values, size_t count)
{
    json_t *last = NULL; /* consecutive equal values, as in a mask, share one json_t */
    for (size_t i = 0; i < count && array.doc->status == FSDP_OK; i++) {
        last = i && values[i] == values[i - 1] ? json_incref(last) : json_integer(values[i]);
        append_value(array, last);
    }
}

void fsdp_json_append_f64(fsdp_json_node array, double value)
{
    append_value(array, make_number(value));
}

void fsdp_json_append_bool(fsdp_json_node array, bool value)
{
    append_value(array, json_boolean(value));
}

void fsdp_json_append_str(fsdp_json_node array, const char *value)
{
    append_value(array, make_string(array.doc, value));
}

void fsdp_json_append_strn(fsdp_json_node array, const char *value, size_t length)
{
    append_value(array, make_stringn(value, length));
}

void fsdp_json_append_shared(fsdp_json_node array, fsdp_json_node node)
{
    append_value(array, json_incref(node.value));
}

static fsdp_json_node last_item(fsdp_json_node array)
{
    size_t n = json_array_size(array.value);
    return fsdp_json_at(array, n ? n - 1 : 0);
}

fsdp_json_node fsdp_json_append_object(fsdp_json_node array)
{
    append_value(array, json_object());
    return last_item(array);
}

fsdp_json_node fsdp_json_append_array(fsdp_json_node array)
{
    append_value(array, json_array());
    return last_item(array);
}

/* ---- printing -------------------------------------------------------------------------------- */

typedef struct printer {
    char *text; /* the NUL is added when the whole document is printed */
    size_t len, cap;
    bool failed; /* out of memory; later output is dropped */
    fsdp_json_style style;
} printer;

static void put_bytes(printer *p, const char *bytes, size_t n)
{
    if (p->failed || !FSDP_GROW(p->text, p->cap, p->len + n + 1)) {
        p->failed = true;
        return;
    }
    memcpy(p->text + p->len, bytes, n);
    p->len += n;
}

static void put_text(printer *p, const char *s)
{
    put_bytes(p, s, strlen(s));
}

/* Decode the first character of `s`, which jansson has checked to be valid UTF-8. Set *code to the
 * character. Return its length in bytes. */
static size_t decode(const unsigned char *s, uint32_t *code)
{
    static const uint32_t lead_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    *code = s[0] & lead_mask[n];
    for (size_t i = 1; i < n; i++)
        *code = *code << 6 | (s[i] & 0x3fu);
    return n;
}

static void put_escape(printer *p, uint32_t code)
{
    static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    char text[16];
    const char *at = code && code < 0x80 ? strchr(plain, (int)code) : NULL;
    if (at)
        snprintf(text, sizeof text, "\\%c", letter[at - plain]);
    else if (code < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", code);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((code - 0x10000) >> 10),
                 0xdc00 + ((code - 0x10000) & 0x3ff));
    put_text(p, text);
}

static void put_string(printer *p, const char *s, size_t bytes)
{
    bool ascii = p->style != FSDP_JSON_COMPACT;
    put_bytes(p, "\"", 1);
    for (size_t i = 0; i < bytes;) {
        uint32_t code;
        size_t n = decode((const unsigned char *)s + i, &code);
        bool escape = code < 0x20 || code == '"' || code == '\\' || (ascii && code >= 0x7f);
        if (escape)
            put_escape(p, code);
        else
            put_bytes(p, s + i, n);
        i += n;
    }
    put_bytes(p, "\"", 1);
}

static void put_break(printer *p, int depth)
{
    put_bytes(p, "\n", 1);
    for (int i = 0; i < depth; i++)
        put_bytes(p, "  ", 2);
}

/* Print what comes before entry `i` of a container: a comma, unless `i` is 0, and then a line break
 * if the style is FSDP_JSON_PRETTY. Callers also call this function after the last entry, with 0
 * for `i`, to print the line break alone. */
static void put_separator(printer *p, size_t i, int depth)
{
    if (i)
        put_text(p, p->style == FSDP_JSON_LINE ? ", " : ",");
    if (p->style == FSDP_JSON_PRETTY)
        put_break(p, depth);
}

static void put_value(printer *p, json_t *value, int depth);

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_object(printer *p, json_t *object, int depth)
{
    size_t n = json_object_size(object), i = 0;
    const char **keys = fsdp_calloc(n, sizeof *keys);
    if (!keys) {
        p->failed = true;
        return;
    }
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it))
        keys[i++] = json_object_iter_key(it);
    if (p->style == FSDP_JSON_PRETTY)
        qsort(keys, n, sizeof *keys, compare_keys); /* in code point order, as in Python */
    put_bytes(p, "{", 1);
    for (i = 0; i < n; i++) {
        put_separator(p, i, depth + 1);
        put_string(p, keys[i], strlen(keys[i]));
        put_text(p, p->style == FSDP_JSON_COMPACT ? ":" : ": ");
        put_value(p, json_object_get(object, keys[i]), depth + 1);
    }
    if (n)
        put_separator(p, 0, depth);
    put_bytes(p, "}", 1);
    fsdp_free(keys);
}

static void put_array(printer *p, json_t *array, int depth)
{
    size_t n = json_array_size(array);
    put_bytes(p, "[", 1);
    for (size_t i = 0; i < n; i++) {
        put_separator(p, i, depth + 1);
        put_value(p, json_array_get(array, i), depth + 1);
    }
    if (n)
        put_separator(p, 0, depth);
    put_bytes(p, "]", 1);
}

static void put_value(printer *p, json_t *value, int depth)
{
    char text[FSDP_REPR_BYTES];
    const char *string;
    size_t length;
    const char *raw = fsdp_json_raw_number(value);
    if (raw) {
        put_text(p, raw);
        return;
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_object(p, value, depth);
        break;
    case JSON_ARRAY:
        put_array(p, value, depth);
        break;
    case JSON_STRING:
        string = fsdp_json_string(value, &length);
        put_string(p, string, length);
        break;
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
        put_text(p, text);
        break;
    case JSON_REAL:
        fsdp_f64_repr(json_real_value(value), text);
        put_text(p, text);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        put_text(p, json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        put_text(p, "null");
        break;
    }
}

fsdp_status fsdp_json_check_built(const fsdp_json *doc)
{
    if (doc->status == FSDP_ERR_INVALID)
        return fsdp_error(FSDP_ERR_INVALID, "%s: a string is not UTF-8", doc->name);
    return doc->status == FSDP_OK ? FSDP_OK : fsdp_error_nomem();
}

fsdp_status fsdp_json_print(const fsdp_json *doc, fsdp_json_style style, char **text, size_t *bytes)
{
    FSDP_TRY(fsdp_json_check_built(doc));
    printer p = {.style = style};
    put_value(&p, doc->root, 0);
    if (style == FSDP_JSON_PRETTY)
        put_bytes(&p, "\n", 1);
    if (p.failed) {
        fsdp_free(p.text);
        return fsdp_error_nomem();
    }
    p.text[p.len] = 0;
    *text = p.text;
    if (bytes)
        *bytes = p.len;
    return FSDP_OK;
}

fsdp_status fsdp_json_write(const fsdp_json *doc, fsdp_json_style style, const char *path)
{
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_json_print(doc, style, &text, &bytes));
    fsdp_status status = fsdp_file_write(path, text, bytes);
    fsdp_free(text);
    return status;
}
