/* Checks for the objects of a tokenizer.json that describe parts of the pipeline. */
#pragma once
#include "src/base/json.h"

/* Return an error if `node` is not an object, or has a key that is neither "type" nor one of
 * `names`, which are separated by spaces. The message lists the known names. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_fields(fsdp_json_node node, const char *names);
/* Read `type`, which every part has. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_type(fsdp_json_node node, const char **type);
/* Read a string that is one character. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_char(fsdp_json_node node, const char *key, uint32_t *c);
/* Return the error for a part whose type is unknown. `known` lists the types. */
fsdp_status fsdp_token_json_unknown(fsdp_json_node node, const char *what, const char *known);

/* Read {"String": "..."} or {"Regex": "..."}. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_pattern(fsdp_json_node node, const char *key,
                                                    const char **text, bool *is_regex);
/* Prepend the position of `node` to an error. */
void fsdp_token_json_context(fsdp_status status, fsdp_json_node node, const char *part);

enum {
    FSDP_TOKEN_PARTS_MAX = 64, /* parts of a normalizer, pre-tokenizer, post-processor, decoder */
    FSDP_TOKEN_DEPTH_MAX = 8   /* Sequences in Sequences */
};
