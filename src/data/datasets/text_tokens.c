/* See text_tokens.h. */
#include "src/data/datasets/text_tokens.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/data/datasets/dataset.h"
#include "src/data/datasets/noted_texts.h"
#include "src/data/files/data_paths.h"
#include "src/data/files/document_file.h"
#include "src/data/rows/causal_text.h"
#include "src/data/rows/dataset_options.h"
#include "src/data/rows/rows_form.h"

/* The ids that were read so far, in the order of the file. Each id has `width` bytes, little
 * endian. `used` and `cap` count bytes, not ids. */
typedef struct stream {
    unsigned char *bytes;
    size_t used, cap;
    int width;
    fsdp_file_rows rows; /* the rows or documents that were read */
} stream;

static fsdp_status append_ids(stream *s, const fsdp_token_list *ids)
{
    const size_t width = (size_t)s->width;
    if (!FSDP_GROW(s->bytes, s->cap, s->used + ids->len * width))
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < ids->len; i++)
        for (size_t byte = 0; byte < width; byte++)
            s->bytes[s->used++] = (unsigned char)((uint32_t)ids->ids[i] >> 8 * byte);
    return FSDP_OK;
}

/* ---- CSV and JSON lines ---- */

static fsdp_status append_rows(const char *path, const fsdp_dataset_options *options, stream *s,
                               fsdp_noted_texts *noted, fsdp_str *note)
{
    const fsdp_dataset_options texts = {
        .task = FSDP_TASK_CAUSAL_LM,
        .tokenizer = options->tokenizer,
        .source_column = options->source_column ? options->source_column : "text",
        .max_length = INT64_MAX,
        .vocab_size = options->vocab_size,
        .split = options->split,
        .validation_percent = options->validation_percent,
        .validation = options->validation,
        .json_field = options->json_field,
        .delimiter = options->delimiter,
        .no_csv_quotes = options->no_csv_quotes};
    fsdp_dataset_options full;
    fsdp_example example = {0};
    fsdp_dataset *rows;
    FSDP_TRY(fsdp_dataset_complete_options(&texts, &full));
    FSDP_TRY(fsdp_text_dataset_open(path, &full, &rows));
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; status == FSDP_OK && i < fsdp_dataset_len(rows); i++) {
        int64_t cut;
        fsdp_noted_text text;
        fsdp_noted_text_begin(&text, noted);
        status = fsdp_dataset_get_cut(rows, i, &example, &cut);
        fsdp_noted_text_end(&text, noted, path, i + 1);
        if (status == FSDP_OK)
            status = append_ids(s, &example.source);
    }
    s->rows = fsdp_dataset_file_rows(rows);
    if (status == FSDP_OK && fsdp_dataset_note(rows))
        fsdp_str_append(note, fsdp_dataset_note(rows), strlen(fsdp_dataset_note(rows)));
    fsdp_example_fini(&example);
    fsdp_dataset_close(rows);
    return status;
}

/* ---- plain text ---- */

static fsdp_status append_document(const fsdp_dataset_options *options,
                                   const fsdp_document *document, fsdp_example *example, stream *s)
{
    FSDP_TRY(fsdp_causal_text_encode(options, (fsdp_data_text){0},
                                     (fsdp_data_text){document->text, document->length}, example,
                                     NULL));
    return append_ids(s, &example->source);
}

/* Which documents are appended, counted from 0 over all files. */
typedef struct wanted_documents {
    int64_t first, end,
        at; /* documents [first, end); `at` is the number of documents read so far */
} wanted_documents;

/* Append the wanted documents of a file to the stream. `example` is scratch memory. */
static fsdp_status append_documents(const char *path, const fsdp_dataset_options *options,
                                    wanted_documents *wanted, fsdp_example *example, stream *s,
                                    fsdp_noted_texts *noted)
{
    fsdp_document_file *file;
    fsdp_document document = {0};
    FSDP_TRY(fsdp_document_file_open(path, options, &file));
    fsdp_status status;
    while ((status = fsdp_document_file_next(file, &document)) == FSDP_OK && document.text) {
        const int64_t at = wanted->at++;
        if (at < wanted->first || at >= wanted->end)
            continue;
        fsdp_noted_text text;
        fsdp_noted_text_begin(&text, noted);
        status = append_document(options, &document, example, s);
        fsdp_noted_text_end(&text, noted, path, document.line);
        s->rows.in_split = ++s->rows.count;
        fsdp_error_context(status, "%s: line %" PRId64, path, document.line);
        if (status != FSDP_OK)
            break;
    }
    fsdp_document_file_close(file);
    return status;
}

/* Add the number of documents of a file to *count. */
static fsdp_status count_documents(const char *path, const fsdp_dataset_options *options,
                                   int64_t *count)
{
    fsdp_document_file *file;
    fsdp_document document = {0};
    FSDP_TRY(fsdp_document_file_open(path, options, &file));
    fsdp_status status;
    while ((status = fsdp_document_file_next(file, &document)) == FSDP_OK && document.text)
        ++*count;
    fsdp_document_file_close(file);
    return status;
}

/* Find the documents of options->split. */
static fsdp_status choose_documents(const char *path, const fsdp_path_list *files,
                                    const fsdp_dataset_options *options, wanted_documents *wanted)
{
    int64_t count = 0;
    fsdp_row_range range;
    *wanted = (wanted_documents){.end = INT64_MAX};
    if (options->split == FSDP_SPLIT_ALL)
        return FSDP_OK;
    if (!options->validation_percent)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: plain text has no split", path);
    for (size_t i = 0; i < files->len; i++)
        FSDP_TRY(count_documents(files->items[i], options, &count));
    FSDP_TRY(fsdp_percent_range(options, count, path, "documents", &range));
    *wanted = (wanted_documents){.first = range.first, .end = range.first + range.rows};
    return FSDP_OK;
}

static fsdp_status append_plain_text(const char *path, const fsdp_path_list *files,
                                     const fsdp_dataset_options *options, stream *s,
                                     fsdp_noted_texts *noted)
{
    fsdp_dataset_options whole = *options;
    fsdp_example example = {0};
    wanted_documents wanted;
    whole.max_length = INT64_MAX;
    s->rows.are_documents = true;
    FSDP_TRY(choose_documents(path, files, options, &wanted));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < files->len && status == FSDP_OK; i++)
        status = append_documents(files->items[i], &whole, &wanted, &example, s, noted);
    fsdp_example_fini(&example);
    return status;
}

/* ---- the functions of text_tokens.h ---- */

/* Set *plain to true if the file is plain text, and to false if it has rows. The file has rows if
 * its name is that of a file of CSV or JSON, or if it begins like JSON. Any other file is plain
 * text if its name says so (fsdp_is_plain_text_name()), if options->documents is given, or if the
 * objective is span corruption. */
static fsdp_status is_plain_file(const char *path, const fsdp_dataset_options *options, bool *plain)
{
    bool json;
    *plain = false;
    if (fsdp_is_csv_path(path))
        return FSDP_OK;
    const bool named = fsdp_is_plain_text_name(path);
    if (!named && !options->span_corruption && options->documents == FSDP_DOCUMENTS_DEFAULT)
        return FSDP_OK;
    FSDP_TRY(fsdp_is_jsonl_path(path, &json));
    *plain = !json;
    return FSDP_OK;
}

static fsdp_status is_plain_list(const fsdp_path_list *files, const fsdp_dataset_options *options,
                                 bool *plain)
{
    FSDP_TRY(is_plain_file(files->items[0], options, plain));
    for (size_t i = 1; i < files->len; i++) {
        bool other;
        FSDP_TRY(is_plain_file(files->items[i], options, &other));
        if (other != *plain)
            return fsdp_error(FSDP_ERR_INVALID, "%s is %s, but %s is not", files->items[0],
                              *plain ? "plain text" : "rows of CSV or JSON", files->items[i]);
    }
    return FSDP_OK;
}

fsdp_status fsdp_is_plain_text(const char *path, const fsdp_dataset_options *options, bool *plain)
{
    fsdp_path_list files;
    FSDP_TRY(fsdp_text_paths(path, options->validation, &files));
    fsdp_status status = is_plain_list(&files, options, plain);
    fsdp_path_list_fini(&files);
    return status;
}

static fsdp_status append_texts(const char *path, const fsdp_dataset_options *options, stream *s,
                                fsdp_str *note)
{
    fsdp_path_list files;
    fsdp_noted_texts noted = {0};
    bool plain = false;
    FSDP_TRY(fsdp_text_paths(path, options->validation, &files));
    fsdp_status status = is_plain_list(&files, options, &plain);
    if (status == FSDP_OK)
        status = plain ? append_plain_text(path, &files, options, s, &noted)
                       : append_rows(path, options, s, &noted, note);
    if (status == FSDP_OK)
        fsdp_noted_texts_print(&noted, plain, note);
    fsdp_path_list_fini(&files);
    return status;
}

fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                             fsdp_token_file *file, char **note, fsdp_file_rows *rows)
{
    stream s = {.width = options->vocab_size > UINT16_MAX + 1 ? 4 : 2};
    fsdp_str text = {0};
    char *name = NULL;
    *note = NULL;
    fsdp_status status = append_texts(path, options, &s, &text);
    if (status == FSDP_OK && !(name = fsdp_strdup(path)))
        status = FSDP_ERR_NOMEM;
    if (status == FSDP_OK && (text.len || text.failed) && !(*note = fsdp_str_take(&text)))
        status = FSDP_ERR_NOMEM;
    fsdp_str_fini(&text);
    if (status != FSDP_OK) {
        fsdp_free(s.bytes);
        fsdp_free(name);
        return status;
    }
    *rows = s.rows;
    *file = (fsdp_token_file){.path = name,
                              .memory = s.bytes,
                              .tokens = s.bytes,
                              .width = s.width,
                              .count = (int64_t)(s.used / (size_t)s.width)};
    return FSDP_OK;
}
