/* T5 a token at a time: the encoder runs once, and each step feeds the decoder one id of every
 * sequence. What attention needs of earlier tokens stays in a cache: keys and values of each
 * decoder block, of the target so far and of the source.
 *
 *     fsdp_t5_cache_create(model, &cache);
 *     fsdp_t5_encode(s, model, cache);                   the scope's batch: sources
 *     while (...) {
 *         logits = fsdp_t5_decode(s, model, cache, ids); one id a sequence; a scope each
 *         fsdp_t5_cache_keep(s, cache, rows, n);         those not finished
 *     }
 *     fsdp_t5_cache_destroy(cache);
 *
 * All are collective where the model is sharded; a rank without sequences takes part all the same.
 * No gradients: scopes have no tape. */
#pragma once
#include <fsdp/models.h>

typedef struct fsdp_t5_cache fsdp_t5_cache;

FSDP_MUST_CHECK fsdp_status fsdp_t5_cache_create(const fsdp_module *model, fsdp_t5_cache **cache);
void fsdp_t5_cache_destroy(fsdp_t5_cache *cache); /* accepts NULL */
int32_t fsdp_t5_cache_rows(const fsdp_t5_cache *cache);

/* Run the encoder over the scope's batch; the cache's sequences are its rows. Once per cache. */
void fsdp_t5_encode(fsdp_scope *s, fsdp_module *model, fsdp_t5_cache *cache);
/* Feed ids [rows] and get the logits of what follows, [rows, V]. NULL if s has failed, after which
 * the cache can only be destroyed. */
fsdp_tensor *fsdp_t5_decode(fsdp_scope *s, fsdp_module *model, fsdp_t5_cache *cache,
                            const int32_t *ids);
/* Go on with sequences rows[0 .. n) alone, rising. */
void fsdp_t5_cache_keep(fsdp_scope *s, fsdp_t5_cache *cache, const int32_t *rows, int32_t n);
