#include "src/text/parts/normalizer_ops.h"

#include <string.h>

#include "src/base/alloc.h"

static fsdp_status finish(const fsdp_aligned_text *out)
{
    return out->failed ? fsdp_error_nomem() : FSDP_OK;
}

/* ---- steps that look at one character at a time ---- */

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool nmt_removes(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
}

static uint32_t nmt_space(uint32_t c)
{
    const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    return space ? ' ' : c;
}

/* Return true if the step `op` removes the character c. */
static bool is_removed(const fsdp_normalize_op *op, const fsdp_char_classes *classes, uint32_t c)
{
    if (op->type == FSDP_NORMALIZE_NMT_REMOVE)
        return nmt_removes(c);
    return (fsdp_char_class(classes, c) & op->flags) || (op->flags & FSDP_CHAR_CONTROL && c == 0);
}

/* Remove characters, like NormalizedString.filter(). Each character that stays is passed to
 * fsdp_transform_put() only after the number of removed characters that follow it is known. */
static fsdp_status remove_characters(const fsdp_normalize_op *op, const fsdp_char_classes *classes,
                                     const fsdp_text_view *in, bool tracked, fsdp_aligned_text *out,
                                     bool *changed)
{
    size_t i = 0, length, first = 0;
    *changed = false;
    for (; i < in->len && !*changed; i += length)
        *changed = is_removed(op, classes, fsdp_utf8_decode(in->data + i, &length));
    if (!*changed)
        return FSDP_OK;
    while (first < in->len && is_removed(op, classes, fsdp_utf8_decode(in->data + first, &length)))
        first += length;
    fsdp_transform t;
    fsdp_transform_begin(&t, in, out, tracked, first);
    uint32_t last = 0;
    int64_t removed = 0;
    for (i = first; i < in->len; i += length) {
        const uint32_t c = fsdp_utf8_decode(in->data + i, &length);
        if (is_removed(op, classes, c)) {
            removed++;
            continue;
        }
        if (i > first)
            fsdp_transform_put(&t, last, -removed);
        last = c;
        removed = 0;
    }
    if (first < in->len)
        fsdp_transform_put(&t, last, -removed);
    return finish(out);
}

static void write_mapped(const fsdp_normalize_op *op, const fsdp_char_classes *classes, uint32_t c,
                         fsdp_transform *t)
{
    switch (op->type) {
    case FSDP_NORMALIZE_LOWERCASE:
        fsdp_transform_put(t, fsdp_char_lower(c), 0);
        if (c == 0x130)
            fsdp_transform_put(t, 0x307, 1);
        break;
    case FSDP_NORMALIZE_CLEAN:
        fsdp_transform_put(t, fsdp_char_class(classes, c) & FSDP_CHAR_WHITE ? ' ' : c, 0);
        break;
    case FSDP_NORMALIZE_NMT_SPACE:
        fsdp_transform_put(t, nmt_space(c), 0);
        break;
    default: /* CHINESE */
        if (!is_chinese(c)) {
            fsdp_transform_put(t, c, 0);
            break;
        }
        fsdp_transform_put(t, ' ', 0);
        fsdp_transform_put(t, c, 1);
        fsdp_transform_put(t, ' ', 1);
    }
}

static fsdp_status map_characters(const fsdp_normalize_op *op, const fsdp_char_classes *classes,
                                  const fsdp_text_view *in, bool tracked, fsdp_aligned_text *out)
{
    fsdp_transform t;
    fsdp_transform_begin(&t, in, out, tracked, 0);
    for (size_t i = 0, length; i < in->len; i += length)
        write_mapped(op, classes, fsdp_utf8_decode(in->data + i, &length), &t);
    return finish(out);
}

/* ---- steps that look at more than one character ---- */

/* Remove white space at the ends of the text. Alignments do not change, so a view of a part of `in`
 * would be enough. The part is copied nevertheless, because all steps write to `out`. */
static fsdp_status strip(const fsdp_normalize_op *op, const fsdp_char_classes *classes,
                         const fsdp_text_view *in, bool tracked, fsdp_aligned_text *out,
                         bool *changed)
{
    size_t begin = 0, end = in->len, length;
    while (op->strip_left && begin < end &&
           fsdp_char_class(classes, fsdp_utf8_decode(in->data + begin, &length)) & FSDP_CHAR_WHITE)
        begin += length;
    while (op->strip_right && end > begin &&
           fsdp_char_class(classes, fsdp_utf8_last(in->data, in->data + end, &length)) &
               FSDP_CHAR_WHITE)
        end -= length;
    *changed = begin > 0 || end < in->len;
    fsdp_aligned_text_clear(out, tracked);
    if (*changed)
        fsdp_aligned_text_copy(out, in, begin, end);
    return finish(out);
}

static fsdp_status prepend(const fsdp_normalize_op *op, const fsdp_text_view *in, bool tracked,
                           fsdp_aligned_text *out, bool *changed)
{
    *changed = in->len > 0 && *op->content;
    if (!*changed)
        return FSDP_OK;
    fsdp_aligned_text_clear(out, tracked);
    fsdp_aligned_text_append(out, op->content, strlen(op->content),
                             tracked ? fsdp_view_align(in, 0) : (fsdp_align){0, 0});
    fsdp_aligned_text_copy(out, in, 0, in->len);
    return finish(out);
}

/* A search for the texts that a REPLACE step replaces. */
typedef struct matches {
    const fsdp_normalize_op *op;
    size_t at;
    fsdp_regex_search search;
} matches;

static fsdp_status next_match(matches *m, bool *found, size_t *begin, size_t *end)
{
    const fsdp_regex_search *s = &m->search;
    if (!m->op->pattern)
        return fsdp_regex_next(&m->search, found, begin, end);
    const size_t n = strlen(m->op->pattern);
    const char *at = memmem(s->text + m->at, s->length - m->at, m->op->pattern, n);
    *found = at != NULL;
    if (at) {
        *begin = (size_t)(at - s->text);
        *end = m->at = *begin + n;
    }
    return FSDP_OK;
}

static fsdp_status replace(const fsdp_normalize_op *op, fsdp_regex_work *work,
                           const fsdp_text_view *in, bool tracked, fsdp_aligned_text *out,
                           bool *changed)
{
    matches m = {.op = op,
                 .search = {.regex = op->regex, .work = work, .text = in->data, .length = in->len}};
    const size_t n = strlen(op->content);
    size_t copied = 0, begin = 0, end = 0;
    bool found = false;
    *changed = false;
    if (in->len)
        FSDP_TRY(next_match(&m, &found, &begin, &end));
    fsdp_aligned_text_clear(out, tracked);
    while (found) {
        *changed = true;
        fsdp_aligned_text_copy(out, in, copied, begin);
        fsdp_align align = {0, 0};
        if (tracked)
            align = end > 0 ? fsdp_view_align(in, end - 1) : fsdp_view_range(in, 0, 0);
        fsdp_aligned_text_append(out, op->content, n, align);
        copied = end;
        FSDP_TRY(next_match(&m, &found, &begin, &end));
    }
    if (*changed)
        fsdp_aligned_text_copy(out, in, copied, in->len);
    return finish(out);
}

fsdp_status fsdp_normalize_step(const fsdp_normalize_op *op, const fsdp_char_classes *classes,
                                fsdp_normalize_work *work, const fsdp_text_view *in, bool tracked,
                                fsdp_aligned_text *out, bool *changed)
{
    *changed = in->len > 0;
    switch (op->type) {
    case FSDP_NORMALIZE_NFC:
    case FSDP_NORMALIZE_NFD:
    case FSDP_NORMALIZE_NFKC:
    case FSDP_NORMALIZE_NFKD:
        return fsdp_normalize_form(
            op->type == FSDP_NORMALIZE_NFKC || op->type == FSDP_NORMALIZE_NFKD,
            op->type == FSDP_NORMALIZE_NFC || op->type == FSDP_NORMALIZE_NFKC, classes, work, in,
            tracked, out, changed);
    case FSDP_NORMALIZE_REMOVE:
    case FSDP_NORMALIZE_NMT_REMOVE:
        return remove_characters(op, classes, in, tracked, out, changed);
    case FSDP_NORMALIZE_STRIP:
        return strip(op, classes, in, tracked, out, changed);
    case FSDP_NORMALIZE_REPLACE:
        return replace(op, work->regex_work, in, tracked, out, changed);
    case FSDP_NORMALIZE_PREPEND:
        return prepend(op, in, tracked, out, changed);
    case FSDP_NORMALIZE_BYTE_LEVEL:
        return fsdp_transform_spell(in, tracked, out);
    case FSDP_NORMALIZE_PRECOMPILED:
        return fsdp_normalize_precompiled(op, in, tracked, out, changed);
    case FSDP_NORMALIZE_LOWERCASE:
    case FSDP_NORMALIZE_CLEAN:
    case FSDP_NORMALIZE_CHINESE:
    case FSDP_NORMALIZE_NMT_SPACE:
        break;
    }
    return map_characters(op, classes, in, tracked, out);
}
