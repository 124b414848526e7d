/* See json_rows.h. A scanner finds the end of a value by counting brackets outside of strings. It
 * does not check the value; the JSON parser does that when the row is parsed. */
#include "src/data/json/json_rows.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/data/files/lines.h"

enum {
    READ_BYTES = 1 << 18,
    NO_MARK = -1
};

typedef enum form {
    FORM_LINES,
    FORM_ARRAY,
    FORM_FIELD, /* an object with an array under rows->field */
    FORM_VALUES /* objects one after the other */
} form;

typedef struct scanner {
    const char *path; /* path of the file, for error messages */
    fsdp_input *input;
    char *data; /* [len] */
    size_t at, len, cap;
    int64_t mark;  /* index in `data` of the value that is being scanned; its bytes are kept.
                    * NO_MARK: no bytes before data[at] are needed */
    uint64_t base; /* offset of data[0] in the file */
    int64_t line;  /* line of data[at], from 1 */
    bool ended;
    fsdp_status status; /* the first failure to read; after it, peek() returns -1 */
} scanner;

struct fsdp_json_rows {
    char *path, *field;
    form form;
    fsdp_lines *lines; /* FORM_LINES */
    scanner scanner;   /* other forms */
    int64_t count;     /* rows that were found so far */
    bool finished;
};

/* ---- bytes ---- */

static fsdp_status read_more(scanner *s)
{
    const size_t first = s->mark == NO_MARK ? s->at : (size_t)s->mark;
    size_t n;
    if (first) {
        memmove(s->data, s->data + first, s->len - first);
        s->len -= first;
        s->at -= first;
        s->base += first;
        s->mark = s->mark == NO_MARK ? NO_MARK : 0;
    }
    if (s->len > FSDP_LINE_BYTES_MAX)
        return fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": a row of more than %d MiB",
                          s->path, s->line, FSDP_LINE_BYTES_MAX >> 20);
    if (!FSDP_GROW(s->data, s->cap, s->len + READ_BYTES))
        return FSDP_ERR_NOMEM;
    FSDP_TRY(fsdp_input_read(s->input, s->data + s->len, READ_BYTES, &n));
    s->ended = n < READ_BYTES;
    s->len += n;
    return FSDP_OK;
}

/* Return the next byte without taking it. Return -1 at the end of the file, or if reading has
 * failed; s->status is then an error. */
static int peek(scanner *s)
{
    if (s->at == s->len && !s->ended && s->status == FSDP_OK)
        s->status = read_more(s);
    return s->at < s->len && s->status == FSDP_OK ? (unsigned char)s->data[s->at] : -1;
}

static int take(scanner *s)
{
    const int byte = peek(s);
    if (byte >= 0)
        s->at++;
    s->line += byte == '\n';
    return byte;
}

static int skip_space(scanner *s)
{
    int byte = peek(s);
    while (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r') {
        take(s);
        byte = peek(s);
    }
    return byte;
}

static void skip_byte_order_mark(scanner *s)
{
    if (peek(s) == 0xEF && s->len >= 3 && memcmp(s->data, "\xEF\xBB\xBF", 3) == 0)
        s->at = 3;
}

/* ---- values: these functions return false if the value has no end ---- */

static bool skip_string(scanner *s)
{
    take(s); /* the quote */
    for (;;) {
        const int byte = take(s);
        if (byte == '"')
            return true;
        if (byte < 0 || byte == '\n')
            return false;
        if (byte == '\\')
            take(s);
    }
}

/* Skip the rest of arrays and objects until `depth` of them have ended. */
static bool skip_nested(scanner *s, int64_t depth)
{
    while (depth) {
        const int byte = peek(s);
        if (byte < 0)
            return false;
        if (byte == '"') {
            if (!skip_string(s))
                return false;
            continue;
        }
        depth += byte == '{' || byte == '[';
        depth -= byte == '}' || byte == ']';
        take(s);
    }
    return true;
}

static bool skip_value(scanner *s)
{
    int byte = peek(s);
    if (byte == '"')
        return skip_string(s);
    if (byte == '{' || byte == '[') {
        take(s);
        return skip_nested(s, 1);
    }
    const size_t before = s->at + (size_t)s->base;
    while (byte >= 0 && !strchr(",]} \t\r\n", byte)) {
        take(s);
        byte = peek(s);
    }
    return s->at + (size_t)s->base > before;
}

/* Take the key of an object's entry and the colon after it. Set *is_field to true if `field` is not
 * NULL and the key is `field`, otherwise to false. A NUL in the key does not match the NUL that
 * ends `field`. */
static bool take_key(scanner *s, const char *field, bool *is_field)
{
    size_t n = 0;
    int byte;
    *is_field = field != NULL;
    take(s); /* the quote */
    while ((byte = take(s)) != '"') {
        if (byte < 0 || byte == '\n')
            return false;
        *is_field = *is_field && field[n] && field[n] == (char)byte;
        n += *is_field;
        if (byte == '\\')
            take(s);
    }
    *is_field = *is_field && !field[n];
    skip_space(s);
    return take(s) == ':';
}

/* Take the entries of an object up to its end, or up to an array of objects under `field`. The
 * caller has taken the brace of the object. If there is such an array, also take its bracket, and
 * set *found to true; otherwise set *found to false. Return false if the text is malformed. */
static bool find_field(scanner *s, const char *field, bool *found)
{
    *found = false;
    for (;;) {
        bool is_field;
        int byte = skip_space(s);
        if (byte == ',') {
            take(s);
            byte = skip_space(s);
        }
        if (byte == '}') {
            take(s);
            return true;
        }
        if (byte != '"' || !take_key(s, field, &is_field))
            return false;
        if (is_field && skip_space(s) == '[') {
            take(s);
            byte = skip_space(s);
            *found = byte == '{' || byte == ']';
            if (*found)
                return true;
            if (!skip_nested(s, 1))
                return false;
        } else if (skip_space(s) < 0 || !skip_value(s)) {
            return false;
        }
    }
}

/* ---- the form of a file ---- */

/* Find the form of a file that begins with an object. */
static form form_of_object(scanner *s, const char *field)
{
    const int64_t first = s->line;
    bool has_field, again;
    take(s);
    bool whole = find_field(s, field, &has_field);
    if (whole && has_field)
        whole = skip_nested(s, 1) && find_field(s, NULL, &again);
    const bool spans_lines = s->line > first;
    if (!whole)
        return has_field && spans_lines ? FORM_FIELD : FORM_LINES;
    if (has_field && skip_space(s) < 0)
        return FORM_FIELD;
    return spans_lines ? FORM_VALUES : FORM_LINES;
}

static void begin(scanner *s, fsdp_input *input)
{
    s->input = input;
    s->at = s->len = 0;
    s->mark = NO_MARK;
    s->base = 0;
    s->line = 1;
    s->ended = false;
    s->status = FSDP_OK;
}

static fsdp_status find_form(fsdp_json_rows *rows, fsdp_input *input)
{
    scanner *s = &rows->scanner;
    begin(s, input);
    skip_byte_order_mark(s);
    const int byte = skip_space(s);
    rows->form = byte == '['   ? FORM_ARRAY
                 : byte == '{' ? form_of_object(s, rows->field)
                               : FORM_LINES;
    FSDP_TRY(s->status);
    return fsdp_input_rewind(input);
}

/* Go to the first row. */
static fsdp_status enter(fsdp_json_rows *rows, fsdp_input *input)
{
    bool found = true;
    scanner *s = &rows->scanner;
    if (rows->form == FORM_LINES)
        return fsdp_lines_of_input(input, rows->path, &rows->lines);
    begin(s, input);
    skip_byte_order_mark(s);
    skip_space(s);
    if (rows->form == FORM_ARRAY || rows->form == FORM_FIELD)
        take(s);
    if (rows->form == FORM_FIELD && !find_field(s, rows->field, &found))
        found = false;
    FSDP_TRY(s->status);
    return found
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_IO, "%s: the file has changed while it was read", rows->path);
}

static fsdp_status open_rows(fsdp_json_rows *rows, fsdp_input *input, const char *path,
                             const char *field)
{
    rows->scanner.path = rows->path = fsdp_strdup(path);
    rows->field = fsdp_strdup(field ? field : "data");
    if (!rows->path || !rows->field)
        return FSDP_ERR_NOMEM;
    FSDP_TRY(find_form(rows, input));
    if (field && rows->form != FORM_FIELD)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: not one object with an array of objects under its key '%s' "
                          "(--json-field)",
                          path, field);
    return enter(rows, input);
}

fsdp_status fsdp_json_rows_open(fsdp_input *input, const char *path, const char *field,
                                fsdp_json_rows **out)
{
    fsdp_json_rows *rows = fsdp_calloc(1, sizeof *rows);
    if (!rows)
        return FSDP_ERR_NOMEM;
    fsdp_status status = open_rows(rows, input, path, field);
    if (status != FSDP_OK) {
        fsdp_json_rows_close(rows);
        return status;
    }
    *out = rows;
    return FSDP_OK;
}

void fsdp_json_rows_close(fsdp_json_rows *rows)
{
    if (!rows)
        return;
    fsdp_lines_close(rows->lines);
    fsdp_free(rows->scanner.data);
    fsdp_free(rows->path);
    fsdp_free(rows->field);
    fsdp_free(rows);
}

/* ---- rows ---- */

static fsdp_status next_line(fsdp_json_rows *rows, fsdp_json_row *row)
{
    fsdp_line line;
    do
        FSDP_TRY(fsdp_lines_next(rows->lines, &line));
    while (line.text && fsdp_line_is_blank(&line));
    *row = (fsdp_json_row){
        .text = line.text, .length = line.length, .offset = line.offset, .line = line.number};
    return FSDP_OK;
}

/* Return the error for the row that the scanner has begun, or for what follows the last row. */
static fsdp_status malformed(fsdp_json_rows *rows, const char *what)
{
    scanner *s = &rows->scanner;
    const int byte = peek(s);
    FSDP_TRY(s->status);
    const fsdp_status status =
        byte < 0 ? fsdp_error(FSDP_ERR_FORMAT, "the file ends too early: %s", what)
                 : fsdp_error(FSDP_ERR_FORMAT, "unexpected '%c': %s", byte, what);
    fsdp_error_context(status, "%s: row %" PRId64 " (line %" PRId64 ")", rows->path,
                       rows->count + 1, s->line);
    return status;
}

/* Take what follows the array of rows: nothing, or the other entries of an object. */
static fsdp_status finish(fsdp_json_rows *rows)
{
    scanner *s = &rows->scanner;
    bool found = false;
    const bool whole = rows->form != FORM_FIELD || find_field(s, rows->field, &found);
    rows->finished = true;
    if (found)
        return malformed(rows, "a second array of rows under the same key");
    if (!whole || skip_space(s) >= 0 || s->status != FSDP_OK)
        return malformed(rows, "nothing may follow the array of rows but the end of the file");
    return FSDP_OK;
}

/* Go to the next entry of the array, and set *any to true. At the end of the array, set *any to
 * false. */
static fsdp_status next_entry(fsdp_json_rows *rows, bool *any)
{
    scanner *s = &rows->scanner;
    int byte = skip_space(s);
    *any = byte != ']';
    if (!*any) {
        take(s);
        return finish(rows);
    }
    if (rows->count == 0)
        return FSDP_OK;
    if (byte != ',')
        return malformed(rows, "a comma or the end of the array of rows is missing");
    take(s);
    skip_space(s);
    return FSDP_OK;
}

static fsdp_status scan_row(fsdp_json_rows *rows, fsdp_json_row *row)
{
    scanner *s = &rows->scanner;
    s->mark = (int64_t)s->at;
    row->line = s->line;
    if (!skip_value(s)) {
        s->line = row->line;
        return malformed(rows, "a value is missing or has no end");
    }
    row->text = s->data + s->mark;
    row->length = s->at - (size_t)s->mark;
    row->offset = s->base + (uint64_t)s->mark;
    row->number = ++rows->count;
    s->mark = NO_MARK;
    return FSDP_OK;
}

fsdp_status fsdp_json_rows_next(fsdp_json_rows *rows, fsdp_json_row *row)
{
    bool any = !rows->finished;
    *row = (fsdp_json_row){0};
    if (rows->form == FORM_LINES)
        return next_line(rows, row);
    if (any && rows->form == FORM_VALUES)
        any = skip_space(&rows->scanner) >= 0;
    else if (any)
        FSDP_TRY(next_entry(rows, &any));
    if (any)
        return scan_row(rows, row);
    rows->finished = true;
    return rows->scanner.status;
}

void fsdp_json_row_context(fsdp_status status, const char *path, const fsdp_json_row *row)
{
    if (row->number)
        fsdp_error_context(status, "%s: row %" PRId64 " (line %" PRId64 ")", path, row->number,
                           row->line);
    else
        fsdp_error_context(status, "%s: line %" PRId64, path, row->line);
}

fsdp_status fsdp_json_row_parse(const char *path, const fsdp_json_row *row, fsdp_json **doc)
{
    fsdp_status status = fsdp_json_parse("row", row->line, row->text, row->length, doc);
    if (status == FSDP_OK)
        return FSDP_OK;
    fsdp_error_context(status, "%s", path); /* the message already contains line and column */
    if (status == FSDP_ERR_FORMAT && row->line == 1)
        FSDP_TRY(fsdp_file_explain(path, "JSON lines", FSDP_WANTED_TEXT, row->text, row->length));
    return status;
}
