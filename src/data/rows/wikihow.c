/* A cleaning function removes parts of a text in place, by moving the rest toward the beginning.
 * The order of the steps matters: when a part is removed, the text before it and the text after it
 * are joined, and a later step may find a match where they meet. */
#include "src/data/rows/wikihow.h"

#include <string.h>

/* Return true if Python counts the ASCII character `byte` as white space: 0x09 to 0x0d (tab to
 * carriage return), 0x1c to 0x1f (separators) and the space. */
static bool is_space(char byte)
{
    return (byte >= '\t' && byte <= '\r') || (byte >= 0x1C && byte <= ' ');
}

size_t fsdp_wikihow_line_ends(char *text, size_t length)
{
    size_t kept = 0;
    for (size_t i = 0; i < length; i++) {
        const bool ends = text[i] == '\r';
        if (ends && i + 1 < length && text[i + 1] == '\n')
            i++;
        text[kept++] = ends ? '\n' : text[i];
    }
    text[kept] = 0;
    return kept;
}

size_t fsdp_wikihow_strip(char **text, size_t length)
{
    while (length > 0 && is_space((*text)[length - 1]))
        length--;
    (*text)[length] = 0;
    while (length > 0 && is_space(**text)) {
        (*text)++;
        length--;
    }
    return length;
}

/* Do the same as Python's str.replace(from, to), in place. Returns the new length. `to` must not be
 * longer than `from`. */
static size_t replace_all(char *text, size_t length, const char *from, const char *to)
{
    size_t from_len = strlen(from), to_len = strlen(to), kept = 0, at = 0;
    while (at < length) {
        const char *hit = memmem(text + at, length - at, from, from_len);
        size_t copy = hit ? (size_t)(hit - (text + at)) : length - at;
        memmove(text + kept, text + at, copy);
        kept += copy;
        at += copy;
        if (hit) {
            memcpy(text + kept, to, to_len);
            kept += to_len;
            at += from_len;
        }
    }
    text[kept] = 0;
    return kept;
}

size_t fsdp_wikihow_clean_summary(char *text, size_t length)
{
    return replace_all(text, length, ".,", ".");
}

size_t fsdp_wikihow_clean_article(char *text, size_t length)
{
    size_t kept = 0, at = 0;
    while (at < length) {
        size_t dots = at, ends;
        while (dots < length && text[dots] == '.')
            dots++;
        ends = dots;
        while (ends < length && text[ends] == '\n')
            ends++;
        if (dots > at && ends > dots && ends < length && text[ends] == ',') {
            text[kept++] = '.';
            text[kept++] = '\n';
            at = ends + 1;
            continue;
        }
        /* No match begins at `at`. If a series of dots begins at `at`, no match begins at any of
         * these dots, so keep the whole series. Otherwise keep one byte. */
        size_t end = dots > at ? dots : at + 1;
        memmove(text + kept, text + at, end - at);
        kept += end - at;
        at = end;
    }
    text[kept] = 0;
    return kept;
}

size_t fsdp_wikihow_clean_text(char *text, size_t length)
{
    static const char *const taken_out[] = {"Example of text:", "Example of Summary:", "\n", "``",
                                            "\""};
    for (size_t i = 0; i < sizeof taken_out / sizeof *taken_out; i++)
        length = replace_all(text, length, taken_out[i], "");
    return length;
}

bool fsdp_wikihow_is_summary(size_t summary_chars, size_t article_chars)
{
    return (double)summary_chars < 0.75 * (double)article_chars;
}
