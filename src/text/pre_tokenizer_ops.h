/* The steps of a pre-tokenizer. pre_tokenizer_json.c makes a list of them. */
#pragma once
#include "src/text/pre_tokenizer.h"
#include "src/text/regex.h"
#include "src/text/token_json.h"
#include "src/text/word_splitter.h"

typedef enum fsdp_split_behavior {
    FSDP_SPLIT_REMOVED,
    FSDP_SPLIT_ISOLATED,
    FSDP_SPLIT_MERGED_WITH_PREVIOUS,
    FSDP_SPLIT_MERGED_WITH_NEXT,
    FSDP_SPLIT_CONTIGUOUS,
} fsdp_split_behavior;

/* What matches. */
typedef enum fsdp_split_by {
    FSDP_SPLIT_NOTHING, /* the text stays whole */
    FSDP_SPLIT_CLASS,   /* single characters with a flag of `flags` */
    FSDP_SPLIT_TEXT,    /* `text` */
    FSDP_SPLIT_REGEX,   /* `regex` */
    FSDP_SPLIT_WORDS,   /* `words` */
    FSDP_SPLIT_RUNS,    /* runs of word characters, and runs of other ones but white space */
    FSDP_SPLIT_LENGTH,  /* `length` characters */
} fsdp_split_by;

typedef enum fsdp_prepend_scheme {
    FSDP_PREPEND_NEVER,
    FSDP_PREPEND_FIRST,
    FSDP_PREPEND_ALWAYS,
} fsdp_prepend_scheme;

/* One step: change the text, then split it, then change each part. */
typedef struct fsdp_pre_op {
    /* Metaspace: spaces become `mark`. ByteLevel: the mark is " ". "": the text is not changed. */
    char mark[5];
    bool replaces_spaces;
    fsdp_prepend_scheme scheme; /* when the mark is put before the text */
    fsdp_split_by by;
    fsdp_split_behavior behavior;
    bool invert; /* what does not match counts as match */
    uint16_t flags;
    char *text;        /* owned; not empty */
    fsdp_regex *regex; /* owned */
    fsdp_word_pattern words;
    int64_t length;
    /* This step splits at white space, and the next one puts its mark before every word: T5's
     * pre-tokenizer. pre_tokenizer.c then does both at once. */
    bool marks_words;
    bool byte_level, spells; /* spells: parts are spelled in GPT-2's alphabet */
} fsdp_pre_op;

struct fsdp_pre_tokenizer {
    const fsdp_char_classes *classes;
    fsdp_pre_op ops[FSDP_TOKEN_PARTS_MAX];
    size_t n;
};
