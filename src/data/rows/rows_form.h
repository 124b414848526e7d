/* The form of a file with rows, CSV, JSON or Arrow, and what its rows have. */
#pragma once
#include <stdbool.h>

#include <fsdp/base.h>

#include "src/data/files/input.h"

/* Forms of files with rows. */
typedef enum fsdp_rows_form {
    FSDP_ROWS_CSV,
    FSDP_ROWS_JSON, /* JSON lines, or an array of rows */
    FSDP_ROWS_ARROW
} fsdp_rows_form;

/* Flags for options that had an effect on the rows of a dataset. Options for texts have no effect
 * on rows of ids. */
enum {
    FSDP_USES_SOURCE_PREFIX = 1,
    FSDP_USES_SOURCE_COLUMN = 2,
    FSDP_USES_TARGET_COLUMN = 4,
    FSDP_USES_CLEANING = 8,
    FSDP_USES_CHAT = 1 << 16,       /* some rows are conversations */
    FSDP_USES_COMPLETION = 1 << 17, /* some rows have a prompt and a completion that are texts */
    FSDP_USES_CSV = 16,             /* delimiter, no_csv_quotes */
    FSDP_USES_JSON = 32,            /* json_field */
    FSDP_USES_DOCUMENTS = 64,       /* documents */
    FSDP_USES_DTYPE = 128,          /* token_dtype */
    FSDP_USES_PACKING = 256,
    FSDP_USES_CLASSES = 512, /* text_pair_column, label_column */
    FSDP_USES_TEXTS = FSDP_USES_SOURCE_PREFIX | FSDP_USES_SOURCE_COLUMN | FSDP_USES_TARGET_COLUMN
};

/* Return true if `path` has the name of a file of CSV: FSDP_NAME_CSV in file_names.h. */
bool fsdp_is_csv_path(const char *path);
/* Set *is to true if the file `path` contains JSON, otherwise to false. If the name of the file is
 * that of a file of JSON or CSV (file_names.h), the name decides. Otherwise, the first bytes of the
 * file decide. */
FSDP_MUST_CHECK fsdp_status fsdp_is_jsonl_path(const char *path, bool *is);
/* Like fsdp_is_jsonl_path(), but only the first bytes of an open file decide. Afterwards, the input
 * is at its first byte again. */
FSDP_MUST_CHECK fsdp_status fsdp_input_is_json(fsdp_input *input, bool *is);
/* Set *form to the form of a file of rows, which for Arrow may also be a folder. */
FSDP_MUST_CHECK fsdp_status fsdp_rows_form_of(const char *path, fsdp_rows_form *form);
/* Return the flags FSDP_USES_* of the options that have an effect on every file of this form. */
unsigned fsdp_rows_form_uses(fsdp_rows_form form);
/* Examine the first row. Set *ids to true if it has input_ids, and *texts to true if it has texts
 * instead. Rows of CSV always have texts. If `path` is the folder of a DatasetDict, `validation`
 * chooses the split, as in fsdp_dataset_options. */
FSDP_MUST_CHECK fsdp_status fsdp_first_row_kind(const char *path, const char *json_field,
                                                bool validation, bool *ids, bool *texts);
