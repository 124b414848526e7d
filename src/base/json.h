/* JSON: config.json, weight indexes, safetensors headers, JSON lines.
 *
 * A thin typed layer over jansson, which is seen only by json.c and json_write.c. A document
 * (fsdp_json) owns its values; a node (fsdp_json_node) is a borrowed place in it, passed by value.
 * Getters check type and range, and their errors say where: file, key path, what was expected and
 * what is there: `t5/config.json: d_model: expected a positive integer, found "abc"`.
 *
 * What Python's json module reads and writes is read and written alike: integers of any length
 * are kept digit by digit, NaN and Infinity are numbers, floats are printed as repr prints them.
 * Strings with NUL characters are refused. Values never asked for survive a change of others, so
 * a config.json keeps the keys this library does not know. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_json fsdp_json;

typedef struct fsdp_json_node {
    fsdp_json *doc;
    struct json_t *value;  /* NULL: no such value */
    struct json_t *parent; /* the container it was found in; NULL for the root */
    const char *key;       /* of `value` in an object, owned by the document; NULL in an array */
    size_t index;          /* of `value` in an array */
} fsdp_json_node;

typedef enum fsdp_json_kind {
    FSDP_JSON_NONE, /* no such value */
    FSDP_JSON_NULL,
    FSDP_JSON_BOOL,
    FSDP_JSON_INT, /* of any length */
    FSDP_JSON_REAL,
    FSDP_JSON_STRING,
    FSDP_JSON_ARRAY,
    FSDP_JSON_OBJECT,
} fsdp_json_kind;

typedef enum fsdp_json_style {
    FSDP_JSON_PRETTY,  /* indent 2, sorted keys, ASCII, final newline: as transformers writes */
    FSDP_JSON_LINE,    /* {"a": 1, "b": [2, 3]} in order of insertion, ASCII, no newline */
    FSDP_JSON_COMPACT, /* {"a":1,"b":[2,3]} in order of insertion, UTF-8, no newline */
} fsdp_json_style;

enum {
    FSDP_JSON_MAX_BYTES = 100000000, /* of a file */
    FSDP_JSON_MAX_DEPTH = 256        /* of nested arrays and objects */
};

/* Read a file: an object or an array. FSDP_ERR_FORMAT names path, line and column. */
FSDP_MUST_CHECK fsdp_status fsdp_json_read(const char *path, fsdp_json **doc);
/* Read `text` [bytes]; need not end in NUL, not kept. `name` is what errors call it, `first_line`
 * the number of its first line there (1; in JSON lines, that of the line). */
FSDP_MUST_CHECK fsdp_status fsdp_json_parse(const char *name, int64_t first_line, const char *text,
                                            size_t bytes, fsdp_json **doc);
/* A document whose root is an empty object. */
FSDP_MUST_CHECK fsdp_status fsdp_json_create(const char *name, fsdp_json **doc);
void fsdp_json_destroy(fsdp_json *doc); /* accepts NULL */

const char *fsdp_json_name(const fsdp_json *doc);
fsdp_json_node fsdp_json_root(fsdp_json *doc);

/* ---- looking: never an error; a value that is not there has kind NONE ---- */
fsdp_json_kind fsdp_json_kind_of(fsdp_json_node node);
size_t fsdp_json_len(fsdp_json_node node); /* entries of an array or object, else 0 */
/* NONE if `node` is no object or lacks the key. */
fsdp_json_node fsdp_json_find(fsdp_json_node node, const char *key);
/* NONE beyond the end. */
fsdp_json_node fsdp_json_at(fsdp_json_node node, size_t index);
/* Walk an object in order of insertion: `for (fsdp_json_node v = fsdp_json_first(object);
 * v.value; v = fsdp_json_next(v))`; the key is v.key. */
fsdp_json_node fsdp_json_first(fsdp_json_node object);
fsdp_json_node fsdp_json_next(fsdp_json_node value);
/* Is the key there with a value other than null? */
bool fsdp_json_has(fsdp_json_node node, const char *key);

/* ---- getting: `key` of the object `node`, or `node` itself when key is NULL.
 * FSDP_ERR_NOT_FOUND if there is none, FSDP_ERR_FORMAT if it is not what was expected. The opt_
 * forms give `fallback` when the key is absent or null. ---- */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_i64(fsdp_json_node node, const char *key, int64_t min,
                                              int64_t max, int64_t *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_i64(fsdp_json_node node, const char *key, int64_t min,
                                              int64_t max, int64_t fallback, int64_t *out);
/* A finite number; integers count. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_f64(fsdp_json_node node, const char *key, double *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_f64(fsdp_json_node node, const char *key, double fallback,
                                              double *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_get_bool(fsdp_json_node node, const char *key, bool *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_bool(fsdp_json_node node, const char *key, bool fallback,
                                               bool *out);
/* Borrowed from the document until the value is set anew. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_str(fsdp_json_node node, const char *key,
                                              const char **out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_str(fsdp_json_node node, const char *key,
                                              const char *fallback, const char **out);
/* opt_: the node has kind NONE when the key is absent or null. */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_object(fsdp_json_node node, const char *key,
                                                 fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_object(fsdp_json_node node, const char *key,
                                                 fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_get_array(fsdp_json_node node, const char *key,
                                                fsdp_json_node *out);
FSDP_MUST_CHECK fsdp_status fsdp_json_opt_array(fsdp_json_node node, const char *key,
                                                fsdp_json_node *out);
/* An array of integers; *items is the caller's, ended by fsdp_free(). */
FSDP_MUST_CHECK fsdp_status fsdp_json_get_i64s(fsdp_json_node node, const char *key, int64_t min,
                                               int64_t max, int64_t **items, size_t *count);

/* "name: path: expected <format>, found <value>", for a check the getters do not know. */
FSDP_PRINTF(3, 4)
fsdp_status fsdp_json_mismatch(fsdp_json_node node, const char *key, const char *expected, ...);

/* ---- building: setters replace a key in place or add it at the end. A failure to allocate stays
 * in the document and is what writing it returns. Setting on a node of another kind is a bug. ----
 */
void fsdp_json_set_i64(fsdp_json_node object, const char *key, int64_t value);
void fsdp_json_set_f64(fsdp_json_node object, const char *key, double value);
void fsdp_json_set_bool(fsdp_json_node object, const char *key, bool value);
/* NULL sets null. Bytes that are not UTF-8 are an error of the document. */
void fsdp_json_set_str(fsdp_json_node object, const char *key, const char *value);
fsdp_json_node fsdp_json_set_object(fsdp_json_node object, const char *key); /* empty */
fsdp_json_node fsdp_json_set_array(fsdp_json_node object, const char *key);  /* empty */
void fsdp_json_remove(fsdp_json_node object, const char *key);               /* may be absent */
void fsdp_json_append_i64(fsdp_json_node array, int64_t value);
void fsdp_json_append_f64(fsdp_json_node array, double value);
void fsdp_json_append_str(fsdp_json_node array, const char *value);
fsdp_json_node fsdp_json_append_object(fsdp_json_node array);
fsdp_json_node fsdp_json_append_array(fsdp_json_node array);

/* ---- writing ---- */
/* *text ends in NUL and is the caller's, ended by fsdp_free(); `bytes` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_json_print(const fsdp_json *doc, fsdp_json_style style,
                                            char **text, size_t *bytes);
/* Whole or not at all (fsdp_file_write). */
FSDP_MUST_CHECK fsdp_status fsdp_json_write(const fsdp_json *doc, fsdp_json_style style,
                                            const char *path);
