/* See kv_cache.h. The first append stores the appended tensors themselves in the cache, so no rows
 * are copied. Later appends write the new rows of a sequence into the free rows after its old rows.
 * If a sequence has too few free rows, all rows are moved to larger tensors. There, each sequence
 * is followed by at least a quarter as many free rows as it has rows. So on average, a row is moved
 * only a few times during the whole generation. */
#include "src/models/kv_cache.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

enum {
    /* minimum number of free rows after each sequence when the tensors are enlarged */
    LEAST_ROOM = 16
};

/* Sequence i has the rows [offsets[i], ends[i]). The rows [ends[i], offsets[i + 1]) are free. */
typedef struct layout {
    int32_t *offsets, *ends;
    size_t cap_offsets, cap_ends;
} layout;

struct fsdp_kv_cache {
    int32_t n; /* number of sequences */
    /* now: the current layout. before: the layout before the last call of fsdp_kv_cache_extend() or
     * fsdp_kv_cache_select(). */
    layout now, before;
    /* Number of calls of fsdp_kv_cache_extend() so far. From the second call on, new layouts have
     * free rows after each sequence. */
    int64_t extensions;
    /* True if the last fsdp_kv_cache_extend() found too few free rows, so that the append of each
     * layer must move all rows. */
    bool moves;
    int64_t n_layers;
    struct {
        fsdp_tensor *k, *v; /* NULL before the first append */
    } layers[];
};

fsdp_status fsdp_kv_cache_create(int64_t n_layers, fsdp_kv_cache **cache)
{
    fsdp_kv_cache *c = fsdp_calloc(1, sizeof *c + (size_t)n_layers * sizeof *c->layers);
    if (!c)
        return FSDP_ERR_NOMEM;
    c->n_layers = n_layers;
    *cache = c;
    return FSDP_OK;
}

static void free_layout(layout *l)
{
    fsdp_free(l->offsets);
    fsdp_free(l->ends);
}

void fsdp_kv_cache_destroy(fsdp_kv_cache *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_layers; i++) {
        fsdp_tensor_release(c->layers[i].k);
        fsdp_tensor_release(c->layers[i].v);
    }
    free_layout(&c->now);
    free_layout(&c->before);
    fsdp_free(c);
}

int32_t fsdp_kv_cache_sequences(const fsdp_kv_cache *c)
{
    return c->n;
}

static int32_t length(const layout *l, int32_t i)
{
    return l->ends[i] - l->offsets[i];
}

int32_t fsdp_kv_cache_length(const fsdp_kv_cache *c, int32_t i)
{
    return length(&c->now, i);
}

fsdp_kv fsdp_kv_cache_get(const fsdp_kv_cache *c, int64_t layer)
{
    return (fsdp_kv){.k = c->layers[layer].k,
                     .v = c->layers[layer].v,
                     .offsets = c->now.offsets,
                     .ends = c->now.ends};
}

/* --- layouts --- */

/* The caller is about to build the next layout in c->before. Make the arrays of c->before large
 * enough for n sequences. The first call also allocates the arrays of c->now and sets them to the
 * layout of n empty sequences. */
static bool reserve(fsdp_scope *s, fsdp_kv_cache *c, int32_t n)
{
    const size_t need = (size_t)n + 1;
    const bool fresh = !c->now.offsets;
    layout *const layouts[] = {&c->before, &c->now};
    for (int i = 0; i < (fresh ? 2 : 1); i++)
        if (!FSDP_GROW(layouts[i]->offsets, layouts[i]->cap_offsets, need) ||
            !FSDP_GROW(layouts[i]->ends, layouts[i]->cap_ends, need))
            fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    if (fresh && fsdp_scope_ok(s)) {
        memset(c->now.offsets, 0, need * sizeof *c->now.offsets);
        memset(c->now.ends, 0, need * sizeof *c->now.ends);
    }
    return fsdp_scope_ok(s);
}

/* Swap the two layouts. The layout in `before` becomes the current layout, `now`. The old current
 * layout is then in `before`. */
static void swap_layouts(fsdp_kv_cache *c)
{
    const layout now = c->before;
    c->before = c->now;
    c->now = now;
}

static bool countable(fsdp_scope *s, int64_t tokens)
{
    if (tokens > INT32_MAX)
        fsdp_scope_error(s, "kv_cache", "sequences have more than %d tokens together", INT32_MAX);
    return fsdp_scope_ok(s);
}

static int64_t room_of(int32_t tokens)
{
    return LEAST_ROOM + tokens / 4;
}

/* Compute the offsets and ends of n sequences from their lengths. The caller must have stored the
 * lengths in l->ends; this function replaces them by the ends. If `room` is true, leave free rows
 * after each sequence, unless the row numbers would exceed int32_t. */
static void compute_offsets(layout *l, int32_t n, bool room)
{
    int64_t all = 0;
    for (int32_t i = 0; i < n; i++)
        all += l->ends[i] + room_of(l->ends[i]);
    room = room && all <= INT32_MAX;
    l->offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t tokens = l->ends[i];
        l->ends[i] = l->offsets[i] + tokens;
        l->offsets[i + 1] = l->ends[i] + (room ? (int32_t)room_of(tokens) : 0);
    }
}

void fsdp_kv_cache_extend(fsdp_scope *s, fsdp_kv_cache *c, const int32_t *offsets, int32_t n)
{
    if (!fsdp_scope_ok(s))
        return;
    FSDP_ASSERT(!c->now.offsets || n == c->n);
    if (!reserve(s, c, n))
        return;
    const layout *now = &c->now;
    int64_t tokens = offsets[n] - offsets[0];
    c->moves = false;
    for (int32_t i = 0; i < n; i++) {
        c->moves |= now->ends[i] + (int64_t)(offsets[i + 1] - offsets[i]) > now->offsets[i + 1];
        tokens += length(now, i);
    }
    if (!countable(s, tokens))
        return;
    layout *next = &c->before;
    const int32_t *base = c->moves ? NULL : now->offsets;
    for (int32_t i = 0; i < n; i++)
        next->ends[i] = (base ? base[i] : 0) + length(now, i) + offsets[i + 1] - offsets[i];
    if (base)
        memcpy(next->offsets, base, ((size_t)n + 1) * sizeof *base);
    else
        compute_offsets(next, n, c->extensions > 0);
    swap_layouts(c);
    c->extensions++;
    c->n = n;
}

/* --- rows --- */

static void replace_tensor(fsdp_tensor **slot, fsdp_tensor *t)
{
    fsdp_tensor_retain(t);
    fsdp_tensor_release(*slot);
    *slot = t;
}

/* Copy n rows of src, beginning at src_row, to dst, beginning at dst_row. */
static void copy_rows(fsdp_scope *s, fsdp_tensor *dst, int64_t dst_row, const fsdp_tensor *src,
                      int64_t src_row, int64_t n)
{
    const fsdp_kernels *k = fsdp_scope_kernels(s);
    size_t row_bytes = (size_t)fsdp_tensor_row_numel(dst) * fsdp_dtype_size(dst->dtype);
    if (k && n)
        k->copy(fsdp_scope_context(s), (char *)fsdp_tensor_ptr(dst) + (size_t)dst_row * row_bytes,
                (const char *)fsdp_tensor_ptr(src) + (size_t)src_row * row_bytes,
                (size_t)n * row_bytes);
}

/* Create a tensor for all rows of the current layout, with the width and dtype of t. */
static fsdp_tensor *rows_like(fsdp_scope *s, const fsdp_kv_cache *c, const fsdp_tensor *t)
{
    return fsdp_new(s, t->dtype, 2, (const int64_t[]){c->now.offsets[c->n], t->shape[1]});
}

/* Append the rows of `fresh` to *slot: each sequence's new rows follow its old rows. If c->moves is
 * true, replace *slot by a larger tensor first. */
static void append(fsdp_scope *s, const fsdp_kv_cache *c, fsdp_tensor **slot, fsdp_tensor *fresh)
{
    if (!fsdp_scope_ok(s))
        return;
    if (!*slot) {
        replace_tensor(slot, fresh);
        return;
    }
    fsdp_tensor *to = c->moves ? rows_like(s, c, fresh) : *slot;
    int64_t at = 0; /* next row of `fresh` */
    for (int32_t i = 0; i < c->n && to; i++) {
        const int32_t begin = c->now.offsets[i], old = length(&c->before, i);
        const int32_t added = length(&c->now, i) - old;
        if (c->moves)
            copy_rows(s, to, begin, *slot, c->before.offsets[i], old);
        copy_rows(s, to, begin + old, fresh, at, added);
        at += added;
    }
    if (c->moves) {
        replace_tensor(slot, to);
        fsdp_drop(s, to);
    }
}

fsdp_kv fsdp_kv_cache_append(fsdp_scope *s, fsdp_kv_cache *c, int64_t layer, fsdp_tensor *k,
                             fsdp_tensor *v)
{
    append(s, c, &c->layers[layer].k, k);
    append(s, c, &c->layers[layer].v, v);
    return fsdp_scope_ok(s) ? fsdp_kv_cache_get(c, layer) : (fsdp_kv){0};
}

/* Replace *slot, a tensor with the layout `before`, by a tensor with the layout `now`. Sequence i
 * of the new tensor is a copy of sequence rows[i] of the old tensor. */
static void select_rows(fsdp_scope *s, const fsdp_kv_cache *c, fsdp_tensor **slot,
                        const int32_t *rows)
{
    if (!*slot || !fsdp_scope_ok(s))
        return;
    fsdp_tensor *selected = rows_like(s, c, *slot);
    for (int32_t i = 0; i < c->n && selected; i++)
        copy_rows(s, selected, c->now.offsets[i], *slot, c->before.offsets[rows[i]],
                  length(&c->now, i));
    replace_tensor(slot, selected);
    fsdp_drop(s, selected);
}

static bool all_as_they_are(const fsdp_kv_cache *c, const int32_t *rows, int32_t n)
{
    int32_t i = 0;
    while (i < n && rows[i] == i)
        i++;
    return i == n && n == c->n;
}

void fsdp_kv_cache_select(fsdp_scope *s, fsdp_kv_cache *c, const int32_t *rows, int32_t n)
{
    if (!fsdp_scope_ok(s) || all_as_they_are(c, rows, n) || !reserve(s, c, n))
        return;
    int64_t tokens = 0;
    for (int32_t i = 0; i < n; i++) {
        c->before.ends[i] = length(&c->now, rows[i]);
        tokens += c->before.ends[i];
    }
    if (!countable(s, tokens))
        return;
    compute_offsets(&c->before, n, c->extensions > 1);
    swap_layouts(c);
    c->n = n;
    for (int64_t i = 0; i < c->n_layers; i++) {
        select_rows(s, c, &c->layers[i].k, rows);
        select_rows(s, c, &c->layers[i].v, rows);
    }
}
