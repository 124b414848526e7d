/* A vocabulary: the texts of tokens and their ids, with a hash table from text to id. Ids may have
 * holes. Texts are UTF-8, spelled as in the vocabulary's file. */
#pragma once
#include <fsdp/base.h>

enum {
    /* The largest id of a token. The largest vocabularies have a million tokens, and the tables of
     * a vocabulary have an entry for each id up to its largest. */
    FSDP_TOKEN_ID_MAX = (1 << 24) - 1
};

typedef struct fsdp_vocabulary fsdp_vocabulary;

FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_create(fsdp_vocabulary **out);
void fsdp_vocabulary_destroy(fsdp_vocabulary *vocabulary); /* accepts NULL */

/* Add a token. If `text` [length] is the text of an earlier token, fsdp_vocabulary_find() will
 * return the new id, and both ids have the text. Return FSDP_ERR_FORMAT if `id` is not in [0,
 * FSDP_TOKEN_ID_MAX] or an earlier token has it; the message contains the texts. */
FSDP_MUST_CHECK fsdp_status fsdp_vocabulary_add(fsdp_vocabulary *vocabulary, const char *text,
                                                size_t length, int64_t id);

/* Return the id of a text, or -1. */
int32_t fsdp_vocabulary_find(const fsdp_vocabulary *vocabulary, const char *text, size_t length);
/* Return the text of a token, which ends in NUL, and set *length. Return NULL if no token has this
 * id. The text belongs to the vocabulary and is valid until the next fsdp_vocabulary_add(). */
const char *fsdp_vocabulary_text(const fsdp_vocabulary *vocabulary, int32_t id, size_t *length);
/* Return the largest id + 1. */
int32_t fsdp_vocabulary_size(const fsdp_vocabulary *vocabulary);
/* Return the length of the longest text in bytes. */
size_t fsdp_vocabulary_longest(const fsdp_vocabulary *vocabulary);
/* Return a number that depends on all texts and ids, and practically differs for different
 * vocabularies. */
uint64_t fsdp_vocabulary_fingerprint(const fsdp_vocabulary *vocabulary);

/* Return the id of the byte piece of `byte`, such as "<0x0A>", or -1 if the vocabulary lacks it.
 * Models with byte fallback represent characters that the vocabulary does not contain by these
 * tokens, one for each byte of the character's UTF-8. */
int32_t fsdp_vocabulary_byte_piece(const fsdp_vocabulary *vocabulary, uint8_t byte);
