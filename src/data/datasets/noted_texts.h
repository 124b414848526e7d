/* Collects what a user should know about the texts of a file: how many contain special tokens, how
 * many contain characters or words that the tokenizer does not know, and where the first of each
 * is. */
#pragma once
#include "src/base/str.h"
#include "src/text/special_in_text.h"
#include "src/text/unknown_in_text.h"

/* How many texts have something in common, such as special tokens, and where the first such text
 * is. */
typedef struct fsdp_counted_texts {
    int64_t count;
    const char *path; /* file of the first such text; borrowed */
    int64_t at; /* place of the first such text: its line in plain text, otherwise its row, from
                   1 */
} fsdp_counted_texts;

/* What is noted about the texts of a file. Initialize it with {0}. */
typedef struct fsdp_noted_texts {
    fsdp_counted_texts special; /* texts that contain special tokens */
    const char *token; /* a special token in the first text that contains one; borrowed from the
                          tokenizer */
    fsdp_counted_texts unknown;     /* texts that contain unknown characters or words */
    fsdp_unknown_examples examples; /* some of these characters and words */
} fsdp_noted_texts;

/* State between fsdp_noted_text_begin() and fsdp_noted_text_end(), while one text is encoded. */
typedef struct fsdp_noted_text {
    int64_t special; /* this thread's fsdp_special_in_text.count before the text was encoded */
    fsdp_unknown_in_text unknown; /* what is unknown in the text */
    fsdp_unknown_in_text *outer;  /* what the thread passed to fsdp_unknown_in_text_watch() before;
                                     it is watched again after the text */
} fsdp_noted_text;

/* Call these two functions before and after this thread encodes a text. `path` and `at` say where
 * the text is (fsdp_counted_texts). `path` must live as long as *texts. */
void fsdp_noted_text_begin(fsdp_noted_text *text, const fsdp_noted_texts *texts);
void fsdp_noted_text_end(fsdp_noted_text *text, fsdp_noted_texts *texts, const char *path,
                         int64_t at);
/* Append a sentence about each of the two kinds of texts to *note if there are such texts. `plain`:
 * the texts are documents of plain text, not rows. */
void fsdp_noted_texts_print(const fsdp_noted_texts *texts, bool plain, fsdp_str *note);
