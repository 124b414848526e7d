/* For messages such as "did you mean ...?": finds the known name that is nearest to an unknown
 * one. */
#pragma once
#include <stddef.h>

/* Return the smallest cost at which insertions, deletions, replacements and swaps of neighbors turn
 * `a` into `b` (optimal string alignment). A change of case costs 1, and any other edit 2. A dash
 * equals an underscore. Only the first 63 bytes of `a` and `b` are compared. */
int fsdp_edit_distance(const char *a, const char *b);

/* Return the index of the near name with the smallest distance from `word`, or the first of
 * several. A name is near if at most a third of the letters of `word` or of the name, whichever is
 * longer, must be edited. It is also near if `word` is its beginning, or if only the case differs.
 * If no name is near, return the index of the shortest name that has `word` as a part: "dtype" is a
 * part of "param-dtype". If there is none, return -1. */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
