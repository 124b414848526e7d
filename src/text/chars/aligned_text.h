/* A text that a normalizer or a pre-tokenizer changes. For each byte, the text can also store the
 * alignment: the part of the original text from which the byte comes, like NormalizedString in the
 * tokenizers library. If only ids are wanted, the same code works without alignments, which is
 * faster. */
#pragma once
#include <string.h>

#include <fsdp/base.h>

#include "src/text/chars/utf8.h"

/* A part of the original text: its bytes [begin, end). */
typedef struct fsdp_align {
    uint32_t begin, end;
} fsdp_align;

#define FSDP_ORIGIN_UNKNOWN SIZE_MAX

/* A part of a text, in memory that the view does not own. It must be well-formed UTF-8. */
typedef struct fsdp_text_view {
    const char *data; /* [len] */
    size_t len;
    const fsdp_align *align; /* [len], or NULL */
    /* Used if `align` is NULL. If the view is an unchanged part of the original text, this is the
     * position at which this part begins, in bytes. If the text has been changed and alignments are
     * not wanted, it is FSDP_ORIGIN_UNKNOWN. */
    size_t origin;
} fsdp_text_view;

/* A text that owns its memory. Initialize it with {0}. */
typedef struct fsdp_aligned_text {
    char *data;
    size_t len, cap;
    fsdp_align *align;
    size_t align_cap;
    /* true: `align` has an element for each byte of `data`; false: alignments are not kept */
    bool tracked;
    /* an append failed because there was not enough memory, so the text is incomplete */
    bool failed;
} fsdp_aligned_text;

void fsdp_aligned_text_fini(fsdp_aligned_text *text);
/* Make the text empty, and set its field `tracked`. */
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
/* Return the alignment of byte i of the view, i < view->len. If view->align is NULL, view->origin
 * must not be FSDP_ORIGIN_UNKNOWN. */
fsdp_align fsdp_view_align(const fsdp_text_view *view, size_t i);
/* Return the part of the original text from which the bytes [begin, end) of a view come. It begins
 * where the part of the first byte begins, and ends where the part of the last byte ends. If begin
 * == end, the result is an empty range, as in the tokenizers library. */
fsdp_align fsdp_view_range(const fsdp_text_view *view, size_t begin, size_t end);
/* Return the position in the original text at which the view begins, or FSDP_ORIGIN_UNKNOWN. */
size_t fsdp_view_begin(const fsdp_text_view *view);

/* ---- changing a text: NormalizedString.transform() ---- */

/* A transformation of the text `in` into a new text `out`, character by character.
 * fsdp_transform_put() appends the characters of the new text. Each of them may replace an old
 * character. The old characters are replaced or removed in order. */
typedef struct fsdp_transform {
    const fsdp_text_view *in;
    fsdp_aligned_text *out;
    /* the next old character: its position in `in`; not used if alignments are not kept */
    size_t at;
} fsdp_transform;

/* Begin to transform `in`: make `out` empty, and skip the first `removed` bytes of `in`. If
 * `tracked` is true and `in` begins with bytes that come from no part of the original text, copy
 * these bytes to `out` first, and skip the `removed` bytes after them. */
void fsdp_transform_begin(fsdp_transform *t, const fsdp_text_view *in, fsdp_aligned_text *out,
                          bool tracked, size_t removed);
/* The slow path of fsdp_transform_put(). It is used if alignments are kept, or if `out` needs more
 * memory. */
void fsdp_transform_put_aligned(fsdp_transform *t, uint32_t c, int64_t change);
/* Append the character `c`. If `change` is 1, `c` is inserted and replaces no old character. If it
 * is 0, `c` replaces the next old character. If it is -n, `c` replaces the next old character, and
 * the n old characters after that one are removed. */
static inline void fsdp_transform_put(fsdp_transform *t, uint32_t c, int64_t change)
{
    fsdp_aligned_text *out = t->out;
    if (out->tracked || out->len + 4 > out->cap) {
        fsdp_transform_put_aligned(t, c, change);
        return;
    }
    out->len += fsdp_utf8_encode(c, out->data + out->len);
}

/* Append n ASCII characters. Each of them replaces the next old character, as with `change` 0. */
void fsdp_transform_run(fsdp_transform *t, const char *bytes, size_t n);

/* Write the text `in` to `out`, with each byte spelled in GPT-2's alphabet (byte_alphabet.h). */
FSDP_MUST_CHECK fsdp_status fsdp_transform_spell(const fsdp_text_view *in, bool tracked,
                                                 fsdp_aligned_text *out);

/* Return the number of ASCII bytes at the beginning of the text. */
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
