/* Splits CSV into rows with libcsv. csv_row.c has the functions for a row that is in memory. A file
 * is passed to libcsv one physical line at a time. A row ends only where a physical line ends, so
 * the line number and the position of each row and each error are known. */
#include "src/data/csv/csv.h"

#include <csv.h>
#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/data/files/lines.h"

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
    if (fsdp_csv_row_add(p->row, data, length) != FSDP_OK)
        p->failed = true;
}

static void end_row(int terminator, void *arg)
{
    (void)terminator;
    ((parser *)arg)->done = true;
}

static fsdp_status parser_init(parser *p, const fsdp_csv_format *format)
{
    *p = (parser){0};
    if (csv_init(&p->csv, CSV_STRICT | CSV_STRICT_FINI) != 0)
        return fsdp_error(FSDP_ERR_INVALID, "libcsv cannot be set up");
    csv_set_realloc_func(&p->csv, csv_realloc);
    csv_set_free_func(&p->csv, fsdp_free);
    csv_set_space_func(&p->csv, never_space); /* RFC 4180: spaces are part of a field */
    csv_set_blk_size(&p->csv, 1 << 14);
    if (format && format->delimiter)
        csv_set_delim(&p->csv, (unsigned char)format->delimiter);
    if (format && format->no_quotes)
        csv_set_quote(&p->csv, 0); /* never found, because lines.c refuses a NUL in the text */
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
                      "a quote inside an unquoted field, or text after a closing quote; with "
                      "--no-csv-quotes, a quote is an ordinary character");
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

fsdp_status fsdp_csv_parse_row(const char *text, size_t bytes, const fsdp_csv_format *format,
                               fsdp_csv_row *row)
{
    parser p;
    FSDP_TRY(parser_init(&p, format));
    fsdp_csv_row_clear(row);
    p.row = row;
    fsdp_status status = parser_feed(&p, text, bytes);
    if (status == FSDP_OK && !p.done)
        status = parser_finish(&p);
    csv_free(&p.csv);
    return status;
}

/* ---- files ---- */

struct fsdp_csv {
    fsdp_input *input; /* owned; NULL if the caller owns it */
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
    fsdp_csv_row_clear(row);
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

static fsdp_status begin(fsdp_csv *csv, fsdp_input *input, const char *path,
                         const fsdp_csv_format *format)
{
    FSDP_TRY(parser_init(&csv->parser, format));
    if (!(csv->path = fsdp_strdup(path)))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_lines_of_input(input, path, &csv->lines));
    FSDP_TRY(read_row(csv, &csv->header));
    if (csv->header.line)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "%s: empty, without even a header row", path);
}

fsdp_status fsdp_csv_of_input(fsdp_input *input, const char *path, const fsdp_csv_format *format,
                              fsdp_csv **out)
{
    fsdp_csv *csv = fsdp_calloc(1, sizeof *csv);
    if (!csv)
        return FSDP_ERR_NOMEM;
    fsdp_status status = begin(csv, input, path, format);
    if (status != FSDP_OK) {
        fsdp_csv_close(csv);
        return status;
    }
    *out = csv;
    return FSDP_OK;
}

fsdp_status fsdp_csv_open(const char *path, fsdp_csv **out)
{
    fsdp_input *input;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_csv_of_input(input, path, NULL, out);
    if (status == FSDP_OK)
        (*out)->input = input;
    else
        fsdp_input_close(input);
    return status;
}

void fsdp_csv_close(fsdp_csv *csv)
{
    if (!csv)
        return;
    csv_free(&csv->parser.csv);
    fsdp_lines_close(csv->lines);
    fsdp_input_close(csv->input);
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
