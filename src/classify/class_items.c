/* See class_items.h. A row of any file format is converted to a JSON object. So choosing the
 * columns and writing the results is the same code for all formats. */
#include "src/classify/class_items.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/data/arrow/table.h"
#include "src/data/csv/csv.h"
#include "src/data/csv/csv_delimiter.h"
#include "src/data/files/file_names.h"
#include "src/data/files/lines.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/missing_column.h"
#include "src/data/rows/rows_form.h"
#include "src/data/rows/text_columns.h"
#include "src/text/chars/utf8.h"

/* What the functions below need while they read the input. */
typedef struct reader {
    const fsdp_classify_config *config;
    const char *path; /* name of the input in error messages */
    fsdp_class_items *items;
    fsdp_dataset_options options; /* the columns that the user named */
    /* the columns of the text and of the second text; valid if `chosen` is true */
    fsdp_text_columns columns;
    bool chosen;
} reader;

void fsdp_class_items_fini(fsdp_class_items *items)
{
    for (size_t i = 0; i < items->n; i++)
        fsdp_json_destroy(items->items[i].row);
    fsdp_free(items->items);
    fsdp_free(items->note);
    *items = (fsdp_class_items){0};
}

/* ---- one text ---- */

/* Append a row and its texts. The list takes ownership of `row`, and destroys it if this function
 * fails. */
static fsdp_status append(fsdp_class_items *items, fsdp_json *row, fsdp_data_text text,
                          fsdp_data_text pair, int64_t line)
{
    if (!FSDP_GROW(items->items, items->cap, items->n + 1)) {
        fsdp_json_destroy(row);
        return FSDP_ERR_NOMEM;
    }
    items->items[items->n++] = (fsdp_class_item){row, text, pair, line};
    return FSDP_OK;
}

/* Append a text that is not part of a row of a file. A row is made for it, with the keys "text"
 * and, if `pair` is not NULL, "text_pair". */
static fsdp_status add_text(fsdp_class_items *items, const char *text, size_t length,
                            const char *pair, int64_t line)
{
    fsdp_json *row;
    fsdp_data_text first = {0}, second = {0};
    if (fsdp_utf8_valid_length(text, length) != length ||
        (pair && fsdp_utf8_valid_length(pair, strlen(pair)) != strlen(pair)))
        return fsdp_error(FSDP_ERR_FORMAT, "not UTF-8");
    FSDP_TRY(fsdp_json_create("text", &row));
    const fsdp_json_node root = fsdp_json_root(row);
    fsdp_json_set_strn(root, "text", text, length);
    if (pair)
        fsdp_json_set_str(root, "text_pair", pair);
    fsdp_status status = fsdp_json_check_built(row);
    if (status == FSDP_OK)
        status = fsdp_json_get_strn(root, "text", &first.bytes, &first.length);
    if (status == FSDP_OK && pair)
        status = fsdp_json_get_strn(root, "text_pair", &second.bytes, &second.length);
    if (status == FSDP_OK)
        return append(items, row, first, second, line);
    fsdp_json_destroy(row);
    return status;
}

static fsdp_status add_words(const fsdp_classify_config *c, fsdp_class_items *items)
{
    for (size_t i = 0; i < c->n_texts; i++) {
        const fsdp_status status =
            add_text(items, c->texts[i], strlen(c->texts[i]), c->pair, (int64_t)i + 1);
        fsdp_error_context(status, "text %zu of the command line", i + 1);
        FSDP_TRY(status);
    }
    return FSDP_OK;
}

/* ---- columns ---- */

static bool has_text(const void *row, const char *name)
{
    const fsdp_json_node *object = row;
    return fsdp_json_kind_of(fsdp_text_find(*object, name)) == FSDP_JSON_STRING;
}

static fsdp_status add_advice(const reader *r, fsdp_status status)
{
    if (status != FSDP_ERR_FORMAT || r->options.source_column)
        return status;
    return fsdp_error(status,
                      "%s; --text-column names the column of the text, --text-pair-column that of "
                      "a second text",
                      fsdp_last_error());
}

/* Choose the columns of the texts by the keys of `row`, the first row of the file. */
static fsdp_status choose_keys(reader *r, fsdp_json_node row, bool arrow)
{
    FSDP_TRY(fsdp_text_columns_choose(&r->options, has_text, &row, &r->columns));
    r->chosen = true;
    const char *name = fsdp_first_missing_text(&r->options, &r->columns, fsdp_row_has_key, &row);
    return name ? add_advice(r, fsdp_missing_key(&r->options, name, false, row, arrow)) : FSDP_OK;
}

static fsdp_status get_text(fsdp_json_node row, const char *name, fsdp_data_text *text)
{
    const fsdp_json_node found = fsdp_text_find(row, name);
    if (fsdp_json_kind_of(found) != FSDP_JSON_STRING)
        return fsdp_json_mismatch(row, name, "a text");
    return fsdp_json_get_strn(found, NULL, &text->bytes, &text->length);
}

/* Append a row of JSON, CSV or Arrow, which begins on `line`. This function takes ownership of
 * `row`, even if it fails. */
static fsdp_status add_row(reader *r, fsdp_json *row, int64_t line, bool arrow)
{
    const fsdp_json_node root = fsdp_json_root(row);
    fsdp_data_text first = {0}, second = {0};
    fsdp_status status = FSDP_OK;
    if (fsdp_json_kind_of(root) != FSDP_JSON_OBJECT)
        status = fsdp_json_mismatch(root, NULL, "an object");
    if (status == FSDP_OK && !r->chosen)
        status = choose_keys(r, root, arrow);
    if (status == FSDP_OK && r->columns.source)
        status = get_text(root, r->columns.source, &first);
    if (status == FSDP_OK)
        status = get_text(root, r->columns.target, &second);
    if (status == FSDP_OK)
        return r->columns.source ? append(r->items, row, first, second, line)
                                 : append(r->items, row, second, (fsdp_data_text){0}, line);
    fsdp_json_destroy(row);
    return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
}

/* ---- JSON and Arrow ---- */

static fsdp_status read_json_rows(reader *r, fsdp_json_rows *rows)
{
    for (;;) {
        fsdp_json_row row;
        fsdp_json *doc;
        FSDP_TRY(fsdp_json_rows_next(rows, &row));
        if (!row.text)
            return FSDP_OK;
        FSDP_TRY(fsdp_json_row_parse(r->path, &row, &doc));
        const fsdp_status status = add_row(r, doc, row.line, false);
        fsdp_json_row_context(status, r->path, &row);
        FSDP_TRY(status);
    }
}

static fsdp_status read_json(reader *r, fsdp_input *input)
{
    fsdp_json_rows *rows;
    FSDP_TRY(fsdp_json_rows_open(input, r->path, r->config->form.json_field, &rows));
    const fsdp_status status = read_json_rows(r, rows);
    fsdp_json_rows_close(rows);
    return status;
}

static fsdp_status read_arrow(reader *r)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(r->path, FSDP_ARROW_SPLIT_VALIDATION, &table));
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; i < fsdp_arrow_table_len(table) && status == FSDP_OK; i++) {
        fsdp_json *doc;
        status = fsdp_arrow_table_row(table, i, &doc);
        if (status == FSDP_OK)
            status = add_row(r, doc, i + 1, true);
        fsdp_arrow_table_add_context(table, i, status);
    }
    const char *left_out = fsdp_arrow_table_left_out(table);
    if (status == FSDP_OK && left_out &&
        !(r->items->note = fsdp_strdup_printf("%s: columns whose types are not read, and which "
                                              "the result lacks: %s",
                                              r->path, left_out)))
        status = FSDP_ERR_NOMEM;
    fsdp_arrow_table_close(table);
    return status;
}

/* ---- CSV ---- */

/* Make a JSON object from a row of CSV. Its keys are the names in the header. */
static fsdp_status row_of_fields(const fsdp_csv_row *header, const fsdp_csv_row *row,
                                 fsdp_json **out)
{
    fsdp_json *doc;
    size_t length;
    FSDP_TRY(fsdp_json_create("row", &doc));
    for (size_t i = 0; i < header->fields; i++) {
        const char *field = fsdp_csv_field(row, i, &length);
        size_t unused;
        fsdp_json_set_strn(fsdp_json_root(doc), fsdp_csv_field(header, i, &unused), field, length);
    }
    const fsdp_status status = fsdp_json_check_built(doc);
    if (status == FSDP_OK)
        *out = doc;
    else
        fsdp_json_destroy(doc);
    return status;
}

/* Return an error if two columns have the same name, because a JSON object cannot have a key
 * twice. */
static fsdp_status check_names(const fsdp_csv_row *header)
{
    size_t length;
    for (size_t i = 0; i < header->fields; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(fsdp_csv_field(header, i, &length), fsdp_csv_field(header, k, &length)) == 0)
                return fsdp_error(FSDP_ERR_FORMAT, "two columns are named '%s'",
                                  fsdp_csv_field(header, i, &length));
    return FSDP_OK;
}

/* *name is the name of a column, as the user wrote it; its upper and lower case may differ from the
 * header. Replace *name by the name in the header. */
static fsdp_status spell(const fsdp_csv_row *header, char **name)
{
    size_t length;
    char *copy = fsdp_strdup(fsdp_csv_field(header, (size_t)fsdp_csv_find(header, *name), &length));
    if (!copy)
        return FSDP_ERR_NOMEM;
    fsdp_free(*name);
    *name = copy;
    return FSDP_OK;
}

static fsdp_status choose_columns(reader *r, const fsdp_csv_row *header)
{
    FSDP_TRY(fsdp_text_columns_choose(&r->options, fsdp_header_has, header, &r->columns));
    r->chosen = true;
    const char *name = fsdp_first_missing_text(&r->options, &r->columns, fsdp_header_has, header);
    if (name)
        return add_advice(r, fsdp_missing_header_column(&r->options, name, false, header));
    FSDP_TRY(check_names(header));
    if (r->columns.source)
        FSDP_TRY(spell(header, &r->columns.source));
    return spell(header, &r->columns.target);
}

static fsdp_status read_fields(reader *r, fsdp_csv *csv, fsdp_csv_row *row)
{
    const fsdp_csv_row *header = fsdp_csv_header(csv);
    fsdp_status status = choose_columns(r, header);
    fsdp_error_context(status, "%s: line %lld", r->path, (long long)header->line);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_csv_next(csv, row));
    while (row->line) {
        fsdp_json *doc;
        FSDP_TRY(row_of_fields(header, row, &doc));
        status = add_row(r, doc, row->line, false);
        fsdp_error_context(status, "%s: line %lld", r->path, (long long)row->line);
        FSDP_TRY(status);
        FSDP_TRY(fsdp_csv_next(csv, row));
    }
    return FSDP_OK;
}

static fsdp_status read_csv(reader *r, fsdp_input *input)
{
    fsdp_csv_format format = {.delimiter = r->options.delimiter,
                              .no_quotes = r->options.no_csv_quotes};
    fsdp_csv_row row = {0};
    fsdp_csv *csv;
    char quoted[8];
    bool found;
    FSDP_TRY(fsdp_csv_open_fitting(input, r->path, &format, fsdp_header_fits, &r->options, &found,
                                   &csv));
    fsdp_status status = read_fields(r, csv, &row);
    fsdp_csv_row_fini(&row);
    fsdp_csv_close(csv);
    if (!found)
        return status;
    const char *name = fsdp_csv_delimiter_name(format.delimiter, quoted);
    if (status == FSDP_ERR_FORMAT)
        return fsdp_error(status, "%s (fields are separated by %s)", fsdp_last_error(), name);
    if (status == FSDP_OK &&
        !(r->items->note = fsdp_strdup_printf("%s: fields are separated by %s", r->path, name)))
        status = FSDP_ERR_NOMEM;
    return status;
}

/* ---- lines ---- */

static fsdp_status read_lines(reader *r, fsdp_input *input)
{
    fsdp_lines *lines;
    fsdp_line line = {0};
    FSDP_TRY(fsdp_lines_of_input(input, r->path, &lines));
    fsdp_status status = fsdp_lines_next(lines, &line);
    while (status == FSDP_OK && line.text) {
        status = add_text(r->items, line.text, line.length, NULL, line.number);
        if (status == FSDP_OK)
            status = fsdp_lines_next(lines, &line);
    }
    fsdp_lines_close(lines);
    return status;
}

/* ---- files ---- */

/* Return an error if the user gave an option that has no effect on this kind of input. `rows`,
 * `csv` and `json` say what the input is; all three are false for plain text. */
static fsdp_status check_form(const reader *r, bool rows, bool csv, bool json)
{
    const fsdp_classify_config *c = r->config;
    const char *flag = !rows && c->text_column                ? "--text-column is for rows"
                       : !csv && c->form.delimiter            ? "--delimiter is for CSV"
                       : !csv && c->form.asked_for.csv_quotes ? "--csv-quotes is for CSV"
                       : !json && c->form.json_field          ? "--json-field is for JSON"
                                                              : NULL;
    return flag ? fsdp_error(FSDP_ERR_INVALID, "%s; %s is something else", flag, r->path) : FSDP_OK;
}

/* Read the file as rows or as lines. The name of the file decides which. If the name is unknown,
 * the first bytes decide. */
static fsdp_status read_open_file(reader *r, fsdp_input *input)
{
    const fsdp_name_kind kind = fsdp_name_kind_of(r->config->input);
    const bool csv = kind == FSDP_NAME_CSV;
    bool json = kind == FSDP_NAME_JSON;
    if (kind == FSDP_NAME_UNKNOWN) {
        FSDP_TRY(fsdp_input_is_json(input, &json));
        if (json && !(r->items->note = fsdp_strdup_printf("%s: rows of JSON", r->path)))
            return FSDP_ERR_NOMEM;
    }
    FSDP_TRY(check_form(r, csv || json, csv, json));
    if (!csv)
        return json ? read_json(r, input) : read_lines(r, input);
    FSDP_TRY(fsdp_input_make_seekable(input));
    return read_csv(r, input);
}

static fsdp_status read_input(reader *r)
{
    const char *path = r->config->input;
    fsdp_input *input;
    if (!path)
        return FSDP_OK;
    if (fsdp_is_arrow_path(path)) {
        FSDP_TRY(check_form(r, true, false, false));
        return read_arrow(r);
    }
    FSDP_TRY(fsdp_input_open_once(path, &input));
    const fsdp_status status = read_open_file(r, input);
    fsdp_input_close(input);
    return status;
}

fsdp_status fsdp_class_items_read(const fsdp_classify_config *config, fsdp_class_items *items)
{
    const bool is_stdin = config->input && strcmp(config->input, "-") == 0;
    reader r = {.config = config,
                .path = is_stdin ? "standard input" : config->input,
                .items = items,
                .options = {.task = FSDP_TASK_CLASSIFICATION,
                            .source_column = config->text_column,
                            .text_pair_column = config->text_pair_column}};
    fsdp_dataset_options form = {0};
    fsdp_form_options_apply(&config->form, &form);
    r.options.delimiter = form.delimiter;
    r.options.no_csv_quotes = form.no_csv_quotes;
    FSDP_TRY(add_words(config, items));
    fsdp_status status = read_input(&r);
    if (status == FSDP_OK && r.columns.guessed) {
        char *joined = fsdp_strdup_printf("%s%s%s: the text is '%s', the second text '%s'",
                                          items->note ? items->note : "", items->note ? "; " : "",
                                          r.path, r.columns.source, r.columns.target);
        fsdp_free(items->note);
        items->note = joined;
        status = joined ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    fsdp_text_columns_fini(&r.columns);
    if (status == FSDP_OK && items->n == 0)
        status = fsdp_error(FSDP_ERR_INVALID, "%s: there are no texts to classify",
                            r.path ? r.path : "the command line");
    return status;
}
