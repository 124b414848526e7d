/* The post-processor of a tokenizer.json: adds special tokens to one text or a pair of texts. */
#pragma once
#include "src/base/json.h"
#include "src/text/parts/token_sequence.h"

typedef struct fsdp_post_processor fsdp_post_processor;

/* Create a post-processor from JSON. If `node` is absent or null, *out is set to NULL, which means
 * that the texts of a pair are joined and nothing is added. Error messages contain the file and the
 * path of the key. */
FSDP_MUST_CHECK fsdp_status fsdp_post_processor_from_json(fsdp_json_node node,
                                                          fsdp_post_processor **out);
void fsdp_post_processor_destroy(fsdp_post_processor *post); /* accepts NULL */

/* Return the largest id of the special tokens that the post-processor can add, or -1 if it adds
 * none. */
int32_t fsdp_post_processor_largest_id(const fsdp_post_processor *post);
/* Return how many special tokens are added to a single text or, if is_pair is true, to a pair. */
size_t fsdp_post_processor_added(const fsdp_post_processor *post, bool is_pair);
/* Return true if the post-processor moves the offsets of tokens so that they exclude white space.
 * If it does, the caller must set want_spaces in every fsdp_token_sequence. */
bool fsdp_post_processor_trims(const fsdp_post_processor *post);
/* Move the offsets of the sequence's tokens so that they exclude white space at both ends of a
 * token, as ByteLevel and RobertaProcessing do. */
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

/* Set parts[0 .. *count) to the parts of which the result consists, for one text or for a pair. */
FSDP_MUST_CHECK fsdp_status fsdp_post_processor_plan(const fsdp_post_processor *post, bool is_pair,
                                                     bool add_special_tokens,
                                                     fsdp_post_part parts[FSDP_POST_PARTS_MAX],
                                                     size_t *count);
