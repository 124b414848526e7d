#include "src/text/parts/word_splitter.h"

#include <string.h>

#include "src/base/assert.h"
#include "src/text/chars/utf8.h"

static const char *const texts[] = {
    [FSDP_WORDS_GPT2] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                        "\\s+(?!\\S)|\\s+",
    [FSDP_WORDS_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
                          "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
                          "\\s+(?!\\S)|\\s+",
    [FSDP_WORDS_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
                         "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

const char *fsdp_word_pattern_text(fsdp_word_pattern pattern)
{
    return texts[pattern];
}

fsdp_word_pattern fsdp_word_pattern_find(const char *text)
{
    for (size_t i = 0; i < FSDP_LENGTH(texts); i++)
        if (texts[i] && strcmp(texts[i], text) == 0)
            return (fsdp_word_pattern)i;
    return FSDP_WORDS_OTHER;
}

/* A text that is being split into words. */
typedef struct scan {
    const fsdp_char_classes *classes;
    const uint16_t *ascii; /* flags of the ASCII characters, indexed by character */
    const char *text;
    size_t length;
} scan;

enum {
    LETTER = FSDP_CHAR_LETTER,
    NUMBER = FSDP_CHAR_NUMBER,
    SPACE = FSDP_CHAR_WHITE,
    ANY = LETTER | NUMBER | SPACE
};

/* Return the flags of the character at index `at`, and set *bytes to the character's length. At the
 * end of the text, return SPACE and set *bytes to 0. */
static inline unsigned class_at(const scan *s, size_t at, size_t *bytes)
{
    if (at >= s->length) {
        *bytes = 0;
        return SPACE;
    }
    const unsigned char byte = (unsigned char)s->text[at];
    if (byte < 0x80) {
        *bytes = 1;
        return s->ascii[byte];
    }
    return fsdp_char_class(s->classes, fsdp_utf8_decode(s->text + at, bytes));
}

/* Return the end of the run of characters that begins at index `at` and in which the flags of each
 * character, masked by ANY, are equal to `flags`. */
static inline size_t run_end(const scan *s, size_t at, unsigned flags)
{
    size_t bytes;
    while (at < s->length && (class_at(s, at, &bytes) & ANY) == flags)
        at += bytes;
    return at;
}

static bool is_newline(char c)
{
    return c == '\r' || c == '\n';
}

/* Return the byte at index `at`, or 0 at the end of the text, and set *bytes to the number of bytes
 * read. If any_case is true, return the lower case ASCII letter that (?i:) treats as equal to the
 * character at index `at`. */
static char fold(const scan *s, size_t at, bool any_case, size_t *bytes)
{
    *bytes = 1;
    if (at >= s->length)
        return 0;
    const char c = s->text[at];
    if (!any_case)
        return c;
    /* U+017F, the long s, which is equal to 's' if case is ignored */
    if (at + 1 < s->length && memcmp(s->text + at, "\xC5\xBF", 2) == 0) {
        *bytes = 2;
        return 's';
    }
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* If a contraction ('s, 't, 're, 've, 'm, 'll or 'd) begins with the apostrophe at index `at`,
 * return the end of the contraction. Otherwise, return `at`. */
static size_t contraction_end(const scan *s, size_t at, bool any_case)
{
    size_t first, second;
    const char a = fold(s, at + 1, any_case, &first);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 1 + first;
    const char b = fold(s, at + 1 + first, any_case, &second);
    if ((b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l'))
        return at + 1 + first + second;
    return at;
}

/* Return the end of the match of \s+(?!\S)|\s+ in the run of white space [at, end). The match is
 * the whole run if the text ends after it or if the run has only one character. Otherwise, the
 * match is the run without its last character. */
static size_t space_end(const scan *s, size_t at, size_t end)
{
    size_t bytes;
    if (end == s->length)
        return end;
    (void)fsdp_utf8_last(s->text + at, s->text + end, &bytes);
    return end - bytes > at ? end - bytes : end;
}

static size_t gpt2_end(const scan *s, size_t at)
{
    size_t bytes;
    if (s->text[at] == '\'') {
        const size_t end = contraction_end(s, at, false);
        if (end > at)
            return end;
    }
    const size_t begin = at + (s->text[at] == ' ');
    const unsigned flags = class_at(s, begin, &bytes) & ANY;
    if (flags & SPACE)
        return space_end(s, at, run_end(s, at, SPACE));
    return run_end(s, begin + bytes, flags);
}

/* Return the end of the run of numbers at index `at`. The run is cut after `most` characters. */
static size_t numbers_end(const scan *s, size_t at, int most)
{
    size_t bytes;
    for (; most > 0 && at < s->length && class_at(s, at, &bytes) & NUMBER; most--)
        at += bytes;
    return at;
}

/* Return the end of the match of Llama 3's regular expression for the white space at index `at`. If
 * the run of white space contains a line end, the match ends after the last line end. Otherwise,
 * the match ends as in space_end(). */
static size_t lines_end(const scan *s, size_t at)
{
    const size_t end = run_end(s, at, SPACE);
    size_t last = end;
    while (last > at && !is_newline(s->text[last - 1]))
        last--;
    return last > at ? last : space_end(s, at, end);
}

static size_t llama3_end(const scan *s, size_t at, int most_numbers)
{
    size_t bytes, next;
    const char c = s->text[at];
    if (c == '\'') {
        const size_t end = contraction_end(s, at, true);
        if (end > at)
            return end;
    }
    const unsigned flags = class_at(s, at, &bytes) & ANY;
    if (flags & LETTER)
        return run_end(s, at + bytes, LETTER);
    if (flags & NUMBER)
        return numbers_end(s, at, most_numbers);
    if (!is_newline(c) && class_at(s, at + bytes, &next) & LETTER)
        return run_end(s, at + bytes + next, LETTER);
    const size_t begin = at + (c == ' ');
    size_t end = run_end(s, begin, 0);
    if (end == begin)
        return lines_end(s, at);
    while (end < s->length && is_newline(s->text[end]))
        end++;
    return end;
}

size_t fsdp_word_end(fsdp_word_pattern pattern, const fsdp_char_classes *classes, const char *text,
                     size_t at, size_t length)
{
    const scan s = {classes, classes->flags[classes->block[0]], text, length};
    if (pattern == FSDP_WORDS_GPT2)
        return gpt2_end(&s, at);
    return llama3_end(&s, at, pattern == FSDP_WORDS_LLAMA3 ? 3 : 1);
}
