/* Implements the container fsdp_state_dict. It has a list of entries, and a hash table that finds
 * an entry by its name. An arena contains the names, keys and values. If an entry is replaced, the
 * arena keeps its old name, keys and value until the dict is destroyed. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/state_dict/state_dict.h"
#include "src/torchfile/nesting.h"

fsdp_status fsdp_state_dict_create(fsdp_state_dict **dict)
{
    fsdp_state_dict *d = fsdp_calloc(1, sizeof *d);
    if (!d)
        return FSDP_ERR_NOMEM;
    *dict = d;
    return FSDP_OK;
}

void fsdp_state_dict_destroy(fsdp_state_dict *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++)
        fsdp_tensor_release(d->entries[i].tensor);
    fsdp_free(d->slots);
    fsdp_free(d->entries);
    fsdp_arena_fini(&d->arena);
    fsdp_free(d);
}

size_t fsdp_state_dict_count(const fsdp_state_dict *d)
{
    return d->n;
}

const fsdp_state_entry *fsdp_state_dict_at(const fsdp_state_dict *d, size_t i)
{
    return i < d->n ? &d->entries[i] : NULL;
}

/* --- names --- */

char *fsdp_state_keys_join(const fsdp_state_key *keys, int n_keys)
{
    fsdp_str fqn = {0};
    for (int i = 0; i < n_keys; i++)
        fsdp_nesting_join(&fqn, i, keys[i].name, keys[i].index);
    return fsdp_str_take(&fqn);
}

static size_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (size_t)(hash ^ (hash >> 32));
}

/* Return the slot of `fqn`, or the free slot where `fqn` would be inserted. */
static size_t slot_of(const fsdp_state_dict *d, const char *fqn)
{
    size_t at = hash_of(fqn) & (d->n_slots - 1);
    while (d->slots[at] && strcmp(d->entries[d->slots[at] - 1].fqn, fqn) != 0)
        at = (at + 1) & (d->n_slots - 1);
    return at;
}

const fsdp_state_entry *fsdp_state_dict_find(const fsdp_state_dict *d, const char *fqn)
{
    size_t index = d->n_slots ? d->slots[slot_of(d, fqn)] : 0;
    return index ? &d->entries[index - 1] : NULL;
}

/* Make the table large enough for one more entry. At most half of its slots are used. */
static fsdp_status grow_slots(fsdp_state_dict *d)
{
    if (d->n_slots > 2 * (d->n + 1))
        return FSDP_OK;
    size_t n = d->n_slots ? 2 * d->n_slots : 64, *slots = fsdp_calloc(n, sizeof *slots);
    if (!slots)
        return FSDP_ERR_NOMEM;
    fsdp_free(d->slots);
    d->slots = slots;
    d->n_slots = n;
    for (size_t i = 0; i < d->n; i++)
        d->slots[slot_of(d, d->entries[i].fqn)] = i + 1;
    return FSDP_OK;
}

/* --- entries --- */

static char *copy_text(fsdp_state_dict *d, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = fsdp_arena_alloc(&d->arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static fsdp_status copy_value(fsdp_state_dict *d, const fsdp_plain *from, fsdp_plain *to)
{
    *to = *from;
    if (from->kind == FSDP_PLAIN_STR) {
        to->as.text = copy_text(d, from->as.text);
        return to->as.text ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    if (from->kind != FSDP_PLAIN_TUPLE && from->kind != FSDP_PLAIN_LIST)
        return FSDP_OK;
    fsdp_plain *items = fsdp_arena_alloc(&d->arena, from->as.list.n * sizeof *items);
    if (!items)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < from->as.list.n; i++)
        FSDP_TRY(copy_value(d, &from->as.list.items[i], &items[i]));
    to->as.list.items = items;
    return FSDP_OK;
}

static fsdp_status copy_keys(fsdp_state_dict *d, const fsdp_state_key *keys, int n_keys,
                             fsdp_state_entry *entry)
{
    fsdp_state_key *copies = fsdp_arena_alloc(&d->arena, (size_t)n_keys * sizeof *copies);
    if (!copies)
        return FSDP_ERR_NOMEM;
    for (int i = 0; i < n_keys; i++) {
        copies[i] = keys[i];
        if (keys[i].name && !(copies[i].name = copy_text(d, keys[i].name)))
            return FSDP_ERR_NOMEM;
    }
    entry->keys = copies;
    entry->n_keys = n_keys;
    char *fqn = fsdp_state_keys_join(keys, n_keys);
    entry->fqn = fqn ? copy_text(d, fqn) : NULL;
    fsdp_free(fqn);
    return entry->fqn ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Put `entry`, which has a tensor or a value, under `keys`. The tensor is retained. */
static fsdp_status insert_entry(fsdp_state_dict *d, const fsdp_state_key *keys, int n_keys,
                                fsdp_state_entry entry)
{
    FSDP_ASSERT(n_keys > 0);
    FSDP_TRY(copy_keys(d, keys, n_keys, &entry));
    FSDP_TRY(grow_slots(d));
    if (!FSDP_GROW(d->entries, d->cap, d->n + 1))
        return FSDP_ERR_NOMEM;
    size_t slot = slot_of(d, entry.fqn);
    fsdp_tensor_retain(entry.tensor);
    if (!d->slots[slot]) {
        d->entries[d->n++] = entry;
        d->slots[slot] = d->n;
        return FSDP_OK;
    }
    fsdp_state_entry *old = &d->entries[d->slots[slot] - 1];
    fsdp_tensor_release(old->tensor);
    *old = entry;
    return FSDP_OK;
}

fsdp_status fsdp_state_dict_put_tensor(fsdp_state_dict *d, const fsdp_state_key *keys, int n_keys,
                                       fsdp_tensor *tensor)
{
    return insert_entry(d, keys, n_keys, (fsdp_state_entry){.tensor = tensor});
}

fsdp_status fsdp_state_dict_put_value(fsdp_state_dict *d, const fsdp_state_key *keys, int n_keys,
                                      const fsdp_plain *value)
{
    fsdp_plain *copy = fsdp_arena_alloc(&d->arena, sizeof *copy);
    if (!copy)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(copy_value(d, value, copy));
    return insert_entry(d, keys, n_keys, (fsdp_state_entry){.value = copy});
}

static fsdp_status put_entry(fsdp_state_dict *d, const fsdp_state_key *keys, int n_keys,
                             const fsdp_state_entry *entry)
{
    return entry->tensor ? fsdp_state_dict_put_tensor(d, keys, n_keys, entry->tensor)
                         : fsdp_state_dict_put_value(d, keys, n_keys, entry->value);
}

/* --- nested dicts: dict[key] --- */

fsdp_status fsdp_state_dict_add(fsdp_state_dict *d, const char *key, const fsdp_state_dict *part)
{
    fsdp_status status = FSDP_OK;
    fsdp_state_key *keys = NULL;
    size_t cap = 0;
    for (size_t i = 0; i < part->n && status == FSDP_OK; i++) {
        const fsdp_state_entry *entry = &part->entries[i];
        size_t n = (size_t)entry->n_keys;
        if (!FSDP_GROW(keys, cap, n + 1)) {
            status = FSDP_ERR_NOMEM;
            break;
        }
        keys[0] = (fsdp_state_key){.name = key};
        memcpy(keys + 1, entry->keys, n * sizeof *keys);
        status = put_entry(d, keys, entry->n_keys + 1, entry);
    }
    fsdp_free(keys);
    return status;
}

fsdp_status fsdp_state_dict_part(const fsdp_state_dict *d, const char *key, fsdp_state_dict **out)
{
    fsdp_state_dict *part;
    FSDP_TRY(fsdp_state_dict_create(&part));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < d->n && status == FSDP_OK; i++) {
        const fsdp_state_entry *entry = &d->entries[i];
        if (entry->n_keys > 1 && entry->keys[0].name && strcmp(entry->keys[0].name, key) == 0)
            status = put_entry(part, entry->keys + 1, entry->n_keys - 1, entry);
    }
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(part);
        return status;
    }
    *out = part;
    return FSDP_OK;
}
