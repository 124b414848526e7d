/* A vocabulary: the tokens' texts and ids, with a hash table from text to id. There may be ids
 * without a token. Texts are UTF-8, spelled as in the vocabulary's file. */
#pragma once
#include <fsdp/base.h>

enum {
    /* The largest id that a token may have. The largest known vocabularies have a million tokens.
     * There is a limit because the tables of a vocabulary have an entry for each id up to its
     * largest. */
    FSDP_TOKEN_ID_MAX = (1 << 24) - 1
};

typedef struct fsdp_vocabulary fsdp_vocabulary;

FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_create(fsdp_vocabulary **out);
void fsdp_vocabulary_destroy(fsdp_vocabulary *vocabulary); /* accepts NULL */

/* Add a token. If an earlier token has the same `text` [length], then both ids have this text, and
 * fsdp_vocabulary_find() returns the new id. Return FSDP_ERR_FORMAT if `id` is not in [0,
 * FSDP_TOKEN_ID_MAX], or if an earlier token has this id; the message contains the texts. */
FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_add(fsdp_vocabulary *vocabulary, const char *text,
                                                size_t length, int64_t id);

/* Return the id of the token with this text, or -1 if there is none. */
int32_t fsdp_vocabulary_find(const fsdp_vocabulary *vocabulary, const char *text, size_t length);
/* Return the text of a token, which ends in NUL, and set *length. Return NULL if no token has this
 * id. The text belongs to the vocabulary and is valid until the next fsdp_vocabulary_add(). */
const char *fsdp_vocabulary_text(const fsdp_vocabulary *vocabulary, int32_t id, size_t *length);
/* Return the largest id of a token, + 1. */
int32_t fsdp_vocabulary_size(const fsdp_vocabulary *vocabulary);
/* Return the number of bytes of the longest text. */
size_t fsdp_vocabulary_longest(const fsdp_vocabulary *vocabulary);
/* Return a number that depends on all texts and ids. For practical purposes, different vocabularies
 * have different numbers. */
uint64_t fsdp_vocabulary_fingerprint(const fsdp_vocabulary *vocabulary);

/* Return the id of the byte piece of `byte`, such as "<0x0A>", or -1 if the vocabulary does not
 * have it. A model with byte fallback represents a character that is not in the vocabulary by byte
 * pieces, one for each byte of the character's UTF-8. */
int32_t fsdp_vocabulary_byte_piece(const fsdp_vocabulary *vocabulary, uint8_t byte);
