/* The steps of a normalizer. normalizer.c makes a list of them from JSON. */
#pragma once
#include "src/text/chars/aligned_text.h"
#include "src/text/chars/char_class.h"
#include "src/text/chars/charsmap.h"
#include "src/text/regex/regex.h"

typedef enum fsdp_normalize_type {
    FSDP_NORMALIZE_NFC,
    FSDP_NORMALIZE_NFD,
    FSDP_NORMALIZE_NFKC,
    FSDP_NORMALIZE_NFKD,
    FSDP_NORMALIZE_LOWERCASE,
    FSDP_NORMALIZE_REMOVE,     /* remove characters that have at least one of `flags` */
    FSDP_NORMALIZE_CLEAN,      /* BertNormalizer: replace white space by ' ' */
    FSDP_NORMALIZE_CHINESE,    /* BertNormalizer: put spaces around CJK ideographs */
    FSDP_NORMALIZE_NMT_REMOVE, /* Nmt, first step: remove control characters */
    FSDP_NORMALIZE_NMT_SPACE,  /* Nmt, second step: replace other kinds of spaces by ' ' */
    FSDP_NORMALIZE_STRIP,
    FSDP_NORMALIZE_REPLACE,
    FSDP_NORMALIZE_PREPEND,
    FSDP_NORMALIZE_BYTE_LEVEL,
    FSDP_NORMALIZE_PRECOMPILED,
} fsdp_normalize_type;

typedef struct fsdp_normalize_op {
    fsdp_normalize_type type;
    uint16_t flags;               /* REMOVE: a set of FSDP_CHAR_* flags */
    bool strip_left, strip_right; /* STRIP */
    /* REPLACE: the text to replace, not empty; NULL: matches of `regex` are replaced */
    char *pattern;
    fsdp_regex *regex; /* REPLACE; owned */
    /* REPLACE: the replacement; PREPEND: the text to put first; owned */
    char *content;
    fsdp_charsmap *map; /* PRECOMPILED; owned */
    /* PRECOMPILED: plain[c] is true if `map` does not replace the ASCII character c */
    bool plain[128];
} fsdp_normalize_op;

/* A character of a decomposed text that has not been written to the output yet. `change` is the
 * argument of fsdp_transform_put(). */
typedef struct fsdp_form_entry {
    uint32_t c;
    int32_t change;
    uint8_t combining_class;
} fsdp_form_entry;

typedef struct fsdp_form_list {
    fsdp_form_entry *items;
    size_t len, cap;
} fsdp_form_list;

/* Memory that one thread needs for all steps. Initialize it with {0}. The caller owns
 * regex_work. */
typedef struct fsdp_normalize_work {
    fsdp_regex_work *regex_work;
    fsdp_form_list pending, sorted, held; /* scratch memory of fsdp_normalize_form() */
} fsdp_normalize_work;

/* Apply one step to `in`: write the new text to `out` and set *changed to true. If the step changes
 * nothing, set *changed to false; the contents of `out` are then unspecified. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_step(const fsdp_normalize_op *op,
                                                const fsdp_char_classes *classes,
                                                fsdp_normalize_work *work, const fsdp_text_view *in,
                                                bool tracked, fsdp_aligned_text *out,
                                                bool *changed);

/* Apply the step NFC (`compose`), NFD (neither flag), NFKC (both flags) or NFKD (`compatible`).
 * This function is in normalizer_forms.c. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_form(bool compatible, bool compose,
                                                const fsdp_char_classes *classes,
                                                fsdp_normalize_work *work, const fsdp_text_view *in,
                                                bool tracked, fsdp_aligned_text *out,
                                                bool *changed);
/* Apply the step PRECOMPILED, which replaces texts by means of op->map. This function is in
 * normalizer_precompiled.c. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_precompiled(const fsdp_normalize_op *op,
                                                       const fsdp_text_view *in, bool tracked,
                                                       fsdp_aligned_text *out, bool *changed);
