/* The kinds of datasets behind fsdp_dataset_open(). Options are complete: defaults filled in. */
#pragma once
#include <fsdp/data.h>

/* src/data/csv_dataset.c */
FSDP_MUST_CHECK fsdp_status fsdp_csv_dataset_open(const char *path,
                                                  const fsdp_dataset_options *options,
                                                  fsdp_dataset **out);
/* src/data/jsonl.c */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_dataset_open(const char *path,
                                                    const fsdp_dataset_options *options,
                                                    fsdp_dataset **out);
