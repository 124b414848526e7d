/* Makes lines for the user about a dataset: what it leaves out of its file, which special tokens
 * its texts contain, and which unknown characters they contain. */
#pragma once
#include <stdio.h>

#include <fsdp/data.h>

enum {
    /* Maximum number of rows whose tokens are counted for a message. Counting tokenizes rows of
     * texts, which takes long for a large file. */
    FSDP_LEFT_OUT_ROWS = 1000
};

/* Write a text such as "rows.csv: 12 of 300 rows are cut, by 4567 tokens" to `text` [size]. It is
 * empty if nothing is left out. `rows` is the length of the dataset, and `path` its file. */
void fsdp_left_out_text(const fsdp_left_out *left_out, int64_t rows, const char *path, char *text,
                        size_t size);
/* Write a text such as "rows.csv: special tokens are in the texts of 3 of 300 rows ..." to `text`
 * [size]. It is empty if there are no such rows. */
void fsdp_special_rows_text(const fsdp_left_out *left_out, int64_t rows, const char *path,
                            char *text, size_t size);
/* Write a text such as "rows.csv: 3 of 300 rows have characters or words that the tokenizer does
 * not know ..." to `text` [size]. It is empty if there are no such rows. */
void fsdp_unknown_rows_text(const fsdp_left_out *left_out, int64_t rows, const char *path,
                            char *text, size_t size);
