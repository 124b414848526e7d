/* See Note [Cache of words] in token_work.h. */
#include "src/text/models/token_work.h"

#include <string.h>

#include "src/base/alloc.h"

enum {
    /* The table has 2 MB. Larger tables are slower, because they do not fit into the L2 cache. */
    WORDS_LOG2 = 15,
    WORDS = 1 << WORDS_LOG2,
    LINE_BYTES = 64,
    SCRATCH_KEPT = 8 << 20 /* scratch memory of more than this many bytes is freed after a piece */
};

_Static_assert(sizeof(fsdp_word) == LINE_BYTES, "a word fills a cache line");

void fsdp_token_spans_fini(fsdp_token_spans *spans)
{
    fsdp_free(spans->items);
    *spans = (fsdp_token_spans){0};
}

fsdp_status fsdp_token_spans_add(fsdp_token_spans *spans, int32_t id, size_t begin, size_t end)
{
    if (!FSDP_GROW(spans->items, spans->cap, spans->len + 1))
        return FSDP_ERR_NOMEM;
    spans->items[spans->len++] = (fsdp_token_span){id, (uint32_t)begin, (uint32_t)end};
    return FSDP_OK;
}

void fsdp_token_model_destroy(fsdp_token_model *model)
{
    if (model)
        model->ops->destroy(model);
}

/* ---- work ---- */

fsdp_status fsdp_token_work_create(fsdp_token_work **out)
{
    fsdp_token_work *work = fsdp_calloc(1, sizeof *work);
    void *memory = fsdp_calloc(WORDS + 1, sizeof(fsdp_word));
    if (!work || !memory) {
        fsdp_free(work);
        fsdp_free(memory);
        return FSDP_ERR_NOMEM;
    }
    size_t misaligned = (uintptr_t)memory % LINE_BYTES;
    work->words_memory = memory;
    work->words = (fsdp_word *)((char *)memory + (misaligned ? LINE_BYTES - misaligned : 0));
    *out = work;
    return FSDP_OK;
}

void fsdp_token_work_destroy(fsdp_token_work *work)
{
    if (!work)
        return;
    for (int i = 0; i < FSDP_SCRATCH_SLOTS; i++)
        fsdp_free(work->scratch[i].memory);
    fsdp_token_spans_fini(&work->word);
    fsdp_free(work->words_memory);
    fsdp_free(work);
}

void *fsdp_token_work_scratch(fsdp_token_work *work, int slot, size_t bytes)
{
    if (!fsdp_array_grow(&work->scratch[slot].memory, &work->scratch[slot].bytes, bytes, 1))
        return NULL;
    return work->scratch[slot].memory;
}

/* Free scratch memory that is larger than SCRATCH_KEPT, after a piece of `length` bytes has been
 * encoded. Nothing is checked after a short piece, because it cannot have enlarged the memory that
 * much. */
static void trim(fsdp_token_work *work, size_t length)
{
    if (length < SCRATCH_KEPT / 64)
        return;
    for (int i = 0; i < FSDP_SCRATCH_SLOTS; i++) {
        if (work->scratch[i].bytes <= SCRATCH_KEPT)
            continue;
        fsdp_free(work->scratch[i].memory);
        work->scratch[i].memory = NULL;
        work->scratch[i].bytes = 0;
    }
    if (work->word.cap * sizeof *work->word.items > SCRATCH_KEPT)
        fsdp_token_spans_fini(&work->word);
}

/* ---- the cache of words ---- */

typedef struct word_key {
    uint64_t part[FSDP_WORD_BYTES / 8];
    uint64_t hash;
} word_key;

/* Make the key of a word p [n], n <= FSDP_WORD_BYTES. For two different words of the same length,
 * `part` differs. */
static inline word_key make_key(const char *p, size_t n)
{
    word_key key = {{0}, 0};
    if (n <= 8) {
        key.part[0] = fsdp_load_up_to_8(p, n);
    } else if (n <= 16) {
        key.part[0] = fsdp_load_u64(p);
        key.part[1] = fsdp_load_u64(p + n - 8);
    } else {
        key.part[0] = fsdp_load_u64(p);
        key.part[1] = fsdp_load_u64(p + 8);
        key.part[2] = fsdp_load_u64(p + n - 8);
    }
    uint64_t h = (key.part[0] ^ n) * UINT64_C(0x9FB21C651E98DF25);
    h ^= (key.part[1] ^ h >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    h ^= (key.part[2] ^ h >> 32) * UINT64_C(0xA0761D6478BD642F);
    key.hash = h * UINT64_C(0xE7037ED1A0B428DB);
    return key;
}

static inline size_t home_of(const word_key *key)
{
    return (size_t)(key->hash >> (64 - WORDS_LOG2));
}

static inline bool is_word(const fsdp_word *word, const word_key *key, size_t length)
{
    return word->length == length && word->key[0] == key->part[0] && word->key[1] == key->part[1] &&
           word->key[2] == key->part[2];
}

static inline const fsdp_word *find_word(const fsdp_token_work *work, const word_key *key,
                                         size_t length)
{
    size_t home = home_of(key);
    const fsdp_word *word = &work->words[home];
    if (is_word(word, key, length))
        return word;
    word = &work->words[home ^ 1];
    return is_word(word, key, length) ? word : NULL;
}

static void forget_words_of_other_model(fsdp_token_work *work, const fsdp_token_model *model)
{
    if (work->fingerprint == model->fingerprint)
        return;
    memset(work->words, 0, WORDS * sizeof *work->words);
    work->fingerprint = model->fingerprint;
}

/* Put a word and its tokens into the cache. Do nothing if the word has too many tokens, or if the
 * spans of its tokens do not follow one another. */
static void put_word(fsdp_token_work *work, const word_key *key, size_t length,
                     const fsdp_token_spans *spans)
{
    fsdp_word word = {.length = (uint8_t)length, .count = (uint8_t)spans->len};
    if (spans->len > FSDP_WORD_TOKENS)
        return;
    memcpy(word.key, key->part, sizeof word.key);
    uint32_t end = 0;
    for (size_t i = 0; i < spans->len; i++) {
        const fsdp_token_span *span = &spans->items[i];
        if (span->begin != end)
            return;
        end = span->end;
        word.ends[i] = (uint8_t)end;
        word.ids[i] = span->id;
    }
    size_t home = home_of(key);
    work->words[home ^ 1] = work->words[home];
    work->words[home] = word;
}

/* Split a word that is not in the cache with the function `split`, and set work->word to its
 * tokens. */
static fsdp_status split_word(const fsdp_token_model *model, fsdp_token_work *work,
                              fsdp_split_fn *split, const char *piece, size_t length)
{
    if (length > FSDP_TOKEN_PIECE_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "a piece of text has %zu bytes; the maximum is %d",
                          length, FSDP_TOKEN_PIECE_MAX);
    work->word.len = 0;
    return split(model, work, piece, length, &work->word);
}

fsdp_status fsdp_token_work_encode(const fsdp_token_model *model, fsdp_token_work *work,
                                   fsdp_split_fn *split, const char *piece, size_t length,
                                   size_t offset, fsdp_token_spans *spans)
{
    if (!FSDP_GROW(spans->items, spans->cap, spans->len + FSDP_WORD_TOKENS))
        return FSDP_ERR_NOMEM;
    bool is_short = length <= FSDP_WORD_BYTES;
    word_key key = {{0}, 0};
    if (is_short) {
        forget_words_of_other_model(work, model);
        key = make_key(piece, length);
        const fsdp_word *word = find_word(work, &key, length);
        if (word) {
            uint32_t begin = (uint32_t)offset;
            for (int i = 0; i < word->count; i++) {
                uint32_t end = (uint32_t)offset + word->ends[i];
                spans->items[spans->len++] = (fsdp_token_span){word->ids[i], begin, end};
                begin = end;
            }
            return FSDP_OK;
        }
    }
    FSDP_TRY(split_word(model, work, split, piece, length));
    const fsdp_token_spans *found = &work->word;
    if (!FSDP_GROW(spans->items, spans->cap, spans->len + found->len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < found->len; i++) {
        fsdp_token_span span = found->items[i];
        span.begin += (uint32_t)offset;
        span.end += (uint32_t)offset;
        spans->items[spans->len++] = span;
    }
    if (is_short)
        put_word(work, &key, length, found);
    trim(work, length);
    return FSDP_OK;
}

fsdp_status fsdp_token_work_encode_ids(const fsdp_token_model *model, fsdp_token_work *work,
                                       fsdp_split_fn *split, const char *piece, size_t length,
                                       fsdp_token_list *list)
{
    /* Grow the list for FSDP_WORD_TOKENS more ids, because the ids of a cached word are copied by a
     * memcpy() of this fixed size, which is fast. */
    if (list->len + FSDP_WORD_TOKENS > list->cap &&
        !FSDP_GROW(list->ids, list->cap, list->len + FSDP_WORD_TOKENS))
        return FSDP_ERR_NOMEM;
    bool is_short = length <= FSDP_WORD_BYTES;
    word_key key = {{0}, 0};
    if (is_short) {
        forget_words_of_other_model(work, model);
        key = make_key(piece, length);
        const fsdp_word *word = find_word(work, &key, length);
        if (word) {
            memcpy(list->ids + list->len, word->ids, sizeof word->ids);
            list->len += word->count;
            return FSDP_OK;
        }
    }
    FSDP_TRY(split_word(model, work, split, piece, length));
    const fsdp_token_spans *found = &work->word;
    if (!FSDP_GROW(list->ids, list->cap, list->len + found->len))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < found->len; i++)
        list->ids[list->len++] = found->items[i].id;
    if (is_short)
        put_word(work, &key, length, found);
    trim(work, length);
    return FSDP_OK;
}
