/* The tokens that a tokenizer adds to those of its model: special tokens, chat tokens, sentinels.
 * They are found in a text before anything else happens to it, as AddedVocabulary of the tokenizers
 * library finds them. */
#pragma once
#include "src/base/json.h"
#include "src/text/chars/char_class.h"
#include "src/text/models/token_model.h"
#include "src/text/parts/normalizer.h"

typedef struct fsdp_added_token {
    char *text; /* owned; never empty */
    /* What the normalizer makes of `text`, or NULL if it does not change `text`; owned. */
    char *normalized_text;
    int32_t id;
    bool special;        /* fsdp_tokenizer_decode() can leave it out */
    bool single_word;    /* not found within a word */
    bool lstrip, rstrip; /* white space before (lstrip) or after (rstrip) the token is part of it */
    bool normalized;     /* true: searched in the normalized text; false: in the original text */
} fsdp_added_token;

typedef struct fsdp_added_tokens fsdp_added_tokens;

/* `classes`, `model` and `normalizer` (which may be NULL) must exist until the tokens are
 * destroyed. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_create(const fsdp_char_classes *classes,
                                                     const fsdp_token_model *model,
                                                     const fsdp_normalizer *normalizer,
                                                     fsdp_added_tokens **out);
void fsdp_added_tokens_destroy(fsdp_added_tokens *tokens); /* accepts NULL */

/* Add a token: text [NUL-terminated], which is copied, and flags; `id` and normalized_text are
 * ignored. If the text was added before or is in the model's vocabulary, the token gets the id of
 * that text, and otherwise the id after the largest one. A text that is added again gets the new
 * flags. Set *id to the token's id; the empty text is not added, and its *id is -1. After the last
 * call, call fsdp_added_tokens_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_add(fsdp_added_tokens *tokens,
                                                  const fsdp_added_token *token, int32_t *id);
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_finish(fsdp_added_tokens *tokens);

/* Read the flags and the text ("content") of a token from JSON. The text is borrowed. A flag that
 * is missing is false, except normalized, which is then !special. */
FSDP_MUST_CHECK fsdp_status fsdp_added_token_from_json(fsdp_json_node node,
                                                       fsdp_added_token *token);

size_t fsdp_added_tokens_count(const fsdp_added_tokens *tokens);
/* Return token i, in the order in which texts were added first. */
const fsdp_added_token *fsdp_added_tokens_at(const fsdp_added_tokens *tokens, size_t i);
/* Return the token with this id or this text; NULL if there is none. */
const fsdp_added_token *fsdp_added_tokens_find_id(const fsdp_added_tokens *tokens, int32_t id);
const fsdp_added_token *fsdp_added_tokens_find_text(const fsdp_added_tokens *tokens,
                                                    const char *text, size_t length);
/* Return true if `text` is that of a special token. */
bool fsdp_added_tokens_is_special(const fsdp_added_tokens *tokens, const char *text, size_t length);
/* Return the largest id + 1 of the model's and the added tokens. */
int32_t fsdp_added_tokens_size(const fsdp_added_tokens *tokens);

/* A part of a text: an added token, or the text between two of them. */
typedef struct fsdp_added_match {
    const fsdp_added_token *token; /* NULL: a part between added tokens */
    size_t begin, end;
} fsdp_added_match;

/* A search for tokens, from left to right. Initialise `text`, `length`, `normalized` (search the
 * tokens with this value of fsdp_added_token.normalized) and `keep_special` (do not search special
 * tokens). */
typedef struct fsdp_added_search {
    const char *text;
    size_t length;
    bool normalized, keep_special;
    size_t at;      /* byte of `text` at which the search continues */
    size_t covered; /* end of the last part that was returned */
    bool has_held;  /* `held` was found, but the text before it had to be returned first */
    fsdp_added_match held;
} fsdp_added_search;

/* Set *match to the next part of the text and return true; return false at the end of the text. */
bool fsdp_added_tokens_next(const fsdp_added_tokens *tokens, fsdp_added_search *search,
                            fsdp_added_match *match);
