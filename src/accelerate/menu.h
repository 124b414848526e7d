/* Asks the user questions. On a terminal, the user chooses with the arrow keys. Otherwise the user
 * types lines of text. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef struct fsdp_menu_io {
    FILE *in, *out;
    bool keys; /* `in` and `out` are a terminal, so the user chooses with the arrow keys */
} fsdp_menu_io;

/* Print `prompt`, read a line, and set *line to it, without the newline at its end and the blanks
 * before the newline. The caller frees *line with fsdp_free(). Return FSDP_ERR_STATE if the input
 * has ended. */
FSDP_MUST_CHECK fsdp_status fsdp_menu_line(const fsdp_menu_io *io, const char *prompt, char **line);
/* Let the user choose one of words [count], and set *chosen to its index. Word `initial` is
 * selected at first. If io->keys is true, up and down (or k and j) change the selection, and Enter
 * ends the choice. A digit selects the word that is equal to it. If there is no such word, it
 * selects the word with this number, counted from 1; 0 also selects the first word. If io->keys is
 * false, the user types a word or its number, or an empty line for `initial`. Return FSDP_ERR_STATE
 * if the input has ended, or after Ctrl-C. */
FSDP_MUST_CHECK fsdp_status fsdp_menu_choose(const fsdp_menu_io *io, const char *prompt,
                                             const char *const *words, size_t count, size_t initial,
                                             size_t *chosen);
/* Return the index of the word in words [count] that is equal to `text`, in upper or lower case. If
 * there is none and `text` is a number from 1 to `count`, return this number minus 1. Otherwise
 * return `count`. */
size_t fsdp_menu_find(const char *text, const char *const *words, size_t count);
