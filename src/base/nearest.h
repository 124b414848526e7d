/* "Did you mean ...?": finds the name nearest to a word that is not a known name. */
#pragma once
#include <stddef.h>

/* Return the smallest cost of insertions, deletions, replacements and swaps of neighbors that turn
 * `a` into `b` (optimal string alignment). A change of case costs 1, each other edit 2. Dash equals
 * underscore. Only the first 63 bytes of longer words are compared. */
int fsdp_edit_distance(const char *a, const char *b);

/* Return the index of the name nearest to `word`, or -1 if no name is near. At most a third of the
 * longer word may differ, unless the word is the beginning of a name or differs only in case. If no
 * name is near, the result is the shortest name in which `word` is a part between dashes, as
 * "dtype" in "param-dtype". The first of several equally near names wins. */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
