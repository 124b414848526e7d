/* "Did you mean ...?": the nearest of some names to a word that is none of them. */
#pragma once
#include <stddef.h>

/* Smallest number of insertions, deletions, replacements and swaps of neighbours that make a of b
 * (optimal string alignment); dash equals underscore, case counts half as much as a letter: the
 * result is in halves. Words longer than 63 bytes are compared by their first 63. */
int fsdp_edit_distance(const char *a, const char *b);

/* Index of the name nearest to `word`, or -1 if none is near: at most a third of the longer word
 * may differ, unless the word is the beginning of a name, or the name in other case. If none is,
 * the shortest name of which `word` is one of the parts between dashes (dtype: param-dtype). The
 * first of equals wins. */
int fsdp_nearest_name(const char *word, const char *const *names, size_t count);
