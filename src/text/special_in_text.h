/* Counts the special tokens that texts contain.
 *
 * A text may contain a special token, such as "</s>". As in transformers, the encoder replaces it
 * by the token's id. The author of the text may not have wanted this, so commands report how
 * many rows have such texts. The encoder counts the tokens for each thread: a caller compares the
 * count before it encodes a row with the count after it. */
#pragma once
#include <fsdp/text.h>

/* The words with which messages about special tokens in texts end. */
#define FSDP_SPECIAL_BECOMES_ID                                                                    \
    "each becomes its id, as in transformers (\"split_special_tokens\": true in "                  \
    "tokenizer_config.json keeps them as text)"

typedef struct fsdp_special_in_text {
    int64_t count; /* special tokens in the texts that the thread has encoded so far */
    /* text of the special token that was counted last; borrowed from its tokenizer */
    const char *last;
} fsdp_special_in_text;

/* Return the count of the calling thread. A caller that encodes a text whose special tokens must
 * not be counted saves the count before, and restores it afterwards. */
fsdp_special_in_text *fsdp_special_in_text_of_thread(void);
/* Add a token to the count of the calling thread. */
void fsdp_special_in_text_add(const char *token);
/* Search a text for special tokens, and add their number to the count of the calling thread. The
 * text is not encoded. Special tokens that are searched in normalized text
 * (fsdp_added_token.normalized) are found only if the normalizer does not change the text. */
void fsdp_special_in_text_search(const fsdp_tokenizer *tokenizer, const char *text, size_t length);
