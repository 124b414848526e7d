/* Reads the physical lines of a text file, with their numbers and offsets. CSV and JSON lines are
 * read line by line, so that error messages contain the line number that an editor shows. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

#include "src/data/files/input.h"

typedef struct fsdp_lines fsdp_lines;

typedef struct fsdp_line {
    const char *text; /* [length] without the line end; valid until the next line is read */
    size_t length;
    size_t bytes;    /* size including the line end, which is LF, CRLF, CR, or nothing at the end of
                        the file */
    uint64_t offset; /* offset of the line in the file */
    int64_t number;  /* number of the line, from 1 */
} fsdp_line;

enum {
    FSDP_LINE_BYTES_MAX = 64 << 20 /* limit in bytes of a line, and of a CSV row that spans several
                                      lines */
};

/* Open a file, which may be compressed, and skip its byte order mark, if any. Errors name the path.
 * Numbers and offsets of lines are those of the decompressed text. */
FSDP_MUST_CHECK fsdp_status fsdp_lines_open(const char *path, fsdp_lines **out);
/* Like fsdp_lines_open(), for a file that is open: `input` is at its first byte, and is borrowed
 * until fsdp_lines_close(). */
FSDP_MUST_CHECK fsdp_status fsdp_lines_of_input(fsdp_input *input, const char *path,
                                                fsdp_lines **out);
void fsdp_lines_close(fsdp_lines *lines); /* accepts NULL */
/* Read the next line. At the end of the file, line->text is NULL. Returns FSDP_ERR_FORMAT if the
 * line is not UTF-8, contains a NUL character or is too long. The message contains path and line
 * number. */
FSDP_MUST_CHECK fsdp_status fsdp_lines_next(fsdp_lines *lines, fsdp_line *line);
/* Return true if the line contains only spaces and tabs. */
bool fsdp_line_is_blank(const fsdp_line *line);
