/* Counts the parts of texts that a tokenizer does not know, and collects examples of them.
 *
 * If the vocabulary of a tokenizer lacks a character or a word, this character or word becomes the
 * unknown token, such as <unk>. The model then cannot read this part of the text and cannot learn
 * to write it. Commands report how many rows have such parts, and name some of these parts.
 *
 * A caller that wants these counts calls fsdp_unknown_in_text_watch() before it encodes a row, and
 * calls it again afterwards to end the search. Without such a call, encoding does not look for
 * unknown tokens. */
#pragma once
#include <fsdp/text.h>

#include "src/base/str.h"
#include "src/text/models/token_model.h"

/* Two parts of the messages about unknown characters and words. Between them, a message says where
 * the first unknown character or word is. */
#define FSDP_UNKNOWN_SAYS "have characters or words that the tokenizer does not know, first"
#define FSDP_UNKNOWN_BECOMES                                                                       \
    "the model can neither read nor write them: replace them, or use another model"

/* The unknown tokens of one row. */
typedef struct fsdp_unknown_in_text {
    int64_t count; /* unknown tokens that were found */
    /* count unknown tokens without searching for examples, because the search takes time */
    bool without_examples;
    /* the source or the target has unknown tokens; set by data sets of pairs only */
    bool in_source, in_target;
    fsdp_unknown_examples examples;
} fsdp_unknown_in_text;

/* From now on, add the unknown tokens of the texts that this thread encodes to *found. If `found`
 * is NULL, do not look for them. Return the previous `found`. */
fsdp_unknown_in_text *fsdp_unknown_in_text_watch(fsdp_unknown_in_text *found);
/* Return the last argument of fsdp_unknown_in_text_watch() in this thread. */
fsdp_unknown_in_text *fsdp_unknown_in_text_watched(void);
/* Return the object that the caller passes to fsdp_unknown_in_text_watch() for the next row. `rows`
 * is the number of rows with unknown tokens so far, and *known has the examples of these rows. No
 * examples are searched if *known is full. If many rows have unknown tokens, examples are searched
 * only in a few of them. `known` may be NULL. */
fsdp_unknown_in_text fsdp_unknown_in_next_row(int64_t rows, const fsdp_unknown_examples *known);
/* Add examples of what is unknown in a piece, and set *tokens to the number of its tokens. */
FSDP_MUST_CHECK fsdp_status fsdp_unknown_in_piece(const fsdp_token_model *model,
                                                  fsdp_token_work *work, const char *piece,
                                                  size_t length, fsdp_unknown_examples *examples,
                                                  size_t *tokens);
/* Return true if there is no room for another example. */
bool fsdp_unknown_examples_full(const fsdp_unknown_examples *examples);
/* Add *more to *found. */
void fsdp_unknown_in_text_add(fsdp_unknown_in_text *found, const fsdp_unknown_in_text *more);
/* Add the examples of *more that are not in *examples, as long as there is room. */
void fsdp_unknown_examples_add(fsdp_unknown_examples *examples, const fsdp_unknown_examples *more);
/* Append the first example and a space, such as "'ø' ", to *text, or nothing if there is no
 * example. */
void fsdp_unknown_examples_print(const fsdp_unknown_examples *examples, fsdp_text *text);
