/* Makes the note of an Arrow dataset, such as the list of columns that are not used. */
#pragma once
#include <fsdp/data.h>

#include "src/data/arrow/table.h"
#include "src/data/json/jsonl_keys.h"

/* Make the text for fsdp_dataset_note(): the columns that are not used, the class names of the
 * ClassLabel column `label` if the model has other names, and the use of the split "test" for
 * validation. *note is NULL if there is nothing to say; the caller owns it. */
FSDP_MUST_CHECK fsdp_status fsdp_arrow_note(const fsdp_arrow_table *table,
                                            const fsdp_unused_keys *unused, const char *label,
                                            const fsdp_dataset_options *options, char **note);
