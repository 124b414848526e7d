/* A CSV file of rows whose names a program chooses (fsdp_accelerator_log()), for spreadsheets and
 * pandas.read_csv(). The first column is "step", which is empty for a row without one; the others
 * are the names, in the order in which they came. A row with a new name gives all earlier rows an
 * empty cell of that name: the file is then written again as a whole, under another name, and
 * renamed. Otherwise a row is one system call. A name with a comma or a quote is quoted as by
 * Python's csv module. NaN and infinities are nan, inf and -inf. */
#pragma once
#include "src/base/json.h"

typedef struct fsdp_log_csv fsdp_log_csv;

/* Open a file, which need not exist. Rows in it are kept, except for an incomplete last one that a
 * crash has left. Returns FSDP_ERR_FORMAT, with the path, for another kind of file. */
FSDP_MUST_CHECK fsdp_status fsdp_log_csv_open(const char *path, fsdp_log_csv **csv);
void fsdp_log_csv_close(fsdp_log_csv *csv); /* accepts NULL */
/* Append a row of the kind "log". Other kinds are left out. Returns FSDP_ERR_INVALID for a name
 * with a line break, and for more than FSDP_LOG_CSV_NAMES names. */
FSDP_MUST_CHECK fsdp_status fsdp_log_csv_write(fsdp_log_csv *csv, fsdp_json_node row);

enum {
    FSDP_LOG_CSV_NAMES = 1000 /* most columns */
};
