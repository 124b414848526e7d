/* Hand-written functions for the regular expressions by which GPT-2, Llama 3 and Qwen2 split a text
 * into words. They are several times as fast as PCRE2, and use the same classes of characters as
 * the tokenizers library. Each byte of the text belongs to exactly one word. */
#pragma once
#include "src/text/chars/char_class.h"

typedef enum fsdp_word_pattern {
    FSDP_WORDS_OTHER, /* another expression */
    FSDP_WORDS_GPT2,
    FSDP_WORDS_LLAMA3,
    FSDP_WORDS_QWEN2,
} fsdp_word_pattern;

/* Return the regular expression of a pattern, or NULL for FSDP_WORDS_OTHER. */
const char *fsdp_word_pattern_text(fsdp_word_pattern pattern);
/* Return the pattern whose regular expression is `text`, or FSDP_WORDS_OTHER if there is none. */
fsdp_word_pattern fsdp_word_pattern_find(const char *text);

/* Return the end of the word that begins at byte `at` of a text, at < length, as a position in
 * bytes. The text must be well-formed UTF-8. */
size_t fsdp_word_end(fsdp_word_pattern pattern, const fsdp_char_classes *classes, const char *text,
                     size_t at, size_t length);
