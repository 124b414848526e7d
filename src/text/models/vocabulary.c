/* A vocabulary has a hash table from texts to ids, with linear probing, and an array of texts that
 * is indexed by id. All texts are in one block of memory, and each ends with NUL. */
#include "src/text/models/vocabulary.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "src/text/models/hash.h"

typedef struct entry {
    /* position in `block` at which the text begins; NO_TEXT: no token has this id */
    uint32_t offset;
    uint32_t length;
} entry;

typedef struct slot {
    uint32_t hash; /* the upper half of the hash of the text */
    int32_t id;    /* -1: the slot is empty */
} slot;

enum {
    NO_TEXT = -1
};

struct fsdp_vocabulary {
    /* A random number for the hash function. It differs in each run, so it is impossible to make a
     * file whose texts always collide. */
    uint64_t seed;
    char *block;
    size_t block_len, block_cap;
    entry *entries; /* [size] */
    size_t size, entries_cap;
    slot *slots; /* [slots_len], a power of two or 0 */
    size_t slots_len;
    size_t used; /* number of slots that are not empty; at most half of them */
    size_t longest;
    uint64_t fingerprint;
};

fsdp_status fsdp_vocabulary_create(fsdp_vocabulary **out)
{
    fsdp_vocabulary *v = fsdp_calloc(1, sizeof *v);
    if (!v)
        return FSDP_ERR_NOMEM;
    v->seed = fsdp_mix64((uint64_t)(uintptr_t)v);
    *out = v;
    return FSDP_OK;
}

void fsdp_vocabulary_destroy(fsdp_vocabulary *v)
{
    if (!v)
        return;
    fsdp_free(v->block);
    fsdp_free(v->entries);
    fsdp_free(v->slots);
    fsdp_free(v);
}

/* ---- the hash table ---- */

/* Return the slot that contains the text. If no slot does, return the empty slot into which it
 * would be inserted. There must be at least one empty slot. */
static slot *find_slot(const fsdp_vocabulary *v, const char *text, size_t length, uint64_t hash)
{
    size_t mask = v->slots_len - 1, i = hash & mask;
    uint32_t upper = (uint32_t)(hash >> 32);
    for (;; i = (i + 1) & mask) {
        slot *s = &v->slots[i];
        if (s->id < 0)
            return s;
        const entry *e = &v->entries[s->id];
        if (s->hash == upper && e->length == length &&
            memcmp(v->block + e->offset, text, length) == 0)
            return s;
    }
}

static bool grow_slots(fsdp_vocabulary *v)
{
    slot *old = v->slots;
    size_t old_len = v->slots_len, len = old_len ? 2 * old_len : 64;
    slot *slots = fsdp_calloc(len, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < len; i++)
        slots[i].id = -1;
    v->slots = slots;
    v->slots_len = len;
    for (size_t i = 0; i < old_len; i++) {
        if (old[i].id < 0)
            continue;
        const entry *e = &v->entries[old[i].id];
        const char *text = v->block + e->offset;
        *find_slot(v, text, e->length, fsdp_hash_bytes(v->seed, text, e->length)) = old[i];
    }
    fsdp_free(old);
    return true;
}

int32_t fsdp_vocabulary_find(const fsdp_vocabulary *v, const char *text, size_t length)
{
    if (!v->used || length > v->longest)
        return -1;
    return find_slot(v, text, length, fsdp_hash_bytes(v->seed, text, length))->id;
}

/* ---- adding ---- */

static fsdp_status check_id(const fsdp_vocabulary *v, const char *text, size_t length, int64_t id)
{
    int shown = length > 80 ? 80 : (int)length;
    if (id < 0 || id > FSDP_TOKEN_ID_MAX)
        return fsdp_error(FSDP_ERR_FORMAT, "the token \"%.*s\" has the id %lld; ids are 0 to %d",
                          shown, text, (long long)id, FSDP_TOKEN_ID_MAX);
    size_t other_length;
    const char *other = fsdp_vocabulary_text(v, (int32_t)id, &other_length);
    if (other)
        return fsdp_error(FSDP_ERR_FORMAT, "the tokens \"%.80s\" and \"%.*s\" both have the id %d",
                          other, shown, text, (int)id);
    return FSDP_OK;
}

/* Reserve memory for a token with this length and id, so that adding the token cannot fail. */
static fsdp_status reserve(fsdp_vocabulary *v, size_t length, size_t id)
{
    if (length >= UINT32_MAX - v->block_len) /* block_len is at most UINT32_MAX */
        return fsdp_error(FSDP_ERR_FORMAT, "the texts of the vocabulary have more than 4 GB");
    if (!FSDP_GROW(v->block, v->block_cap, v->block_len + length + 1) ||
        !FSDP_GROW(v->entries, v->entries_cap, id + 1))
        return FSDP_ERR_NOMEM;
    if (2 * (v->used + 1) > v->slots_len && !grow_slots(v))
        return FSDP_ERR_NOMEM;
    return FSDP_OK;
}

fsdp_status fsdp_vocabulary_add(fsdp_vocabulary *v, const char *text, size_t length, int64_t id)
{
    FSDP_TRY(check_id(v, text, length, id));
    FSDP_TRY(reserve(v, length, (size_t)id));
    while (v->size <= (size_t)id)
        v->entries[v->size++] = (entry){(uint32_t)NO_TEXT, 0};
    uint64_t hash = fsdp_hash_bytes(v->seed, text, length);
    slot *s = find_slot(v, text, length, hash);
    v->used += s->id < 0;
    *s = (slot){(uint32_t)(hash >> 32), (int32_t)id};
    v->entries[id] = (entry){(uint32_t)v->block_len, (uint32_t)length};
    if (length)
        memcpy(v->block + v->block_len, text, length);
    v->block[v->block_len + length] = 0;
    v->block_len += length + 1;
    v->longest = length > v->longest ? length : v->longest;
    v->fingerprint += fsdp_mix64(fsdp_hash_bytes((uint64_t)id, text, length));
    return FSDP_OK;
}

/* ---- properties ---- */

const char *fsdp_vocabulary_text(const fsdp_vocabulary *v, int32_t id, size_t *length)
{
    if (id < 0 || (size_t)id >= v->size || v->entries[id].offset == (uint32_t)NO_TEXT)
        return NULL;
    *length = v->entries[id].length;
    return v->block + v->entries[id].offset;
}

int32_t fsdp_vocabulary_size(const fsdp_vocabulary *v)
{
    return (int32_t)v->size;
}

size_t fsdp_vocabulary_longest(const fsdp_vocabulary *v)
{
    return v->longest;
}

uint64_t fsdp_vocabulary_fingerprint(const fsdp_vocabulary *v)
{
    return v->fingerprint;
}

int32_t fsdp_vocabulary_byte_piece(const fsdp_vocabulary *v, uint8_t byte)
{
    char text[8];
    int length = snprintf(text, sizeof text, "<0x%02X>", byte);
    return fsdp_vocabulary_find(v, text, (size_t)length);
}
