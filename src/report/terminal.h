/* Properties of a stream: is it a terminal, its width, UTF-8, colours; and the width of text. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

/* Is it a terminal that can move its cursor? (TERM=dumb cannot.) */
bool fsdp_terminal_is(FILE *file);
/* Columns of the terminal at this moment; 0 if `file` is not a terminal or its width is unknown. */
int fsdp_terminal_columns(FILE *file);
/* Do LC_ALL, LC_CTYPE or LANG, in this order, ask for UTF-8? */
bool fsdp_terminal_utf8(void);
/* Is it a terminal, with NO_COLOR (no-color.org) not set? */
bool fsdp_terminal_colour(FILE *file);

/* Columns of UTF-8 text on a terminal: combining marks take none, East Asian wide characters and
 * emoji two, colour sequences (ESC [ ... m) none; a malformed byte counts as one. */
size_t fsdp_text_columns(const char *text);
/* Bytes of the longest prefix of `text` that takes at most `columns`. */
size_t fsdp_text_fit(const char *text, size_t columns);
