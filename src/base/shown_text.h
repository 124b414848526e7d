/* Shows texts of users in messages that must stay on one line. */
#pragma once
#include <stddef.h>

/* A text that can be printed: see fsdp_show_text(). */
typedef struct fsdp_shown_text {
    char text[256];
} fsdp_shown_text;

/* Return `text` with control characters as C and Python write them (\n, \t, \x1b), so that a
 * message stays on one line and a terminal interprets nothing. A text that is too long ends with
 * "...". */
fsdp_shown_text fsdp_show_text(const char *text);
/* Return `text`, of any length, with control characters as fsdp_show_text() writes them, except
 * newlines and tabs, which are kept. The caller frees the result with fsdp_free(). Return NULL when
 * out of memory. */
char *fsdp_show_lines(const char *text);
/* Copy `text` to `to`, which has `size` bytes, at least 4. A text that is too long is cut after a
 * whole UTF-8 character and ends with "...". */
void fsdp_copy_cut(char *to, size_t size, const char *text);
