/* The tokens that a tokenizer adds to those of its model: special tokens, chat tokens, sentinels.
 * They are found in a text before anything else happens to it, as AddedVocabulary of the tokenizers
 * library finds them. */
#pragma once
#include "src/base/json.h"
#include "src/text/char_class.h"
#include "src/text/normalizer.h"
#include "src/text/token_model.h"

typedef struct fsdp_added_token {
    char *text; /* owned; never empty */
    /* The text as the normalizer changes it, or NULL if it does not; owned. */
    char *normalized_text;
    int32_t id;
    bool special;        /* fsdp_tokenizer_decode() can leave it out */
    bool single_word;    /* not found within a word */
    bool lstrip, rstrip; /* white space before or after it belongs to it */
    bool normalized;     /* searched in the normalized text, else in the original one */
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
 * ignored. Its id is that of the same text if it was added before or is in the model's vocabulary,
 * and otherwise the next one after all ids. A text that is added again gets the new flags. Set *id,
 * which is -1 for the empty text (it is not added). After the last call, call
 * fsdp_added_tokens_finish(). */
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_add(fsdp_added_tokens *tokens,
                                                  const fsdp_added_token *token, int32_t *id);
FSDP_MUST_CHECK fsdp_status fsdp_added_tokens_finish(fsdp_added_tokens *tokens);

/* Read the flags and the text ("content") of a token from JSON. The text is borrowed. Flags may be
 * missing if `special` is not: they are false, except normalized, which is !special. */
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

/* A part of a text. */
typedef struct fsdp_added_match {
    const fsdp_added_token *token; /* NULL: a part between tokens */
    size_t begin, end;
} fsdp_added_match;

/* A search for tokens, from left to right. Initialise `text`, `length`, `normalized` (which of the
 * two kinds is searched) and `keep_special` (special tokens are not searched). */
typedef struct fsdp_added_search {
    const char *text;
    size_t length;
    bool normalized, keep_special;
    size_t at;      /* where the search goes on */
    size_t covered; /* end of the last part */
    bool has_held;  /* a token that was found, but the part before it was returned first */
    fsdp_added_match held;
} fsdp_added_search;

/* Set *match to the next part and return true; return false at the end of the text. */
bool fsdp_added_tokens_next(const fsdp_added_tokens *tokens, fsdp_added_search *search,
                            fsdp_added_match *match);
