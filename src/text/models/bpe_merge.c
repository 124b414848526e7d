/* Applies merges to the symbols of a word. The merges are in a hash table with linear probing, from
 * a pair of ids to the rank and the result of the pair's merge.
 *
 * For a short word, a loop searches all pairs for the one with the lowest rank, merges it, and
 * repeats this. For a long word, a heap has a candidate for each pair that has a merge, so the time
 * is n log n. If a merge changes a neighboring pair, the pair's candidate stays in the heap. When
 * this candidate is taken from the heap, it is skipped, because the two symbols that are then at
 * its position have a merge with another result, or no merge. */
#include "src/text/models/bpe_merge.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/text/models/token_work.h"

enum {
    SHORT_WORD = 48, /* words of more symbols than this are merged with a heap */
    NO_RANK = -1     /* as uint32_t, the rank of a pair that has no merge */
};

typedef struct slot {
    uint64_t pair; /* left << 32 | right; EMPTY: the slot is empty */
    uint32_t rank;
    int32_t result;
} slot;

static const uint64_t EMPTY = UINT64_MAX;

struct fsdp_merge_table {
    slot *slots; /* [mask + 1] */
    size_t mask;
    uint64_t seed, fingerprint;
};

/* ---- the table ---- */

static inline uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Return the slot that contains the pair. If no slot does, return the empty slot into which it
 * would be inserted. */
static inline slot *find_slot(const fsdp_merge_table *table, uint64_t pair)
{
    uint64_t h = (pair ^ table->seed) * UINT64_C(0x9FB21C651E98DF25);
    size_t i = (size_t)(h ^ h >> 32) & table->mask;
    while (table->slots[i].pair != pair && table->slots[i].pair != EMPTY)
        i = (i + 1) & table->mask;
    return &table->slots[i];
}

/* If the pair (left, right) has a merge, return its rank and set *result to the resulting id.
 * Otherwise, return NO_RANK. */
static inline uint32_t find_merge(const fsdp_merge_table *table, int32_t left, int32_t right,
                                  int32_t *result)
{
    const slot *s = find_slot(table, pair_of(left, right));
    *result = s->result;
    return s->rank;
}

static fsdp_status fill_table(fsdp_merge_table *table, const fsdp_bpe_merge *merges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const fsdp_bpe_merge *m = &merges[i];
        if (m->rank == (uint32_t)NO_RANK)
            return fsdp_error(FSDP_ERR_FORMAT, "merge %zu has the rank %u, which is too large", i,
                              m->rank);
        slot *s = find_slot(table, pair_of(m->left, m->right));
        *s = (slot){pair_of(m->left, m->right), m->rank, m->result};
        uint64_t rest = (uint64_t)m->rank << 32 | (uint32_t)m->result;
        table->fingerprint += fsdp_mix64(fsdp_hash_step(fsdp_mix64(s->pair), rest));
    }
    return FSDP_OK;
}

fsdp_status fsdp_merge_table_create(const fsdp_bpe_merge *merges, size_t count,
                                    fsdp_merge_table **out)
{
    fsdp_merge_table *table = fsdp_calloc(1, sizeof *table);
    size_t size = 16;
    while (size < count + count / 2)
        size *= 2;
    if (!table || !(table->slots = fsdp_calloc(size, sizeof *table->slots))) {
        fsdp_free(table);
        return FSDP_ERR_NOMEM;
    }
    for (size_t i = 0; i < size; i++)
        table->slots[i] = (slot){EMPTY, (uint32_t)NO_RANK, -1};
    table->mask = size - 1;
    table->seed = fsdp_mix64((uint64_t)(uintptr_t)table);
    fsdp_status status = fill_table(table, merges, count);
    if (status != FSDP_OK) {
        fsdp_merge_table_destroy(table);
        return status;
    }
    *out = table;
    return FSDP_OK;
}

void fsdp_merge_table_destroy(fsdp_merge_table *table)
{
    if (!table)
        return;
    fsdp_free(table->slots);
    fsdp_free(table);
}

uint64_t fsdp_merge_table_fingerprint(const fsdp_merge_table *table)
{
    return table->fingerprint;
}

/* ---- short words ---- */

static size_t merge_short_word(const fsdp_merge_table *table, fsdp_bpe_symbol *symbols, size_t n)
{
    /* ranks[i] and results[i] belong to the merge of symbols i and i + 1. */
    uint32_t ranks[SHORT_WORD];
    int32_t results[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = find_merge(table, symbols[i].id, symbols[i + 1].id, &results[i]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] == (uint32_t)NO_RANK)
            break;
        symbols[best].id = results[best];
        symbols[best].length += symbols[best + 1].length;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            symbols[i] = symbols[i + 1];
            ranks[i - 1] = ranks[i];
            results[i - 1] = results[i];
        }
        if (best + 1 < n)
            ranks[best] = find_merge(table, symbols[best].id, symbols[best + 1].id, &results[best]);
        if (best > 0)
            ranks[best - 1] =
                find_merge(table, symbols[best - 1].id, symbols[best].id, &results[best - 1]);
    }
    return n;
}

/* ---- long words ---- */

typedef struct candidate {
    /* rank << 32 | position of the left symbol; the candidate with the lowest order is merged
     * first */
    uint64_t order;
    int32_t result;
} candidate;

/* A long word. Its symbols are in a doubly linked list. A symbol that has been merged into the
 * symbol before it has length 0 and is no longer in the list. */
typedef struct long_word {
    const fsdp_merge_table *table;
    fsdp_bpe_symbol *symbols; /* [count] */
    struct neighbors {
        uint32_t before, after; /* NO_SYMBOL: none */
    } * list;                   /* [count] */
    candidate *heap;            /* heap[0] is the candidate with the lowest `order` */
    size_t heap_len;
} long_word;

static const uint32_t NO_SYMBOL = UINT32_MAX;

static void sift_down(candidate *heap, size_t len, size_t at)
{
    candidate moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < len; at = child) {
        if (child + 1 < len && heap[child + 1].order < heap[child].order)
            child++;
        if (heap[child].order >= moved.order)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static candidate pop(long_word *word)
{
    candidate top = word->heap[0];
    word->heap[0] = word->heap[--word->heap_len];
    if (word->heap_len)
        sift_down(word->heap, word->heap_len, 0);
    return top;
}

static void push(long_word *word, candidate c)
{
    size_t at = word->heap_len++;
    for (; at > 0 && word->heap[(at - 1) / 2].order > c.order; at = (at - 1) / 2)
        word->heap[at] = word->heap[(at - 1) / 2];
    word->heap[at] = c;
}

/* If the symbol at index `at` and the symbol after it have a merge, set *c to the candidate for
 * this merge and return true. */
static bool find_candidate(const long_word *word, uint32_t at, candidate *c)
{
    uint32_t after = word->list[at].after;
    if (after == NO_SYMBOL)
        return false;
    uint32_t rank =
        find_merge(word->table, word->symbols[at].id, word->symbols[after].id, &c->result);
    c->order = (uint64_t)rank << 32 | at;
    return rank != (uint32_t)NO_RANK;
}

/* Link all symbols to a list, and fill the heap with the candidates of all pairs. */
static void begin_long_word(long_word *word, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        word->list[i].before = i ? (uint32_t)i - 1 : NO_SYMBOL;
        word->list[i].after = i + 1 < count ? (uint32_t)i + 1 : NO_SYMBOL;
    }
    for (size_t i = 0; i < count; i++)
        if (find_candidate(word, (uint32_t)i, &word->heap[word->heap_len]))
            word->heap_len++;
    for (size_t i = word->heap_len / 2; i-- > 0;)
        sift_down(word->heap, word->heap_len, i);
}

/* Merge the symbol at position `at` with the symbol after it into the token `result`. */
static void merge_at(long_word *word, uint32_t at, int32_t result)
{
    uint32_t removed = word->list[at].after, after = word->list[removed].after;
    uint32_t before = word->list[at].before;
    candidate c;
    word->symbols[at].id = result;
    word->symbols[at].length += word->symbols[removed].length;
    word->symbols[removed].length = 0;
    word->list[at].after = after;
    if (after != NO_SYMBOL)
        word->list[after].before = at;
    if (before != NO_SYMBOL && find_candidate(word, before, &c))
        push(word, c);
    if (find_candidate(word, at, &c))
        push(word, c);
}

static fsdp_status merge_long_word(const fsdp_merge_table *table, fsdp_token_work *work,
                                   fsdp_bpe_symbol *symbols, size_t *count)
{
    /* The heap never has more than 2 * count candidates. At first, it has at most one for each
     * pair. There are fewer than `count` merges. Each merge removes one candidate and adds at most
     * two. */
    long_word word = {.table = table,
                      .symbols = symbols,
                      .list = fsdp_token_work_scratch(work, 1, *count * sizeof *word.list),
                      .heap = fsdp_token_work_scratch(work, 2, 2 * *count * sizeof *word.heap)};
    if (!word.list || !word.heap)
        return FSDP_ERR_NOMEM;
    begin_long_word(&word, *count);
    while (word.heap_len) {
        candidate top = pop(&word), now;
        uint32_t at = (uint32_t)top.order;
        if (symbols[at].length && find_candidate(&word, at, &now) && now.result == top.result)
            merge_at(&word, at, top.result);
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (symbols[i].length)
            symbols[kept++] = symbols[i];
    *count = kept;
    return FSDP_OK;
}

fsdp_status fsdp_merge_table_apply(const fsdp_merge_table *table, fsdp_token_work *work,
                                   fsdp_bpe_symbol *symbols, size_t *count)
{
    if (*count < 2)
        return FSDP_OK;
    if (*count <= SHORT_WORD) {
        *count = merge_short_word(table, symbols, *count);
        return FSDP_OK;
    }
    return merge_long_word(table, work, symbols, count);
}
