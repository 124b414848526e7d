/* A CSV file of rows whose names a program chooses (fsdp_accelerator_log()), for spreadsheets and
 * pandas.read_csv(). The first column is "step", which is empty for a row without a step; the
 * others are the names, in the order in which they first occurred. If a row has a new name, all
 * earlier rows get an empty cell in its column: the whole file is written again under another name,
 * and then renamed. Any other row is written with one system call. A name with a comma or a quote
 * is quoted as by Python's csv module. NaN and infinities are nan, inf and -inf. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_log_csv fsdp_log_csv;

/* Open a file, which need not exist. Keep the rows in it, except for an incomplete last row that a
 * crash has left. Returns FSDP_ERR_FORMAT if the file is not such a CSV file; the message contains
 * the path. */
FSDP_MUST_CHECK fsdp_status fsdp_log_csv_open(const char *path, fsdp_log_csv **csv);
void fsdp_log_csv_close(fsdp_log_csv *csv); /* accepts NULL */
/* Append a row of the kind "log". Does nothing for a row of another kind. Returns FSDP_ERR_INVALID
 * for a name with a line break, and for more than FSDP_LOG_CSV_NAMES names. */
FSDP_MUST_CHECK fsdp_status fsdp_log_csv_write(fsdp_log_csv *csv, fsdp_json_node row);

enum {
    FSDP_LOG_CSV_NAMES = 1000 /* most columns */
};
