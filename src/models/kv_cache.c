/* See kv_cache.h. Rows are packed without gaps, since attention reads them so. Appending a token
 * therefore copies the cache, once a step: no more bytes than the attention of the same step
 * reads. */
#include "src/models/kv_cache.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

struct fsdp_kv_cache {
    int32_t n; /* sequences */
    /* [n + 1] each: rows by sequence now, and before the last extend. */
    int32_t *offsets, *before;
    size_t cap_offsets, cap_before;
    int64_t n_layers;
    fsdp_kv layers[]; /* NULL before the first append */
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

void fsdp_kv_cache_destroy(fsdp_kv_cache *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->n_layers; i++) {
        fsdp_tensor_release(c->layers[i].k);
        fsdp_tensor_release(c->layers[i].v);
    }
    fsdp_free(c->offsets);
    fsdp_free(c->before);
    fsdp_free(c);
}

int32_t fsdp_kv_cache_sequences(const fsdp_kv_cache *c)
{
    return c->n;
}

const int32_t *fsdp_kv_cache_offsets(const fsdp_kv_cache *c)
{
    return c->offsets;
}

fsdp_kv fsdp_kv_cache_get(const fsdp_kv_cache *c, int64_t layer)
{
    return c->layers[layer];
}

/* --- offsets --- */

static int32_t length(const int32_t *offsets, int32_t i)
{
    return offsets[i + 1] - offsets[i];
}

/* Make room for n sequences in both arrays; the first time, all are empty. */
static bool reserve(fsdp_scope *s, fsdp_kv_cache *c, int32_t n)
{
    const bool fresh = !c->offsets;
    const size_t need = (size_t)n + 1;
    if (!FSDP_GROW(c->offsets, c->cap_offsets, need) || !FSDP_GROW(c->before, c->cap_before, need))
        fsdp_scope_fail(s, FSDP_ERR_NOMEM);
    else if (fresh)
        memset(c->offsets, 0, need * sizeof *c->offsets);
    return fsdp_scope_ok(s);
}

/* What was `before` is made anew, then the two change places. */
static void swap_offsets(fsdp_kv_cache *c)
{
    int32_t *offsets = c->before;
    size_t cap = c->cap_before;
    c->before = c->offsets;
    c->cap_before = c->cap_offsets;
    c->offsets = offsets;
    c->cap_offsets = cap;
}

/* The end of a sequence of `tokens` that begins at `begin`, while it is one. */
static int32_t end_of(fsdp_scope *s, int32_t begin, int64_t tokens)
{
    if (begin + tokens > INT32_MAX)
        fsdp_scope_error(s, "kv_cache", "sequences have more than %d tokens together", INT32_MAX);
    return fsdp_scope_ok(s) ? (int32_t)(begin + tokens) : 0;
}

void fsdp_kv_cache_extend(fsdp_scope *s, fsdp_kv_cache *c, const int32_t *offsets, int32_t n)
{
    if (!fsdp_scope_ok(s))
        return;
    FSDP_ASSERT(!c->offsets || n == c->n);
    if (!reserve(s, c, n))
        return;
    c->before[0] = 0;
    for (int32_t i = 0; i < n && fsdp_scope_ok(s); i++)
        c->before[i + 1] =
            end_of(s, c->before[i], (int64_t)length(c->offsets, i) + length(offsets, i));
    swap_offsets(c);
    c->n = n;
}

/* --- rows --- */

static void hold(fsdp_tensor **slot, fsdp_tensor *t)
{
    fsdp_tensor_retain(t);
    fsdp_tensor_release(*slot);
    *slot = t;
}

/* Rows src_row .. of src to dst_row .. of dst. */
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

/* As many rows as `offsets` say, of t's width and dtype. */
static fsdp_tensor *rows_like(fsdp_scope *s, const fsdp_tensor *t, const int32_t *offsets,
                              int32_t n)
{
    return fsdp_new(s, t->dtype, 2, (const int64_t[]){offsets[n], t->shape[1]});
}

/* *slot becomes each sequence's rows with its fresh ones behind them. */
static void append(fsdp_scope *s, const fsdp_kv_cache *c, fsdp_tensor **slot, fsdp_tensor *fresh)
{
    if (!fsdp_scope_ok(s))
        return;
    if (!*slot) {
        hold(slot, fresh);
        return;
    }
    fsdp_tensor *longer = rows_like(s, fresh, c->offsets, c->n);
    int64_t at = 0; /* in fresh */
    for (int32_t i = 0; i < c->n && longer; i++) {
        const int32_t begin = c->offsets[i], old = length(c->before, i);
        const int32_t added = length(c->offsets, i) - old;
        copy_rows(s, longer, begin, *slot, c->before[i], old);
        copy_rows(s, longer, begin + old, fresh, at, added);
        at += added;
    }
    hold(slot, longer);
    fsdp_drop(s, longer);
}

fsdp_kv fsdp_kv_cache_append(fsdp_scope *s, fsdp_kv_cache *c, int64_t layer, fsdp_tensor *k,
                             fsdp_tensor *v)
{
    append(s, c, &c->layers[layer].k, k);
    append(s, c, &c->layers[layer].v, v);
    return fsdp_scope_ok(s) ? c->layers[layer] : (fsdp_kv){0};
}

/* The sequences rows[0 .. n) of *slot; offsets are those of the selection already. */
static void select_rows(fsdp_scope *s, const fsdp_kv_cache *c, fsdp_tensor **slot,
                        const int32_t *rows, int32_t n)
{
    if (!*slot || !fsdp_scope_ok(s))
        return;
    fsdp_tensor *selected = rows_like(s, *slot, c->offsets, n);
    for (int32_t i = 0; i < n && selected; i++)
        copy_rows(s, selected, c->offsets[i], *slot, c->before[rows[i]], length(c->offsets, i));
    hold(slot, selected);
    fsdp_drop(s, selected);
}

void fsdp_kv_cache_select(fsdp_scope *s, fsdp_kv_cache *c, const int32_t *rows, int32_t n)
{
    if (!fsdp_scope_ok(s) || !reserve(s, c, n))
        return;
    c->before[0] = 0;
    for (int32_t i = 0; i < n && fsdp_scope_ok(s); i++)
        c->before[i + 1] = end_of(s, c->before[i], length(c->offsets, rows[i]));
    swap_offsets(c);
    c->n = n;
    for (int64_t i = 0; i < c->n_layers; i++) {
        select_rows(s, c, &c->layers[i].k, rows, n);
        select_rows(s, c, &c->layers[i].v, rows, n);
    }
}
