/* Reads prompts from files whose rows are JSON, CSV or Arrow. The prompts are the texts of a
 * column, or conversations. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/nearest.h"
#include "src/base/str.h"
#include "src/data/arrow/table.h"
#include "src/data/csv/csv.h"
#include "src/data/csv/csv_delimiter.h"
#include "src/data/files/file_names.h"
#include "src/data/json/json_rows.h"
#include "src/data/json/jsonl_keys.h"
#include "src/data/rows/rows_form.h"
#include "src/data/rows/text_columns.h"
#include "src/generate/prompts.h"

/* If the user names no column, the prompts are in the first of these columns that exists. */
static const char *const columns[] = {"prompt",   "text",     "source",      "input",
                                      "article",  "document", "instruction", "question",
                                      "dialogue", "sentence"};

/* Return the error for rows that lack the column of prompts. `wanted` is the name that the user
 * gave, or NULL. `names` [n] are the columns that contain texts. */
static fsdp_status no_column(const char *wanted, const char *const *names, size_t n)
{
    fsdp_str text = {0};
    const int near = wanted ? fsdp_nearest_name(wanted, names, n) : -1;
    fsdp_str_printf(&text, "no text in the column '%s'; ", wanted ? wanted : "prompt");
    if (near >= 0)
        fsdp_str_printf(&text, "did you mean '%s'? ", names[near]);
    fsdp_str_printf(&text, "--text-column chooses one: the columns with texts are ");
    for (size_t i = 0; i < n; i++)
        fsdp_str_printf(&text, "%s'%.60s'", i ? ", " : "", names[i]);
    char *message = fsdp_str_take(&text);
    if (!message)
        return FSDP_ERR_NOMEM;
    const fsdp_status status = fsdp_error(FSDP_ERR_FORMAT, "%s%s", message, n ? "" : "none");
    fsdp_free(message);
    return status;
}

static fsdp_status missing_text(fsdp_json_node row, const char *wanted)
{
    const char **names = fsdp_calloc(fsdp_json_len(row) + 1, sizeof *names);
    size_t n = 0;
    if (!names)
        return FSDP_ERR_NOMEM;
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        if (fsdp_json_kind_of(v) == FSDP_JSON_STRING)
            names[n++] = v.key;
    const fsdp_status status = no_column(wanted, names, n);
    fsdp_free(names);
    return status;
}

/* Add to *unused the keys of a row that are neither `used` nor `id`. If `used` is "a.b", the key
 * "a" is used. `id` may be NULL. `line` is the number of the row. Unused keys are not an error,
 * because they do not change a prompt. */
static fsdp_status collect_unused(fsdp_json_node row, int64_t line, const char *used,
                                  const char *id, fsdp_unused_keys *unused)
{
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v)) {
        const size_t n = strlen(v.key);
        const bool is_used = (strncmp(used, v.key, n) == 0 && (!used[n] || used[n] == '.')) ||
                             (id && strcmp(id, v.key) == 0);
        if (!is_used && fsdp_json_kind_of(v) != FSDP_JSON_NULL)
            FSDP_TRY(fsdp_collect_unused_key(v.key, line, unused));
    }
    return FSDP_OK;
}

static fsdp_status add_text_row(fsdp_prompts *p, const fsdp_prompt_encoding *e, fsdp_json_node row,
                                int64_t line, fsdp_unused_keys *unused)
{
    const char *text = NULL, *used = e->text_column;
    fsdp_json_node value = {0};
    if (e->text_column)
        value = fsdp_text_find(row, e->text_column);
    for (size_t i = 0; !used && i < FSDP_LENGTH(columns); i++)
        if (fsdp_json_kind_of(fsdp_json_find(row, columns[i])) == FSDP_JSON_STRING) {
            value = fsdp_json_find(row, columns[i]);
            used = columns[i];
        }
    if (fsdp_json_kind_of(value) != FSDP_JSON_STRING)
        return missing_text(row, e->text_column);
    FSDP_TRY(fsdp_json_get_str(value, NULL, &text));
    const char *id = e->keep_ids ? fsdp_prompt_id_key(row) : NULL;
    FSDP_TRY(collect_unused(row, line, used, id, unused));
    FSDP_TRY(fsdp_prompts_add_text(p, e, text));
    return fsdp_prompts_set_id(p, id, row);
}

/* Add the prompt in a row of JSON or Arrow, and collect the keys that are not used for it.
 * If `wanted` is true, the row must be a conversation; any other row is an error. */
static fsdp_status add_row(fsdp_prompts *p, const fsdp_prompt_encoding *e, fsdp_json_node row,
                           int64_t line, bool wanted, fsdp_unused_keys *unused)
{
    if (e->chat && fsdp_is_conversation(row)) { /* `unused` stays as it is, because the output
                                                   has all keys of the row */
        FSDP_TRY(fsdp_prompts_add_conversation(p, e, row));
        return fsdp_prompts_set_id(p, e->keep_ids ? fsdp_prompt_id_key(row) : NULL, row);
    }
    if (wanted)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "not a conversation: it has no list of messages under 'messages' or "
                          "'prompt'");
    if (fsdp_is_conversation(row))
        return fsdp_error(FSDP_ERR_INVALID, "the row is a conversation: --chat answers it");
    return add_text_row(p, e, row, line, unused);
}

static fsdp_status read_json(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                             fsdp_json_rows *rows, bool wanted, fsdp_unused_keys *unused)
{
    for (;;) {
        fsdp_json_row row;
        fsdp_json *doc;
        FSDP_TRY(fsdp_json_rows_next(rows, &row));
        if (!row.text)
            return FSDP_OK;
        FSDP_TRY(fsdp_json_row_parse(path, &row, &doc));
        const fsdp_status status = add_row(p, e, fsdp_json_root(doc), row.line, wanted, unused);
        fsdp_json_destroy(doc);
        fsdp_json_row_context(status, path, &row);
        FSDP_TRY(status);
    }
}

static fsdp_status read_json_input(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                                   fsdp_input *input, bool wanted)
{
    fsdp_json_rows *rows;
    fsdp_unused_keys unused = {0};
    char *note = NULL;
    FSDP_TRY(fsdp_json_rows_open(input, path, NULL, &rows));
    fsdp_status status = read_json(p, e, path, rows, wanted, &unused);
    if (status == FSDP_OK)
        status = fsdp_unused_keys_note(&unused, path, &note);
    fsdp_unused_keys_fini(&unused);
    fsdp_json_rows_close(rows);
    return status == FSDP_OK ? fsdp_prompts_add_note(p, note) : status;
}

static fsdp_status read_arrow(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                              bool wanted)
{
    fsdp_arrow_table *table;
    FSDP_TRY(fsdp_arrow_table_open(path, FSDP_ARROW_SPLIT_VALIDATION, &table));
    fsdp_unused_keys unused = {0};
    char *note = NULL;
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; i < fsdp_arrow_table_len(table) && status == FSDP_OK; i++) {
        fsdp_json *doc;
        status = fsdp_arrow_table_row(table, i, &doc);
        if (status != FSDP_OK)
            break;
        status = add_row(p, e, fsdp_json_root(doc), i, wanted, &unused);
        fsdp_json_destroy(doc);
        fsdp_arrow_table_add_context(table, i, status);
    }
    if (status == FSDP_OK)
        status = fsdp_unused_columns_note(&unused, fsdp_arrow_table_left_out(table),
                                          fsdp_arrow_table_folder(table)->path, &note);
    fsdp_unused_keys_fini(&unused);
    fsdp_arrow_table_close(table);
    return status == FSDP_OK ? fsdp_prompts_add_note(p, note) : status;
}

/* Return the index of the column that has the prompts, or -1 if there is none. The column has the
 * name that the user gave or, by default, one of the names in `columns`. If `only` is true and the
 * user gave no name, the column of a file with a single column may have any name. */
static int64_t find_column(const fsdp_csv_row *header, const fsdp_prompt_encoding *e, bool only)
{
    const size_t n = e->text_column ? 1 : FSDP_LENGTH(columns);
    size_t length;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < header->fields; i++)
            if (strcmp(fsdp_csv_field(header, i, &length),
                       e->text_column ? e->text_column : columns[k]) == 0)
                return (int64_t)i;
    return only && !e->text_column && header->fields == 1 ? 0 : -1;
}

static fsdp_status check_column(const fsdp_csv_row *header, const fsdp_prompt_encoding *e,
                                const char *path, int64_t *column)
{
    *column = find_column(header, e, true);
    if (*column >= 0)
        return FSDP_OK;
    const char **names = fsdp_calloc(header->fields + 1, sizeof *names);
    if (!names)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < header->fields; i++) {
        size_t length;
        names[i] = fsdp_csv_field(header, i, &length);
    }
    const fsdp_status status = no_column(e->text_column, names, header->fields);
    fsdp_free(names);
    fsdp_error_context(status, "%s", path);
    return status;
}

/* Return the index of the column with the ids of the rows, or -1 if there is none. */
static int64_t find_id_column(const fsdp_csv_row *header)
{
    size_t length;
    for (size_t k = 0; fsdp_prompt_id_keys[k]; k++)
        for (size_t i = 0; i < header->fields; i++)
            if (strcmp(fsdp_csv_field(header, i, &length), fsdp_prompt_id_keys[k]) == 0)
                return (int64_t)i;
    return -1;
}

/* Set the note that lists all columns except `column` and `id`. */
static fsdp_status note_columns(fsdp_prompts *p, const fsdp_csv_row *header, int64_t column,
                                int64_t id, const char *path)
{
    fsdp_unused_keys unused = {0};
    char *note = NULL;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < header->fields && status == FSDP_OK; i++) {
        size_t length;
        if ((int64_t)i != column && (int64_t)i != id)
            status = fsdp_collect_unused_key(fsdp_csv_field(header, i, &length), 0, &unused);
    }
    if (status == FSDP_OK)
        status = fsdp_unused_keys_note(&unused, path, &note);
    fsdp_unused_keys_fini(&unused);
    return status == FSDP_OK ? fsdp_prompts_add_note(p, note) : status;
}

static fsdp_status read_csv(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                            fsdp_csv *csv)
{
    fsdp_csv_row row = {0};
    int64_t column;
    FSDP_TRY(check_column(fsdp_csv_header(csv), e, path, &column));
    const int64_t id = e->keep_ids ? find_id_column(fsdp_csv_header(csv)) : -1;
    fsdp_status status = fsdp_csv_next(csv, &row);
    while (status == FSDP_OK && row.line) {
        size_t length;
        const char *text = fsdp_csv_field(&row, (size_t)column, &length);
        status = strlen(text) == length ? fsdp_prompts_add_text(p, e, text)
                                        : fsdp_error(FSDP_ERR_FORMAT, "a NUL byte");
        if (status == FSDP_OK && id >= 0)
            status = fsdp_prompts_set_text_id(
                p, fsdp_csv_field(fsdp_csv_header(csv), (size_t)id, &length),
                fsdp_csv_field(&row, (size_t)id, &length));
        fsdp_error_context(status, "%s: line %lld", path, (long long)row.line);
        if (status == FSDP_OK)
            status = fsdp_csv_next(csv, &row);
    }
    fsdp_csv_row_fini(&row);
    return status == FSDP_OK ? note_columns(p, fsdp_csv_header(csv), column, id, path) : status;
}

static fsdp_status has_prompts(const fsdp_csv_row *header, void *encoding, bool *fits)
{
    *fits = find_column(header, encoding, false) >= 0;
    return FSDP_OK;
}

static fsdp_status read_csv_input(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                                  fsdp_input *input)
{
    fsdp_prompt_encoding copy = *e;
    fsdp_csv_format format = {0};
    fsdp_csv *csv;
    bool found;
    FSDP_TRY(fsdp_input_make_seekable(input));
    FSDP_TRY(fsdp_csv_open_fitting(input, path, &format, has_prompts, &copy, &found, &csv));
    const fsdp_status status = read_csv(p, e, path, csv);
    fsdp_csv_close(csv);
    return status;
}

/* Read the rows or lines of a file. The name of the file decides whether it has rows or lines. If
 * the name does not show this, the first bytes of the file decide. */
static fsdp_status read_input(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path,
                              fsdp_input *input)
{
    const fsdp_name_kind kind = fsdp_name_kind_of(path);
    bool json = kind == FSDP_NAME_JSON;
    if (kind == FSDP_NAME_CSV)
        return read_csv_input(p, e, path, input);
    if (kind == FSDP_NAME_UNKNOWN)
        FSDP_TRY(fsdp_input_is_json(input, &json));
    if (json)
        return read_json_input(p, e, path, input, false);
    if (e->text_column)
        return fsdp_error(FSDP_ERR_INVALID,
                          "--text-column names a column of rows, and %s is not a file of JSON, CSV "
                          "or Arrow",
                          path);
    return fsdp_prompts_read_texts(p, e, path, input);
}

fsdp_status fsdp_prompts_read_file(fsdp_prompts *p, const fsdp_prompt_encoding *e, const char *path)
{
    fsdp_input *input;
    if (fsdp_is_arrow_path(path))
        return read_arrow(p, e, path, false);
    FSDP_TRY(fsdp_input_open_once(path, &input));
    const fsdp_status status =
        read_input(p, e, strcmp(path, "-") == 0 ? "standard input" : path, input);
    fsdp_input_close(input);
    return status;
}

fsdp_status fsdp_prompts_read_messages(fsdp_prompts *p, const fsdp_prompt_encoding *e,
                                       const char *path)
{
    fsdp_input *input;
    if (fsdp_is_arrow_path(path))
        return read_arrow(p, e, path, true);
    FSDP_TRY(fsdp_input_open_once(path, &input));
    const fsdp_status status = read_json_input(p, e, path, input, true);
    fsdp_input_close(input);
    return status;
}
