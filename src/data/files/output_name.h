/* Checks the name of a file that a command writes. */
#pragma once
#include <fsdp/base.h>

/* What a command writes. */
typedef enum fsdp_output_form {
    FSDP_OUTPUT_ROWS,       /* CSV if the name ends with .csv, otherwise JSON lines */
    FSDP_OUTPUT_JSON_LINES, /* JSON lines, whatever the name is */
    FSDP_OUTPUT_LINES,      /* one text a line */
    FSDP_OUTPUT_FOLDER      /* a folder */
} fsdp_output_form;

/* Return FSDP_ERR_INVALID if the name of `path` says that the file has another form than `form`,
 * such as a spreadsheet, Parquet or a compressed file. The message contains `flag`, `path`, and a
 * name that can be used instead. */
FSDP_MUST_CHECK fsdp_status fsdp_check_output_name(const char *flag, const char *path,
                                                   fsdp_output_form form);
