/* Properties of a stream (whether it is a terminal, its width, UTF-8, colours) and the width of
 * text. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

/* Is `file` a terminal that can move its cursor? (TERM=dumb cannot.) */
bool fsdp_terminal_is(FILE *file);
/* Return the current columns of the terminal, or 0 if `file` is not a terminal or its width is
 * unknown. */
int fsdp_terminal_columns(FILE *file);
/* Does the environment ask for UTF-8? The first of LC_ALL, LC_CTYPE and LANG that is set
 * decides. */
bool fsdp_terminal_utf8(void);
/* May colours be used? True if `file` is a terminal and NO_COLOR (no-color.org) is not set. */
bool fsdp_terminal_colour(FILE *file);

/* Return the columns of UTF-8 text on a terminal. Combining marks and colour sequences (ESC [ ...
 * m) take no column, East Asian wide characters and emoji take 2, and a malformed byte takes 1. */
size_t fsdp_text_columns(const char *text);
/* Return the bytes of the longest prefix of `text` that has at most `columns` columns. */
size_t fsdp_text_fit(const char *text, size_t columns);
