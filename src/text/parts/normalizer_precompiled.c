/* Replaces texts by means of a charsmap, as the tokenizers library does. A text is divided into
 * grapheme clusters. If a cluster has less than six bytes and begins with a text of the map, the
 * whole cluster is replaced. Otherwise, each character of the cluster is looked up in the map on
 * its own. */
#include "src/text/parts/normalizer_ops.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/unicode.h"

enum {
    CLUSTER_MAX = 6 /* a cluster of this many bytes or more is never replaced as a whole */
};

/* Writes characters to `t`. The last character is not passed to fsdp_transform_put() at once,
 * because replace() may still lower its `change`. The tokenizers library does the same. */
typedef struct writer {
    fsdp_transform t;
    const fsdp_charsmap *map;
    bool has_last, modified;
    uint32_t last;
    int64_t last_change;
} writer;

static void flush_last(writer *w)
{
    if (w->has_last)
        fsdp_transform_put(&w->t, w->last, w->last_change);
    w->has_last = false;
}

static void put(writer *w, uint32_t c, int64_t change)
{
    flush_last(w);
    w->has_last = true;
    w->last = c;
    w->last_change = change;
}

/* Replace the next n characters by the text `replacement` [length]. */
static void replace(writer *w, size_t n, const char *replacement, size_t length)
{
    const size_t count = fsdp_utf8_count(replacement, length);
    size_t done = 0;
    for (size_t i = 0, bytes; i < length; i += bytes, done++)
        put(w, fsdp_utf8_decode(replacement + i, &bytes), done >= n);
    if (count < n && w->has_last)
        w->last_change -= (int64_t)(n - count);
    w->modified = true;
}

/* If text [length] begins with a text of the map, replace all of it by this text's replacement, and
 * return true. Otherwise, return false. */
static bool replace_part(writer *w, const char *text, size_t length)
{
    size_t replaced;
    const char *replacement = fsdp_charsmap_find(w->map, text, length, &replaced);
    if (replacement)
        replace(w, fsdp_utf8_count(text, length), replacement, replaced);
    return replacement != NULL;
}

/* Return the length of the grapheme cluster with which `text` begins. */
static size_t cluster_length(const char *text, size_t left)
{
    size_t at, length;
    int32_t state = 0;
    uint32_t c = fsdp_utf8_decode(text, &at);
    while (at < left) {
        const uint32_t next = fsdp_utf8_decode(text + at, &length);
        if (fsdp_unicode_is_break(c, next, &state))
            break;
        c = next;
        at += length;
    }
    return at;
}

static void write_cluster(writer *w, const char *text, size_t length)
{
    if (length < CLUSTER_MAX && replace_part(w, text, length))
        return;
    for (size_t i = 0, bytes; i < length; i += bytes) {
        const uint32_t c = fsdp_utf8_decode(text + i, &bytes);
        if (!replace_part(w, text + i, bytes))
            put(w, c, 0);
    }
}

/* Return the number of bytes at the beginning of `text` that can be copied. They are ASCII
 * characters that the map does not replace, each of which is a grapheme cluster. */
static size_t plain_length(const fsdp_normalize_op *op, const char *text, size_t left)
{
    size_t n = 0;
    while (n < left && (unsigned char)text[n] < 0x80 && op->plain[(unsigned char)text[n]])
        n++;
    /* A mark that follows belongs to the same cluster as the last ASCII character, so leave that
     * character out. */
    return n && n < left && (unsigned char)text[n] >= 0x80 ? n - 1 : n;
}

fsdp_status fsdp_normalize_precompiled(const fsdp_normalize_op *op, const fsdp_text_view *in,
                                       bool tracked, fsdp_aligned_text *out, bool *changed)
{
    const char *text = in->data;
    size_t length = plain_length(op, text, in->len);
    *changed = length < in->len;
    if (!*changed)
        return FSDP_OK;
    writer w = {.map = op->map};
    fsdp_transform_begin(&w.t, in, out, tracked, 0);
    for (size_t i = 0; i < in->len; i += length) {
        length = plain_length(op, text + i, in->len - i);
        if (length) {
            flush_last(&w);
            fsdp_transform_run(&w.t, text + i, length - 1);
            put(&w, (unsigned char)text[i + length - 1], 0);
            continue;
        }
        length = cluster_length(text + i, in->len - i);
        write_cluster(&w, text + i, length);
    }
    flush_last(&w);
    *changed = w.modified;
    return out->failed ? fsdp_error_nomem() : FSDP_OK;
}
