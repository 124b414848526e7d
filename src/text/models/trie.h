/* A set of byte strings, each with an id. One walk through the trie finds all strings of the set
 * that are prefixes of a text. The trie is a double array (Aoe, "An Efficient Digital Search
 * Algorithm by Using a Double-Array Structure", 1989): the child of node n for the byte b is the
 * unit base(n) ^ b, if the parent of that unit is n. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_trie_key {
    const char *text; /* [length], length > 0 */
    size_t length;
    int32_t id; /* not negative */
} fsdp_trie_key;

typedef struct fsdp_trie_unit {
    uint32_t base;
    uint32_t parent; /* UINT32_MAX: the unit is not used, or it is the root */
    int32_t id;      /* the id of the string that ends at this node, or -1 */
} fsdp_trie_unit;

typedef struct fsdp_trie {
    fsdp_trie_unit *units; /* [0] is the root */
    size_t len, cap;
} fsdp_trie;

/* Build a trie from `keys` [count], whose order changes. If two keys are equal, the larger id is
 * used. The texts must exist only during the call. Return FSDP_ERR_FORMAT if the texts together
 * have more than 32 MB. */
FSDP_MUST_CHECK fsdp_status fsdp_trie_create(fsdp_trie_key *keys, size_t count, fsdp_trie *out);
void fsdp_trie_fini(fsdp_trie *trie); /* accepts {0} */

/* Return the child to which `byte` leads from `node`, or 0 if there is none. Node 0 is the root. */
static inline uint32_t fsdp_trie_child(const fsdp_trie *trie, uint32_t node, uint8_t byte)
{
    uint32_t child = trie->units[node].base ^ byte;
    return trie->units[child].parent == node ? child : 0;
}
