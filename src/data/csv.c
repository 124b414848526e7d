/* Splits CSV into rows with libcsv. A file is passed to libcsv one physical line at a time. A row
 * ends only where a physical line ends, so the line number and the position of each row and each
 * error are known. */
#include "src/data/csv.h"

#include <csv.h>
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/lines.h"

/* ---- rows ---- */

/* State that the callbacks of libcsv fill in. */
typedef struct parser {
    struct csv_parser csv;
    fsdp_csv_row *row;
    bool done;   /* the row has ended */
    bool failed; /* out of memory */
} parser;

static void *csv_realloc(void *p, size_t bytes)
{
    return fsdp_realloc(p, bytes, 1);
}

static int never_space(unsigned char byte)
{
    (void)byte;
    return 0;
}

static void add_field(void *data, size_t length, void *arg)
{
    parser *p = arg;
    fsdp_csv_row *row = p->row;
    if (!FSDP_GROW(row->bytes, row->cap, row->len + length + 1) ||
        !FSDP_GROW(row->ends, row->ends_cap, row->fields + 1)) {
        p->failed = true;
        return;
    }
    const char *from = data;
    for (size_t i = 0; i < length; i++) {
        char byte = from[i];
        if (byte == '\r') {
            byte = '\n';
            i += i + 1 < length && from[i + 1] == '\n';
        }
        row->bytes[row->len++] = byte;
    }
    row->ends[row->fields++] = row->len;
    row->bytes[row->len++] = 0;
}

static void end_row(int terminator, void *arg)
{
    (void)terminator;
    ((parser *)arg)->done = true;
}

static fsdp_status parser_init(parser *p)
{
    *p = (parser){0};
    if (csv_init(&p->csv, CSV_STRICT | CSV_STRICT_FINI) != 0)
        return fsdp_error(FSDP_ERR_INVALID, "libcsv cannot be set up");
    csv_set_realloc_func(&p->csv, csv_realloc);
    csv_set_free_func(&p->csv, fsdp_free);
    csv_set_space_func(&p->csv, never_space); /* RFC 4180: spaces are part of a field */
    csv_set_blk_size(&p->csv, 1 << 14);
    return FSDP_OK;
}

/* Parse `text`, which is the next part of p->row. */
static fsdp_status parser_feed(parser *p, const char *text, size_t bytes)
{
    size_t n = csv_parse(&p->csv, text, bytes, add_field, end_row, p);
    if (p->failed)
        return FSDP_ERR_NOMEM;
    if (n == bytes)
        return FSDP_OK;
    if (csv_error(&p->csv) != CSV_EPARSE)
        return fsdp_error_nomem();
    return fsdp_error(FSDP_ERR_FORMAT,
                      "a quote inside an unquoted field, or text behind a closing quote");
}

/* End p->row, because the text or the file has ended. */
static fsdp_status parser_finish(parser *p)
{
    int failure = csv_fini(&p->csv, add_field, end_row, p);
    if (p->failed)
        return FSDP_ERR_NOMEM;
    if (failure && csv_error(&p->csv) == CSV_EPARSE)
        return fsdp_error(FSDP_ERR_FORMAT, "a quoted field is never closed");
    return failure ? fsdp_error_nomem() : FSDP_OK;
}

static void clear_row(fsdp_csv_row *row)
{
    row->len = row->fields = 0;
}

fsdp_status fsdp_csv_parse_row(const char *text, size_t bytes, fsdp_csv_row *row)
{
    parser p;
    FSDP_TRY(parser_init(&p));
    clear_row(row);
    p.row = row;
    fsdp_status status = parser_feed(&p, text, bytes);
    if (status == FSDP_OK && !p.done)
        status = parser_finish(&p);
    csv_free(&p.csv);
    return status;
}

void fsdp_csv_row_fini(fsdp_csv_row *row)
{
    fsdp_free(row->bytes);
    fsdp_free(row->ends);
    *row = (fsdp_csv_row){0};
}

char *fsdp_csv_field(const fsdp_csv_row *row, size_t index, size_t *length)
{
    size_t start = index ? row->ends[index - 1] + 1 : 0;
    *length = row->ends[index] - start;
    return row->bytes + start;
}

/* ---- files ---- */

struct fsdp_csv {
    fsdp_lines *lines;
    char *path;
    parser parser;
    fsdp_csv_row header;
};

static fsdp_status add_line(fsdp_csv *csv, fsdp_csv_row *row, const fsdp_line *line)
{
    row->size += line->bytes;
    if (row->size > FSDP_LINE_BYTES_MAX)
        return fsdp_error(FSDP_ERR_FORMAT, "longer than %d MiB: is a quoted field never closed?",
                          FSDP_LINE_BYTES_MAX >> 20);
    fsdp_status status = parser_feed(&csv->parser, line->text, line->bytes);
    if (line->number != row->line)
        fsdp_error_context(status, "(continued on line %" PRId64 ")", line->number);
    return status;
}

/* Read the lines of the next row that is not blank. If there is none, row->line is set to 0. */
static fsdp_status read_row(fsdp_csv *csv, fsdp_csv_row *row)
{
    clear_row(row);
    row->line = 0;
    csv->parser.row = row;
    csv->parser.done = false;
    while (!csv->parser.done) {
        fsdp_line line;
        fsdp_status read = fsdp_lines_next(csv->lines, &line);
        if (read != FSDP_OK) {
            if (row->line)
                fsdp_error_context(read, "row that starts on line %" PRId64, row->line);
            return read;
        }
        if (!line.text && !row->line)
            return FSDP_OK;
        if (!row->line) {
            if (fsdp_line_is_blank(&line))
                continue;
            row->line = line.number;
            row->offset = line.offset;
            row->size = 0;
        }
        fsdp_status status = line.text ? add_line(csv, row, &line) : parser_finish(&csv->parser);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "%s: line %" PRId64, csv->path, row->line);
            return status;
        }
    }
    return FSDP_OK;
}

fsdp_status fsdp_csv_open(const char *path, fsdp_csv **out)
{
    fsdp_csv *csv = fsdp_calloc(1, sizeof *csv);
    if (!csv)
        return FSDP_ERR_NOMEM;
    fsdp_status status = parser_init(&csv->parser);
    if (status == FSDP_OK && !(csv->path = fsdp_strdup(path)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_lines_open(path, &csv->lines);
    if (status == FSDP_OK)
        status = read_row(csv, &csv->header);
    if (status == FSDP_OK && csv->header.line == 0)
        status = fsdp_error(FSDP_ERR_FORMAT, "%s: empty, without even a header row", path);
    if (status != FSDP_OK) {
        fsdp_csv_close(csv);
        return status;
    }
    *out = csv;
    return FSDP_OK;
}

void fsdp_csv_close(fsdp_csv *csv)
{
    if (!csv)
        return;
    csv_free(&csv->parser.csv);
    fsdp_lines_close(csv->lines);
    fsdp_csv_row_fini(&csv->header);
    fsdp_free(csv->path);
    fsdp_free(csv);
}

const fsdp_csv_row *fsdp_csv_header(const fsdp_csv *csv)
{
    return &csv->header;
}

fsdp_status fsdp_csv_next(fsdp_csv *csv, fsdp_csv_row *row)
{
    FSDP_TRY(read_row(csv, row));
    if (row->line && row->fields != csv->header.fields)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: line %" PRId64 ": %zu field%s, but the header has %zu", csv->path,
                          row->line, row->fields, row->fields == 1 ? "" : "s", csv->header.fields);
    return FSDP_OK;
}
