/* "Did you mean ...?": finds the name nearest to a word that is not a known name. */
#pragma once
#include <stddef.h>

/* Return the smallest cost of insertions, deletions, replacements and swaps of neighbors that turn
 * `a` into `b` (optimal string alignment). A change of case costs 1, each other edit 2. A dash
 * equals an underscore. Only the first 63 bytes of longer words are compared. */
int fsdp_edit_distance(const char *a, const char *b);

/* Return the index of the name nearest to `word`, the first one if several are equally near. A name
 * is near if at most a third of the longer of the two differs, if `word` is the beginning of the
 * name, or if the two differ only in case. If no name is near, return the shortest name that has
 * `word` as a part, or -1 if there is none. Dashes separate the parts: "dtype" is a part of
 * "param-dtype". */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
