/* Collects what a user should know about the texts of a file: how many contain special tokens, how
 * many contain characters or words that the tokenizer does not know, and where the first of each
 * is. */
#pragma once
#include "src/base/str.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

/* Texts with something in common. */
typedef struct fsdp_counted_texts {
    int64_t count;
    const char *path; /* the file of the first of them; borrowed */
    int64_t at;       /* plain text: line of the first of them; otherwise its row, from 1 */
} fsdp_counted_texts;

/* Starts as {0}. */
typedef struct fsdp_noted_texts {
    fsdp_counted_texts special; /* texts that contain special tokens */
    const char *token; /* a special token in the first of them; borrowed from the tokenizer */
    fsdp_counted_texts unknown;     /* texts that contain unknown characters or words */
    fsdp_unknown_examples examples; /* some of these characters and words */
} fsdp_noted_texts;

/* A text that is being encoded. */
typedef struct fsdp_noted_text {
    int64_t special; /* fsdp_special_in_text.count before the text */
    fsdp_unknown_in_text unknown;
    fsdp_unknown_in_text *outer; /* what was watched before */
} fsdp_noted_text;

/* Call these two before and after this thread encodes a text. The text is at `at` of the file
 * `path` (fsdp_counted_texts), which must live as long as *texts. */
void fsdp_noted_text_begin(fsdp_noted_text *text, const fsdp_noted_texts *texts);
void fsdp_noted_text_end(fsdp_noted_text *text, fsdp_noted_texts *texts, const char *path,
                         int64_t at);
/* Append a sentence about each of the two kinds of texts to *note if there are such texts. `plain`:
 * the texts are documents of plain text, not rows. */
void fsdp_noted_texts_print(const fsdp_noted_texts *texts, bool plain, fsdp_str *note);
