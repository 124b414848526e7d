/* The keys of Accelerate's configuration files, old and new ones. */
#pragma once
#include <stddef.h>

enum {
    FSDP_EXPLAIN_MAX_KEYS = 100
};

typedef struct fsdp_explain_key {
    const char *key;
    const char *no_effect;          /* why it changes nothing here; NULL: it does something */
    const char *no_effect_in_fsdp2; /* the same, if fsdp_version is 2 */
    const char *refused;            /* why a map of this name with anything in it is refused */
} fsdp_explain_key;

extern const fsdp_explain_key fsdp_explain_keys[]; /* the last one has key NULL */
const fsdp_explain_key *fsdp_explain_find_key(const char *key);
