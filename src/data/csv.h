/* CSV as RFC 4180 has it, over libcsv in its strict mode: rows with the line they start on and
 * their place in the file, so that a row can be read again by itself. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

/* A row's fields; start with {0}, reuse it. Line ends within a field are LF, as Python's text mode
 * gives them. */
typedef struct fsdp_csv_row {
    char *bytes; /* the fields one after the other, each followed by NUL */
    size_t len, cap;
    size_t *ends; /* [fields]: where each ends in bytes, before its NUL */
    size_t fields, ends_cap;
    int64_t line;    /* physical line on which the row starts, from 1; 0 behind the last row */
    uint64_t offset; /* of its first byte in the file */
    uint64_t size;   /* bytes of it, with the line end */
} fsdp_csv_row;

void fsdp_csv_row_fini(fsdp_csv_row *row);
/* [*length], NUL-terminated, may be changed in place. */
char *fsdp_csv_field(const fsdp_csv_row *row, size_t index, size_t *length);

typedef struct fsdp_csv fsdp_csv;

/* Opens the file and reads its header row. FSDP_ERR_FORMAT if there is none. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_open(const char *path, fsdp_csv **out);
void fsdp_csv_close(fsdp_csv *csv); /* accepts NULL */
const fsdp_csv_row *fsdp_csv_header(const fsdp_csv *csv);

/* The next row that is not blank; row->line is 0 behind the last. FSDP_ERR_FORMAT names path, line
 * and what is wrong: number of fields, a quote where none may be, a quote that is never closed. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_next(fsdp_csv *csv, fsdp_csv_row *row);

/* The one row in `text` [bytes]; line, offset and size are left as they are. Any thread. */
FSDP_MUST_CHECK fsdp_status fsdp_csv_parse_row(const char *text, size_t bytes, fsdp_csv_row *row);
