/* Reads and writes JSON: config.json, weight indexes, safetensors headers, JSON lines.
 *
 * This is a thin typed layer over jansson, which only json.c and json_write.c include. A document
 * (fsdp_json) owns its values. A node (fsdp_json_node) is the position of a value in a document; it
 * is borrowed from the document and passed by value. Getters check type and range. Their errors
 * give the file, the key path, and the expected and actual value: `t5/config.json: d_model:
 * expected a positive integer, found "abc"`.
 *
 * Reading and writing match Python's json module. Integers of any length keep all digits, and NaN
 * and Infinity are numbers. Floats are printed as Python's repr prints them. A string may
 * contain NUL characters, but a key may not. Only fsdp_json_get_strn() returns strings with NUL
 * characters. Half
 * of a surrogate pair is refused, because UTF-8 cannot represent it. Changing one value keeps all
 * others, so a config.json keeps keys that this library does not know. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_json fsdp_json;

typedef struct fsdp_json_node {
    fsdp_json *doc;
    struct json_t *value;  /* NULL: the value does not exist */
    struct json_t *parent; /* the container of `value`; NULL for the root */
    const char *key; /* the key of `value` in an object, owned by the document; NULL in an array */
    size_t index;    /* the index of `value` in an array */
} fsdp_json_node;

typedef enum fsdp_json_kind {
    FSDP_JSON_NONE, /* the value does not exist */
    FSDP_JSON_NULL,
    FSDP_JSON_BOOL,
    FSDP_JSON_INT, /* an integer of any length */
    FSDP_JSON_REAL,
    FSDP_JSON_STRING,
    FSDP_JSON_ARRAY,
    FSDP_JSON_OBJECT,
} fsdp_json_kind;

typedef enum fsdp_json_style {
    FSDP_JSON_PRETTY,  /* indent 2, sorted keys, ASCII, final newline: like files that transformers
                          writes */
    FSDP_JSON_LINE,    /* {"a": 1, "b": [2, 3]} in order of insertion, ASCII, no newline */
    FSDP_JSON_COMPACT, /* {"a":1,"b":[2,3]} in order of insertion, UTF-8, no newline */
} fsdp_json_style;

enum {
    FSDP_JSON_MAX_BYTES = 100000000, /* maximum size of a file */
    FSDP_JSON_MAX_DEPTH = 256        /* maximum depth of nested arrays and objects */
};

/* Read a file that contains an object or an array. On FSDP_ERR_FORMAT, the message contains the
 * path, the line and the column. */
FSDP_MUST_CHECK fsdp_status fsdp_json_read(const char *path, fsdp_json **doc);
/* Parse `text` [bytes]. The text need not end in NUL and is not kept. Error messages call the text
 * `name` and number its lines from `first_line`. `first_line` is 1, except for a line of a
 * JSON Lines file: then it is the number of that line. */
FSDP_MUST_CHECK fsdp_status fsdp_json_parse(const char *name, int64_t first_line, const char *text,
                                            size_t bytes, fsdp_json **doc);
/* Create a document whose root is an empty object. */
FSDP_MUST_CHECK fsdp_status fsdp_json_create(const char *name, fsdp_json **doc);
void fsdp_json_destroy(fsdp_json *doc); /* accepts NULL */

const char *fsdp_json_name(const fsdp_json *doc);
fsdp_json_node fsdp_json_root(fsdp_json *doc);

/* ---- lookup: these functions never fail; a missing value has kind FSDP_JSON_NONE ---- */
fsdp_json_kind fsdp_json_kind_of(fsdp_json_node node);
/* The getters of numbers refuse integers beyond 64 bits, NaN and infinities. If the value is such a
 * number, return its text in the document. Otherwise return NULL. */
const char *fsdp_json_literal(fsdp_json_node node);
size_t fsdp_json_len(fsdp_json_node node); /* number of entries of an array or object, else 0 */
/* Return the value of `key`. The result has kind FSDP_JSON_NONE if `node` is not an object or lacks
 * the key. */
fsdp_json_node fsdp_json_find(fsdp_json_node node, const char *key);
/* Return item `index` of an array. The result has kind FSDP_JSON_NONE if there is no such item. */
fsdp_json_node fsdp_json_at(fsdp_json_node node, size_t index);
/* Iterate over an object in order of insertion: `for (fsdp_json_node v = fsdp_json_first(object);
 * v.value; v = fsdp_json_next(v))`; the key is v.key. */
fsdp_json_node fsdp_json_first(fsdp_json_node object);
fsdp_json_node fsdp_json_next(fsdp_json_node value);
/* Return true if the key exists and its value is not null. */
bool fsdp_json_has(fsdp_json_node node, const char *key);

/* ---- getters: each reads the value of `key` in the object `node`, or the value of `node` itself
 * if `key` is NULL. A getter returns FSDP_ERR_NOT_FOUND if there is no value, and FSDP_ERR_FORMAT
 * if the value has another type or is out of range. An opt_ function sets *out to `fallback` if the
 * key is absent or null. ---- */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_i64(fsdp_json_node node, const char *key, int64_t min,
                                              int64_t max, int64_t *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_i64(fsdp_json_node node, const char *key, int64_t min,
                                              int64_t max, int64_t fallback, int64_t *out);
/* Get a number as a double. An integer is accepted; NaN and infinities are refused. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_f64(fsdp_json_node node, const char *key, double *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_f64(fsdp_json_node node, const char *key, double fallback,
                                              double *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_get_bool(fsdp_json_node node, const char *key, bool *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_bool(fsdp_json_node node, const char *key, bool fallback,
                                               bool *out);
/* Get a string. *out is borrowed from the document, and valid until the value of `key` is set
 * again. A string that contains a NUL character is refused: FSDP_ERR_FORMAT. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_str(fsdp_json_node node, const char *key,
                                              const char **out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_str(fsdp_json_node node, const char *key,
                                              const char *fallback, const char **out);
/* Get a string that may contain NUL characters. It ends in a NUL, which *length does not count. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_strn(fsdp_json_node node, const char *key,
                                               const char **out, size_t *length);
/* Get an object or an array. The opt_ functions set *out to a node of kind FSDP_JSON_NONE if the
 * key is absent or null. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_object(fsdp_json_node node, const char *key,
                                                 fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_object(fsdp_json_node node, const char *key,
                                                 fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_get_array(fsdp_json_node node, const char *key,
                                                fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_array(fsdp_json_node node, const char *key,
                                                fsdp_json_node *out);
/* Get an array of integers. The caller owns *items and frees it with fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_i64s(fsdp_json_node node, const char *key, int64_t min,
                                               int64_t max, int64_t **items, size_t *count);

/* Return the error for a value that a getter has accepted but the caller does not. The status is
 * FSDP_ERR_FORMAT, with the message "name: path: expected <format>, found <value>". If there is no
 * value, the status is FSDP_ERR_NOT_FOUND. */
FSDP_PRINTF(3, 4)
fsdp_status fsdp_json_mismatch(fsdp_json_node node, const char *key, const char *expected, ...);

/* ---- building: a setter replaces the value of a key in place, or adds the key at the end. When
 * out of memory, a setter records the failure in the document, and printing or writing the document
 * returns it. The node given to a setter must be an object, and the node given to an append
 * function must be an array. ---- */
void fsdp_json_set_i64(fsdp_json_node object, const char *key, int64_t value);
void fsdp_json_set_u64(fsdp_json_node object, const char *key, uint64_t value);
void fsdp_json_set_f64(fsdp_json_node object, const char *key, double value);
void fsdp_json_set_bool(fsdp_json_node object, const char *key, bool value);
/* A NULL `value` is stored as null. If `value` is not UTF-8, writing the document fails. */
void fsdp_json_set_str(fsdp_json_node object, const char *key, const char *value);
/* Set the value to a text that the user gave, such as the path of a file. The text may be in any
 * encoding: each byte that is not UTF-8 is written as an escape such as \xE9, as in Python's repr.
 * A NULL `value` is null. */
void fsdp_json_set_any_str(fsdp_json_node object, const char *key, const char *value);
/* Set the value to `value` [length], which need not end in NUL and may contain NULs. The caller has
 * checked that it is UTF-8. */
void fsdp_json_set_strn(fsdp_json_node object, const char *key, const char *value, size_t length);
/* Set the value of `key` to the value of `node`, which belongs to another document. Both documents
 * then share this value, and the caller must not change it through either document. */
void fsdp_json_set_shared(fsdp_json_node object, const char *key, fsdp_json_node node);
fsdp_json_node fsdp_json_set_object(fsdp_json_node object, const char *key); /* an empty object */
fsdp_json_node fsdp_json_set_array(fsdp_json_node object, const char *key);  /* an empty array */
void fsdp_json_remove(fsdp_json_node object, const char *key); /* `key` may be absent */
void fsdp_json_append_i64(fsdp_json_node array, int64_t value);
void fsdp_json_append_u64(fsdp_json_node array, uint64_t value);
void fsdp_json_append_i64s(fsdp_json_node array, const int64_t *values, size_t count);
void fsdp_json_append_f64(fsdp_json_node array, double value);
void fsdp_json_append_bool(fsdp_json_node array, bool value);
void fsdp_json_append_str(fsdp_json_node array, const char *value);
void fsdp_json_append_strn(fsdp_json_node array, const char *value, size_t length);
void fsdp_json_append_shared(fsdp_json_node array, fsdp_json_node node);
fsdp_json_node fsdp_json_append_object(fsdp_json_node array);
fsdp_json_node fsdp_json_append_array(fsdp_json_node array);

/* ---- writing ---- */
/* Return FSDP_OK, or the first failure of a setter, with its message. Printing or writing a
 * document reports such a failure, too, so only a document that is neither printed nor written
 * needs this call. */
FSDP_MUST_CHECK fsdp_status fsdp_json_check_built(const fsdp_json *doc);
/* Print a document to *text, which the caller owns and frees with fsdp_free(). It ends in a NUL,
 * which *bytes does not count. `bytes` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_json_print(const fsdp_json *doc, fsdp_json_style style,
                                            char **text, size_t *bytes);
/* Write a document to `path` atomically, as fsdp_file_write() does. */
FSDP_MUST_CHECK fsdp_status fsdp_json_write(const fsdp_json *doc, fsdp_json_style style,
                                            const char *path);
