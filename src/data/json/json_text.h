/* Finds the text in a row of JSON, such as {"id": 7, "text": "..."}, without parsing the row into a
 * document. Most rows of a corpus have this form. */
#pragma once
#include "src/base/str.h"

enum {
    FSDP_JSON_TEXT_MAX_OTHERS = 24 /* maximum number of keys of a row besides the key of its text */
};

typedef struct fsdp_json_text_key {
    const char *name; /* [bytes] in the row; UTF-8 without escapes */
    size_t bytes;
    bool is_null; /* its value is null */
} fsdp_json_text_key;

/* The result of fsdp_json_find_text(). Initialize it with {0}; it can be reused for several
 * rows. */
typedef struct fsdp_json_text {
    fsdp_str text;                                        /* may contain NUL characters */
    fsdp_json_text_key others[FSDP_JSON_TEXT_MAX_OTHERS]; /* in the order of the row */
    size_t n_others;
} fsdp_json_text;

/* Return true if `row` [length] is one JSON object whose value of `key` is a string; set
 * found->text to that string, and found->others to the other keys, no two of which are equal.
 * Return false for all rows that the JSON parser refuses, and for unusual rows, for example if a
 * key occurs twice or has an escape. The caller then parses the row, which gives the text or an
 * error message. Also return false if there is not enough memory. `key` has no escapes. */
bool fsdp_json_find_text(const char *row, size_t length, const char *key, fsdp_json_text *found);
void fsdp_json_text_fini(fsdp_json_text *found);
