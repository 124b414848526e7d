/* See text_rows.h. A row of CSV is returned with all of its fields. A row of JSON or Arrow is
 * turned into a row with only the fields that are used: the source, if there is one, the target,
 * and for CLASSIFICATION the label. */
#include "src/data/rows/text_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/file_kind.h"
#include "src/base/str.h"
#include "src/data/arrow/arrow_note.h"
#include "src/data/arrow/table.h"
#include "src/data/csv/csv_delimiter.h"
#include "src/data/json/json_rows.h"
#include "src/data/json/jsonl_keys.h"
#include "src/data/rows/missing_column.h"
#include "src/data/rows/text_columns.h"

struct fsdp_text_rows {
    char *path;
    fsdp_rows_form form;
    fsdp_input *input;       /* NULL for Arrow */
    fsdp_arrow_table *table; /* Arrow */
    int64_t next;            /* Arrow: index of the row that fsdp_text_rows_next() returns next */
    fsdp_csv_format format;
    fsdp_csv *csv;             /* CSV, until fsdp_text_rows_end() */
    fsdp_json_rows *json_rows; /* JSON, until fsdp_text_rows_end() */
    fsdp_text_columns columns;
    size_t label;                 /* index of the field; only if columns.label is set */
    size_t source, target, title; /* indices of fields; `source` only if columns.source is set, and
                                     `title` only if it was asked for */
    size_t fields;                /* number of fields of a row */
    fsdp_unused_keys unused;
    bool found_delimiter; /* the delimiter was not given, and is not the usual one */
};

/* ---- columns of CSV ---- */

/* Return the error for a column that the header lacks. `options` is NULL if no option can name this
 * column. */
static fsdp_status missing_column(const fsdp_text_rows *r, const fsdp_csv_row *header,
                                  const char *name, const fsdp_dataset_options *options)
{
    const fsdp_dataset_options none = {0};
    char quoted[8];
    size_t length;
    const char *first = fsdp_csv_field(header, 0, &length);
    /* A web page is text, so its first line was read as a header. */
    FSDP_TRY(fsdp_file_explain(r->path, "CSV", FSDP_WANTED_TEXT, first, length));
    fsdp_status status =
        fsdp_missing_header_column(options ? options : &none, name, options, header);
    if (status == FSDP_ERR_FORMAT && r->found_delimiter)
        status = fsdp_error(status, "%s (fields are separated by %s)", fsdp_last_error(),
                            fsdp_csv_delimiter_name(r->format.delimiter, quoted));
    fsdp_error_context(status, "%s: line %" PRId64, r->path, header->line);
    return status;
}

static fsdp_status find_column(const fsdp_text_rows *r, const fsdp_csv_row *header,
                               const char *name, const fsdp_dataset_options *options, size_t *index)
{
    size_t found = header->fields;
    for (size_t i = 0; i < header->fields; i++) {
        if (!fsdp_csv_field_is(header, i, name))
            continue;
        if (found < header->fields)
            return fsdp_error(FSDP_ERR_FORMAT, "%s: line %" PRId64 ": two columns are named '%s'",
                              r->path, header->line, name);
        found = i;
    }
    if (found == header->fields)
        return missing_column(r, header, name, options);
    *index = found;
    return FSDP_OK;
}

static fsdp_status both_are(const fsdp_text_rows *r)
{
    return fsdp_error(FSDP_ERR_INVALID, "%s: column '%s' is both source and target", r->path,
                      r->columns.source);
}

static fsdp_status find_columns(fsdp_text_rows *r, const fsdp_csv_row *header, bool titles,
                                const fsdp_dataset_options *options)
{
    const char *unknown = fsdp_first_unknown_column(options, fsdp_header_has, header);
    r->fields = header->fields;
    if (unknown)
        return missing_column(r, header, unknown, options);
    if (r->columns.source)
        FSDP_TRY(find_column(r, header, r->columns.source, options, &r->source));
    FSDP_TRY(find_column(r, header, r->columns.target, options, &r->target));
    if (r->columns.source && r->source == r->target)
        return both_are(r);
    if (r->columns.label)
        FSDP_TRY(find_column(r, header, r->columns.label, options, &r->label));
    return titles ? find_column(r, header, "title", NULL, &r->title) : FSDP_OK;
}

/* Remember the columns that are not used, for the note. */
static fsdp_status collect_columns(fsdp_text_rows *r, const fsdp_csv_row *header, bool titles)
{
    for (size_t i = 0; i < header->fields; i++) {
        size_t length;
        const char *name = fsdp_csv_field(header, i, &length);
        if (i == r->target || (r->columns.source && i == r->source) ||
            (r->columns.label && i == r->label) || (titles && i == r->title))
            continue;
        FSDP_TRY(fsdp_collect_unused_key(name, 0, &r->unused));
    }
    return FSDP_OK;
}

/* ---- opening CSV ---- */

static fsdp_status open_csv(fsdp_text_rows *r, const fsdp_dataset_options *options)
{
    fsdp_dataset_options copy = *options;
    r->format =
        (fsdp_csv_format){.delimiter = options->delimiter, .no_quotes = options->no_csv_quotes};
    FSDP_TRY(fsdp_csv_open_fitting(r->input, r->path, &r->format, fsdp_header_fits, &copy,
                                   &r->found_delimiter, &r->csv));
    return fsdp_text_columns_choose(options, fsdp_header_has, fsdp_csv_header(r->csv), &r->columns);
}

/* ---- JSON ---- */

static bool has_text(const void *row, const char *name)
{
    const fsdp_json_node *object = row;
    const fsdp_json_kind kind = fsdp_json_kind_of(fsdp_text_find(*object, name));
    if (strcmp(name, "label") == 0 ||
        strcmp(name, "labels") == 0) /* a label may also be a number or a list */
        return kind != FSDP_JSON_NONE && kind != FSDP_JSON_NULL;
    return kind == FSDP_JSON_STRING;
}

/* Return the error for a row of translations without options that say which language is which. */
static fsdp_status languages_needed(fsdp_json_node row)
{
    fsdp_str names = {0};
    fsdp_json_node translation = fsdp_json_find(row, "translation");
    for (fsdp_json_node v = fsdp_json_first(translation); v.value; v = fsdp_json_next(v))
        fsdp_str_printf(&names, "%s%.20s", names.len ? ", " : "", v.key);
    char *text = fsdp_str_take(&names);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_error(FSDP_ERR_INVALID,
                                    "translation has %s: --source-lang and --target-lang say which "
                                    "is the source and which the target",
                                    text);
    fsdp_free(text);
    return status;
}

/* Check that the first row has the keys that the options name, and the keys in r->columns. The
 * values of these keys are checked with each row. */
static fsdp_status check_first_keys(const fsdp_text_rows *r, fsdp_json_node row,
                                    const fsdp_dataset_options *options)
{
    const char *name = fsdp_first_missing_text(options, &r->columns, fsdp_row_has_key, &row);
    if (!name && r->columns.label && !fsdp_row_has_key(&row, r->columns.label))
        name = r->columns.label;
    if (!name || fsdp_json_kind_of(row) != FSDP_JSON_OBJECT)
        return FSDP_OK;
    return fsdp_missing_key(options, name, true, row, r->form == FSDP_ROWS_ARROW);
}

static fsdp_status choose_keys(fsdp_text_rows *r, fsdp_json_node row,
                               const fsdp_dataset_options *options)
{
    FSDP_TRY(fsdp_text_columns_choose(options, has_text, &row, &r->columns));
    r->target = r->columns.source ? 1 : 0;
    r->label = r->target + 1;
    r->fields = r->label + (r->columns.label ? 1 : 0);
    if (r->columns.source && strcmp(r->columns.source, r->columns.target) == 0)
        return both_are(r);
    const bool named = options->source_lang || options->source_column || options->target_column;
    if (!named && !has_text(&row, r->columns.target) &&
        fsdp_json_kind_of(fsdp_json_find(row, "translation")) == FSDP_JSON_OBJECT)
        return languages_needed(row);
    return check_first_keys(r, row, options);
}

/* Return `status`, but FSDP_ERR_FORMAT instead of FSDP_ERR_NOT_FOUND, because a row that lacks a
 * key is malformed. */
static fsdp_status missing(fsdp_status status)
{
    return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
}

static fsdp_status add_text(fsdp_json_node object, const char *name, fsdp_csv_row *row)
{
    const char *text;
    size_t length;
    const fsdp_json_node found = fsdp_text_find(object, name);
    if (!found.value || fsdp_json_kind_of(found) == FSDP_JSON_NULL)
        return missing(fsdp_json_mismatch(object, name, "a text"));
    FSDP_TRY(fsdp_json_get_strn(found, NULL, &text, &length));
    return fsdp_csv_row_add(row, text, length);
}

/* Append a list of labels, as JSON. */
static fsdp_status add_list(fsdp_json_node list, fsdp_csv_row *row)
{
    static const char before[] = "{\"labels\":";
    fsdp_json *doc;
    char *text = NULL;
    size_t bytes;
    FSDP_TRY(fsdp_json_create("label", &doc));
    fsdp_json_set_shared(fsdp_json_root(doc), "labels", list);
    fsdp_status status = fsdp_json_print(doc, FSDP_JSON_COMPACT, &text, &bytes);
    if (status == FSDP_OK) /* leave out the object that was made around the list */
        status = fsdp_csv_row_add(row, text + sizeof before - 1, bytes - sizeof before);
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}

/* Append the label of a row: a text as it is, and any other value as JSON. */
static fsdp_status add_label(fsdp_json_node object, const char *name, fsdp_csv_row *row)
{
    const char *text;
    int64_t number;
    double real;
    bool on;
    char digits[40];
    const fsdp_json_node label = fsdp_text_find(object, name);
    switch (fsdp_json_kind_of(label)) {
    case FSDP_JSON_STRING:
        FSDP_TRY(fsdp_json_get_str(label, NULL, &text));
        return fsdp_csv_row_add(row, text, strlen(text));
    case FSDP_JSON_INT:
        FSDP_TRY(fsdp_json_get_i64(label, NULL, INT64_MIN, INT64_MAX, &number));
        snprintf(digits, sizeof digits, "%" PRId64, number);
        return fsdp_csv_row_add(row, digits, strlen(digits));
    case FSDP_JSON_REAL:
        FSDP_TRY(fsdp_json_get_f64(label, NULL, &real));
        snprintf(digits, sizeof digits, "%.17g", real);
        return fsdp_csv_row_add(row, digits, strlen(digits));
    case FSDP_JSON_BOOL:
        FSDP_TRY(fsdp_json_get_bool(label, NULL, &on));
        return fsdp_csv_row_add(row, on ? "1" : "0", 1);
    case FSDP_JSON_ARRAY:
        return add_list(label, row);
    default:
        return missing(fsdp_json_mismatch(object, name, "a class: a name or a number"));
    }
}

static fsdp_status add_texts(const fsdp_text_rows *r, fsdp_json_node object, fsdp_csv_row *row)
{
    fsdp_csv_row_clear(row);
    if (fsdp_json_kind_of(object) != FSDP_JSON_OBJECT)
        return fsdp_json_mismatch(object, NULL, "an object");
    if (r->columns.source)
        FSDP_TRY(add_text(object, r->columns.source, row));
    FSDP_TRY(add_text(object, r->columns.target, row));
    return r->columns.label ? add_label(object, r->columns.label, row) : FSDP_OK;
}

/* Return true if `key` is the key of a text or of the label, or of an object that contains one of
 * them. */
static bool is_used(const fsdp_text_rows *r, const char *key)
{
    const char *const names[] = {r->columns.source, r->columns.target, r->columns.label};
    const size_t n = strlen(key);
    for (size_t i = 0; i < FSDP_LENGTH(names); i++)
        if (names[i] && strncmp(names[i], key, n) == 0 && (!names[i][n] || names[i][n] == '.'))
            return true;
    return false;
}

static fsdp_status check_keys(fsdp_text_rows *r, fsdp_json_node object, int64_t line)
{
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v))
        if (!is_used(r, v.key) && fsdp_json_kind_of(v) != FSDP_JSON_NULL)
            FSDP_TRY(fsdp_unused_key(object, v, line, &r->unused));
    return FSDP_OK;
}

static fsdp_status open_json(fsdp_text_rows *r, const fsdp_dataset_options *options)
{
    fsdp_json_row row;
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_rows_open(r->input, r->path, options->json_field, &r->json_rows));
    FSDP_TRY(fsdp_json_rows_next(r->json_rows, &row));
    if (row.text) {
        FSDP_TRY(fsdp_json_row_parse(r->path, &row, &doc));
        fsdp_status status = choose_keys(r, fsdp_json_root(doc), options);
        fsdp_json_destroy(doc);
        fsdp_json_row_context(status, r->path, &row);
        FSDP_TRY(status);
    }
    fsdp_json_rows_close(r->json_rows); /* begin again, with the first row */
    r->json_rows = NULL;
    FSDP_TRY(fsdp_input_rewind(r->input));
    return fsdp_json_rows_open(r->input, r->path, options->json_field, &r->json_rows);
}

static fsdp_status next_json(fsdp_text_rows *r, fsdp_csv_row *row)
{
    fsdp_json_row found;
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_rows_next(r->json_rows, &found));
    row->line = found.text ? found.line : 0;
    if (!found.text)
        return FSDP_OK;
    row->number = found.number;
    row->offset = found.offset;
    row->size = found.length;
    FSDP_TRY(fsdp_json_row_parse(r->path, &found, &doc));
    fsdp_status status = add_texts(r, fsdp_json_root(doc), row);
    if (status == FSDP_OK)
        status = check_keys(r, fsdp_json_root(doc), found.line);
    fsdp_json_destroy(doc);
    fsdp_json_row_context(status, r->path, &found);
    return status;
}

/* ---- Arrow ---- */

/* If a column is missing, add to the error which columns are not read because of their types. */
static fsdp_status explain_arrow(const fsdp_text_rows *r, fsdp_status status)
{
    const char *left_out = fsdp_arrow_table_left_out(r->table);
    if (status != FSDP_ERR_FORMAT || !left_out)
        return status;
    return fsdp_error(status, "%s (columns whose types are not read: %s)", fsdp_last_error(),
                      left_out);
}

/* Choose the columns by the first row, which has values of all columns that are read. */
static fsdp_status choose_arrow_columns(fsdp_text_rows *r, const fsdp_dataset_options *options)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_arrow_table_row(r->table, 0, &doc));
    fsdp_status status = explain_arrow(r, choose_keys(r, fsdp_json_root(doc), options));
    fsdp_json_destroy(doc);
    fsdp_arrow_table_add_context(r->table, 0, status);
    return status;
}

static fsdp_status open_arrow(fsdp_text_rows *r, const char *path,
                              const fsdp_dataset_options *options)
{
    FSDP_TRY(fsdp_arrow_table_open(
        path, options->validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN,
        &r->table));
    return fsdp_arrow_table_len(r->table) ? choose_arrow_columns(r, options) : FSDP_OK;
}

static fsdp_status read_arrow(const fsdp_text_rows *r, int64_t index, fsdp_csv_row *row,
                              fsdp_json **doc)
{
    FSDP_TRY(fsdp_arrow_table_row(r->table, index, doc));
    fsdp_status status = add_texts(r, fsdp_json_root(*doc), row);
    if (status == FSDP_OK)
        return FSDP_OK;
    fsdp_json_destroy(*doc);
    return explain_arrow(r, status);
}

static fsdp_status next_arrow(fsdp_text_rows *r, fsdp_csv_row *row)
{
    fsdp_json *doc;
    const int64_t index = r->next;
    row->line = 0;
    if (index == fsdp_arrow_table_len(r->table))
        return FSDP_OK;
    fsdp_status status = read_arrow(r, index, row, &doc);
    if (status == FSDP_OK) {
        status = check_keys(r, fsdp_json_root(doc), index + 1);
        fsdp_json_destroy(doc);
    }
    fsdp_arrow_table_add_context(r->table, index, status);
    row->offset = (uint64_t)index;
    row->size = 0;
    row->line = index + 1;
    r->next++;
    return status;
}

/* ---- rows ---- */

static fsdp_status open_rows(fsdp_text_rows *r, const char *path, bool titles,
                             const fsdp_dataset_options *options)
{
    if (!(r->path = fsdp_strdup(path)))
        return FSDP_ERR_NOMEM;
    if (r->form == FSDP_ROWS_ARROW)
        return open_arrow(r, path, options);
    FSDP_TRY(fsdp_input_open_seekable(path, &r->input));
    if (r->form == FSDP_ROWS_JSON)
        return open_json(r, options);
    FSDP_TRY(open_csv(r, options));
    FSDP_TRY(find_columns(r, fsdp_csv_header(r->csv), titles, options));
    return collect_columns(r, fsdp_csv_header(r->csv), titles);
}

fsdp_status fsdp_text_rows_open(const char *path, fsdp_rows_form form, bool titles,
                                const fsdp_dataset_options *options, fsdp_text_rows **out)
{
    fsdp_text_rows *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return FSDP_ERR_NOMEM;
    r->form = form;
    fsdp_status status = open_rows(r, path, titles, options);
    if (status != FSDP_OK) {
        fsdp_text_rows_close(r);
        return status;
    }
    *out = r;
    return FSDP_OK;
}

static void close_scanners(fsdp_text_rows *r)
{
    fsdp_csv_close(r->csv);
    fsdp_json_rows_close(r->json_rows);
    r->csv = NULL;
    r->json_rows = NULL;
    fsdp_unused_keys_fini(&r->unused);
}

void fsdp_text_rows_close(fsdp_text_rows *r)
{
    if (!r)
        return;
    close_scanners(r);
    fsdp_input_close(r->input);
    fsdp_arrow_table_close(r->table);
    fsdp_text_columns_fini(&r->columns);
    fsdp_free(r->path);
    fsdp_free(r);
}

fsdp_status fsdp_text_rows_next(fsdp_text_rows *r, fsdp_csv_row *row)
{
    return r->form == FSDP_ROWS_ARROW  ? next_arrow(r, row)
           : r->form == FSDP_ROWS_JSON ? next_json(r, row)
                                       : fsdp_csv_next(r->csv, row);
}

void fsdp_text_row_context(const fsdp_text_rows *r, fsdp_status status, const fsdp_csv_row *row)
{
    const fsdp_json_row at = {.line = row->line, .number = row->number};
    if (r->form == FSDP_ROWS_ARROW)
        fsdp_arrow_table_add_context(r->table, row->line - 1, status);
    else
        fsdp_json_row_context(status, r->path, &at);
}

void fsdp_text_place_context(const fsdp_text_rows *r, fsdp_status status, uint64_t offset,
                             int64_t line)
{
    if (r->form == FSDP_ROWS_ARROW)
        fsdp_arrow_table_add_context(r->table, (int64_t)offset, status);
    else
        fsdp_error_context(status, "%s: line %" PRId64, r->path, line);
}

static fsdp_status parse_json(const fsdp_text_rows *r, const char *bytes, size_t size,
                              fsdp_csv_row *row)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_parse("row", 1, bytes, size, &doc));
    fsdp_status status = add_texts(r, fsdp_json_root(doc), row);
    fsdp_json_destroy(doc);
    return status;
}

static fsdp_status parse(const fsdp_text_rows *r, const char *bytes, size_t size, fsdp_csv_row *row)
{
    if (r->form == FSDP_ROWS_JSON)
        return parse_json(r, bytes, size, row);
    FSDP_TRY(fsdp_csv_parse_row(bytes, size, &r->format, row));
    if (row->fields == r->fields)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT, "%zu fields instead of %zu", row->fields, r->fields);
}

fsdp_status fsdp_text_rows_read(const fsdp_text_rows *r, uint64_t offset, size_t size,
                                fsdp_csv_row *row)
{
    if (r->form == FSDP_ROWS_ARROW) {
        fsdp_json *doc;
        FSDP_TRY(read_arrow(r, (int64_t)offset, row, &doc));
        fsdp_json_destroy(doc);
        return FSDP_OK;
    }
    char *bytes = fsdp_calloc(size, 1);
    if (!bytes)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_input_read_at(r->input, offset, bytes, size);
    if (status == FSDP_OK) {
        status = parse(r, bytes, size, row);
        if (status == FSDP_ERR_FORMAT)
            fsdp_error_context(status, "the file has changed");
    }
    fsdp_free(bytes);
    return status;
}

/* ---- the note ---- */

/* Append "PATH: ...", with the columns and the delimiter that were guessed. Append nothing if
 * neither the columns nor the delimiter were guessed. */
static void append_findings(const fsdp_text_rows *r, fsdp_str *text)
{
    char quoted[8];
    if (r->columns.guessed || r->found_delimiter)
        fsdp_str_printf(text, "%s: ", r->path);
    if (r->columns.guessed)
        fsdp_str_printf(text, "the %s is '%s', the %s '%s'", r->columns.label ? "text" : "source",
                        r->columns.source, r->columns.label ? "second text" : "target",
                        r->columns.target);
    if (r->found_delimiter)
        fsdp_str_printf(text, "%sfields are separated by %s", r->columns.guessed ? "; " : "",
                        fsdp_csv_delimiter_name(r->format.delimiter, quoted));
}

static fsdp_status make_note(const fsdp_text_rows *r, const fsdp_dataset_options *options,
                             char **note)
{
    fsdp_str text = {0};
    char *unused;
    if (r->form == FSDP_ROWS_ARROW)
        FSDP_TRY(fsdp_arrow_note(r->table, &r->unused, r->columns.label, options, &unused));
    else
        FSDP_TRY(fsdp_unused_keys_note(&r->unused, r->path, &unused));
    append_findings(r, &text);
    if (!text.len && !text.failed) {
        *note = unused;
        return FSDP_OK;
    }
    if (unused && r->form == FSDP_ROWS_ARROW)
        fsdp_str_printf(&text, "\n%s", unused);
    else if (unused)
        fsdp_str_printf(&text, ";%s", unused + strlen(r->path) + 1); /* without "PATH:" */
    fsdp_free(unused);
    *note = fsdp_str_take(&text);
    return *note ? FSDP_OK : FSDP_ERR_NOMEM;
}

fsdp_status fsdp_text_rows_end(fsdp_text_rows *r, const fsdp_dataset_options *options, char **note)
{
    *note = NULL;
    fsdp_status status = make_note(r, options, note);
    close_scanners(r);
    return status;
}

/* ---- texts ---- */

char *fsdp_text_rows_source(const fsdp_text_rows *r, const fsdp_csv_row *row, size_t *length)
{
    static char none[] = "";
    *length = 0;
    return r->columns.source ? fsdp_csv_field(row, r->source, length) : none;
}

char *fsdp_text_rows_target(const fsdp_text_rows *r, const fsdp_csv_row *row, size_t *length)
{
    return fsdp_csv_field(row, r->target, length);
}

bool fsdp_text_rows_have_source(const fsdp_text_rows *r)
{
    return r->columns.source != NULL;
}

fsdp_json_node fsdp_text_rows_class_names(const fsdp_text_rows *r)
{
    return r->table ? fsdp_arrow_table_class_names(r->table, r->columns.label)
                    : (fsdp_json_node){0};
}

const char *fsdp_text_rows_label(const fsdp_text_rows *r, const fsdp_csv_row *row)
{
    size_t length;
    return fsdp_csv_field(row, r->label, &length);
}

char *fsdp_text_rows_title(const fsdp_text_rows *r, const fsdp_csv_row *row, size_t *length)
{
    return fsdp_csv_field(row, r->title, length);
}

char *fsdp_text_row_copy(const char *text, size_t length)
{
    fsdp_str copy = {0};
    fsdp_str_append(&copy, "", 0);
    for (size_t at = 0; at < length; at++) {
        const size_t n = strnlen(text + at, length - at);
        fsdp_str_append(&copy, text + at, n);
        at += n;
        if (at < length)
            fsdp_str_append(&copy, "\xEF\xBF\xBD", 3);
    }
    return fsdp_str_take(&copy);
}
