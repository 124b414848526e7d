/* Gets the properties of a stream (whether it is a terminal, its width, UTF-8, colors) and the
 * width of a text. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

/* Return true if `file` is a terminal that can move its cursor. With TERM=dumb it cannot. */
bool fsdp_terminal_is(FILE *file);
/* Return the current width of the terminal in columns. Returns 0 if `file` is not a terminal or if
 * the width is unknown. */
int fsdp_terminal_columns(FILE *file);
/* Return true if the environment asks for UTF-8. The first of LC_ALL, LC_CTYPE and LANG that is set
 * and not empty decides. */
bool fsdp_terminal_utf8(void);
/* Return true if colors may be used: `file` is a terminal, and NO_COLOR (no-color.org) is empty or
 * not set. */
bool fsdp_terminal_color(FILE *file);

/* Return how many columns a UTF-8 text takes on a terminal. Combining marks and color sequences
 * (ESC [ ... m) take none. East Asian wide characters and emoji take 2. A malformed byte takes
 * 1. */
size_t fsdp_text_columns(const char *text);
/* Return the length in bytes of the longest prefix of `text` that takes at most `columns`
 * columns. */
size_t fsdp_text_fit(const char *text, size_t columns);
