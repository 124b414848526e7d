#include "src/text/chars/aligned_text.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/byte_alphabet.h"

void fsdp_aligned_text_fini(fsdp_aligned_text *text)
{
    fsdp_free(text->data);
    fsdp_free(text->align);
    *text = (fsdp_aligned_text){0};
}

void fsdp_aligned_text_clear(fsdp_aligned_text *text, bool tracked)
{
    text->len = 0;
    text->tracked = tracked;
    text->failed = false;
}

fsdp_text_view fsdp_aligned_text_view(const fsdp_aligned_text *text)
{
    return (fsdp_text_view){
        .data = text->data ? text->data : "",
        .len = text->len,
        .align = text->tracked ? text->align : NULL,
        .origin = FSDP_ORIGIN_UNKNOWN,
    };
}

/* Grow the memory of the text for n more bytes. Return false if memory ran out. */
static bool grow(fsdp_aligned_text *text, size_t n)
{
    if (!text->failed && FSDP_GROW(text->data, text->cap, text->len + n) &&
        (!text->tracked || FSDP_GROW(text->align, text->align_cap, text->len + n)))
        return true;
    text->failed = true;
    return false;
}

void fsdp_aligned_text_append(fsdp_aligned_text *text, const char *bytes, size_t n,
                              fsdp_align align)
{
    if (!n || !grow(text, n))
        return;
    memcpy(text->data + text->len, bytes, n);
    if (text->tracked)
        for (size_t i = 0; i < n; i++)
            text->align[text->len + i] = align;
    text->len += n;
}

/* Write the alignments of the bytes [begin, end) of a view to out [end - begin]. `begin` is the
 * first byte of a character. */
static void write_aligns(const fsdp_text_view *view, size_t begin, size_t end, fsdp_align *out)
{
    if (view->align) {
        memcpy(out, view->align + begin, (end - begin) * sizeof *out);
        return;
    }
    for (size_t i = begin, length; i < end; i += length) {
        length = fsdp_utf8_length(view->data[i]);
        const uint32_t from = (uint32_t)(view->origin + i);
        for (size_t k = 0; k < length && i + k < end; k++)
            out[i - begin + k] = (fsdp_align){from, from + (uint32_t)length};
    }
}

void fsdp_aligned_text_copy(fsdp_aligned_text *text, const fsdp_text_view *view, size_t begin,
                            size_t end)
{
    if (begin >= end || !grow(text, end - begin))
        return;
    memcpy(text->data + text->len, view->data + begin, end - begin);
    if (text->tracked)
        write_aligns(view, begin, end, text->align + text->len);
    text->len += end - begin;
}

fsdp_text_view fsdp_view_slice(const fsdp_text_view *view, size_t begin, size_t end)
{
    fsdp_text_view slice = *view;
    slice.data += begin;
    slice.len = end - begin;
    if (slice.align)
        slice.align += begin;
    if (slice.origin != FSDP_ORIGIN_UNKNOWN)
        slice.origin += begin;
    return slice;
}

fsdp_align fsdp_view_align(const fsdp_text_view *view, size_t i)
{
    if (view->align)
        return view->align[i];
    size_t begin = i;
    while (begin > 0 && ((unsigned char)view->data[begin] & 0xC0) == 0x80)
        begin--;
    const size_t from = view->origin + begin;
    return (fsdp_align){(uint32_t)from, (uint32_t)(from + fsdp_utf8_length(view->data[begin]))};
}

size_t fsdp_view_begin(const fsdp_text_view *view)
{
    if (view->origin != FSDP_ORIGIN_UNKNOWN || !view->align)
        return view->origin;
    return view->len ? view->align[0].begin : 0;
}

fsdp_align fsdp_view_range(const fsdp_text_view *view, size_t begin, size_t end)
{
    if (begin < end)
        return (fsdp_align){fsdp_view_align(view, begin).begin, fsdp_view_align(view, end - 1).end};
    const uint32_t at = (uint32_t)(fsdp_view_begin(view) + begin);
    return (fsdp_align){at, at};
}

/* ---- changing a text ---- */

/* Return the number of bytes at the beginning of `in` whose alignment is an empty range. Such bytes
 * were inserted by a Replace step that matched the empty text at the beginning. When the tokenizers
 * library transforms a text, it keeps these bytes, and replaces only the bytes after them. */
static size_t first_aligned(const fsdp_text_view *in)
{
    size_t i = 0;
    if (in->align)
        while (i < in->len && in->align[i].begin == in->align[i].end)
            i++;
    return i;
}

void fsdp_transform_begin(fsdp_transform *t, const fsdp_text_view *in, fsdp_aligned_text *out,
                          bool tracked, size_t removed)
{
    fsdp_aligned_text_clear(out, tracked);
    *t = (fsdp_transform){.in = in, .out = out};
    if (!tracked) {
        /* This is enough for most texts. If memory runs out, out->failed is set, which the caller
         * checks after the transformation. */
        (void)grow(out, in->len + 4);
        return;
    }
    const size_t kept = first_aligned(in);
    fsdp_aligned_text_copy(out, in, 0, kept);
    t->at = kept + removed < in->len ? kept + removed : in->len;
}

static size_t skip_characters(const fsdp_text_view *in, size_t at, int64_t n)
{
    for (; n > 0 && at < in->len; n--)
        at += fsdp_utf8_length(in->data[at]);
    return at < in->len ? at : in->len;
}

void fsdp_transform_put_aligned(fsdp_transform *t, uint32_t c, int64_t change)
{
    const fsdp_text_view *in = t->in;
    char bytes[4];
    const size_t n = fsdp_utf8_encode(c, bytes);
    fsdp_align align = {0, 0};
    if (t->out->tracked) {
        align = fsdp_view_range(in, 0, 0);
        const size_t inserted_after = t->at > 0 ? t->at - 1 : 0;
        const size_t from = change > 0 || t->at >= in->len ? inserted_after : t->at;
        if (in->len && (change <= 0 || t->at > 0))
            align = fsdp_view_align(in, from);
        if (change <= 0)
            t->at = skip_characters(in, t->at, 1 - change);
    }
    fsdp_aligned_text_append(t->out, bytes, n, align);
}

void fsdp_transform_run(fsdp_transform *t, const char *bytes, size_t n)
{
    const fsdp_text_view *in = t->in;
    if (!t->out->tracked) {
        fsdp_aligned_text_append(t->out, bytes, n, (fsdp_align){0, 0});
    } else if (t->at + n <= in->len && memcmp(in->data + t->at, bytes, n) == 0) {
        fsdp_aligned_text_copy(t->out, in, t->at, t->at + n);
        t->at += n;
    } else {
        for (size_t i = 0; i < n; i++)
            fsdp_transform_put(t, (unsigned char)bytes[i], 0);
    }
}

fsdp_status fsdp_transform_spell(const fsdp_text_view *in, bool tracked, fsdp_aligned_text *out)
{
    fsdp_transform t;
    fsdp_transform_begin(&t, in, out, tracked, 0);
    for (size_t i = 0; i < in->len; i++) {
        const fsdp_byte_spelling s = fsdp_byte_alphabet_spell((uint8_t)in->data[i]);
        const uint32_t first = (unsigned char)s.text[0], second = (unsigned char)s.text[1];
        const uint32_t c = s.length == 1 ? first : (first & 0x1F) << 6 | (second & 0x3F);
        fsdp_transform_put(&t, c, ((unsigned char)in->data[i] & 0xC0) == 0x80);
    }
    return out->failed ? fsdp_error_nomem() : FSDP_OK;
}
