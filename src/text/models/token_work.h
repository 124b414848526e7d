/* The memory that a thread needs to encode with a model: scratch memory, and a cache of short words
 * with their tokens. This header is for the files of models. All other files need only
 * token_model.h.
 *
 * Note [Cache of words]. Most words of a text are frequent words, and splitting a word takes longer
 * than finding it in a table. The cache is a table of WORDS entries, each of which fills a cache
 * line. A word can be in one of two neighboring entries. When a word is put into the cache, it
 * replaces the older one of the two words in these entries. So the size of the cache is fixed, and
 * no text can make a search slow. Words of more than FSDP_WORD_BYTES bytes or FSDP_WORD_TOKENS
 * tokens are not put into the cache. */
#pragma once
#include "src/text/models/hash.h"
#include "src/text/models/token_model.h"

enum {
    FSDP_WORD_BYTES = 24, /* bytes of the longest word that can be in the cache */
    FSDP_WORD_TOKENS = 7, /* largest number of tokens of a word that can be in the cache */
    FSDP_SCRATCH_SLOTS = 3
};

typedef struct fsdp_word {
    uint64_t key[FSDP_WORD_BYTES / 8];
    uint8_t length; /* in bytes; 0: the entry is empty */
    uint8_t count;  /* number of tokens */
    /* ends[i]: position in the word at which token i ends and token i + 1 begins; token 0 begins at
     * 0 */
    uint8_t ends[FSDP_WORD_TOKENS];
    int32_t ids[FSDP_WORD_TOKENS];
} fsdp_word;

struct fsdp_token_work {
    uint64_t fingerprint;  /* fingerprint of the model that has split the words in the cache */
    fsdp_word *words;      /* aligned to a cache line */
    void *words_memory;    /* the allocation that contains `words` */
    fsdp_token_spans word; /* the tokens of the word that is being split */
    struct {
        void *memory;
        size_t bytes;
    } scratch[FSDP_SCRATCH_SLOTS];
};

/* Return the memory of scratch slot `slot`, after enlarging it to at least `bytes` bytes, or NULL
 * if there is not enough memory. Enlarging keeps the contents, but may change the address. The
 * memory is valid only while the current piece is being encoded. */
void *fsdp_token_work_scratch(fsdp_token_work *work, int slot, size_t bytes);

/* Append a span. */
FSDP_MUST_CHECK fsdp_status fsdp_token_spans_add(fsdp_token_spans *spans, int32_t id, size_t begin,
                                                 size_t end);

/* A function that splits a piece and appends its tokens to `spans`. If it fails, it may leave any
 * tokens in `spans`. */
typedef fsdp_status fsdp_split_fn(const fsdp_token_model *model, fsdp_token_work *work,
                                  const char *piece, size_t length, fsdp_token_spans *spans);

/* Append the tokens of a piece. If the piece is in the cache of `work`, take them from there.
 * Otherwise, call `split`, and put the result into the cache. `offset` is added to the beginning
 * and the end of each span. If this fails, `spans` or `list` is unchanged. `split` must not call
 * these functions. */
FSDP_MUST_CHECK fsdp_status fsdp_token_work_encode(const fsdp_token_model *model,
                                                   fsdp_token_work *work, fsdp_split_fn *split,
                                                   const char *piece, size_t length, size_t offset,
                                                   fsdp_token_spans *spans);
FSDP_MUST_CHECK fsdp_status fsdp_token_work_encode_ids(const fsdp_token_model *model,
                                                       fsdp_token_work *work, fsdp_split_fn *split,
                                                       const char *piece, size_t length,
                                                       fsdp_token_list *list);

/* Return the length of the character that begins at `piece` [left], left > 0. If the bytes are not
 * UTF-8, return a length from 1 to `left`. */
static inline size_t fsdp_character_length(const char *piece, size_t left)
{
    unsigned char byte = (unsigned char)piece[0];
    size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length < left ? length : left;
}
