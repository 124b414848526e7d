/* Learns merges. The distinct words are in one array of symbols, in which the symbols of each word
 * are linked. Each pair of adjacent symbols has a count and a list of the positions at which the
 * pair arose. A heap contains the pairs, with the most frequent pair on top. A merge visits only
 * the positions of its pair. So the time of all merges together is proportional to the number of
 * bytes of the words, apart from the time for the heap.
 *
 * Note [Positions of a pair]. A token is always made from the same pair of tokens: the merges
 * inside a text do not depend on where the text occurs. So all symbols with the id of a token are
 * made by one merge, and all positions of a pair are added by the merge that made the later one of
 * its two tokens, in ascending order. When the pair itself is merged from left to right, no
 * position is missing. */
#include "src/text/models/bpe_train.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/text/chars/byte_alphabet.h"
#include "src/text/models/hash.h"

static const uint32_t NONE = UINT32_MAX;

enum {
    SYMBOLS_MAX = 1 << 30 /* so that 32 bits are enough for an index */
};

struct fsdp_bpe_trainer {
    fsdp_vocabulary *words; /* the distinct words; the id of a word is its index in `counts` */
    uint64_t *counts;
    size_t counts_cap;
};

/* ---- words ---- */

fsdp_status fsdp_bpe_trainer_create(fsdp_bpe_trainer **out)
{
    fsdp_bpe_trainer *trainer = fsdp_calloc(1, sizeof *trainer);
    if (!trainer)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_vocabulary_create(&trainer->words);
    if (status != FSDP_OK) {
        fsdp_free(trainer);
        return status;
    }
    *out = trainer;
    return FSDP_OK;
}

void fsdp_bpe_trainer_destroy(fsdp_bpe_trainer *trainer)
{
    if (!trainer)
        return;
    fsdp_vocabulary_destroy(trainer->words);
    fsdp_free(trainer->counts);
    fsdp_free(trainer);
}

fsdp_status fsdp_bpe_trainer_add(fsdp_bpe_trainer *trainer, const char *word, size_t length,
                                 uint64_t count)
{
    int32_t id = fsdp_vocabulary_find(trainer->words, word, length);
    if (id >= 0) {
        trainer->counts[id] += count;
        return FSDP_OK;
    }
    int32_t size = fsdp_vocabulary_size(trainer->words);
    if (size > FSDP_TOKEN_ID_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the texts have more than %d different words; give fewer of them",
                          FSDP_TOKEN_ID_MAX);
    if (!FSDP_GROW(trainer->counts, trainer->counts_cap, (size_t)size + 1))
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_vocabulary_add(trainer->words, word, length, size);
    if (status == FSDP_OK)
        trainer->counts[size] = count;
    return status == FSDP_ERR_FORMAT ? FSDP_ERR_UNSUPPORTED : status;
}

/* ---- the state of a training ---- */

typedef struct symbol {
    int32_t id;             /* NO_SYMBOL: this symbol has been merged into the one before it */
    uint32_t before, after; /* indices of the neighbors in the same word; NONE: there is none */
    uint32_t word;
} symbol;

enum {
    NO_SYMBOL = -1
};

typedef struct pair {
    int32_t left, right;
    int64_t count;
    /* indices in learning.places of the first and the last element of the pair's list of positions;
     * NONE: the list is empty */
    uint32_t first, last;
    bool grew; /* the current merge has added a position to this pair */
} pair;

/* An element of a pair's list of positions. */
typedef struct place {
    uint32_t position; /* index in `symbols` of the left symbol of the pair */
    uint32_t next;     /* index of the next element of the list; NONE: this is the last one */
} place;

typedef struct candidate {
    /* the pair's count when this candidate was pushed; the count may have changed since then */
    int64_t count;
    uint32_t pair;
} candidate;

typedef struct learning {
    const fsdp_bpe_trainer *trainer;
    fsdp_bpe_learned learned;
    size_t merges_cap;
    symbol *symbols;
    size_t n_symbols;
    pair *pairs;
    size_t n_pairs, pairs_cap;
    uint32_t *slots; /* hash table of indices of `pairs`; NONE: empty */
    size_t n_slots;  /* a power of two, more than twice n_pairs */
    place *places;
    size_t n_places, places_cap;
    uint32_t free_place; /* first element of the list of unused elements of `places` */
    candidate *heap;     /* heap[0] is the candidate that is merged first */
    size_t heap_len, heap_cap;
    uint32_t *grown; /* indices of the pairs to which the current merge has added positions */
    size_t n_grown, grown_cap;
    uint32_t *positions; /* the positions of the pair that is being merged, in ascending order */
    size_t n_positions, positions_cap;
} learning;

/* ---- pairs ---- */

static size_t find_slot(const learning *l, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)fsdp_hash_step(0, key) & (l->n_slots - 1);
    while (l->slots[i] != NONE &&
           (l->pairs[l->slots[i]].left != left || l->pairs[l->slots[i]].right != right))
        i = (i + 1) & (l->n_slots - 1);
    return i;
}

static fsdp_status grow_slots(learning *l)
{
    size_t n = l->n_slots ? 2 * l->n_slots : 1024;
    uint32_t *slots = fsdp_realloc(l->slots, n, sizeof *slots);
    if (!slots)
        return FSDP_ERR_NOMEM;
    l->slots = slots;
    l->n_slots = n;
    for (size_t i = 0; i < n; i++)
        slots[i] = NONE;
    for (size_t i = 0; i < l->n_pairs; i++)
        slots[find_slot(l, l->pairs[i].left, l->pairs[i].right)] = (uint32_t)i;
    return FSDP_OK;
}

/* Set *index to the index of the pair (left, right) in `pairs`. Add the pair if it is new. */
static fsdp_status find_pair(learning *l, int32_t left, int32_t right, uint32_t *index)
{
    if (2 * (l->n_pairs + 1) > l->n_slots)
        FSDP_TRY(grow_slots(l));
    size_t slot = find_slot(l, left, right);
    if (l->slots[slot] == NONE) {
        if (!FSDP_GROW(l->pairs, l->pairs_cap, l->n_pairs + 1))
            return FSDP_ERR_NOMEM;
        l->slots[slot] = (uint32_t)l->n_pairs;
        l->pairs[l->n_pairs++] = (pair){.left = left, .right = right, .first = NONE, .last = NONE};
    }
    *index = l->slots[slot];
    return FSDP_OK;
}

static fsdp_status add_place(learning *l, pair *p, uint32_t position)
{
    uint32_t at = l->free_place;
    if (at != NONE) {
        l->free_place = l->places[at].next;
    } else {
        if (!FSDP_GROW(l->places, l->places_cap, l->n_places + 1))
            return FSDP_ERR_NOMEM;
        at = (uint32_t)l->n_places++;
    }
    l->places[at] = (place){position, NONE};
    if (p->last == NONE)
        p->first = at;
    else
        l->places[p->last].next = at;
    p->last = at;
    return FSDP_OK;
}

/* The symbol at `position` and the next symbol have become adjacent. Count this occurrence of their
 * pair, and add the position to the pair's list. */
static fsdp_status add_pair(learning *l, uint32_t position)
{
    const symbol *left = &l->symbols[position];
    uint32_t index;
    FSDP_TRY(find_pair(l, left->id, l->symbols[left->after].id, &index));
    pair *p = &l->pairs[index];
    p->count += (int64_t)l->trainer->counts[left->word];
    FSDP_TRY(add_place(l, p, position));
    if (p->grew)
        return FSDP_OK;
    if (!FSDP_GROW(l->grown, l->grown_cap, l->n_grown + 1))
        return FSDP_ERR_NOMEM;
    p->grew = true;
    l->grown[l->n_grown++] = index;
    return FSDP_OK;
}

/* The symbol at `position` and the next symbol will be separated. Subtract this occurrence from the
 * count of their pair. */
static void remove_pair(learning *l, uint32_t position)
{
    const symbol *left = &l->symbols[position];
    uint32_t index = l->slots[find_slot(l, left->id, l->symbols[left->after].id)];
    if (index != NONE)
        l->pairs[index].count -= (int64_t)l->trainer->counts[left->word];
}

/* ---- the heap ---- */

/* Return true if `a` is to be merged before `b`: its count is higher, or the counts are equal and
 * the ids of its pair are lower. */
static bool is_before(const learning *l, candidate a, candidate b)
{
    if (a.count != b.count)
        return a.count > b.count;
    const pair *p = &l->pairs[a.pair], *q = &l->pairs[b.pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static fsdp_status push(learning *l, candidate c)
{
    if (!FSDP_GROW(l->heap, l->heap_cap, l->heap_len + 1))
        return FSDP_ERR_NOMEM;
    size_t at = l->heap_len++;
    for (; at > 0 && is_before(l, c, l->heap[(at - 1) / 2]); at = (at - 1) / 2)
        l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = c;
    return FSDP_OK;
}

static candidate pop(learning *l)
{
    candidate top = l->heap[0], moved = l->heap[--l->heap_len];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < l->heap_len; at = child) {
        if (child + 1 < l->heap_len && is_before(l, l->heap[child + 1], l->heap[child]))
            child++;
        if (!is_before(l, l->heap[child], moved))
            break;
        l->heap[at] = l->heap[child];
    }
    if (l->heap_len)
        l->heap[at] = moved;
    return top;
}

/* Push a candidate for each pair to which the current merge has added positions. */
static fsdp_status push_grown(learning *l)
{
    for (size_t i = 0; i < l->n_grown; i++) {
        pair *p = &l->pairs[l->grown[i]];
        p->grew = false;
        if (p->count > 0)
            FSDP_TRY(push(l, (candidate){p->count, l->grown[i]}));
    }
    l->n_grown = 0;
    return FSDP_OK;
}

/* ---- merging ---- */

/* Copy the positions of a pair to l->positions, and empty the pair's list. */
static fsdp_status take_positions(learning *l, pair *p)
{
    l->n_positions = 0;
    for (uint32_t at = p->first, next; at != NONE; at = next) {
        next = l->places[at].next;
        if (!FSDP_GROW(l->positions, l->positions_cap, l->n_positions + 1))
            return FSDP_ERR_NOMEM;
        l->positions[l->n_positions++] = l->places[at].position;
        l->places[at].next = l->free_place;
        l->free_place = at;
    }
    p->first = p->last = NONE;
    return FSDP_OK;
}

/* Merge the symbol at `position` and the next one into a symbol of the token `id`. */
static fsdp_status merge_at(learning *l, uint32_t position, int32_t id)
{
    symbol *left = &l->symbols[position], *right = &l->symbols[left->after];
    if (left->before != NONE)
        remove_pair(l, left->before);
    if (right->after != NONE)
        remove_pair(l, left->after);
    left->id = id;
    left->after = right->after;
    right->id = NO_SYMBOL;
    if (left->after != NONE)
        l->symbols[left->after].before = position;
    if (left->before != NONE)
        FSDP_TRY(add_pair(l, left->before));
    return left->after != NONE ? add_pair(l, position) : FSDP_OK;
}

/* Set *id to the token whose text is the text of the pair's left token followed by that of its
 * right token. If the vocabulary does not have this token yet, add it. */
static fsdp_status join_tokens(learning *l, const pair *p, int32_t *id)
{
    fsdp_vocabulary *vocabulary = l->learned.vocabulary;
    size_t left_length, right_length;
    const char *left = fsdp_vocabulary_text(vocabulary, p->left, &left_length);
    const char *right = fsdp_vocabulary_text(vocabulary, p->right, &right_length);
    char *text = fsdp_calloc(left_length + right_length, 1);
    if (!text)
        return FSDP_ERR_NOMEM;
    memcpy(text, left, left_length);
    memcpy(text + left_length, right, right_length);
    fsdp_status status = FSDP_OK;
    *id = fsdp_vocabulary_find(vocabulary, text, left_length + right_length);
    if (*id < 0) {
        *id = fsdp_vocabulary_size(vocabulary);
        status = fsdp_vocabulary_add(vocabulary, text, left_length + right_length, *id);
    }
    fsdp_free(text);
    return status;
}

static fsdp_status record_merge(learning *l, const pair *p, int32_t id)
{
    fsdp_bpe_learned *learned = &l->learned;
    if (!FSDP_GROW(learned->merges, l->merges_cap, learned->n_merges + 1))
        return FSDP_ERR_NOMEM;
    uint32_t rank = (uint32_t)learned->n_merges;
    learned->merges[learned->n_merges++] = (fsdp_bpe_merge){p->left, p->right, id, rank};
    return FSDP_OK;
}

static fsdp_status merge_pair(learning *l, uint32_t index)
{
    pair *p = &l->pairs[index];
    const int32_t pair_left = p->left, pair_right = p->right;
    int32_t id = -1;
    FSDP_TRY(take_positions(l, p));
    FSDP_TRY(join_tokens(l, p, &id));
    FSDP_TRY(record_merge(l, p, id));
    for (size_t i = 0; i < l->n_positions; i++) {
        const symbol *left = &l->symbols[l->positions[i]];
        if (left->id == pair_left && left->after != NONE &&
            l->symbols[left->after].id == pair_right)
            FSDP_TRY(merge_at(l, l->positions[i], id));
    }
    return push_grown(l);
}

static fsdp_status merge_until(learning *l, const fsdp_bpe_train_options *options)
{
    while (l->heap_len && fsdp_vocabulary_size(l->learned.vocabulary) < options->vocab_size) {
        candidate top = pop(l);
        int64_t count = l->pairs[top.pair].count;
        if (top.count != count) {
            FSDP_TRY(push(l, (candidate){count, top.pair}));
            continue;
        }
        if (count < 1 || count < options->min_frequency)
            break;
        FSDP_TRY(merge_pair(l, top.pair));
    }
    return FSDP_OK;
}

/* ---- beginning and end ---- */

static int compare_spellings(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Add the special tokens and the characters of GPT-2's alphabet to the vocabulary. Set byte_ids[b]
 * to the id of the character that spells the byte b. */
static fsdp_status add_alphabet(learning *l, const fsdp_bpe_train_options *options,
                                int32_t byte_ids[256])
{
    fsdp_vocabulary *vocabulary = l->learned.vocabulary;
    char spellings[256][3];
    for (size_t i = 0; i < options->n_special_tokens; i++) {
        const char *token = options->special_tokens[i];
        if (fsdp_vocabulary_find(vocabulary, token, strlen(token)) < 0)
            FSDP_TRY(fsdp_vocabulary_add(vocabulary, token, strlen(token),
                                         fsdp_vocabulary_size(vocabulary)));
    }
    for (int i = 0; i < 256; i++) {
        fsdp_byte_spelling s = fsdp_byte_alphabet_spell((uint8_t)i);
        memcpy(spellings[i], s.text, 2);
        spellings[i][s.length] = 0;
    }
    /* strcmp() orders UTF-8 strings by their code points */
    qsort(spellings, 256, sizeof *spellings, compare_spellings);
    for (int i = 0; i < 256; i++) {
        const char *text = spellings[i];
        if (fsdp_vocabulary_find(vocabulary, text, strlen(text)) < 0)
            FSDP_TRY(fsdp_vocabulary_add(vocabulary, text, strlen(text),
                                         fsdp_vocabulary_size(vocabulary)));
    }
    for (int i = 0; i < 256; i++) {
        fsdp_byte_spelling s = fsdp_byte_alphabet_spell((uint8_t)i);
        byte_ids[i] = fsdp_vocabulary_find(vocabulary, s.text, s.length);
    }
    if (fsdp_vocabulary_size(vocabulary) > options->vocab_size)
        return fsdp_error(FSDP_ERR_INVALID,
                          "a vocabulary of %lld tokens has no room for the %d bytes and special "
                          "tokens; it needs more tokens",
                          (long long)options->vocab_size, (int)fsdp_vocabulary_size(vocabulary));
    return FSDP_OK;
}

static fsdp_status count_symbols(learning *l)
{
    const fsdp_vocabulary *words = l->trainer->words;
    uint64_t n = 0;
    for (int32_t i = 0; i < fsdp_vocabulary_size(words); i++) {
        size_t length = 0;
        (void)fsdp_vocabulary_text(words, i, &length);
        n += length;
    }
    if (n > SYMBOLS_MAX)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "the different words of the texts have %llu bytes; the maximum is %d",
                          (unsigned long long)n, SYMBOLS_MAX);
    if (!(l->symbols = fsdp_calloc((size_t)n, sizeof *l->symbols)))
        return FSDP_ERR_NOMEM;
    l->n_symbols = (size_t)n;
    return FSDP_OK;
}

static fsdp_status add_words(learning *l, const int32_t byte_ids[256])
{
    const fsdp_vocabulary *words = l->trainer->words;
    uint32_t n = 0;
    FSDP_TRY(count_symbols(l));
    for (int32_t i = 0; i < fsdp_vocabulary_size(words); i++) {
        size_t length = 0;
        const unsigned char *text = (const unsigned char *)fsdp_vocabulary_text(words, i, &length);
        for (size_t k = 0; k < length; k++, n++)
            l->symbols[n] = (symbol){byte_ids[text[k]], k ? n - 1 : NONE,
                                     k + 1 < length ? n + 1 : NONE, (uint32_t)i};
    }
    for (uint32_t i = 0; i < n; i++)
        if (l->symbols[i].after != NONE)
            FSDP_TRY(add_pair(l, i));
    return push_grown(l);
}

static fsdp_status learn(learning *l, const fsdp_bpe_train_options *options)
{
    int32_t byte_ids[256];
    if (options->vocab_size > FSDP_TOKEN_ID_MAX)
        return fsdp_error(FSDP_ERR_INVALID, "a vocabulary of %lld tokens; the maximum is %d",
                          (long long)options->vocab_size, FSDP_TOKEN_ID_MAX);
    FSDP_TRY(fsdp_vocabulary_create(&l->learned.vocabulary));
    FSDP_TRY(add_alphabet(l, options, byte_ids));
    FSDP_TRY(add_words(l, byte_ids));
    return merge_until(l, options);
}

fsdp_status fsdp_bpe_trainer_learn(const fsdp_bpe_trainer *trainer,
                                   const fsdp_bpe_train_options *options, fsdp_bpe_learned *out)
{
    learning l = {.trainer = trainer, .free_place = NONE};
    fsdp_status status = learn(&l, options);
    if (status == FSDP_OK)
        *out = l.learned;
    else
        fsdp_bpe_learned_fini(&l.learned);
    fsdp_free(l.symbols);
    fsdp_free(l.pairs);
    fsdp_free(l.slots);
    fsdp_free(l.places);
    fsdp_free(l.heap);
    fsdp_free(l.grown);
    fsdp_free(l.positions);
    return status;
}

void fsdp_bpe_learned_fini(fsdp_bpe_learned *learned)
{
    fsdp_vocabulary_destroy(learned->vocabulary);
    fsdp_free(learned->merges);
    *learned = (fsdp_bpe_learned){0};
}
