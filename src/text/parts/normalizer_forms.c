/* Unicode's normalization forms (Unicode Standard Annex #15), with the same alignments as in the
 * unicode-normalization-alignments crate. First, each character is decomposed. Then the marks after
 * a character are sorted by their combining class. For NFC and NFKC, characters are finally
 * composed. */
#include "src/text/parts/normalizer_ops.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/unicode.h"

enum {
    SHORT_RUN = 32 /* up to this number of marks, insertion sort is used */
};

typedef struct form {
    fsdp_transform t;
    const fsdp_char_classes *classes;
    fsdp_form_list *pending; /* a character and the marks that follow it, after decomposition */
    fsdp_form_list *sorted;
    /* used for composing: the marks after `base` that could not be composed with it */
    fsdp_form_list *held;
    bool compatible, compose;
    bool has_base;
    /* used for composing: the character with which later marks may be composed */
    fsdp_form_entry base;
    /* used for composing: the combining class of the last element of `held`, or -1 if it is
     * empty */
    int last_class;
} form;

static fsdp_status append(fsdp_form_list *list, fsdp_form_entry entry)
{
    if (!FSDP_GROW(list->items, list->cap, list->len + 1))
        return FSDP_ERR_NOMEM;
    list->items[list->len++] = entry;
    return FSDP_OK;
}

static void put(form *f, const fsdp_form_entry *e)
{
    fsdp_transform_put(&f->t, e->c, e->change);
}

/* ---- composing ---- */

static uint32_t compose_pair(const form *f, uint32_t a, uint32_t b)
{
    if (a < 0x80 && b < 0x80)
        return 0;
    const uint32_t c = fsdp_unicode_compose(a, b);
    return c && fsdp_char_class(f->classes, c) & FSDP_CHAR_CANONICAL ? c : 0;
}

static void put_base(form *f)
{
    if (f->has_base)
        put(f, &f->base);
    for (size_t i = 0; i < f->held->len; i++)
        put(f, &f->held->items[i]);
    f->held->len = 0;
    f->last_class = -1;
    f->has_base = false;
}

static fsdp_status compose(form *f, const fsdp_form_entry *e)
{
    if (!f->has_base) {
        if (e->combining_class) {
            put(f, e);
        } else {
            f->base = *e;
            f->has_base = true;
        }
        return FSDP_OK;
    }
    /* compose only if no mark between the base and this character blocks it (UAX #15) */
    if (f->last_class < (int)e->combining_class) {
        const uint32_t c = compose_pair(f, f->base.c, e->c);
        if (c) {
            f->base.c = c;
            f->base.change += e->change - 1;
            return FSDP_OK;
        }
    }
    if (e->combining_class == 0) {
        put_base(f);
        f->base = *e;
        f->has_base = true;
        return FSDP_OK;
    }
    f->last_class = e->combining_class;
    return append(f->held, *e);
}

/* ---- decomposing ---- */

static void sort_short(fsdp_form_entry *items, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const fsdp_form_entry e = items[i];
        size_t k = i;
        for (; k > 0 && items[k - 1].combining_class > e.combining_class; k--)
            items[k] = items[k - 1];
        items[k] = e;
    }
}

/* Sort f->pending by combining class. Characters of the same class keep their order. */
static fsdp_status sort_pending(form *f)
{
    fsdp_form_list *list = f->pending;
    if (list->len <= SHORT_RUN) {
        sort_short(list->items, list->len);
        return FSDP_OK;
    }
    size_t places[257] = {0};
    if (!FSDP_GROW(f->sorted->items, f->sorted->cap, list->len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < list->len; i++)
        places[list->items[i].combining_class + 1]++;
    for (size_t i = 0; i < 256; i++)
        places[i + 1] += places[i];
    for (size_t i = 0; i < list->len; i++)
        f->sorted->items[places[list->items[i].combining_class]++] = list->items[i];
    memcpy(list->items, f->sorted->items, list->len * sizeof *list->items);
    return FSDP_OK;
}

static fsdp_status flush_pending(form *f)
{
    fsdp_form_list *list = f->pending;
    FSDP_TRY(sort_pending(f));
    for (size_t i = 0; i < list->len; i++) {
        if (f->compose)
            FSDP_TRY(compose(f, &list->items[i]));
        else
            put(f, &list->items[i]);
    }
    list->len = 0;
    return FSDP_OK;
}

static fsdp_status push(form *f, uint32_t c, int32_t change)
{
    const bool reordered = fsdp_char_class(f->classes, c) & FSDP_CHAR_REORDERED;
    const uint8_t combining_class = reordered ? fsdp_unicode_combining_class(c) : 0;
    if (combining_class == 0)
        FSDP_TRY(flush_pending(f));
    return append(f->pending, (fsdp_form_entry){c, change, combining_class});
}

static fsdp_status decompose(form *f, uint32_t c)
{
    const uint16_t changes = f->compatible ? FSDP_CHAR_COMPATIBLE : FSDP_CHAR_CANONICAL;
    if (!(fsdp_char_class(f->classes, c) & changes))
        return push(f, c, 0);
    uint32_t points[FSDP_DECOMPOSED_MAX];
    const size_t n = fsdp_unicode_decompose(c, f->compatible, points);
    for (size_t i = 0; i < n; i++)
        FSDP_TRY(push(f, points[i], i > 0));
    return FSDP_OK;
}

/* Add a run of n ASCII characters. Decomposition does not change them, and only the last of them
 * can be composed with a mark that follows. So all others are written at once. */
static fsdp_status push_ascii(form *f, const char *text, size_t n)
{
    FSDP_TRY(flush_pending(f));
    put_base(f);
    fsdp_transform_run(&f->t, text, n - 1);
    return push(f, (unsigned char)text[n - 1], 0);
}

fsdp_status fsdp_normalize_form(bool compatible, bool compose_too, const fsdp_char_classes *classes,
                                fsdp_normalize_work *work, const fsdp_text_view *in, bool tracked,
                                fsdp_aligned_text *out, bool *changed)
{
    *changed = fsdp_ascii_length(in->data, in->len) < in->len;
    if (!*changed)
        return FSDP_OK;
    form f = {.classes = classes,
              .pending = &work->pending,
              .sorted = &work->sorted,
              .held = &work->held,
              .compatible = compatible,
              .compose = compose_too,
              .last_class = -1};
    f.pending->len = f.held->len = 0;
    fsdp_transform_begin(&f.t, in, out, tracked, 0);
    for (size_t i = 0, length; i < in->len; i += length) {
        length = fsdp_ascii_length(in->data + i, in->len - i);
        if (length)
            FSDP_TRY(push_ascii(&f, in->data + i, length));
        else
            FSDP_TRY(decompose(&f, fsdp_utf8_decode(in->data + i, &length)));
    }
    FSDP_TRY(flush_pending(&f));
    put_base(&f);
    return out->failed ? fsdp_error_nomem() : FSDP_OK;
}
