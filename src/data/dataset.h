/* The kinds of datasets that fsdp_dataset_open() opens. Options passed to them are complete, with
 * defaults filled in. */
#pragma once
#include <fsdp/data.h>

/* In dataset_options.c: check `given` (NULL: all defaults) and fill in the defaults, except for
 * max_length. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

/* Two options of WikiHow's scripts change texts of pairs. FSDP_ERR_INVALID if one is set for rows
 * that are not pairs. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *options,
                                                         bool pairs);
/* Fill in default lengths for texts and drawn examples. Rows of ids are truncated only to a length
 * that was given. */
void fsdp_dataset_complete_lengths(fsdp_dataset_options *options);

/* In text_dataset.c: a file of texts, or a folder with WikiHow's files. */
FSDP_MUST_CHECK fsdp_status fsdp_text_dataset_open(const char *path,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* In csv_dataset.c: the rows whose titles are in the list `titles`; NULL: all rows. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_dataset_open(const char *path, const char *titles,
                                                  const fsdp_dataset_options *options,
                                                  fsdp_dataset **out);
/* In jsonl.c. */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* In token_dataset.c. */
FSDP_MUST_CHECK fsdp_status fsdp_token_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* In span_dataset.c: span corruption as in options->span_corruption, of token files if `tokens`,
 * else of texts. */
FSDP_MUST_CHECK fsdp_status fsdp_span_dataset_open(const char *path, bool tokens,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Options that had an effect on the rows of a dataset. Options of texts have none if rows are
 * ids. */
enum {
    FSDP_USES_SOURCE_PREFIX = 1,
    FSDP_USES_SOURCE_COLUMN = 2,
    FSDP_USES_TARGET_COLUMN = 4,
    FSDP_USES_CLEANING = 8,
    FSDP_USES_TEXTS = FSDP_USES_SOURCE_PREFIX | FSDP_USES_SOURCE_COLUMN | FSDP_USES_TARGET_COLUMN
};
unsigned fsdp_dataset_uses(const fsdp_dataset *dataset);
/* Called by the code that opens a dataset; 0 unless it is set. */
void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses);
/* Set what fsdp_dataset_note() returns; it must live as long as the dataset. */
void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note);

/* Whether `path` is a token file, a pattern of files, or a folder that contains token files. */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);

/* Whether `path` ends with ".csv" in any case. */
bool fsdp_is_csv_path(const char *path);
/* Whether `path` is a file of JSON lines, by its name, or else by its first bytes. */
FSDP_MUST_CHECK fsdp_status fsdp_is_jsonl_path(const char *path, bool *is);

/* Restrict the dataset to rows [first, first + len). */
void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len);

/* fsdp_collate() of the examples drawn for an epoch. */
FSDP_MUST_CHECK fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices,
                                               int32_t count, const fsdp_draw *draw,
                                               const fsdp_batch_format *format, fsdp_batch **out);

/* Empty all lists, which keep their memory. */
void fsdp_example_empty(fsdp_example *example);
