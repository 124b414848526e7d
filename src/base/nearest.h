/* For messages such as "did you mean ...?": finds the known name that is nearest to an unknown
 * one. */
#pragma once
#include <stddef.h>

/* Return the smallest cost at which insertions, deletions, replacements and swaps of neighbors turn
 * `a` into `b` (optimal string alignment). A change of case costs 1, and any other edit 2. A dash
 * equals an underscore. Only the first 63 bytes of `a` and `b` are compared. */
int fsdp_edit_distance(const char *a, const char *b);

/* Return the index of the name that is nearest to `word`, among the names that are near. If several
 * names are equally near, return the first of them.
 *
 * A name is near if a few edits turn it into `word`. The number of edits may be at most a third of
 * the number of letters of `word` or of the name, whichever is longer. A name is also near if it
 * begins with `word` (at least 2 letters), or if it differs from `word` only in case.
 *
 * If no name is near, return the index of the shortest name that has `word` (at least 3 letters) as
 * a part: "dtype" is a part of "param-dtype". If there is no such name, return -1. */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
