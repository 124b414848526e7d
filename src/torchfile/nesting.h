/* Writes flat items, each with a list of keys, as nested dicts and lists in a pickle. Also joins
 * keys with dots into names. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/pickle_writer.h"

/* One key on the path from the outermost container to an item. */
typedef struct fsdp_nesting_key {
    const char *name; /* key in a dict; NULL: the container is a list */
    int64_t index;    /* index in the list, if name is NULL */
    bool is_int;      /* the dict's key is an int, whose digits are in `name` */
} fsdp_nesting_key;

/* Append a key of an item to the dotted name `fqn` of the item. The key is `name`, or `index` if
 * name is NULL. A dot comes before it, unless it is the first key of the item (i = 0). */
void fsdp_nesting_join(fsdp_str *fqn, int i, const char *name, int64_t index);

/* A source of items. Items of the same dict or list must be adjacent. */
typedef struct fsdp_nesting {
    const char *path; /* prefix of error messages */
    void *context;
    /* Get key `level` of item i. Returns false if the item has fewer keys. */
    bool (*key)(const void *context, size_t i, int level, fsdp_nesting_key *key);
    const char *(*name)(const void *context, size_t i);
    /* Write the value of item i to the pickle. */
    fsdp_status (*write_item)(void *context, size_t i);
} fsdp_nesting;

/* Write items [0, n) to `pickle` as one nested value. FSDP_ERR_INVALID if the keys of two items
 * contradict each other (as "a" and "a.b" do), or if an item is nested too deeply; the message
 * names the item. Errors of write_item() are passed on. */
FSDP_MUST_CHECK fsdp_status fsdp_nesting_write(const fsdp_nesting *nesting, size_t n,
                                               fsdp_pickle_writer *pickle);
