/* "Did you mean ...?": finds the name nearest to a word that is not a known name. */
#pragma once
#include <stddef.h>

/* The smallest number of insertions, deletions, replacements and swaps of neighbors that turn a
 * into b (optimal string alignment), in halves: a change of case costs one half, other edits two.
 * Dash equals underscore. Only the first 63 bytes of longer words are compared. */
int fsdp_edit_distance(const char *a, const char *b);

/* Index of the name nearest to `word`, or -1 if none is near. At most a third of the longer word
 * may differ, unless the word is the beginning of a name or differs only in case. If no name is
 * near, returns the shortest name that has `word` as one of its parts between dashes (dtype:
 * param-dtype). The first of several equally near names wins. */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
