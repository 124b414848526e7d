/* Finds the text of a row of JSON, as in {"id": 7, "text": "..."}, without building a document.
 * Most rows of a corpus are like that. */
#pragma once
#include "src/base/str.h"

enum {
    FSDP_JSON_TEXT_MAX_OTHERS = 24 /* keys of a row besides that of its text */
};

typedef struct fsdp_json_text_key {
    const char *name; /* [bytes] in the row; UTF-8 without escapes */
    size_t bytes;
    bool is_null; /* its value is null */
} fsdp_json_text_key;

/* Initialize with {0}; can be reused. */
typedef struct fsdp_json_text {
    fsdp_str text;                                        /* may contain NUL characters */
    fsdp_json_text_key others[FSDP_JSON_TEXT_MAX_OTHERS]; /* in the order of the row */
    size_t n_others;
} fsdp_json_text;

/* Return true if `row` [length] is one JSON object whose value of `key` is a string; set
 * found->text to that string, and found->others to the other keys, which differ from each other.
 * Return false for all rows that the JSON parser refuses, and for rows with something unusual, such
 * as a key that occurs twice or has an escape: the caller then parses the row, which gives the same
 * result or says what is wrong. Also return false if there is not enough memory. `key` has no
 * escapes. */
bool fsdp_json_find_text(const char *row, size_t length, const char *key, fsdp_json_text *found);
void fsdp_json_text_fini(fsdp_json_text *found);
