/* Finds out the form of a file of rows, CSV, JSON or Arrow, and what its rows have. */
#include <string.h>

#include "src/data/arrow/table.h"
#include "src/data/files/file_names.h"
#include "src/data/files/input.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/rows_form.h"

bool fsdp_is_csv_path(const char *path)
{
    return fsdp_name_kind_of(path) == FSDP_NAME_CSV;
}

/* Return the index of the first byte of text[n] from index `at` on that is not white space. */
static size_t skip_space(const char *text, size_t n, size_t at)
{
    while (at < n && strchr(" \t\n\r", text[at]) && text[at])
        at++;
    return at;
}

/* Return true if a text begins like JSON. A row of JSON begins with a brace and the quote of a key,
 * and an array of rows with a bracket and a brace. A brace alone is not enough, because a text may
 * begin with "{{". White space and a byte order mark are skipped. */
static bool begins_like_json(const char *text, size_t n)
{
    size_t at = n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    at = skip_space(text, n, at);
    if (at < n && text[at] == '[') {
        at = skip_space(text, n, at + 1);
        return at < n && text[at] == '{';
    }
    if (at == n || text[at] != '{')
        return false;
    at = skip_space(text, n, at + 1);
    return at < n && text[at] == '"';
}

fsdp_status fsdp_input_is_json(fsdp_input *input, bool *json)
{
    char text[4096];
    size_t n;
    FSDP_TRY(fsdp_input_read(input, text, sizeof text, &n));
    *json = begins_like_json(text, n);
    return fsdp_input_rewind(input);
}

fsdp_status fsdp_is_jsonl_path(const char *path, bool *jsonl)
{
    fsdp_input *input;
    *jsonl = fsdp_name_kind_of(path) == FSDP_NAME_JSON;
    if (*jsonl || fsdp_is_csv_path(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_input_open(path, &input));
    const fsdp_status status = fsdp_input_is_json(input, jsonl);
    fsdp_input_close(input);
    return status;
}

/* Return true if a value of `row` is a text other than a label, or an object of texts under
 * "translation". */
static bool has_any_text(fsdp_json_node row)
{
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v)) {
        const fsdp_json_kind kind = fsdp_json_kind_of(v);
        if (kind == FSDP_JSON_STRING && strcmp(v.key, "label") != 0 && strcmp(v.key, "labels") != 0)
            return true;
        if (kind == FSDP_JSON_OBJECT && strcmp(v.key, "translation") == 0)
            return true;
    }
    return false;
}

static fsdp_status read_first_row(fsdp_json_rows *rows, const char *path, bool *ids, bool *texts)
{
    fsdp_json_row row;
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_rows_next(rows, &row));
    if (!row.text)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_row_parse(path, &row, &doc));
    *ids = fsdp_json_has(fsdp_json_root(doc), "input_ids");
    *texts = !*ids && has_any_text(fsdp_json_root(doc));
    fsdp_json_destroy(doc);
    return FSDP_OK;
}

fsdp_status fsdp_rows_form_of(const char *path, fsdp_rows_form *form)
{
    bool json;
    *form = FSDP_ROWS_ARROW;
    if (fsdp_is_arrow_path(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_is_jsonl_path(path, &json));
    *form = json ? FSDP_ROWS_JSON : FSDP_ROWS_CSV;
    return FSDP_OK;
}

unsigned fsdp_rows_form_uses(fsdp_rows_form form)
{
    return form == FSDP_ROWS_CSV ? FSDP_USES_CSV : form == FSDP_ROWS_JSON ? FSDP_USES_JSON : 0;
}

static fsdp_status first_arrow_row_kind(const char *path, bool validation, bool *ids, bool *texts)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(
        path, validation ? FSDP_ARROW_SPLIT_VALIDATION : FSDP_ARROW_SPLIT_TRAIN, &table));
    *ids = fsdp_arrow_table_has(table, "input_ids");
    *texts = !*ids;
    fsdp_arrow_table_close(table);
    return FSDP_OK;
}

static fsdp_status first_json_row_kind(const char *path, const char *json_field, bool *ids,
                                       bool *texts)
{
    fsdp_input *input;
    fsdp_json_rows *rows;
    FSDP_TRY(fsdp_input_open(path, &input));
    fsdp_status status = fsdp_json_rows_open(input, path, json_field, &rows);
    if (status == FSDP_OK) {
        status = read_first_row(rows, path, ids, texts);
        fsdp_json_rows_close(rows);
    }
    fsdp_input_close(input);
    return status;
}

fsdp_status fsdp_first_row_kind(const char *path, const char *json_field, bool validation,
                                bool *ids, bool *texts)
{
    fsdp_rows_form form;
    *ids = false;
    *texts = true;
    FSDP_TRY(fsdp_rows_form_of(path, &form));
    if (form == FSDP_ROWS_CSV)
        return FSDP_OK;
    *texts = false;
    return form == FSDP_ROWS_ARROW ? first_arrow_row_kind(path, validation, ids, texts)
                                   : first_json_row_kind(path, json_field, ids, texts);
}
