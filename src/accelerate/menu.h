/* Asks the user, on a terminal with arrow keys, else by lines of text. */
#pragma once
#include <stdio.h>

#include <fsdp/base.h>

typedef struct fsdp_menu_io {
    FILE *in, *out;
    bool keys; /* both are a terminal: choices are selected with arrow keys */
} fsdp_menu_io;

/* Print `prompt`, and read a line without its newline. Free *line with fsdp_free(). Returns
 * FSDP_ERR_STATE at the end of the input. */
FSDP_MUST_CHECK fsdp_status fsdp_menu_line(const fsdp_menu_io *io, const char *prompt, char **line);
/* Let the user choose one of the words, which begin at `initial`. With keys: up and down (also k
 * and j), a digit moves to the word that it spells, or else to the word with this number (0: the
 * first), and Enter selects. Without: a line with a word or a number; an empty line selects
 * `initial`. Returns FSDP_ERR_STATE at the end of the input and after Ctrl-C. */
FSDP_MUST_CHECK fsdp_status fsdp_menu_choose(const fsdp_menu_io *io, const char *prompt,
                                             const char *const *words, size_t count, size_t initial,
                                             size_t *chosen);
/* Return the index of the word that `text` names, by itself (case does not matter) or by its number
 * from 1 on; `count` if none. */
size_t fsdp_menu_find(const char *text, const char *const *words, size_t count);
