/* Reads CSV files (RFC 4180) with libcsv in strict mode. Each row has its line number and its
 * position in the file. With the position, one row can be read again later, without the rows before
 * it. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/data/files/input.h"

/* The fields of a row. Initialize with {0}; can be reused. Line ends within a field stay as they
 * are in the file, as pandas and datasets read them. */
typedef struct fsdp_csv_row {
    char *bytes; /* the fields, each followed by NUL */
    size_t len, cap;
    size_t *ends; /* [fields]: index in `bytes` of the NUL that ends each field */
    size_t fields, ends_cap;
    int64_t line;    /* line of the file on which the row begins, from 1; 0 after the last row */
    int64_t number;  /* number of the row, from 1, if it comes from an array of JSON; else 0 */
    uint64_t offset; /* offset of the row's first byte in the file */
    uint64_t size;   /* size of the row in bytes, including the line end */
} fsdp_csv_row;

void fsdp_csv_row_fini(fsdp_csv_row *row);
/* Return field `index`, which ends with a NUL and may be changed in place. Set *length to its
 * length without the NUL. */
char *fsdp_csv_field(const fsdp_csv_row *row, size_t index, size_t *length);

/* Return true if field `index` is `name`. Case, and spaces around the field, do not matter. */
bool fsdp_csv_field_is(const fsdp_csv_row *row, size_t index, const char *name);
/* Return the index of the first field that is `name`, or -1. */
int64_t fsdp_csv_find(const fsdp_csv_row *row, const char *name);

typedef struct fsdp_csv fsdp_csv;

/* How the fields of a row are separated. {0} means the format of RFC 4180. */
typedef struct fsdp_csv_format {
    char delimiter; /* 0: a comma */
    bool no_quotes; /* quotes are characters like any other (Python's csv.QUOTE_NONE), so no field
                       contains a line end or the delimiter */
} fsdp_csv_format;

/* Open the file and read its header row. Returns FSDP_ERR_FORMAT if the file has no header row. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_open(const char *path, fsdp_csv **out);
/* Like fsdp_csv_open(), but for an open file, and with a format. `input` is at its first byte, and
 * is borrowed until fsdp_csv_close(). `format` may be NULL. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_of_input(fsdp_input *input, const char *path,
                                              const fsdp_csv_format *format, fsdp_csv **out);
void fsdp_csv_close(fsdp_csv *csv); /* accepts NULL */
const fsdp_csv_row *fsdp_csv_header(const fsdp_csv *csv);

/* Read the next row that is not blank. After the last row, row->line is 0. Returns FSDP_ERR_FORMAT
 * for a wrong number of fields, a misplaced quote, or a quote that is not closed. The message
 * contains path and line. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_next(fsdp_csv *csv, fsdp_csv_row *row);

/* Parse `text` [bytes], which contains one row, into *row. row->line, row->offset and row->size are
 * not set. `format` may be NULL. Thread-safe. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_parse_row(const char *text, size_t bytes,
                                               const fsdp_csv_format *format, fsdp_csv_row *row);
/* Remove the fields of a row. The row keeps its memory. */
void fsdp_csv_row_clear(fsdp_csv_row *row);
/* Append a field to a row that does not come from a CSV file. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_row_add(fsdp_csv_row *row, const char *text, size_t length);
