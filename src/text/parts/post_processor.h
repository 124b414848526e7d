/* The post-processor of a tokenizer.json: adds special tokens to one text or a pair of texts. */
#pragma once
#include "src/base/json.h"
#include "src/text/parts/token_sequence.h"

typedef struct fsdp_post_processor fsdp_post_processor;

/* Make a post-processor from JSON. If `node` is absent or null, *out is NULL: pairs are joined, and
 * nothing is added. Errors contain the file and the key path. */
FSDP_MUST_CHECK fsdp_status fsdp_post_processor_from_json(fsdp_json_node node,
                                                          fsdp_post_processor **out);
void fsdp_post_processor_destroy(fsdp_post_processor *post); /* accepts NULL */

/* Return the largest id of a special token that is added, or -1. */
int32_t fsdp_post_processor_largest_id(const fsdp_post_processor *post);
/* Return the number of special tokens that are added to a text or a pair. */
size_t fsdp_post_processor_added(const fsdp_post_processor *post, bool is_pair);
/* Return true if offsets are trimmed. Sequences then need fsdp_token_sequence.want_spaces. */
bool fsdp_post_processor_trims(const fsdp_post_processor *post);
/* Trim the places of a sequence as ByteLevel and RobertaProcessing do. */
void fsdp_post_processor_trim(const fsdp_post_processor *post, fsdp_token_sequence *sequence);

/* A part of the result: one of the texts, or special tokens. */
typedef struct fsdp_post_part {
    int text;           /* 0 or 1: all tokens of the first or second text; -1: special tokens */
    int32_t type_id;    /* the type id of all tokens of the part */
    const int32_t *ids; /* [count]: special tokens; borrowed from the post-processor */
    size_t count;
} fsdp_post_part;

enum {
    FSDP_POST_PARTS_MAX = 64
};

/* Write the parts of the result for one text or a pair to `parts`. Set *count to their number. */
FSDP_MUST_CHECK fsdp_status fsdp_post_processor_plan(const fsdp_post_processor *post, bool is_pair,
                                                     bool add_special_tokens,
                                                     fsdp_post_part parts[FSDP_POST_PARTS_MAX],
                                                     size_t *count);
