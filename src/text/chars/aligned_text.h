/* A text that a normalizer or pre-tokenizer changes, and for each of its bytes the part of the
 * original text that it comes from, like NormalizedString in the tokenizers library. The same code
 * works without alignments, which is faster, if only ids are wanted. */
#pragma once
#include <string.h>

#include <fsdp/base.h>

#include "src/text/chars/utf8.h"

/* A part [begin, end) of the original text, in bytes. */
typedef struct fsdp_align {
    uint32_t begin, end;
} fsdp_align;

#define FSDP_ORIGIN_UNKNOWN SIZE_MAX

/* A part of a text. All views are well-formed UTF-8. */
typedef struct fsdp_text_view {
    const char *data; /* [len] */
    size_t len;
    const fsdp_align *align; /* [len], or NULL */
    /* Used if `align` is NULL. If the view is an unchanged part of the original text: the byte of
     * that text at which it begins. If the text was changed and alignments are not wanted:
     * FSDP_ORIGIN_UNKNOWN. */
    size_t origin;
} fsdp_text_view;

/* A text with its own memory. Initialise with {0}. */
typedef struct fsdp_aligned_text {
    char *data;
    size_t len, cap;
    fsdp_align *align;
    size_t align_cap;
    bool tracked; /* `align` has an entry for each byte of `data` */
    bool failed;  /* out of memory: what was appended is lost */
} fsdp_aligned_text;

void fsdp_aligned_text_fini(fsdp_aligned_text *text);
/* Empty the text, and set `tracked`. */
void fsdp_aligned_text_clear(fsdp_aligned_text *text, bool tracked);
fsdp_text_view fsdp_aligned_text_view(const fsdp_aligned_text *text);
/* Append bytes that all have the same alignment. */
void fsdp_aligned_text_append(fsdp_aligned_text *text, const char *bytes, size_t n,
                              fsdp_align align);
/* Append the bytes [begin, end) of a view, with their alignments. */
void fsdp_aligned_text_copy(fsdp_aligned_text *text, const fsdp_text_view *view, size_t begin,
                            size_t end);

/* Return the part [begin, end) of a view. */
fsdp_text_view fsdp_view_slice(const fsdp_text_view *view, size_t begin, size_t end);
/* Return the alignment of byte i < view->len. If view->align is NULL, view->origin must be
 * known. */
fsdp_align fsdp_view_align(const fsdp_text_view *view, size_t i);
/* Return the part of the original text that the bytes [begin, end) of a view come from: from where
 * the first byte's part begins to where the last byte's part ends. If the range is empty, the
 * result is an empty range, as in the tokenizers library. */
fsdp_align fsdp_view_range(const fsdp_text_view *view, size_t begin, size_t end);
/* Return the byte of the original text at which the view begins, or FSDP_ORIGIN_UNKNOWN. */
size_t fsdp_view_begin(const fsdp_text_view *view);

/* ---- changing a text: NormalizedString.transform() ---- */

/* Writes the characters of a new text that replaces `in`. The old character that a new one replaces
 * is the next one that was not yet replaced or removed. */
typedef struct fsdp_transform {
    const fsdp_text_view *in;
    fsdp_aligned_text *out;
    size_t at; /* next byte of `in`; not used without alignments */
} fsdp_transform;

/* Empty `out`, and begin a new text in it that replaces `in`. The first `removed` bytes of `in` are
 * removed. */
void fsdp_transform_begin(fsdp_transform *t, const fsdp_text_view *in, fsdp_aligned_text *out,
                          bool tracked, size_t removed);
/* The slow path of fsdp_transform_put(): with alignments, or when memory must grow. */
void fsdp_transform_put_aligned(fsdp_transform *t, uint32_t c, int64_t change);
/* Append the character `c`. `change` is 1 if `c` is inserted after the previous character, 0 if it
 * replaces the next old character, and -n if it replaces the next old character and the n old
 * characters after that one are removed. */
static inline void fsdp_transform_put(fsdp_transform *t, uint32_t c, int64_t change)
{
    fsdp_aligned_text *out = t->out;
    if (out->tracked || out->len + 4 > out->cap) {
        fsdp_transform_put_aligned(t, c, change);
        return;
    }
    out->len += fsdp_utf8_encode(c, out->data + out->len);
}

/* Append n bytes of ASCII, each of which replaces an old character. */
void fsdp_transform_run(fsdp_transform *t, const char *bytes, size_t n);

/* Write the spelling of the bytes of `in` in GPT-2's alphabet (byte_alphabet.h) to `out`. */
FSDP_MUST_CHECK fsdp_status fsdp_transform_spell(const fsdp_text_view *in, bool tracked,
                                                 fsdp_aligned_text *out);

/* Return the number of bytes before the first one that is not ASCII. */
static inline size_t fsdp_ascii_length(const char *text, size_t length)
{
    size_t i = 0;
    uint64_t eight;
    for (; i + sizeof eight <= length; i += sizeof eight) {
        memcpy(&eight, text + i, sizeof eight);
        if (eight & UINT64_C(0x8080808080808080))
            break;
    }
    while (i < length && (unsigned char)text[i] < 0x80)
        i++;
    return i;
}
