/* The merges of a BPE model, and the loop that applies them to the symbols of a word. */
#pragma once
#include "src/text/models/bpe.h"

/* A symbol of a word that is being split into tokens: a byte, a character or a merged token. */
typedef struct fsdp_bpe_symbol {
    int32_t id;
    uint32_t length; /* number of bytes of the word that this symbol covers */
} fsdp_bpe_symbol;

typedef struct fsdp_merge_table fsdp_merge_table;

/* Create a table. `merges` is only needed during the call. Return FSDP_ERR_FORMAT if a rank is
 * UINT32_MAX. */
FSDP_MUST_CHECK fsdp_status fsdp_merge_table_create(const fsdp_bpe_merge *merges, size_t count,
                                                    fsdp_merge_table **out);
void fsdp_merge_table_destroy(fsdp_merge_table *table); /* accepts NULL */
/* Return a number that depends on all merges of the table, for fsdp_token_model.fingerprint. */
uint64_t fsdp_merge_table_fingerprint(const fsdp_merge_table *table);

/* Merge the symbols [*count] until no two adjacent symbols have a merge. Set *count to the number
 * of symbols that remain. Uses the scratch slots 1 and 2 of `work`. */
FSDP_MUST_CHECK fsdp_status fsdp_merge_table_apply(const fsdp_merge_table *table,
                                                   fsdp_token_work *work, fsdp_bpe_symbol *symbols,
                                                   size_t *count);
