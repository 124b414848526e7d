/* Shows texts of users in messages that must stay on one line. */
#pragma once

/* A text that can be printed: see fsdp_show_text(). */
typedef struct fsdp_shown_text {
    char text[256];
} fsdp_shown_text;

/* Return `text` with control characters as C and Python write them (\n, \t, \x1b), so that a
 * message stays on one line and a terminal interprets nothing. A text that is too long ends with
 * "...". */
fsdp_shown_text fsdp_show_text(const char *text);
