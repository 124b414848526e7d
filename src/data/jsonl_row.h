/* What one line of JSON means for a task. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/data/jsonl_keys.h"

/* What the rows of a file have in common; {0} before the first. */
typedef struct fsdp_jsonl_rows {
    fsdp_unused_keys unused;
    bool any_texts; /* rather than ids */
} fsdp_jsonl_rows;

/* The row that `object` is for options->task, checked, in the lists of `example`, which are empty.
 * FSDP_ERR_FORMAT and FSDP_ERR_NOT_FOUND name key and entry; FSDP_ERR_INVALID: a text without a
 * tokenizer. `line` is its number; what it says of the file is added to `rows`. */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_row(fsdp_json_node object,
                                           const fsdp_dataset_options *options, int64_t line,
                                           fsdp_example *example, fsdp_jsonl_rows *rows);
