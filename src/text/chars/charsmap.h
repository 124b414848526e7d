/* The precompiled_charsmap of a SentencePiece model: a table that maps texts to replacements. It is
 * a double-array trie whose values are positions in a list of NUL-terminated replacements. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_charsmap fsdp_charsmap;

/* Create a table from the precompiled_charsmap of a SentencePiece model. `bytes` [count] are
 * copied. */
FSDP_MUST_CHECK fsdp_status fsdp_charsmap_create(const void *bytes, size_t count,
                                                 fsdp_charsmap **out);
/* Like fsdp_charsmap_create(), but from the base64 text in a tokenizer.json. */
FSDP_MUST_CHECK fsdp_status fsdp_charsmap_decode(const char *base64, fsdp_charsmap **out);
void fsdp_charsmap_destroy(fsdp_charsmap *map); /* accepts NULL */

/* Find the shortest text of the table that is a prefix of `text` [length]. (The tokenizers library
 * also takes the shortest.) Return its replacement and set *replaced to the replacement's length.
 * Return NULL if no text of the table is a prefix. */
const char *fsdp_charsmap_find(const fsdp_charsmap *map, const char *text, size_t length,
                               size_t *replaced);
