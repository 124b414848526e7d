/* Converts one JSON line to an example of a task. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/jsonl_keys.h"

/* Results that are collected over all rows of a file; {0} before the first row. */
typedef struct fsdp_jsonl_rows {
    fsdp_unused_keys unused;
    bool any_texts; /* some rows have texts instead of ids */
} fsdp_jsonl_rows;

/* Check `object`, a row for options->task on line `line`, and store it in the lists of `example`,
 * which must be empty. Update *rows, the results for the whole file. Errors are FSDP_ERR_FORMAT and
 * FSDP_ERR_NOT_FOUND, with a message that names key and entry, and FSDP_ERR_INVALID if the row has
 * a text but there is no tokenizer. */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_row(fsdp_json_node object,
                                           const fsdp_dataset_options *options, int64_t line,
                                           fsdp_example *example, fsdp_jsonl_rows *rows);
