/* Finds the best path through a word with a trie of all pieces and the Viterbi recurrence over byte
 * positions. The trie's nodes are in breadth-first order, so the children of a node are contiguous.
 * Children are sorted by byte. */
#include "src/text/sentencepiece_unigram.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"

typedef struct node {
    uint32_t first_child;
    int32_t id; /* id of the piece that ends at this node, or -1 */
    uint16_t children;
    uint8_t byte; /* the byte on the edge to this node */
} node;

struct fsdp_sentencepiece_unigram {
    node *nodes; /* [0] is the root */
    size_t nodes_len, nodes_cap;
    const fsdp_sentencepiece *sp;
    double unknown_score;
    int32_t unknown_id;
};

/* ---- building ---- */

typedef struct entry {
    const char *piece;
    int32_t id;
} entry;

/* The pieces below one node. They are entries [first, end), and their first `depth` bytes are
 * equal. */
typedef struct range {
    uint32_t first, end, depth;
} range;

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->piece, ((const entry *)b)->piece);
}

static uint8_t byte_at(const entry *e, uint32_t depth)
{
    return (uint8_t)e->piece[depth];
}

/* Build the array of nodes, which grows during this function. Visit its nodes in order, including
 * those that were appended by earlier visits. At each node, append the children of the node to the
 * array of nodes, and append the range of each child to `ranges`. */
static fsdp_status build_trie(fsdp_sentencepiece_unigram *unigram, const entry *entries,
                              uint32_t count)
{
    range *ranges = NULL;
    size_t ranges_cap = 0;
    if (!FSDP_GROW(unigram->nodes, unigram->nodes_cap, 1) || !FSDP_GROW(ranges, ranges_cap, 1)) {
        fsdp_free(ranges);
        return FSDP_ERR_NOMEM;
    }
    unigram->nodes[0] = (node){.id = -1};
    unigram->nodes_len = 1;
    ranges[0] = (range){0, count, 0};
    for (size_t at = 0; at < unigram->nodes_len; at++) {
        range r = ranges[at];
        if (r.first < r.end && byte_at(&entries[r.first], r.depth) == 0)
            unigram->nodes[at].id = entries[r.first++].id;
        unigram->nodes[at].first_child = (uint32_t)unigram->nodes_len;
        while (r.first < r.end) {
            uint8_t byte = byte_at(&entries[r.first], r.depth);
            uint32_t end = r.first;
            while (end < r.end && byte_at(&entries[end], r.depth) == byte)
                end++;
            size_t len = unigram->nodes_len;
            if (!FSDP_GROW(unigram->nodes, unigram->nodes_cap, len + 1) ||
                !FSDP_GROW(ranges, ranges_cap, len + 1)) {
                fsdp_free(ranges);
                return FSDP_ERR_NOMEM;
            }
            unigram->nodes[len] = (node){.id = -1, .byte = byte};
            ranges[len] = (range){r.first, end, r.depth + 1};
            unigram->nodes[at].children++;
            unigram->nodes_len++;
            r.first = end;
        }
    }
    fsdp_free(ranges);
    return FSDP_OK;
}

fsdp_status fsdp_sentencepiece_unigram_create(const fsdp_sentencepiece *sp,
                                              fsdp_sentencepiece_unigram **out)
{
    int32_t size = fsdp_sentencepiece_size(sp);
    fsdp_sentencepiece_unigram *unigram = fsdp_calloc(1, sizeof *unigram);
    entry *entries = fsdp_calloc((size_t)size, sizeof *entries);
    fsdp_status status = unigram && entries ? FSDP_OK : FSDP_ERR_NOMEM;
    uint32_t count = 0;
    float lowest = 0;
    for (int32_t id = 0; status == FSDP_OK && id < size; id++) {
        if (!fsdp_sentencepiece_is_normal(sp, id))
            continue;
        float score = fsdp_sentencepiece_score(sp, id);
        lowest = score < lowest ? score : lowest;
        entries[count++] = (entry){fsdp_sentencepiece_piece(sp, id), id};
    }
    if (status == FSDP_OK) {
        const double unknown_penalty = 10; /* SentencePiece's kUnkPenalty */
        qsort(entries, count, sizeof *entries, compare_entries);
        unigram->sp = sp;
        unigram->unknown_id = fsdp_sentencepiece_unk_id(sp);
        unigram->unknown_score = (double)lowest - unknown_penalty;
        status = build_trie(unigram, entries, count);
    }
    fsdp_free(entries);
    if (status != FSDP_OK) {
        fsdp_sentencepiece_unigram_destroy(unigram);
        return status;
    }
    *out = unigram;
    return FSDP_OK;
}

void fsdp_sentencepiece_unigram_destroy(fsdp_sentencepiece_unigram *unigram)
{
    if (!unigram)
        return;
    fsdp_free(unigram->nodes);
    fsdp_free(unigram);
}

/* ---- best path ---- */

/* The best path that ends at a byte position. */
typedef struct best {
    double score;
    uint32_t start; /* byte at which the last piece of the path starts */
    int32_t id;     /* id of the last piece of the path; -1: no path ends here */
} best;

static const node *find_child(const fsdp_sentencepiece_unigram *unigram, const node *n,
                              uint8_t byte)
{
    const node *low = unigram->nodes + n->first_child, *high = low + n->children;
    while (low < high) {
        const node *middle = low + (high - low) / 2;
        if (middle->byte == byte)
            return middle;
        if (middle->byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* *at is the best path found so far that ends at a certain byte. Replace it with the path (score,
 * start, id) if this path has a higher score. If both scores are equal, keep *at: it was found
 * first, so its last piece starts earlier and is longer. */
static void update_best(best *at, double score, size_t start, int32_t id)
{
    if (at->id < 0 || score > at->score)
        *at = (best){score, (uint32_t)start, id};
}

static size_t character_length(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Set ends[i] to the best path that ends at byte i, for every i. If the model is corrupted, its
 * normaliser may produce a word that ends in the middle of a character. The bytes of this
 * incomplete character are then treated as a complete character. So there is always a path that
 * reaches the end of the word. */
static void find_paths(const fsdp_sentencepiece_unigram *unigram, const char *word, size_t length,
                       best *ends)
{
    for (size_t start = 0, step; start < length; start += step) {
        double so_far = start ? ends[start].score : 0;
        bool whole_character = false;
        const node *n = unigram->nodes;
        step = character_length(word[start]);
        if (step > length - start)
            step = length - start;
        for (size_t i = start; i < length; i++) {
            n = find_child(unigram, n, (uint8_t)word[i]);
            if (!n)
                break;
            if (n->id < 0)
                continue;
            update_best(&ends[i + 1], so_far + (double)fsdp_sentencepiece_score(unigram->sp, n->id),
                        start, n->id);
            whole_character |= i + 1 == start + step;
        }
        if (!whole_character)
            update_best(&ends[start + step], so_far + unigram->unknown_score, start,
                        unigram->unknown_id);
    }
}

fsdp_status fsdp_sentencepiece_unigram_encode(const fsdp_sentencepiece_unigram *unigram,
                                              const char *word, size_t length,
                                              fsdp_token_list *list)
{
    best small[128], *ends = small;
    if (length + 1 > sizeof small / sizeof *small &&
        !(ends = fsdp_calloc(length + 1, sizeof *ends)))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i <= length; i++)
        ends[i] = (best){.id = -1};
    find_paths(unigram, word, length, ends);
    size_t count = 0;
    for (size_t end = length; end > 0; end = ends[end].start)
        count++;
    fsdp_status status = FSDP_OK;
    if (!FSDP_GROW(list->ids, list->cap, list->len + count)) {
        status = FSDP_ERR_NOMEM;
    } else {
        /* Fill in the ids from the last to the first, then merge runs of unknown ids. */
        int32_t *ids = list->ids + list->len;
        size_t at = count;
        for (size_t end = length; end > 0; end = ends[end].start)
            ids[--at] = ends[end].id;
        size_t kept = 0;
        for (size_t i = 0; i < count; i++)
            if (!(ids[i] == unigram->unknown_id && kept && ids[kept - 1] == unigram->unknown_id))
                ids[kept++] = ids[i];
        list->len += kept;
    }
    if (ends != small)
        fsdp_free(ends);
    return status;
}
