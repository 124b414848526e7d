/* What one line of JSON means for a task. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"

/* The row that `object` is for options->task, checked, in the lists of `example`, which are empty.
 * FSDP_ERR_FORMAT and FSDP_ERR_NOT_FOUND name key and entry; FSDP_ERR_INVALID: a text without a
 * tokenizer. */
FSDP_MUST_CHECK fsdp_status fsdp_jsonl_row(fsdp_json_node object,
                                           const fsdp_dataset_options *options,
                                           fsdp_example *example);
