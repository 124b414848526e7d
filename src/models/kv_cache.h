/* Keys and values of earlier tokens, for each layer of a decoder. Used for generation.
 *
 * The rows of one sequence are contiguous, because attention reads them as one block. Sequences may
 * have different lengths. From the second extension on, there are free rows after each sequence, so
 * a new token rarely causes the rows of other sequences to be moved. A forward first extends every
 * sequence by the number of its new tokens. Then each layer appends its keys and values once:
 *
 *     fsdp_kv_cache_extend(s, cache, offsets, n);
 *     for each layer: kv = fsdp_kv_cache_append(s, cache, layer, k, v), attention over kv
 *     fsdp_kv_cache_select(s, cache, rows, m);
 *
 * A function that fails makes the scope fail. After that, the cache must not be used; the caller
 * can only destroy it. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_kv_cache fsdp_kv_cache;

/* Keys and values of a layer. They are borrowed from the cache, until the next call that changes
 * the cache. Rows [offsets[i], ends[i]) belong to sequence i. Rows between ends[i] and offsets[i +
 * 1] are undefined. */
typedef struct fsdp_kv {
    fsdp_tensor *k, *v;     /* [offsets[sequences], kv_heads * K] */
    const int32_t *offsets; /* [sequences + 1] */
    const int32_t *ends;    /* [sequences] */
} fsdp_kv;

FSDP_MUST_CHECK fsdp_status fsdp_kv_cache_create(int64_t n_layers, fsdp_kv_cache **cache);
void fsdp_kv_cache_destroy(fsdp_kv_cache *cache); /* accepts NULL */

int32_t fsdp_kv_cache_sequences(const fsdp_kv_cache *cache);
/* Return the number of tokens of sequence i, including those that the last fsdp_kv_cache_extend()
 * added. */
int32_t fsdp_kv_cache_length(const fsdp_kv_cache *cache, int32_t i);

/* Add offsets[i + 1] - offsets[i] tokens to each sequence i. The first call sets the number of
 * sequences to n. In later calls, n must be the current number of sequences, which
 * fsdp_kv_cache_select() may have changed. */
void fsdp_kv_cache_extend(fsdp_scope *s, fsdp_kv_cache *cache, const int32_t *offsets, int32_t n);
/* Append keys k and values v to those of `layer`. Both have the shape [tokens, kv_heads * K], with
 * a row for each token that the last fsdp_kv_cache_extend() added. Returns the keys and values of
 * all tokens, or {0} if s has failed. */
fsdp_kv fsdp_kv_cache_append(fsdp_scope *s, fsdp_kv_cache *cache, int64_t layer, fsdp_tensor *k,
                             fsdp_tensor *v);
/* Return the keys and values of `layer` without appending any. */
fsdp_kv fsdp_kv_cache_get(const fsdp_kv_cache *cache, int64_t layer);
/* Replace the sequences by n others: new sequence i is old sequence rows[i]. Sequences may be left
 * out, reordered and repeated. */
void fsdp_kv_cache_select(fsdp_scope *s, fsdp_kv_cache *cache, const int32_t *rows, int32_t n);
