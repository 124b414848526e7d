/* The kinds of datasets behind fsdp_dataset_open(). Options are complete: defaults filled in. */
#pragma once
#include <fsdp/data.h>

/* src/data/dataset_options.c: check `given` (NULL: all defaults), and fill in what it leaves open
 * but for max_length. */
FSDP_MUST_CHECK fsdp_status fsdp_dataset_complete_options(const fsdp_dataset_options *given,
                                                          fsdp_dataset_options *full);

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
