/* The kinds of datasets behind fsdp_dataset_open(). Options are complete: defaults filled in. */
#pragma once
#include <fsdp/data.h>

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
/* Is `path` a token file, a pattern of files, or a folder that holds token files? */
FSDP_MUST_CHECK fsdp_status fsdp_is_token_path(const char *path, bool *is);

/* The lists keep their memory. */
void fsdp_example_empty(fsdp_example *example);
