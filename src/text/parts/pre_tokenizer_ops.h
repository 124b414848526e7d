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

/* Which parts of the text match: the pattern of a step. */
typedef enum fsdp_split_by {
    FSDP_SPLIT_NOTHING, /* the text stays whole */
    FSDP_SPLIT_CLASS,   /* each character that has one of `flags` */
    FSDP_SPLIT_TEXT,    /* the text `text` */
    FSDP_SPLIT_REGEX,   /* the regular expression `regex` */
    FSDP_SPLIT_WORDS,   /* the words of the pattern `words` */
    FSDP_SPLIT_RUNS,    /* runs of white space; runs of word characters and runs of other characters
                           do not match */
    FSDP_SPLIT_LENGTH,  /* every `length` characters */
} fsdp_split_by;

typedef enum fsdp_prepend_scheme {
    FSDP_PREPEND_NEVER,
    FSDP_PREPEND_FIRST,
    FSDP_PREPEND_ALWAYS,
} fsdp_prepend_scheme;

/* One step: change the text, then split it, then change each part. */
typedef struct fsdp_pre_op {
    /* What the step puts before its text, as `scheme` says: " " for ByteLevel. With replaces_spaces
     * (Metaspace), it also replaces spaces. "": the step does not change its text. */
    char mark[5];
    bool replaces_spaces;
    fsdp_prepend_scheme scheme; /* when `mark` is put before the text */
    fsdp_split_by by;
    fsdp_split_behavior behavior;
    bool invert; /* the parts that do not match count as matches, and vice versa */
    uint16_t flags;
    char *text;        /* owned; not empty */
    fsdp_regex *regex; /* owned */
    fsdp_word_pattern words;
    int64_t length;
    /* This step splits at white space, and the next one puts its mark before every word, as T5's
     * pre-tokenizer does. pre_tokenizer.c then does both steps at once. */
    bool marks_words;
    bool byte_level, spells; /* spells: parts are spelled in GPT-2's alphabet */
} fsdp_pre_op;

struct fsdp_pre_tokenizer {
    const fsdp_char_classes *classes;
    fsdp_pre_op ops[FSDP_TOKEN_PARTS_MAX];
    size_t n;
};
