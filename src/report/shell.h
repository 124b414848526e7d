/* Words of a shell's command line. */
#pragma once
#include "src/base/str.h"

/* Append `text` in single quotes, with the escapes that a shell needs. If `is_fish` is true, also
 * double each backslash, because fish reads two backslashes in quotes as one. */
void fsdp_shell_quote(fsdp_str *out, const char *text, bool is_fish);
/* Append `text` as a word of a command line: as it is if no shell gives its characters a meaning,
 * else in single quotes. */
void fsdp_shell_word(fsdp_str *out, const char *text);
/* Append the word with which a user can run `fsdp`. If this program is `fsdp`, the word is "fsdp"
 * if a shell finds this program in $PATH, else the program's path. The path is relative if the
 * program is below the working directory. If this program is another one, the word is "fsdp". */
void fsdp_shell_own_program(fsdp_str *out);
