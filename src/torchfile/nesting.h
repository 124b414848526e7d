/* Items by keys, and the dicts and lists that they are: names joined with dots, and values nested
 * in a file of torch.save. */
#pragma once
#include "src/base/str.h"
#include "src/torchfile/pickle_writer.h"

/* One step from the whole to an item. */
typedef struct fsdp_nesting_key {
    const char *name; /* key of a dict; NULL: of a list */
    int64_t index;    /* place in that list */
    bool is_int;      /* the dict's key is the int that `name` spells */
} fsdp_nesting_key;

/* Append key `i` of an item to its name: "a", ".b", ".0". */
void fsdp_nesting_join(fsdp_str *fqn, int i, const char *name, int64_t index);

/* Items, those of one dict or list next to each other. */
typedef struct fsdp_nesting {
    const char *path; /* begins the messages */
    void *context;
    /* Key `level` of item i; false: it has no more. */
    bool (*key)(const void *context, size_t i, int level, fsdp_nesting_key *key);
    const char *(*name)(const void *context, size_t i);
    /* Tell the pickle item i. */
    fsdp_status (*tell)(void *context, size_t i);
} fsdp_nesting;

/* Tell `pickle` items [0, n) as one value. FSDP_ERR_INVALID naming an item that cannot be where its
 * keys say, or lies too deep; what tell() returns. */
FSDP_MUST_CHECK fsdp_status fsdp_nesting_tell(const fsdp_nesting *nesting, size_t n,
                                              fsdp_pickle_writer *pickle);
