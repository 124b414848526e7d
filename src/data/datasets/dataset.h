/* More than 25 source files: each form of a file (CSV, JSON, token files, plain text) and each kind
 * of row (pairs, classes, ids) has a small reader of its own, and all of them are opened here.
 *
 * Functions that open the different kinds of datasets, for fsdp_dataset_open(). Their options come
 * from fsdp_dataset_complete_options(), so defaults are filled in. */
#pragma once
#include <fsdp/data.h>

/* Forms of files with rows. */
typedef enum fsdp_rows_form {
    FSDP_ROWS_CSV,
    FSDP_ROWS_JSON, /* JSON lines, or an array of rows */
    FSDP_ROWS_ARROW
} fsdp_rows_form;

/* Check the options `given`, which may be NULL, and copy them to *full with defaults filled in.
 * Three options do not get their defaults here: max_length, max_source_length and
 * max_target_length. (dataset_options.c) */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

/* Check `cleaning` and `skip_long_summaries`, two options from WikiHow's scripts that are only for
 * pairs of texts. Return FSDP_ERR_INVALID if one of the two options is set and `pairs` is false.
 * `pairs` says whether the rows of the dataset are pairs of texts. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *options,
                                                         bool pairs);
/* Fill in the defaults of max_source_length and max_target_length. Datasets of JSON lines do not
 * get these defaults: their ids are truncated only if the caller gave a length. */
void fsdp_dataset_complete_lengths(fsdp_dataset_options *options);

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
/* Open an Arrow file, or a folder of datasets.save_to_disk(), whose rows are read as those of JSON
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
/* Flags for options that had an effect on the rows of a dataset. Options for texts have no effect
 * on rows of ids. */
enum {
    FSDP_USES_SOURCE_PREFIX = 1,
    FSDP_USES_SOURCE_COLUMN = 2,
    FSDP_USES_TARGET_COLUMN = 4,
    FSDP_USES_CLEANING = 8,
    FSDP_USES_CHAT = 1 << 16,       /* some rows are conversations */
    FSDP_USES_COMPLETION = 1 << 17, /* some rows have a prompt and a completion that are texts */
    FSDP_USES_CSV = 16,             /* delimiter, no_csv_quotes */
    FSDP_USES_JSON = 32,            /* json_field */
    FSDP_USES_DOCUMENTS = 64,       /* document_separator */
    FSDP_USES_DTYPE = 128,          /* token_dtype */
    FSDP_USES_PACKING = 256,
    FSDP_USES_CLASSES = 512, /* text_pair_column, label_column */
    FSDP_USES_TEXTS = FSDP_USES_SOURCE_PREFIX | FSDP_USES_SOURCE_COLUMN | FSDP_USES_TARGET_COLUMN
};
unsigned fsdp_dataset_uses(const fsdp_dataset *dataset);
/* Set the flags that fsdp_dataset_uses() returns (FSDP_USES_*). They are 0 until this is called. */
void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses);
/* Set the text that fsdp_dataset_note() returns. The text must live as long as the dataset. */
void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note);

/* A range of rows of a dataset, for which fsdp_left_out_fn counts what is left out. */
typedef struct fsdp_row_range {
    int64_t first, rows; /* the rows are [first, first + rows) */
    int64_t len;         /* cut_rows and cut_tokens count only the first `len` of these rows */
} fsdp_row_range;

/* Add what the rows of `range` leave out to *sum, also sum->counted_rows. Rows that were skipped
 * count if they are before or among these rows. Such rows, and unused tokens, are added only once,
 * even if other ranges of `self` are asked for, too. For a mixture, range->len is the largest
 * number of rows to count of each part. */
typedef fsdp_status fsdp_left_out_fn(void *self, const fsdp_row_range *range, fsdp_left_out *sum);
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
 * removed; 0 if the dataset has no function for it. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_get_cut(const fsdp_dataset *dataset, int64_t index,
                                                 fsdp_example *example, int64_t *cut);
/* Call get_cut() for rows [first, first + len) of `self`. Add the numbers of cut rows and of cut
 * ids, and the number of rows counted, to *sum. */
FSDP_MUST_CHECK fsdp_status fsdp_count_cut_rows(fsdp_get_cut_fn *get_cut, void *self, int64_t first,
                                                int64_t len, fsdp_left_out *sum);

/* Set *is to true if `path` is a token file, a pattern that matches token files, or a folder that
 * contains token files. Otherwise set it to false. */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);

/* Return true if `path` ends with ".csv", in upper or lower case. */
bool fsdp_is_csv_path(const char *path);
/* Set *is to true if the file `path` contains JSON, otherwise to false. The ending of the file's
 * name decides. If the ending is unknown, the first bytes of the file decide. */
FSDP_MUST_CHECK fsdp_status fsdp_is_jsonl_path(const char *path, bool *is);
/* Set *form to the form of a file of rows, which for Arrow may also be a folder. */
FSDP_MUST_CHECK fsdp_status fsdp_rows_form_of(const char *path, fsdp_rows_form *form);
/* Return the flags FSDP_USES_* that all files of this form have. */
unsigned fsdp_rows_form_uses(fsdp_rows_form form);
/* Examine the first row. Set *ids to true if it has input_ids, and *texts to true if it has texts
 * instead. Rows of CSV always have texts. */
FSDP_MUST_CHECK fsdp_status fsdp_first_row_kind(const char *path, const char *json_field, bool *ids,
                                                bool *texts);

/* Restrict the dataset to rows [first, first + len). */
void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len);

/* Like fsdp_collate(), but the examples are read with *draw (fsdp_dataset_draw()). */
FSDP_MUST_CHECK fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices,
                                               int32_t count, const fsdp_draw *draw,
                                               const fsdp_batch_format *format, fsdp_batch **out);

/* Empty all lists of an example. The lists keep their memory. */
void fsdp_example_empty(fsdp_example *example);
