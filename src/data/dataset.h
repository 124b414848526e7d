/* The kinds of datasets behind fsdp_dataset_open(). Options are complete: defaults filled in. */
#pragma once
#include <fsdp/data.h>

/* src/data/dataset_options.c: check `given` (NULL: all defaults), and fill in what it leaves open
 * but for max_length. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

/* The two options of WikiHow's scripts change texts of pairs: FSDP_ERR_INVALID if one is set for
 * rows that are not pairs. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *options,
                                                         bool pairs);
/* Default lengths of what is read as text or drawn. Rows of ids are cut only to a given length. */
void fsdp_dataset_complete_lengths(fsdp_dataset_options *options);

/* src/data/text_dataset.c: a file of texts, or a folder of WikiHow's. */
FSDP_MUST_CHECK fsdp_status fsdp_text_dataset_open(const char *path,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* src/data/csv_dataset.c: the rows whose titles are in the list `titles`; NULL: all. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_dataset_open(const char *path, const char *titles,
                                                  const fsdp_dataset_options *options,
                                                  fsdp_dataset **out);
/* src/data/jsonl.c */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* src/data/token_dataset.c */
FSDP_MUST_CHECK fsdp_status fsdp_token_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* src/data/span_dataset.c: what options->span_corruption says, of texts or, if `tokens`, of token
 * files. */
FSDP_MUST_CHECK fsdp_status fsdp_span_dataset_open(const char *path, bool tokens,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Options that counted for the rows of a dataset: those of texts do not where rows are ids. */
enum {
    FSDP_USES_SOURCE_PREFIX = 1,
    FSDP_USES_SOURCE_COLUMN = 2,
    FSDP_USES_TARGET_COLUMN = 4,
    FSDP_USES_CLEANING = 8,
    FSDP_USES_TEXTS = FSDP_USES_SOURCE_PREFIX | FSDP_USES_SOURCE_COLUMN | FSDP_USES_TARGET_COLUMN
};
unsigned fsdp_dataset_uses(const fsdp_dataset *dataset);
/* For those who open one; 0 unless it is set. */
void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses);
/* What fsdp_dataset_note() gives; lives as long as the dataset. */
void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note);

/* Is `path` a token file, a pattern of files, or a folder that holds token files? */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);

/* By name, else by the first byte. */
FSDP_MUST_CHECK fsdp_status fsdp_is_jsonl_path(const char *path, bool *is);

/* Only these of the rows. */
void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len);

/* fsdp_collate() of what is drawn for an epoch. */
FSDP_MUST_CHECK fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices,
                                               int32_t count, const fsdp_draw *draw,
                                               const fsdp_batch_format *format, fsdp_batch **out);

/* The lists keep their memory. */
void fsdp_example_empty(fsdp_example *example);
