/* Builds double-array tries. Units (fsdp_trie_unit) are added in blocks of 256, and all children of
 * a node are in one block. To find unused units for the children of a node, only the newest blocks
 * are searched, with at most TRIES attempts. So time and memory are bounded for any keys. */
#include "src/text/models/trie.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"

enum {
    BLOCK = 256,
    /* number of the newest blocks whose unused units are in the list of unused units */
    OPEN_BLOCKS = 16,
    TRIES = 512, /* for the children of a node, at most this many bases are tried */
    TEXT_BYTES_MAX = 32 << 20
};

static const uint32_t NONE = UINT32_MAX;

/* A node whose children have not been added yet. Its subtree contains keys [first, end), which all
 * begin with the same `depth` bytes. */
typedef struct pending {
    uint32_t node;
    size_t first, end, depth;
} pending;

typedef struct builder {
    fsdp_trie trie;
    const fsdp_trie_key *keys;
    /* A doubly linked list of the unused units of the newest OPEN_BLOCKS blocks, newest block
     * first. links[i % (OPEN_BLOCKS * BLOCK)] is the element of unit i. */
    struct link {
        uint32_t before, after;
    } links[OPEN_BLOCKS * BLOCK];
    uint32_t first; /* first unit of this list, or NONE if it is empty */
    pending *stack; /* owned */
    size_t stack_len, stack_cap;
} builder;

/* ---- the list of unused units ---- */

static struct link *link_of(builder *b, uint32_t unit)
{
    return &b->links[unit % (OPEN_BLOCKS * BLOCK)];
}

static void unlink_unit(builder *b, uint32_t unit)
{
    struct link *l = link_of(b, unit);
    if (l->before == NONE)
        b->first = l->after;
    else
        link_of(b, l->before)->after = l->after;
    if (l->after != NONE)
        link_of(b, l->after)->before = l->before;
}

/* Add a block of unused units to the trie. Remove the unused units of the oldest open block from
 * the list, so that at most OPEN_BLOCKS blocks have units in it. */
static fsdp_status add_block(builder *b)
{
    size_t begin = b->trie.len;
    if (begin > UINT32_MAX - 2 * BLOCK)
        return fsdp_error(FSDP_ERR_FORMAT, "the vocabulary is too large");
    if (!FSDP_GROW(b->trie.units, b->trie.cap, begin + BLOCK))
        return FSDP_ERR_NOMEM;
    if (begin >= (size_t)OPEN_BLOCKS * BLOCK) {
        size_t oldest = begin - (size_t)OPEN_BLOCKS * BLOCK;
        for (size_t i = oldest; i < oldest + BLOCK; i++)
            if (b->trie.units[i].parent == NONE && i != 0)
                unlink_unit(b, (uint32_t)i);
    }
    for (size_t i = begin + BLOCK; i-- > begin;) {
        b->trie.units[i] = (fsdp_trie_unit){0, NONE, -1};
        *link_of(b, (uint32_t)i) = (struct link){NONE, b->first};
        if (b->first != NONE)
            link_of(b, b->first)->before = (uint32_t)i;
        b->first = (uint32_t)i;
    }
    b->trie.len += BLOCK;
    return FSDP_OK;
}

/* ---- placing nodes ---- */

/* The bytes that lead from a node to its children. */
typedef struct edges {
    uint8_t bytes[256];
    int count;
} edges;

static bool fits(const builder *b, uint32_t base, const edges *e)
{
    for (int i = 0; i < e->count; i++) {
        uint32_t unit = base ^ e->bytes[i];
        if (b->trie.units[unit].parent != NONE || unit == 0)
            return false;
    }
    return true;
}

static fsdp_status find_base(builder *b, const edges *e, uint32_t *base)
{
    uint32_t unit = b->first;
    for (int tries = 0; tries < TRIES && unit != NONE; tries++) {
        *base = unit ^ e->bytes[0];
        if (fits(b, *base, e))
            return FSDP_OK;
        unit = link_of(b, unit)->after;
    }
    *base = (uint32_t)b->trie.len;
    return add_block(b);
}

static edges find_edges(const builder *b, const pending *node)
{
    edges e = {.count = 0};
    for (size_t i = node->first; i < node->end; i++) {
        uint8_t byte = (uint8_t)b->keys[i].text[node->depth];
        if (e.count == 0 || e.bytes[e.count - 1] != byte)
            e.bytes[e.count++] = byte;
    }
    return e;
}

/* Add the children of a node to the trie, and push them on the stack of nodes whose children are
 * still to be added. */
static fsdp_status add_children(builder *b, pending node)
{
    while (node.first < node.end && b->keys[node.first].length == node.depth)
        b->trie.units[node.node].id = b->keys[node.first++].id;
    if (node.first == node.end)
        return FSDP_OK;
    edges e = find_edges(b, &node);
    uint32_t base;
    FSDP_TRY(find_base(b, &e, &base));
    if (!FSDP_GROW(b->stack, b->stack_cap, b->stack_len + (size_t)e.count))
        return FSDP_ERR_NOMEM;
    b->trie.units[node.node].base = base;
    for (size_t i = node.first, end; i < node.end; i = end) {
        uint8_t byte = (uint8_t)b->keys[i].text[node.depth];
        for (end = i; end < node.end && (uint8_t)b->keys[end].text[node.depth] == byte;)
            end++;
        uint32_t child = base ^ byte;
        unlink_unit(b, child);
        b->trie.units[child].parent = node.node;
        b->stack[b->stack_len++] = (pending){child, i, end, node.depth + 1};
    }
    return FSDP_OK;
}

static fsdp_status build(builder *b, size_t count)
{
    FSDP_TRY(add_block(b));
    unlink_unit(b, 0);
    if (!FSDP_GROW(b->stack, b->stack_cap, 1))
        return FSDP_ERR_NOMEM;
    b->stack[b->stack_len++] = (pending){0, 0, count, 0};
    while (b->stack_len)
        FSDP_TRY(add_children(b, b->stack[--b->stack_len]));
    return FSDP_OK;
}

/* ---- keys ---- */

static int compare_keys(const void *a, const void *b)
{
    const fsdp_trie_key *x = a, *y = b;
    size_t length = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->text, y->text, length);
    if (order)
        return order;
    if (x->length != y->length)
        return x->length < y->length ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

fsdp_status fsdp_trie_create(fsdp_trie_key *keys, size_t count, fsdp_trie *out)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += keys[i].length;
        if (bytes > TEXT_BYTES_MAX)
            return fsdp_error(FSDP_ERR_FORMAT,
                              "the tokens of the vocabulary have more than %d MB together",
                              TEXT_BYTES_MAX >> 20);
    }
    if (count)
        qsort(keys, count, sizeof *keys, compare_keys);
    builder *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    b->keys = keys;
    b->first = NONE;
    fsdp_status status = build(b, count);
    if (status == FSDP_OK)
        *out = b->trie;
    else
        fsdp_trie_fini(&b->trie);
    fsdp_free(b->stack);
    fsdp_free(b);
    return status;
}

void fsdp_trie_fini(fsdp_trie *trie)
{
    fsdp_free(trie->units);
    *trie = (fsdp_trie){0};
}
