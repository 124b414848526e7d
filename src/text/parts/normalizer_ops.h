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
    FSDP_NORMALIZE_REMOVE,     /* remove characters with a flag of `flags` */
    FSDP_NORMALIZE_CLEAN,      /* BertNormalizer: replace white space by ' ' */
    FSDP_NORMALIZE_CHINESE,    /* BertNormalizer: spaces around CJK ideographs */
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
    uint16_t flags;               /* REMOVE: FSDP_CHAR_* */
    bool strip_left, strip_right; /* STRIP */
    char *pattern;                /* REPLACE: a text that is not empty; NULL: `regex` */
    fsdp_regex *regex;            /* REPLACE; owned */
    char *content;                /* REPLACE and PREPEND; owned */
    fsdp_charsmap *map;           /* PRECOMPILED; owned */
    bool plain[128];              /* PRECOMPILED: ASCII characters that it does not replace */
} fsdp_normalize_op;

/* A decomposed character that has not been written yet. */
typedef struct fsdp_form_entry {
    uint32_t c;
    int32_t change;
    uint8_t combining_class;
} fsdp_form_entry;

typedef struct fsdp_form_list {
    fsdp_form_entry *items;
    size_t len, cap;
} fsdp_form_list;

/* Memory that one thread needs for all steps. Initialise with {0}; regex_work is owned by the
 * caller. */
typedef struct fsdp_normalize_work {
    fsdp_regex_work *regex_work;
    fsdp_form_list pending, sorted, held; /* for the normalization forms */
} fsdp_normalize_work;

/* Apply one step to `in`: write the new text to `out`, and set *changed. If nothing changes, the
 * contents of `out` are unspecified. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_step(const fsdp_normalize_op *op,
                                                const fsdp_char_classes *classes,
                                                fsdp_normalize_work *work, const fsdp_text_view *in,
                                                bool tracked, fsdp_aligned_text *out,
                                                bool *changed);

/* The step for NFC (compose), NFD, NFKC (compatible and compose) or NFKD (compatible), in
 * normalizer_forms.c. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_form(bool compatible, bool compose,
                                                const fsdp_char_classes *classes,
                                                fsdp_normalize_work *work, const fsdp_text_view *in,
                                                bool tracked, fsdp_aligned_text *out,
                                                bool *changed);
/* The step that replaces texts by op->map, in normalizer_precompiled.c. */
FSDP_MUST_CHECK fsdp_status fsdp_normalize_precompiled(const fsdp_normalize_op *op,
                                                       const fsdp_text_view *in, bool tracked,
                                                       fsdp_aligned_text *out, bool *changed);
