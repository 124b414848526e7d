/* Finds the text of a JSON row that has nothing else, {"text": "..."}, without building a document.
 * Most rows of a corpus are like that. */
#pragma once
#include "src/base/str.h"

/* Return true if `row` [length] is one JSON object whose only key is `key` and whose value is a
 * string; set *text to that string. Return false for all other rows, also for malformed ones and
 * for strings that the JSON parser refuses, such as text that is not UTF-8: the caller then parses
 * the row, which says what is wrong. Also return false if there is not enough memory. */
bool fsdp_json_only_text(const char *row, size_t length, const char *key, fsdp_str *text);
