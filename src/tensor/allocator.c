/* Implements allocator.h. The blocks of an arena form a list in address order. A side (struct side)
 * is a set of arenas with one list of its free blocks, which has at most a few hundred entries. An
 * allocation searches this list for the smallest block that is large enough. An allocation for a
 * gradient searches for the block at the highest address instead. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/tensor/allocator.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
/* gcc defines this macro under -fsanitize=address; clang does not, so define it here. */
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BLOCK_IS_ALONE 1
#else
#define BLOCK_IS_ALONE 0
#endif

enum {
    ALIGNMENT = 64
};
static const size_t ARENA_BYTES = (size_t)64 << 30; /* address space, not memory */
static const size_t SMALL_ARENA_BYTES = (size_t)64 << 20;
static const size_t HOST_GROWTH_BYTES = (size_t)1 << 20;
static const size_t SMALL_BYTES = (size_t)16 << 10;

typedef struct side side;

struct fsdp_block {
    side *of;
    char *data;
    size_t bytes;     /* a multiple of ALIGNMENT */
    size_t requested; /* the number of bytes that the caller asked for */
    fsdp_tag tag;
    bool free;
    fsdp_block *left, *right; /* neighbors in the arena */
    /* neighbors in the free list of the block's side; unused while the block is allocated */
    fsdp_block *free_prev, *free_next;
};

/* A range of addresses. Only a part in the middle of the range has memory; this part can grow at
 * both ends. When two neighboring blocks are merged, the left block remains and the right one
 * disappears. So merging never changes `first`. */
typedef struct arena {
    char *base;
    size_t bytes;      /* size of the address range */
    size_t begin, end; /* only bytes [begin, end) of the address range are backed by memory */
    fsdp_block *first, *last; /* NULL while the arena has no memory */
} arena;

/* A side is a set of arenas. Each allocation is made from one side, and its memory is always in an
 * arena of this side. */
struct side {
    fsdp_block free_list; /* sentinel of the list of free blocks */
    arena *arenas;        /* only the last arena grows */
    size_t n_arenas, cap_arenas;
};

/* The sides of an allocator. Note [What lasts] in allocator.h says why there are several. */
enum {
    PASSING, /* allocated and freed within a step, or allocated before the first step */
    LASTING,
    /* Allocations like those of PASSING, but of at most SMALL_BYTES. They have arenas of their own,
     * because a small tensor that is freed late, such as a loss, could be between two large free
     * blocks and would prevent them from coalescing. */
    SMALL,
    SIDES
};

struct fsdp_allocator {
    fsdp_memory_source source;
    /* Waits until no running kernel uses memory of this allocator. NULL if kernels have always
     * finished when the call that starts them returns. */
    void (*wait)(void *arg);
    void *wait_arg;
    int64_t limit;
    fsdp_memory_stats stats;
    side sides[SIDES];
};

const char *fsdp_tag_name(fsdp_tag tag)
{
    static const char *const names[FSDP_TAG_COUNT] = {
        [FSDP_TAG_PARAM] = "param",           [FSDP_TAG_GRAD] = "grad", [FSDP_TAG_OPTIM] = "optim",
        [FSDP_TAG_ACTIVATION] = "activation", [FSDP_TAG_COMM] = "comm", [FSDP_TAG_DATA] = "data",
    };
    return names[tag];
}

/* --- host memory --- */

static fsdp_status host_reserve(void *self, size_t bytes, void **base)
{
    (void)self;
    *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*base == MAP_FAILED)
        return fsdp_error(FSDP_ERR_NOMEM, "the system refused %zu bytes of addresses", bytes);
    return FSDP_OK;
}

static fsdp_status host_commit(void *self, void *at, size_t bytes)
{
    (void)self;
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0)
        return fsdp_error(FSDP_ERR_NOMEM, "the system refused %zu bytes of memory", bytes);
    return FSDP_OK;
}

static void host_release(void *self, void *base, size_t bytes)
{
    (void)self;
    munmap(base, bytes);
}

static fsdp_status host_alloc(void *self, size_t bytes, void **data)
{
    (void)self;
    return posix_memalign(data, ALIGNMENT, bytes) == 0 ? FSDP_OK : fsdp_error_nomem();
}

static void host_free(void *self, void *data)
{
    (void)self;
    free(data);
}

/* --- the allocator --- */

fsdp_memory_source fsdp_host_memory_source(void)
{
    return (fsdp_memory_source){.reserve = host_reserve,
                                .commit = host_commit,
                                .release = host_release,
                                .alloc = host_alloc,
                                .free = host_free,
                                .growth_bytes = HOST_GROWTH_BYTES,
                                .blocks_are_alone = BLOCK_IS_ALONE};
}

fsdp_status fsdp_allocator_create(bool meta, fsdp_allocator **allocator)
{
    fsdp_memory_source source = fsdp_host_memory_source();
    source.meta = meta;
    return fsdp_allocator_create_from(&source, allocator);
}

fsdp_status fsdp_allocator_create_from(const fsdp_memory_source *source, fsdp_allocator **allocator)
{
    fsdp_allocator *a = fsdp_calloc(1, sizeof *a);
    if (!a)
        return FSDP_ERR_NOMEM;
    a->source = *source;
    for (int i = 0; i < SIDES; i++) {
        fsdp_block *list = &a->sides[i].free_list;
        list->free_next = list->free_prev = list;
    }
    *allocator = a;
    return FSDP_OK;
}

static void close_side(const fsdp_allocator *a, side *s)
{
    for (size_t i = 0; i < s->n_arenas; i++) {
        for (fsdp_block *b = s->arenas[i].first, *next; b; b = next) {
            next = b->right;
            fsdp_free(b);
        }
        if (!a->source.meta)
            a->source.release(a->source.self, s->arenas[i].base, s->arenas[i].bytes);
    }
    fsdp_free(s->arenas);
}

void fsdp_allocator_set_barrier(fsdp_allocator *a, void (*wait)(void *arg), void *arg)
{
    a->wait = wait;
    a->wait_arg = arg;
}

void fsdp_allocator_destroy(fsdp_allocator *a)
{
    if (!a)
        return;
    for (int i = 0; i < SIDES; i++)
        close_side(a, &a->sides[i]);
    fsdp_free(a);
}

static void count_allocated(fsdp_memory_stats *stats, fsdp_tag tag, int64_t bytes)
{
    stats->allocated += bytes;
    stats->tag_allocated[tag] += bytes;
    if (stats->tag_allocated[tag] > stats->tag_peak[tag])
        stats->tag_peak[tag] = stats->tag_allocated[tag];
    if (stats->allocated > stats->allocated_peak) {
        stats->allocated_peak = stats->allocated;
        memcpy(stats->tag_at_peak, stats->tag_allocated, sizeof stats->tag_at_peak);
    }
}

static void count_reserved(fsdp_memory_stats *stats, int64_t bytes)
{
    stats->reserved += bytes;
    if (stats->reserved > stats->reserved_peak)
        stats->reserved_peak = stats->reserved;
}

static void free_list_insert(side *s, fsdp_block *b)
{
    b->free = true;
    b->free_next = s->free_list.free_next;
    b->free_prev = &s->free_list;
    b->free_next->free_prev = b;
    s->free_list.free_next = b;
}

static void free_list_remove(fsdp_block *b)
{
    b->free = false;
    b->free_prev->free_next = b->free_next;
    b->free_next->free_prev = b->free_prev;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static fsdp_block *best_fit(const side *s, size_t wanted)
{
    fsdp_block *best = NULL;
    for (fsdp_block *b = s->free_list.free_next; b != &s->free_list; b = b->free_next)
        if (b->bytes >= wanted && (!best || b->bytes < best->bytes))
            best = b;
    return best;
}

static fsdp_block *highest_fit(const side *s, size_t wanted)
{
    fsdp_block *best = NULL;
    for (fsdp_block *b = s->free_list.free_next; b != &s->free_list; b = b->free_next)
        if (b->bytes >= wanted && (!best || (uintptr_t)b->data > (uintptr_t)best->data))
            best = b;
    return best;
}

/* Return an arena that has no memory yet. Its first `wanted` bytes of memory will be in the middle
 * of its addresses, so that it can grow at both ends. */
static arena empty_arena(char *base, size_t bytes, size_t wanted, size_t growth)
{
    const size_t begin = (bytes - wanted) / 2 / growth * growth;
    return (arena){.base = base, .bytes = bytes, .begin = begin, .end = begin};
}

/* Return a base address for an arena on the meta device. The memory of this arena is never
 * accessed, so any address is suitable that no other arena of the side uses. */
static char *meta_base(const side *s, size_t growth)
{
    const arena *last = s->n_arenas ? &s->arenas[s->n_arenas - 1] : NULL;
    return (char *)(last ? (uintptr_t)last->base + last->bytes : growth);
}

/* Add an arena to the side. The arena reserves `usual` bytes of addresses, or `wanted` if that is
 * more. Reserved addresses take no memory until they are used. If the system limits addresses
 * (ulimit -v), the arena is smaller, but has at least `wanted` bytes. */
static fsdp_status add_arena(const fsdp_allocator *a, side *s, size_t usual, size_t wanted)
{
    if (!FSDP_GROW(s->arenas, s->cap_arenas, s->n_arenas + 1))
        return FSDP_ERR_NOMEM;
    const size_t growth = a->source.growth_bytes;
    size_t bytes = wanted > usual ? wanted : usual;
    void *base = meta_base(s, growth);
    while (!a->source.meta) {
        const fsdp_status status = a->source.reserve(a->source.self, bytes, &base);
        if (status == FSDP_OK)
            break;
        if (bytes == wanted)
            return status;
        bytes = bytes / 8 > wanted ? round_up(bytes / 8, growth) : wanted;
    }
    s->arenas[s->n_arenas++] = empty_arena(base, bytes, wanted, growth);
    return FSDP_OK;
}

static fsdp_status open_memory(fsdp_allocator *a, char *data, size_t bytes)
{
    if (!a->source.meta)
        FSDP_TRY(a->source.commit(a->source.self, data, bytes));
    count_reserved(&a->stats, (int64_t)bytes);
    return FSDP_OK;
}

/* Add `bytes` bytes of memory at the end of the arena: extend the last block if it is free, else
 * make a new free block. */
static fsdp_status grow_up(fsdp_allocator *a, side *s, arena *at, size_t bytes)
{
    const bool extends = at->last && at->last->free;
    fsdp_block *b = extends ? at->last : fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    fsdp_status status = open_memory(a, at->base + at->end, bytes);
    if (status != FSDP_OK) {
        if (!extends)
            fsdp_free(b);
        return status;
    }
    if (!extends) {
        b->of = s;
        b->data = at->base + at->end;
        b->left = at->last;
        if (at->last)
            at->last->right = b;
        else
            at->first = b;
        at->last = b;
        free_list_insert(s, b);
    }
    b->bytes += bytes;
    at->end += bytes;
    return FSDP_OK;
}

/* Add `bytes` bytes of memory before the first block, which must be free, and extend that block. */
static fsdp_status grow_down(fsdp_allocator *a, arena *at, size_t bytes)
{
    FSDP_TRY(open_memory(a, at->base + at->begin - bytes, bytes));
    at->begin -= bytes;
    at->first->data -= bytes;
    at->first->bytes += bytes;
    return FSDP_OK;
}

static size_t free_bytes(const fsdp_block *b)
{
    return b && b->free ? b->bytes : 0;
}

/* Add memory to the last arena, at its low or its high end. Return the free block at this end,
 * which then has at least `wanted` bytes. Usually, the end with the larger free block is chosen,
 * because less memory must be added there. The rule is different if the block is for a gradient
 * (belongs_high). A gradient at the low end would later be between two free blocks and prevent them
 * from coalescing. So for a gradient, the low end is chosen only if it needs less additional memory
 * than the high end by at least half of `wanted`. An end cannot grow if it has no addresses left,
 * and the low end cannot grow if the block there is in use. If the chosen end cannot grow, memory
 * is added at the other end. If neither end can grow, memory is added to a new arena. */
static fsdp_status grow_arena(fsdp_allocator *a, side *s, size_t wanted, bool belongs_high,
                              fsdp_block **block)
{
    const size_t growth = a->source.growth_bytes;
    arena *at = s->n_arenas ? &s->arenas[s->n_arenas - 1] : NULL;
    const size_t low = at ? free_bytes(at->first) : 0, high = at ? free_bytes(at->last) : 0;
    const size_t below = round_up(wanted - low, growth);
    size_t above = round_up(wanted - high, growth);
    const bool is_full = !at || at->bytes - at->end < above;
    const bool saves = low > high && (!belongs_high || low - high >= wanted / 2);
    if ((saves || (low && is_full)) && at->begin >= below) {
        FSDP_TRY(grow_down(a, at, below));
        *block = at->first;
        return FSDP_OK;
    }
    if (is_full) {
        above = round_up(wanted, growth);
        const size_t usual = s == &a->sides[SMALL] ? SMALL_ARENA_BYTES : ARENA_BYTES;
        FSDP_TRY(add_arena(a, s, usual, above));
        at = &s->arenas[s->n_arenas - 1];
    }
    FSDP_TRY(grow_up(a, s, at, above));
    *block = at->last;
    return FSDP_OK;
}

static arena *arena_of(side *s, const fsdp_block *b)
{
    size_t i = s->n_arenas - 1;
    while (b->data < s->arenas[i].base || b->data >= s->arenas[i].base + s->arenas[i].bytes)
        i--;
    return &s->arenas[i];
}

/* Split `wanted` bytes off the beginning of block b or, if `end` is true, off its end. b must not
 * be in the free list. The rest becomes a free block, unless it is too small. */
static fsdp_block *split_block(side *s, fsdp_block *b, size_t wanted, bool end)
{
    if (b->bytes - wanted < 512)
        return b;
    fsdp_block *right = fsdp_calloc(1, sizeof *right);
    if (!right)
        return b; /* the caller gets the whole block, which is larger than the `wanted` bytes */
    const size_t left_bytes = end ? b->bytes - wanted : wanted;
    right->of = s;
    right->data = b->data + left_bytes;
    right->bytes = b->bytes - left_bytes;
    right->left = b;
    right->right = b->right;
    if (right->right)
        right->right->left = right;
    else
        arena_of(s, b)->last = right;
    b->right = right;
    b->bytes = left_bytes;
    free_list_insert(s, end ? b : right);
    return end ? right : b;
}

static fsdp_status alloc_alone(fsdp_allocator *a, size_t wanted, fsdp_block **block)
{
    fsdp_block *b = fsdp_calloc(1, sizeof *b);
    if (!b)
        return FSDP_ERR_NOMEM;
    void *data = NULL;
    fsdp_status status = a->source.meta ? FSDP_OK : a->source.alloc(a->source.self, wanted, &data);
    if (status != FSDP_OK) {
        fsdp_free(b);
        return status;
    }
    b->data = data;
    b->bytes = wanted;
    count_reserved(&a->stats, (int64_t)wanted);
    *block = b;
    return FSDP_OK;
}

/* Add to the error message how many bytes were requested, and for which tag. Return `status`. */
static fsdp_status add_request(const fsdp_allocator *a, fsdp_status status, size_t bytes,
                               fsdp_tag tag)
{
    fsdp_error_context(status, "%zu bytes (%s) on top of %lld allocated", bytes, fsdp_tag_name(tag),
                       (long long)a->stats.allocated);
    return status;
}

/* Allocate from side `of`. If `of` is PASSING and `bytes` is at most SMALL_BYTES, allocate from
 * SMALL instead. If `belongs_high` is true, use the highest free address at which there is enough
 * space. `belongs_high` has no effect on the sides SMALL and LASTING. */
static fsdp_status alloc_from_side(fsdp_allocator *a, int of, bool belongs_high, size_t bytes,
                                   fsdp_tag tag, fsdp_block **block, void **data)
{
    side *s = &a->sides[of == PASSING && bytes <= SMALL_BYTES ? SMALL : of];
    if (a->limit && a->stats.allocated + (int64_t)bytes > a->limit)
        return fsdp_error(FSDP_ERR_NOMEM,
                          "%zu bytes (%s) on top of %lld allocated exceed the limit of %lld", bytes,
                          fsdp_tag_name(tag), (long long)a->stats.allocated, (long long)a->limit);
    size_t wanted = round_up(bytes ? bytes : 1, ALIGNMENT);
    fsdp_block *b = NULL;
    if (a->source.blocks_are_alone) {
        const fsdp_status status = alloc_alone(a, wanted, &b);
        if (status != FSDP_OK)
            return add_request(a, status, bytes, tag);
    } else {
        const bool end = s == &a->sides[PASSING] && belongs_high;
        b = end ? highest_fit(s, wanted) : best_fit(s, wanted);
        if (!b) {
            const fsdp_status status = grow_arena(a, s, wanted, end, &b);
            if (status != FSDP_OK)
                return add_request(a, status, bytes, tag);
        }
        free_list_remove(b);
        b = split_block(s, b, wanted, end);
    }
    b->requested = bytes;
    b->tag = tag;
    count_allocated(&a->stats, tag, (int64_t)bytes);
    *block = b;
    *data = a->source.meta ? NULL : b->data;
    return FSDP_OK;
}

fsdp_status fsdp_allocator_alloc(fsdp_allocator *a, size_t bytes, fsdp_tag tag, fsdp_block **block,
                                 void **data)
{
    return alloc_from_side(a, PASSING, tag == FSDP_TAG_GRAD, bytes, tag, block, data);
}

fsdp_status fsdp_allocator_alloc_in_forward(fsdp_allocator *a, size_t bytes, fsdp_tag tag,
                                            fsdp_block **block, void **data)
{
    return alloc_from_side(a, PASSING, false, bytes, tag, block, data);
}

fsdp_status fsdp_allocator_alloc_lasting(fsdp_allocator *a, size_t bytes, fsdp_tag tag,
                                         fsdp_block **block, void **data)
{
    return alloc_from_side(a, LASTING, false, bytes, tag, block, data);
}

/* Merge block b with its right neighbor. Neither of the two may be in the free list. */
static void merge_right(side *s, fsdp_block *b)
{
    fsdp_block *gone = b->right;
    b->bytes += gone->bytes;
    b->right = gone->right;
    if (b->right)
        b->right->left = b;
    else
        arena_of(s, b)->last = b;
    fsdp_free(gone);
}

void fsdp_allocator_free(fsdp_allocator *a, fsdp_block *b)
{
    if (!b)
        return;
    count_allocated(&a->stats, b->tag, -(int64_t)b->requested);
    if (a->source.blocks_are_alone) {
        count_reserved(&a->stats, -(int64_t)b->bytes);
        if (a->wait)
            a->wait(a->wait_arg);
        if (b->data)
            a->source.free(a->source.self, b->data);
        fsdp_free(b);
        return;
    }
    side *s = b->of;
    if (b->right && b->right->free) {
        free_list_remove(b->right);
        merge_right(s, b);
    }
    if (b->left && b->left->free) {
        b = b->left;
        free_list_remove(b);
        merge_right(s, b);
    }
    free_list_insert(s, b);
}

void fsdp_allocator_account(fsdp_allocator *a, fsdp_tag tag, int64_t bytes)
{
    count_allocated(&a->stats, tag, bytes);
    count_reserved(&a->stats, bytes);
}

void fsdp_allocator_set_limit(fsdp_allocator *a, int64_t bytes)
{
    a->limit = bytes;
}

const fsdp_memory_stats *fsdp_allocator_stats(const fsdp_allocator *a)
{
    return &a->stats;
}

void fsdp_allocator_reset_peak(fsdp_allocator *a)
{
    a->stats.allocated_peak = a->stats.allocated;
    a->stats.reserved_peak = a->stats.reserved;
    memcpy(a->stats.tag_peak, a->stats.tag_allocated, sizeof a->stats.tag_peak);
    memcpy(a->stats.tag_at_peak, a->stats.tag_allocated, sizeof a->stats.tag_at_peak);
}
