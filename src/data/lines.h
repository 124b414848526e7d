/* Physical lines of a text file with their numbers and offsets. CSV and JSON lines are read through
 * it, so that errors name the line that an editor shows. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_lines fsdp_lines;

typedef struct fsdp_line {
    const char *text; /* [length] without the line end; valid until the next one is read */
    size_t length;
    size_t bytes;    /* including the line end: LF, CRLF, CR, or none at the end of the file */
    uint64_t offset; /* in the file */
    int64_t number;  /* from 1 */
} fsdp_line;

enum {
    FSDP_LINE_BYTES_MAX = 64 << 20 /* of a line, and of a CSV row that spans several lines */
};

/* FSDP_ERR_NOT_FOUND or FSDP_ERR_IO names the path. A byte order mark is skipped. */
FSDP_MUST_CHECK fsdp_status fsdp_lines_open(const char *path, fsdp_lines **out);
void fsdp_lines_close(fsdp_lines *lines); /* accepts NULL */
/* Read the next line; text is NULL at the end of the file. FSDP_ERR_FORMAT, with path and line, if
 * a line is not UTF-8, contains a NUL character or is too long. */
FSDP_MUST_CHECK fsdp_status fsdp_lines_next(fsdp_lines *lines, fsdp_line *line);
