/* See text_tokens.h. */
#include "src/data/text_tokens.h"

#include <inttypes.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/data/causal_text.h"
#include "src/data/dataset.h"
#include "src/data/lines.h"

/* The ids that were read so far, in the order of the file. Each id has `width` bytes, little
 * endian. `used` and `cap` count bytes, not ids. */
typedef struct stream {
    unsigned char *bytes;
    size_t used, cap;
    int width;
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
                               char **note)
{
    const fsdp_dataset_options texts = {
        .task = FSDP_TASK_CAUSAL_LM,
        .tokenizer = options->tokenizer,
        .source_column = options->source_column ? options->source_column : "text",
        .max_length = INT64_MAX,
        .vocab_size = options->vocab_size,
        .split = options->split};
    fsdp_dataset_options full;
    fsdp_example example = {0};
    fsdp_dataset *rows;
    FSDP_TRY(fsdp_dataset_complete_options(&texts, &full));
    FSDP_TRY(fsdp_text_dataset_open(path, &full, &rows));
    fsdp_status status = FSDP_OK;
    for (int64_t i = 0; status == FSDP_OK && i < fsdp_dataset_len(rows); i++) {
        status = fsdp_dataset_get(rows, i, &example);
        if (status == FSDP_OK)
            status = append_ids(s, &example.source);
    }
    if (status == FSDP_OK && fsdp_dataset_note(rows) &&
        !(*note = fsdp_strdup(fsdp_dataset_note(rows))))
        status = FSDP_ERR_NOMEM;
    fsdp_example_fini(&example);
    fsdp_dataset_close(rows);
    return status;
}

/* ---- plain text: each line is a text ---- */

static bool is_white_space(const fsdp_line *line)
{
    for (size_t i = 0; i < line->length; i++)
        if (!strchr(" \t\r\f\v", line->text[i]))
            return false;
    return true;
}

/* Append the ids of a line to `s`. `text` and `example` are scratch memory that all lines share. */
static fsdp_status append_line(const fsdp_line *line, const fsdp_dataset_options *options,
                               fsdp_str *text, fsdp_example *example, stream *s)
{
    text->len = 0;
    fsdp_str_append(text, line->text, line->length);
    if (text->failed)
        return fsdp_error_nomem();
    FSDP_TRY(fsdp_causal_text_encode(options, "", text->data, example, NULL));
    return append_ids(s, &example->source);
}

static fsdp_status append_lines(const char *path, const fsdp_dataset_options *options, stream *s)
{
    fsdp_dataset_options whole = *options;
    fsdp_lines *lines;
    fsdp_line line = {0};
    fsdp_str text = {0};
    fsdp_example example = {0};
    whole.max_length = INT64_MAX;
    if (options->split != FSDP_SPLIT_ALL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED, "%s: plain text has no split", path);
    FSDP_TRY(fsdp_lines_open(path, &lines));
    fsdp_status status;
    while ((status = fsdp_lines_next(lines, &line)) == FSDP_OK && line.text) {
        if (is_white_space(&line))
            continue;
        status = append_line(&line, &whole, &text, &example, s);
        if (status == FSDP_OK)
            continue;
        fsdp_error_context(status, "%s: line %" PRId64, path, line.number);
        break;
    }
    fsdp_example_fini(&example);
    fsdp_str_fini(&text);
    fsdp_lines_close(lines);
    return status;
}

/* ---- the functions of text_tokens.h ---- */

fsdp_status fsdp_texts_have_columns(const char *path, bool *have)
{
    *have = fsdp_path_is_directory(path) || fsdp_is_csv_path(path);
    return *have ? FSDP_OK : fsdp_is_jsonl_path(path, have);
}

fsdp_status fsdp_text_tokens(const char *path, const fsdp_dataset_options *options,
                             fsdp_token_file *file, char **note)
{
    stream s = {.width = options->vocab_size > UINT16_MAX + 1 ? 4 : 2};
    bool rows;
    *note = NULL;
    FSDP_TRY(fsdp_texts_have_columns(path, &rows));
    fsdp_status status =
        rows ? append_rows(path, options, &s, note) : append_lines(path, options, &s);
    char *name = status == FSDP_OK ? fsdp_strdup(path) : NULL;
    if (!name) {
        fsdp_free(s.bytes);
        fsdp_free(*note);
        *note = NULL;
        return status == FSDP_OK ? FSDP_ERR_NOMEM : status;
    }
    *file = (fsdp_token_file){.path = name,
                              .memory = s.bytes,
                              .tokens = s.bytes,
                              .width = s.width,
                              .count = (int64_t)(s.used / (size_t)s.width)};
    return FSDP_OK;
}
