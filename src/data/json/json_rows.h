/* Finds the rows of a JSON file. The rows are in one of these forms:
 * - lines: each line has one row;
 * - an array of rows, [{...}, {...}];
 * - an object that has the array under a key, {"version": ..., "data": [{...}, {...}]};
 * - objects one after the other, each on one or more lines.
 * Only one row is in memory at a time, in all forms. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/base/json.h"
#include "src/data/files/input.h"

typedef struct fsdp_json_rows fsdp_json_rows;

typedef struct fsdp_json_row {
    const char *text; /* [length]; valid until the next row is read; NULL after the last row */
    size_t length;
    uint64_t offset; /* offset of `text` in the decompressed file */
    int64_t line;    /* line on which the row begins, from 1 */
    int64_t number;  /* number of the row, from 1; 0 if each line has one row */
} fsdp_json_row;

/* Open the rows of `input`, which is borrowed until fsdp_json_rows_close(). `path` is for messages.
 * `field` is the key of the array if the file is one object; NULL means "data". Returns
 * FSDP_ERR_FORMAT if `field` is not NULL and the file is not an object with an array of objects
 * under this key. */
FSDP_MUST_CHECK fsdp_status fsdp_json_rows_open(fsdp_input *input, const char *path,
                                                const char *field, fsdp_json_rows **out);
void fsdp_json_rows_close(fsdp_json_rows *rows); /* accepts NULL */
/* Find the next row that is not blank. Its text has not been parsed, so it may be malformed.
 * Returns FSDP_ERR_FORMAT, with path and line, if a row has no end or is too long. */
FSDP_MUST_CHECK fsdp_status fsdp_json_rows_next(fsdp_json_rows *rows, fsdp_json_row *row);

/* Parse a row. The message of an error contains path, line and column. */
FSDP_MUST_CHECK fsdp_status fsdp_json_row_parse(const char *path, const fsdp_json_row *row,
                                                fsdp_json **doc);
/* Prepend the path and the position of `row` to the message of `status`, unless `status` is
 * FSDP_OK. */
void fsdp_json_row_context(fsdp_status status, const char *path, const fsdp_json_row *row);
