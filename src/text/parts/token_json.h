/* Functions that check and read the JSON objects of a tokenizer.json. Each such object describes a
 * part of the tokenizer, such as a normalizer. */
#pragma once
#include "src/base/json.h"

/* Return an error if `node` is not an object, or if it has a key that is neither "type" nor one of
 * `names`, a list that is separated by spaces. The message lists these names. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_fields(fsdp_json_node node, const char *names);
/* Set *type to the field "type", which every part must have. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_type(fsdp_json_node node, const char **type);
/* Set *c to the string field `key`, which must consist of one character. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_char(fsdp_json_node node, const char *key, uint32_t *c);
/* Return the error for a part whose "type" is not supported. `known` lists the supported types. */
fsdp_status fsdp_token_json_unknown(fsdp_json_node node, const char *what, const char *known);

/* Read the pattern under `key`, {"String": "..."} or {"Regex": "..."}. Set *is_regex to true for
 * the second form. */
FSDP_MUST_CHECK fsdp_status fsdp_token_json_pattern(fsdp_json_node node, const char *key,
                                                    const char **text, bool *is_regex);

enum {
    /* largest number of steps of a normalizer, pre-tokenizer, post-processor or decoder */
    FSDP_TOKEN_PARTS_MAX = 64,
    FSDP_TOKEN_DEPTH_MAX = 8 /* largest depth to which Sequences can be nested */
};
