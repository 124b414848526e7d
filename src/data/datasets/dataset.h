/* Functions that open the different kinds of datasets, for fsdp_dataset_open(). Their options come
 * from fsdp_dataset_complete_options(), so defaults are filled in. */
#pragma once
#include <fsdp/data.h>

#include "src/data/rows/rows_form.h"
#include "src/text/unknown_in_text.h"

/* Open a file of CSV or JSON lines, an Arrow file or folder, or a folder with WikiHow's files.
 * (text_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_text_dataset_open(const char *path,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Open a file of the given form whose rows are pairs of texts. If `titles` is not NULL, it is the
 * path of a list of titles, and only rows with these titles are used. (pair_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_pair_dataset_open(const char *path, fsdp_rows_form form,
                                                   const char *titles,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Open a file of the given form whose rows are texts with classes. (class_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_class_dataset_open(const char *path, fsdp_rows_form form,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Open a file of JSON, whose rows have ids, or texts for CAUSAL_LM. (jsonl.c) */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Open an Arrow file, or a folder of datasets.save_to_disk(). Its rows are read like rows of JSON
 * lines with ids. If a folder has several splits, the options choose one. (arrow_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Create a dataset of the examples of `parts` [count], one after the other. On success it owns
 * `parts`. (concat_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_concat_dataset_create(fsdp_dataset *const *parts, size_t count,
                                                       fsdp_dataset **out);
/* Create a dataset of CAUSAL_LM whose rows are joined as `options` says (fsdp_packing). On success
 * it owns `rows`. (pack_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_pack_dataset_create(fsdp_dataset *rows,
                                                     const fsdp_dataset_options *options,
                                                     fsdp_dataset **out);
/* Open plain text for CAUSAL_LM: all documents, joined and cut into rows of max_length tokens.
 * (token_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_plain_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Set *plain to true if `path` refers to plain text, as opposed to rows of CSV or JSON. The names
 * of files decide. (text_tokens.c) */
FSDP_MUST_CHECK fsdp_status fsdp_is_plain_text(const char *path,
                                               const fsdp_dataset_options *options, bool *plain);
/* Open token files. (token_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_token_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Open a dataset for span corruption (options->span_corruption). `path` refers to token files if
 * `tokens` is true, otherwise to texts. (span_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_span_dataset_open(const char *path, bool tokens,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Return the flags FSDP_USES_* of options that had an effect on the rows of the dataset. */
unsigned fsdp_dataset_uses(const fsdp_dataset *dataset);
/* Set the flags that fsdp_dataset_uses() returns (FSDP_USES_*). They are 0 until this is called. */
void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses);
/* Set the text that fsdp_dataset_note() returns. The text must live as long as the dataset. */
void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note);

/* A range of rows of a dataset, for which fsdp_left_out_fn counts what is left out. */
typedef struct fsdp_row_range {
    int64_t first, rows; /* the rows are [first, first + rows) */
    int64_t len; /* fsdp_left_out.cut_rows and cut_tokens count only the first `len` of these
                  * rows */
} fsdp_row_range;

/* Add to *sum what was left out of the rows of `range`, and the number of rows that were counted. A
 * row that was skipped when the dataset was opened counts for the range of the row that follows it
 * in the file. If no row follows, it counts for a range that ends at the end of the dataset.
 * Skipped rows and unused tokens are counted in one range only, so that the ranges of a dataset can
 * be added up. For a mixture, at most range->len rows of each part are counted. */
typedef fsdp_status fsdp_left_out_fn(void *self, const fsdp_row_range *range, fsdp_left_out *sum);
/* Divide `rows` rows into training and validation as options->validation_percent says. Set *range
 * to the rows of options->split. range->len equals range->rows. Return FSDP_ERR_INVALID if a split
 * would have no rows. For the message, `path` is the data, and `unit` is what is counted: "rows" or
 * "documents". (text_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_percent_range(const fsdp_dataset_options *options, int64_t rows,
                                               const char *path, const char *unit,
                                               fsdp_row_range *range);
/* Like fsdp_dataset_left_out(), but only for the rows of `range`, all of which the dataset must
 * have. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_left_out_of(const fsdp_dataset *dataset,
                                                     const fsdp_row_range *range,
                                                     fsdp_left_out *out);
/* Set the function that counts cut rows. Without it, fsdp_dataset_left_out() calls the function of
 * fsdp_dataset_set_get_cut() for each row. A dataset with neither function has no cut rows. */
void fsdp_dataset_set_left_out(fsdp_dataset *dataset, fsdp_left_out_fn *count);

/* Like `get` of fsdp_dataset_ops, but also set *cut to the number of ids that the limits of the
 * options removed. */
typedef fsdp_status fsdp_get_cut_fn(void *self, int64_t index, fsdp_example *example, int64_t *cut);
void fsdp_dataset_set_get_cut(fsdp_dataset *dataset, fsdp_get_cut_fn *get_cut);
/* Like fsdp_dataset_get(), but also set *cut to the number of ids that the limits of the options
 * removed. *cut is 0 if fsdp_dataset_set_get_cut() was not called for the dataset. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_get_cut(const fsdp_dataset *dataset, int64_t index,
                                                 fsdp_example *example, int64_t *cut);
/* Call get_cut() for rows [first, first + len) of `self`, and add to *sum: the number of these
 * rows, the numbers of rows and of ids that were cut, and the numbers of rows whose texts have
 * special tokens or unknown characters. The texts of a row have special tokens if get_cut()
 * increases fsdp_special_in_text.count. They have unknown characters if get_cut() adds to
 * fsdp_unknown_in_text_watched(). */
FSDP_MUST_CHECK fsdp_status fsdp_count_cut_rows(fsdp_get_cut_fn *get_cut, void *self, int64_t first,
                                                int64_t len, fsdp_left_out *sum);

/* Count row `row`, whose texts contain the special token `token`, in *sum. */
void fsdp_left_out_add_special(fsdp_left_out *sum, int64_t row, const char *token);
/* *found was watched while row `row` was encoded. If it has unknown tokens, count the row in *sum.
 */
void fsdp_left_out_add_unknown(fsdp_left_out *sum, int64_t row, const fsdp_unknown_in_text *found);
/* Add the numbers of *part to *sum. */
void fsdp_left_out_add(fsdp_left_out *sum, const fsdp_left_out *part);
/* Set the path of the file that the dataset reads, for fsdp_left_out.special_file and unknown_file.
 * Call this function only if the data are in several files, each with a dataset of its own. The
 * path is copied. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_set_file(fsdp_dataset *dataset, const char *path);

/* How many rows or documents of files were used to make the rows of a dataset. */
typedef struct fsdp_file_rows {
    int64_t count;      /* rows or documents that the dataset uses */
    int64_t in_split;   /* rows or documents in options->split, before options->max_samples */
    bool are_documents; /* documents of plain text; otherwise rows */
} fsdp_file_rows;

/* Return how many rows of files the dataset uses. This number differs from fsdp_dataset_len() if
 * the rows were joined. */
fsdp_file_rows fsdp_dataset_file_rows(const fsdp_dataset *dataset);
/* Set the result of fsdp_dataset_file_rows(). Until this is called, the result is that each row of
 * the dataset is one row of a file. */
void fsdp_dataset_set_file_rows(fsdp_dataset *dataset, fsdp_file_rows rows);

/* Restrict the dataset to rows [first, first + len). */
void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len);

/* Empty all lists of an example. The lists keep their memory. */
void fsdp_example_empty(fsdp_example *example);
