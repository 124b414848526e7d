/* Added tokens: the tokens that a tokenizer has in addition to those of its model, such as special
 * tokens, chat tokens and sentinels. Before the other parts of the tokenizer see a text, it is
 * searched for these tokens, in the same way as by AddedVocabulary of the tokenizers library. */
#pragma once
#include "src/base/json.h"
#include "src/text/chars/char_class.h"
#include "src/text/models/token_model.h"
#include "src/text/parts/normalizer.h"

typedef struct fsdp_added_token {
    char *text; /* owned; never empty */
    /* The result of the normalizer for `text`, or NULL if the normalizer does not change `text`;
     * owned. */
    char *normalized_text;
    int32_t id;
    bool special;     /* fsdp_tokenizer_decode() can leave out this token */
    bool single_word; /* the token is not found inside a word */
    /* the token includes all white space before it (lstrip) or after it (rstrip) */
    bool lstrip, rstrip;
    bool normalized; /* true: searched in the normalized text; false: in the original text */
} fsdp_added_token;

typedef struct fsdp_added_tokens fsdp_added_tokens;

/* `classes`, `model` and `normalizer` (which may be NULL) must exist until the tokens are
 * destroyed. */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_create(const fsdp_char_classes *classes,
                                                     const fsdp_token_model *model,
                                                     const fsdp_normalizer *normalizer,
                                                     fsdp_added_tokens **out);
void fsdp_added_tokens_destroy(fsdp_added_tokens *tokens); /* accepts NULL */

/* Add a token. The text of *token, which ends with NUL, and its flags are copied. `id` and
 * normalized_text of *token are ignored. If the text was added before, the earlier token gets the
 * new flags and keeps its id. Otherwise, the id is that of the same text in the model's vocabulary
 * or, if the model does not have the text, the largest id so far + 1. Set *id to the token's id. An
 * empty text is not added, and *id is set to -1. After the last call, call
 * fsdp_added_tokens_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_add(fsdp_added_tokens *tokens,
                                                  const fsdp_added_token *token, int32_t *id);
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_finish(fsdp_added_tokens *tokens);

/* Read the text ("content") and the flags of a token from JSON. The text is borrowed from `node`. A
 * missing flag is false, except `normalized`, whose default is !special. */
FSDP_MUST_CHECK fsdp_status fsdp_added_token_from_json(fsdp_json_node node,
                                                       fsdp_added_token *token);

/* Return the token with this id, or with this text, or NULL if there is none. */
const fsdp_added_token *fsdp_added_tokens_find_id(const fsdp_added_tokens *tokens, int32_t id);
const fsdp_added_token *fsdp_added_tokens_find_text(const fsdp_added_tokens *tokens,
                                                    const char *text, size_t length);
/* Return true if a special token with this text was added. */
bool fsdp_added_tokens_is_special(const fsdp_added_tokens *tokens, const char *text, size_t length);
/* Return the largest id of the model's and the added tokens, + 1. */
int32_t fsdp_added_tokens_size(const fsdp_added_tokens *tokens);

/* A part of a text: an added token, or the text between two added tokens. */
typedef struct fsdp_added_match {
    const fsdp_added_token *token; /* NULL: the part is text between added tokens */
    size_t begin, end;
} fsdp_added_match;

/* A search for added tokens in a text, from left to right. Initialize `text`, `length`,
 * `normalized` and `keep_special`. Only tokens whose fsdp_added_token.normalized equals
 * `normalized` are searched. If keep_special is true, special tokens are not searched. */
typedef struct fsdp_added_search {
    const char *text;
    size_t length;
    bool normalized, keep_special;
    size_t at;      /* byte of `text` at which the search continues */
    size_t covered; /* end of the last part that fsdp_added_tokens_next() has returned */
    /* `held` is a token that has been found but not returned yet, because the text before it comes
     * first */
    bool has_held;
    fsdp_added_match held;
} fsdp_added_search;

/* Set *match to the next part of the text, a token or the text between two tokens, and return true.
 * At the end of the text, return false. */
bool fsdp_added_tokens_next(const fsdp_added_tokens *tokens, fsdp_added_search *search,
                            fsdp_added_match *match);
