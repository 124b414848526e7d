/* See record_file.h. */
#include "src/tokenize/record_file.h"

#include <string.h>

#include "src/base/alloc.h"
#include "src/data/csv/csv.h"
#include "src/data/files/document_file.h"
#include "src/data/json/json_rows.h"
#include "src/data/rows/text_rows.h"

struct fsdp_record_file {
    char *path;
    fsdp_record_kind kind;
    const fsdp_dataset_options *options;
    /* DOCUMENT */
    fsdp_document_file *documents;
    /* PAIR */
    fsdp_text_rows *rows;
    fsdp_csv_row row;
    /* JSON */
    fsdp_input *input;
    fsdp_json_rows *json;
};

/* ---- adding a record ---- */

static fsdp_status add_bytes(fsdp_record_batch *batch, const char *text, size_t length)
{
    if (!FSDP_GROW(batch->bytes, batch->bytes_cap, batch->used + length + 1))
        return FSDP_ERR_NOMEM;
    if (length)
        memcpy(batch->bytes + batch->used, text, length);
    batch->used += length;
    batch->bytes[batch->used] = 0;
    return FSDP_OK;
}

/* Add a record. Its bytes must have been added already: they are batch->bytes[record.at,
 * batch->used). */
static fsdp_status add_record(fsdp_record_batch *batch, fsdp_record record)
{
    if (!FSDP_GROW(batch->records, batch->records_cap, batch->len + 1))
        return FSDP_ERR_NOMEM;
    batch->used++; /* the NUL after the record */
    batch->records[batch->len++] = record;
    return FSDP_OK;
}

/* ---- plain text ---- */

static fsdp_status next_document(fsdp_record_file *f, fsdp_record_batch *batch, bool *ended)
{
    fsdp_document document;
    FSDP_TRY(fsdp_document_file_next(f->documents, &document));
    *ended = !document.text;
    if (*ended)
        return FSDP_OK;
    const fsdp_record record = {
        .at = batch->used, .length = document.length, .line = document.line};
    FSDP_TRY(add_bytes(batch, document.text, document.length));
    return add_record(batch, record);
}

/* ---- rows ---- */

static fsdp_status next_pair(fsdp_record_file *f, fsdp_record_batch *batch, bool *ended)
{
    size_t n_prompt, n_text;
    FSDP_TRY(fsdp_text_rows_next(f->rows, &f->row));
    *ended = f->row.line == 0;
    if (*ended)
        return FSDP_OK;
    fsdp_record record = {.at = batch->used, .line = f->row.line, .number = f->row.number};
    const char *prompt = fsdp_text_rows_source(f->rows, &f->row, &n_prompt);
    const char *text = fsdp_text_rows_target(f->rows, &f->row, &n_text);
    const char *prefix = f->options->source_prefix;
    FSDP_TRY(add_bytes(batch, prefix, strlen(prefix)));
    FSDP_TRY(add_bytes(batch, prompt, n_prompt));
    batch->used++;
    FSDP_TRY(add_bytes(batch, text, n_text));
    record.length = batch->used - record.at;
    return add_record(batch, record);
}

static fsdp_status next_json(fsdp_record_file *f, fsdp_record_batch *batch, bool *ended)
{
    fsdp_json_row row;
    FSDP_TRY(fsdp_json_rows_next(f->json, &row));
    *ended = !row.text;
    if (*ended)
        return FSDP_OK;
    const fsdp_record record = {
        .at = batch->used, .length = row.length, .line = row.line, .number = row.number};
    FSDP_TRY(add_bytes(batch, row.text, row.length));
    return add_record(batch, record);
}

fsdp_status fsdp_record_file_next(fsdp_record_file *f, fsdp_record_batch *batch, bool *ended)
{
    *ended = false;
    return f->kind == FSDP_RECORD_DOCUMENT ? next_document(f, batch, ended)
           : f->kind == FSDP_RECORD_PAIR   ? next_pair(f, batch, ended)
                                           : next_json(f, batch, ended);
}

/* ---- opening ---- */

static fsdp_status open_file(fsdp_record_file *f, const char *path)
{
    if (!(f->path = fsdp_strdup(path)))
        return FSDP_ERR_NOMEM;
    if (f->kind == FSDP_RECORD_DOCUMENT)
        return fsdp_document_file_open(path, f->options, &f->documents);
    if (f->kind == FSDP_RECORD_PAIR)
        return fsdp_text_rows_open(path, FSDP_ROWS_CSV, false, f->options, &f->rows);
    FSDP_TRY(fsdp_input_open(path, &f->input));
    return fsdp_json_rows_open(f->input, path, f->options->json_field, &f->json);
}

fsdp_status fsdp_record_file_open(const char *path, fsdp_record_kind kind,
                                  const fsdp_dataset_options *rows, fsdp_record_file **out)
{
    fsdp_record_file *f = fsdp_calloc(1, sizeof *f);
    if (!f)
        return FSDP_ERR_NOMEM;
    f->kind = kind;
    f->options = rows;
    fsdp_status status = open_file(f, path);
    if (status != FSDP_OK) {
        fsdp_record_file_close(f);
        return status;
    }
    *out = f;
    return FSDP_OK;
}

void fsdp_record_file_close(fsdp_record_file *f)
{
    if (!f)
        return;
    fsdp_document_file_close(f->documents);
    fsdp_text_rows_close(f->rows);
    fsdp_csv_row_fini(&f->row);
    fsdp_json_rows_close(f->json);
    fsdp_input_close(f->input);
    fsdp_free(f->path);
    fsdp_free(f);
}

unsigned fsdp_record_file_uses(const fsdp_record_file *f)
{
    if (!f->rows)
        return 0;
    return FSDP_USES_TEXTS | (fsdp_text_rows_have_source(f->rows) ? FSDP_USES_COMPLETION : 0);
}

fsdp_status fsdp_record_file_end(fsdp_record_file *f, char **note)
{
    *note = NULL;
    return f->rows ? fsdp_text_rows_end(f->rows, f->options, note) : FSDP_OK;
}
