/* Reads the tokens that a folder adds to its SentencePiece model, from added_tokens.json and from
 * added_tokens_decoder in tokenizer_config.json. Also finds such tokens in a text. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_added_token {
    char *text; /* never empty */
    size_t length;
    int32_t id;
} fsdp_added_token;

/* Initialise with {0}. */
typedef struct fsdp_added_tokens {
    fsdp_added_token *items;
    size_t n, cap;
    bool first[256]; /* first[b] is true if a token begins with byte b */
} fsdp_added_tokens;

void fsdp_added_tokens_fini(fsdp_added_tokens *tokens);

/* Returns true if the token (text, id) should be appended to *tokens. */
typedef bool fsdp_added_token_fn(const void *arg, const char *text, int32_t id);
/* Append the tokens of a tokenizer_config.json for which wanted() returns true. The file has the
 * form {"added_tokens_decoder": {"32000": {"content": "<sep>"}}}. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_decoder(fsdp_added_tokens *tokens,
                                                      fsdp_json_node config,
                                                      fsdp_added_token_fn *wanted, const void *arg);
/* Append the tokens of an added_tokens.json for which wanted() returns true. The file has the form
 * {"<sep>": 32000}. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_map(fsdp_added_tokens *tokens, fsdp_json_node root,
                                                  fsdp_added_token_fn *wanted, const void *arg);

/* Return the added token with which `text` [left] begins; NULL if there is none. */
const fsdp_added_token *fsdp_added_tokens_at(const fsdp_added_tokens *tokens, const char *text,
                                             size_t left);
