/* Handles keys of JSON lines that are not used. A key is refused if ignoring it would change what
 * is learned. All other keys are collected for one note about the file. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

enum {
    FSDP_MAX_UNUSED_KEYS = 8
};

typedef struct fsdp_unused_keys {
    struct {
        char *name;
        int64_t line; /* first line that has the key */
    } items[FSDP_MAX_UNUSED_KEYS];
    size_t len;
    bool more; /* there are more keys than fit into `items` */
} fsdp_unused_keys;

/* Handle an unused key of `row`; `value` is the value of the key. If the key is an argument of a
 * model, or a weight, return FSDP_ERR_FORMAT naming the key, unless its value has no effect.
 * Collect any other key, with its line, in *unused. */
FSDP_MUST_CHECK fsdp_status fsdp_unused_key(fsdp_json_node row, fsdp_json_node value, int64_t line,
                                            fsdp_unused_keys *unused);
/* Collect a key that can be ignored without changing what is learned. */
FSDP_MUST_CHECK fsdp_status fsdp_collect_unused_key(const char *key, int64_t line,
                                                    fsdp_unused_keys *unused);
/* If a row has T5's decoder_input_ids or decoder_attention_mask, check that they are what follows
 * from the labels. `labels` are the labels of the row, before truncation. */
FSDP_MUST_CHECK fsdp_status fsdp_check_decoder_keys(fsdp_json_node row,
                                                    const fsdp_token_list *labels,
                                                    int32_t start_id);

/* Make a note such as "rows.jsonl: not used: 'url' (line 1), 'id' (line 3)". The caller owns *note,
 * which is NULL if all keys are used. */
FSDP_MUST_CHECK fsdp_status fsdp_unused_keys_note(const fsdp_unused_keys *unused, const char *path,
                                                  char **note);
void fsdp_unused_keys_fini(fsdp_unused_keys *unused);
