/* See document_file.h. */
#include "src/data/files/document_file.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/data/files/lines.h"

struct fsdp_document_file {
    char *path;
    fsdp_lines *lines;
    fsdp_documents separator;
    fsdp_str text; /* text of the document that is being read */
    int64_t line;  /* number of the line on which this document begins */
};

static fsdp_documents separator_of(const fsdp_dataset_options *options)
{
    if (options->documents != FSDP_DOCUMENTS_DEFAULT)
        return options->documents;
    return options->span_corruption ? FSDP_DOCUMENTS_LINE : FSDP_DOCUMENTS_BLANK_LINE;
}

fsdp_status fsdp_document_file_open(const char *path, const fsdp_dataset_options *options,
                                    fsdp_document_file **out)
{
    fsdp_document_file *file = fsdp_calloc(1, sizeof *file);
    if (!file)
        return FSDP_ERR_NOMEM;
    file->separator = separator_of(options);
    file->path = fsdp_strdup(path);
    const fsdp_status status = file->path ? fsdp_lines_open(path, &file->lines) : FSDP_ERR_NOMEM;
    if (status != FSDP_OK) {
        fsdp_document_file_close(file);
        return status;
    }
    *out = file;
    return FSDP_OK;
}

void fsdp_document_file_close(fsdp_document_file *file)
{
    if (!file)
        return;
    fsdp_lines_close(file->lines);
    fsdp_str_fini(&file->text);
    fsdp_free(file->path);
    fsdp_free(file);
}

static bool is_white_space(const fsdp_line *line)
{
    for (size_t i = 0; i < line->length; i++)
        /* strchr() would also find a NUL, but a line has none. */
        if (!strchr(" \t\r\f\v", line->text[i]))
            return false;
    return true;
}

static fsdp_status add_line(fsdp_document_file *file, const fsdp_line *line)
{
    if (file->text.len == 0)
        file->line = line->number;
    if (file->text.len + line->bytes > FSDP_LINE_BYTES_MAX)
        return fsdp_error(FSDP_ERR_FORMAT,
                          "%s: line %" PRId64 ": a document of more than %d MiB; "
                          "--document-separator blank-line or line makes smaller ones",
                          file->path, file->line, FSDP_LINE_BYTES_MAX >> 20);
    fsdp_str_append(&file->text, line->text, line->bytes);
    return file->text.failed ? fsdp_error_nomem() : FSDP_OK;
}

/* Append lines to the text until the document or the file ends. */
static fsdp_status read_lines(fsdp_document_file *file)
{
    fsdp_line line = {0};
    for (;;) {
        FSDP_TRY(fsdp_lines_next(file->lines, &line));
        if (!line.text)
            return FSDP_OK;
        const bool blank = is_white_space(&line);
        const bool is_end = file->separator == FSDP_DOCUMENTS_LINE ||
                            (file->separator == FSDP_DOCUMENTS_BLANK_LINE && blank);
        if (!blank || (file->text.len && !is_end))
            FSDP_TRY(add_line(file, &line));
        if (is_end && file->text.len)
            return FSDP_OK;
    }
}

fsdp_status fsdp_document_file_next(fsdp_document_file *file, fsdp_document *document)
{
    fsdp_str *text = &file->text;
    *document = (fsdp_document){0};
    text->len = 0;
    FSDP_TRY(read_lines(file));
    while (text->len && strchr("\r\n", text->data[text->len - 1]))
        text->data[--text->len] = 0;
    if (text->len)
        *document = (fsdp_document){.text = text->data, .length = text->len, .line = file->line};
    return FSDP_OK;
}
