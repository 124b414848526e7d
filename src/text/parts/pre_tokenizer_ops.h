/* The steps of a pre-tokenizer. pre_tokenizer_json.c makes a list of them. */
#pragma once
#include "src/text/parts/pre_tokenizer.h"
#include "src/text/parts/token_json.h"
#include "src/text/parts/word_splitter.h"
#include "src/text/regex/regex.h"

typedef enum fsdp_split_behavior {
    FSDP_SPLIT_REMOVED,
    FSDP_SPLIT_ISOLATED,
    FSDP_SPLIT_MERGED_WITH_PREVIOUS,
    FSDP_SPLIT_MERGED_WITH_NEXT,
    FSDP_SPLIT_CONTIGUOUS,
} fsdp_split_behavior;

/* The pattern of a step: which parts of the text match. */
typedef enum fsdp_split_by {
    FSDP_SPLIT_NOTHING, /* the whole text is one match, so it is not split */
    FSDP_SPLIT_CLASS,   /* each character that has one of `flags` */
    FSDP_SPLIT_TEXT,    /* each occurrence of the text `text` */
    FSDP_SPLIT_REGEX,   /* each match of the regular expression `regex` */
    FSDP_SPLIT_WORDS,   /* the words that fsdp_word_end() finds for the pattern `words` */
    /* runs of white space; between them, runs of word characters and runs of other characters are
     * separate segments, but do not match */
    FSDP_SPLIT_RUNS,
    FSDP_SPLIT_LENGTH, /* each `length` consecutive characters */
    /* only the characters before the first character that belongs to a script; the rest of the text
     * is split where the script changes, but these segments do not match */
    FSDP_SPLIT_SCRIPTS,
} fsdp_split_by;

typedef enum fsdp_prepend_scheme {
    FSDP_PREPEND_NEVER,
    FSDP_PREPEND_FIRST,
    FSDP_PREPEND_ALWAYS,
} fsdp_prepend_scheme;

/* One step. It changes its text (`mark`), then splits it (`by` and `behavior`), then changes each
 * part (`spells`). */
typedef struct fsdp_pre_op {
    /* What is put before the text that the step gets, if `scheme` says so; " " for ByteLevel. If
     * replaces_spaces is true (Metaspace), each space of that text is also replaced by `mark`. If
     * `mark` is "", the text is not changed. */
    char mark[5];
    bool replaces_spaces;
    fsdp_prepend_scheme scheme; /* says whether `mark` is put before the text */
    fsdp_split_by by;
    fsdp_split_behavior behavior;
    /* true: parts that do not match are treated as matches, and matches as parts that do not
     * match */
    bool invert;
    uint16_t flags;
    char *text;        /* TEXT: the pattern, which is not empty; owned */
    fsdp_regex *regex; /* owned */
    fsdp_word_pattern words;
    int64_t length;
    /* This step splits at white space, and the next step puts its mark before every word, as in
     * T5's pre-tokenizer. pre_tokenizer.c does such a pair of steps in one pass. */
    bool marks_words;
    /* byte_level: the step is ByteLevel. spells: the step spells each part in GPT-2's alphabet */
    bool byte_level, spells;
} fsdp_pre_op;

struct fsdp_pre_tokenizer {
    const fsdp_char_classes *classes;
    fsdp_pre_op ops[FSDP_TOKEN_PARTS_MAX];
    size_t n;
};
