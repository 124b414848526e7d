/* The kinds of datasets that fsdp_dataset_open() opens. The functions that open a dataset get
 * complete options, in which defaults are filled in. */
#pragma once
#include <fsdp/data.h>

/* Check the options `given` (NULL: all defaults) and fill in the defaults, but not those of
 * max_length, max_source_length and max_target_length. (dataset_options.c) */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

/* Check the two options from WikiHow's scripts, cleaning and skip_long_summaries. Returns
 * FSDP_ERR_INVALID if one of them is set but `pairs` is false, because both are for pairs of
 * texts. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_check_has_pairs(const fsdp_dataset_options *options,
                                                         bool pairs);
/* Fill in the defaults of max_source_length and max_target_length. This is not called for JSON
 * lines, whose ids are truncated only if a length was given. */
void fsdp_dataset_complete_lengths(fsdp_dataset_options *options);

/* Open a file of CSV or JSON lines, or a folder with WikiHow's files. (text_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_text_dataset_open(const char *path,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Open a CSV file. `titles` is the path of a list of titles: only rows with these titles are used.
 * If it is NULL, all rows are used. (csv_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_csv_dataset_open(const char *path, const char *titles,
                                                  const fsdp_dataset_options *options,
                                                  fsdp_dataset **out);
/* Open a file of JSON lines. (jsonl.c) */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Open token files. (token_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_token_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
/* Open token files, or texts if `tokens` is false, for span corruption (options->span_corruption).
 * (span_dataset.c) */
FSDP_MUST_CHECK fsdp_status fsdp_span_dataset_open(const char *path, bool tokens,
                                                   const fsdp_dataset_options *options,
                                                   fsdp_dataset **out);
/* Flags that say which options had an effect on the rows of a dataset. Options for texts have no
 * effect on rows of ids. */
enum {
    FSDP_USES_SOURCE_PREFIX = 1,
    FSDP_USES_SOURCE_COLUMN = 2,
    FSDP_USES_TARGET_COLUMN = 4,
    FSDP_USES_CLEANING = 8,
    FSDP_USES_TEXTS = FSDP_USES_SOURCE_PREFIX | FSDP_USES_SOURCE_COLUMN | FSDP_USES_TARGET_COLUMN
};
unsigned fsdp_dataset_uses(const fsdp_dataset *dataset);
/* Record which options had an effect (FSDP_USES_*). The code that opens a dataset calls this. If it
 * does not, the dataset counts as one for which no option had an effect. */
void fsdp_dataset_set_uses(fsdp_dataset *dataset, unsigned uses);
/* Set the text that fsdp_dataset_note() returns. The text must live as long as the dataset. */
void fsdp_dataset_set_note(fsdp_dataset *dataset, const char *note);

/* Set *is to true if `path` is a token file, a pattern of files, or a folder that contains token
 * files; otherwise set it to false. */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);

/* Does `path` end with ".csv", in upper or lower case? */
bool fsdp_is_csv_path(const char *path);
/* Set *is to true if `path` is a file of JSON lines, otherwise to false. The ending of its
 * name decides. If the ending is unknown, the first bytes of the file decide. */
FSDP_MUST_CHECK fsdp_status fsdp_is_jsonl_path(const char *path, bool *is);

/* Restrict the dataset to rows [first, first + len). */
void fsdp_dataset_narrow(fsdp_dataset *dataset, int64_t first, int64_t len);

/* Collate examples as fsdp_collate() does. The examples depend on *draw. */
FSDP_MUST_CHECK fsdp_status fsdp_collate_drawn(const fsdp_dataset *dataset, const int64_t *indices,
                                               int32_t count, const fsdp_draw *draw,
                                               const fsdp_batch_format *format, fsdp_batch **out);

/* Empty all lists of an example. The lists keep their memory. */
void fsdp_example_empty(fsdp_example *example);
