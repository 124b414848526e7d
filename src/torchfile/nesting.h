/* Writes a flat list of items as nested dicts and lists in a pickle. Each item has a list of keys,
 * one for each level. Also joins the keys of an item with dots into the name of the item. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/pickle_writer.h"

/* One key on the path from the outermost container to an item. */
typedef struct fsdp_nesting_key {
    const char *name; /* key in a dict; NULL: the container is a list */
    int64_t index;    /* index in the list, if name is NULL */
    bool is_int;      /* the key in the dict is an int; `name` has its digits */
} fsdp_nesting_key;

/* Append key number `i` of an item to `fqn`, the dotted name of the item. The key is `name`, or
 * `index` if `name` is NULL. A dot is put before every key except the first (i = 0). */
void fsdp_nesting_join(fsdp_str *fqn, int i, const char *name, int64_t index);

/* A list of items, which is accessed through functions. Items of the same dict or list must be
 * adjacent. */
typedef struct fsdp_nesting {
    const char *path; /* prefix of error messages */
    void *context;
    /* Set *key to the key of item i at `level`. Return false if the item has no key at this
     * level. */
    bool (*key)(const void *context, size_t i, int level, fsdp_nesting_key *key);
    const char *(*name)(const void *context, size_t i);
    /* Write the value of item i to the pickle. */
    fsdp_status (*write_item)(void *context, size_t i);
} fsdp_nesting;

/* Write items [0, n) to `pickle` as one nested value. Returns FSDP_ERR_INVALID if the keys of two
 * items conflict, like "a" and "a.b"; if the indices of a list are not 0, 1, 2, ...; or if an item
 * is nested too deeply. The message contains the name of the item. Errors of write_item() are
 * returned. */
FSDP_MUST_CHECK fsdp_status fsdp_nesting_write(const fsdp_nesting *nesting, size_t n,
                                               fsdp_pickle_writer *pickle);
