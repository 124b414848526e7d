/* Keys and values of earlier tokens, of each layer of a decoder, for generation.
 *
 * They lie sequence by sequence, as attention reads them; lengths are each sequence's own. Once a
 * cache has grown there is room behind each sequence, so that a token seldom moves the others. A
 * forward first says how many tokens each sequence gets, then each layer adds its keys and values
 * once:
 *
 *     fsdp_kv_cache_extend(s, cache, offsets, n);
 *     for each layer: kv = fsdp_kv_cache_append(s, cache, layer, k, v), attention over kv
 *     fsdp_kv_cache_select(s, cache, rows, m);
 *
 * After a failure the cache can only be destroyed. */
#pragma once
#include "src/autograd/autograd.h"

typedef struct fsdp_kv_cache fsdp_kv_cache;

/* Of a layer, borrowed from the cache until its next call. Rows [offsets[i], ends[i]) are sequence
 * i's; what is between them is undefined. */
typedef struct fsdp_kv {
    fsdp_tensor *k, *v;     /* [offsets[sequences], kv_heads * K] */
    const int32_t *offsets; /* [sequences + 1] */
    const int32_t *ends;    /* [sequences] */
} fsdp_kv;

FSDP_MUST_CHECK fsdp_status fsdp_kv_cache_create(int64_t n_layers, fsdp_kv_cache **cache);
void fsdp_kv_cache_destroy(fsdp_kv_cache *cache); /* accepts NULL */

int32_t fsdp_kv_cache_sequences(const fsdp_kv_cache *cache);
/* Tokens of sequence i, with those of the last extend. */
int32_t fsdp_kv_cache_length(const fsdp_kv_cache *cache, int32_t i);

/* Sequence i gets offsets[i + 1] - offsets[i] further tokens. The first call sets the number of
 * sequences; later n is that number. */
void fsdp_kv_cache_extend(fsdp_scope *s, fsdp_kv_cache *cache, const int32_t *offsets, int32_t n);
/* The keys and values [tokens of the last extend, kv_heads * K] of `layer`, packed; returns those
 * of all tokens, empty if s has failed. */
fsdp_kv fsdp_kv_cache_append(fsdp_scope *s, fsdp_kv_cache *cache, int64_t layer, fsdp_tensor *k,
                             fsdp_tensor *v);
/* What append returned last. */
fsdp_kv fsdp_kv_cache_get(const fsdp_kv_cache *cache, int64_t layer);
/* Go on with sequences rows[0 .. n): any of them, in any order, also several times. */
void fsdp_kv_cache_select(fsdp_scope *s, fsdp_kv_cache *cache, const int32_t *rows, int32_t n);
