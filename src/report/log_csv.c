/* See log_csv.h. */
#include "src/report/log_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/repr.h"
#include "src/base/str.h"
#include "src/report/append_file.h"
#include "src/report/metrics.h"

struct fsdp_log_csv {
    char *path;
    /* -1 while the file is not open: its columns are not known yet, or it was just replaced. */
    int fd;
    char **names; /* [n] the columns; names[0] is "step"; owned */
    size_t n, cap;
};

/* ---- columns ---- */

static fsdp_status add_name(fsdp_log_csv *csv, const char *name, size_t bytes)
{
    if (csv->n == FSDP_LOG_CSV_NAMES)
        return fsdp_error(FSDP_ERR_INVALID, "%s: more than %d names", csv->path,
                          FSDP_LOG_CSV_NAMES);
    char *copy = fsdp_strndup(name, bytes);
    if (!copy || !FSDP_GROW(csv->names, csv->cap, csv->n + 1)) {
        fsdp_free(copy);
        return FSDP_ERR_NOMEM;
    }
    csv->names[csv->n++] = copy;
    return FSDP_OK;
}

static void forget_names(fsdp_log_csv *csv, size_t keep)
{
    while (csv->n > keep)
        fsdp_free(csv->names[--csv->n]);
}

static size_t find_name(const fsdp_log_csv *csv, const char *name)
{
    size_t i = 0;
    while (i < csv->n && strcmp(csv->names[i], name) != 0)
        i++;
    return i;
}

static void append_name(fsdp_str *line, const char *name)
{
    if (!strpbrk(name, ",\"")) {
        fsdp_str_printf(line, "%s", name);
        return;
    }
    fsdp_str_append(line, "\"", 1);
    for (; *name; name++)
        fsdp_str_printf(line, *name == '"' ? "\"\"" : "%c", *name);
    fsdp_str_append(line, "\"", 1);
}

static void append_header(const fsdp_log_csv *csv, fsdp_str *text)
{
    for (size_t i = 0; i < csv->n; i++) {
        if (i)
            fsdp_str_append(text, ",", 1);
        append_name(text, csv->names[i]);
    }
    fsdp_str_append(text, "\n", 1);
}

/* ---- an existing file ---- */

static fsdp_status no_log(const fsdp_log_csv *csv)
{
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: not a CSV file that a log was written to, since its first column is not "
                      "step, or a name in its first line is malformed: name another folder, or "
                      "remove the file",
                      csv->path);
}

/* Read a name, which may be quoted, and set *text to what follows it: a comma, or the end of the
 * line at `end`. `name` has room for the rest of the line. Return false if the name is
 * malformed. */
static bool get_name(const char **text, const char *end, char *name, size_t *bytes)
{
    const char *at = *text;
    const bool quoted = at < end && *at == '"';
    *bytes = 0;
    for (at += quoted; at < end && (quoted || *at != ','); at++) {
        if (*at == '"' && (!quoted || at + 1 == end || at[1] != '"'))
            break;
        at += *at == '"'; /* skip the second quote of a doubled quote */
        name[(*bytes)++] = *at;
    }
    if (quoted && (at == end || *at != '"'))
        return false;
    at += quoted;
    *text = at;
    return *bytes > 0 && (at == end || *at == ',');
}

static fsdp_status read_names(fsdp_log_csv *csv, const char *line, const char *end)
{
    char *name = fsdp_calloc((size_t)(end - line) + 1, 1);
    fsdp_status status = name ? FSDP_OK : FSDP_ERR_NOMEM;
    bool more = status == FSDP_OK;
    while (more) {
        size_t bytes;
        status = get_name(&line, end, name, &bytes) ? add_name(csv, name, bytes) : no_log(csv);
        more = status == FSDP_OK && line < end;
        line += more;
    }
    fsdp_free(name);
    if (status == FSDP_OK && strcmp(csv->names[0], "step") != 0)
        return no_log(csv);
    return status;
}

static fsdp_status open_file(fsdp_log_csv *csv)
{
    if (csv->fd >= 0)
        close(csv->fd);
    csv->fd = open(csv->path, O_WRONLY | O_APPEND | O_CLOEXEC);
    return csv->fd >= 0 ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
}

/* Read the names of the columns from the text of the file, and truncate the file after its last
 * complete line. */
static fsdp_status take_text(fsdp_log_csv *csv, const char *text, size_t bytes)
{
    const char *line_end = memchr(text, '\n', bytes), *last = memrchr(text, '\n', bytes);
    if (!line_end || memchr(text, 0, bytes))
        return no_log(csv);
    FSDP_TRY(read_names(csv, text, line_end - (line_end > text && line_end[-1] == '\r')));
    FSDP_TRY(open_file(csv));
    if (ftruncate(csv->fd, (off_t)(last + 1 - text)) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
    return FSDP_OK;
}

static fsdp_status read_existing(fsdp_log_csv *csv)
{
    char *text;
    size_t bytes;
    if (!fsdp_path_exists(csv->path))
        return FSDP_OK;
    FSDP_TRY(fsdp_file_read(csv->path, FSDP_JSON_MAX_BYTES, &text, &bytes));
    const fsdp_status status = bytes ? take_text(csv, text, bytes) : FSDP_OK;
    fsdp_free(text);
    return status;
}

/* ---- writing ---- */

/* Write the whole file again with all columns of `csv`. The lines in the file have only the first
 * `had` columns. */
static fsdp_status widen(fsdp_log_csv *csv, size_t had)
{
    char *old = NULL;
    size_t bytes = 0;
    fsdp_str text = {0};
    if (had)
        FSDP_TRY(fsdp_file_read(csv->path, FSDP_JSON_MAX_BYTES, &old, &bytes));
    append_header(csv, &text);
    const char *line = old ? memchr(old, '\n', bytes) : NULL;
    for (const char *end; line && (end = strchr(++line, '\n')); line = end) {
        fsdp_str_append(&text, line, (size_t)(end - line) - (end > line && end[-1] == '\r'));
        for (size_t i = had; i < csv->n; i++)
            fsdp_str_append(&text, ",", 1);
        fsdp_str_append(&text, "\n", 1);
    }
    fsdp_free(old);
    const size_t n = text.len;
    char *whole = fsdp_str_take(&text);
    fsdp_status status = whole ? fsdp_file_write(csv->path, whole, n) : FSDP_ERR_NOMEM;
    fsdp_free(whole);
    if (status == FSDP_OK && csv->fd >= 0) {
        close(csv->fd); /* this descriptor is of the old file, which was replaced */
        csv->fd = -1;
    }
    return status;
}

/* Add columns for the new names of a row, and write the file again with these columns. If that
 * fails, the file and the columns stay as they were. */
static fsdp_status add_columns(fsdp_log_csv *csv, fsdp_json_node row)
{
    const size_t had = csv->n;
    fsdp_status status = had ? FSDP_OK : add_name(csv, "step", strlen("step"));
    for (fsdp_json_node v = fsdp_json_first(row); v.value && status == FSDP_OK;
         v = fsdp_json_next(v)) {
        if (strcmp(v.key, "kind") == 0 || find_name(csv, v.key) < csv->n)
            continue;
        status = strpbrk(v.key, "\r\n")
                     ? fsdp_error(FSDP_ERR_INVALID, "%s: a name has a line break", csv->path)
                     : add_name(csv, v.key, strlen(v.key));
    }
    if (status == FSDP_OK && csv->n > had)
        status = widen(csv, had);
    if (status != FSDP_OK) {
        forget_names(csv, had);
        return status;
    }
    return csv->fd < 0 ? open_file(csv) : FSDP_OK;
}

static fsdp_status append_cell(fsdp_str *line, fsdp_json_node row, const char *name)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(fsdp_json_find(row, name));
    double value;
    int64_t integer;
    char text[FSDP_REPR_BYTES];
    if (kind == FSDP_JSON_INT) {
        FSDP_TRY(fsdp_json_get_i64(row, name, INT64_MIN, INT64_MAX, &integer));
        fsdp_str_printf(line, "%lld", (long long)integer);
    } else if (kind == FSDP_JSON_REAL || kind == FSDP_JSON_STRING) {
        FSDP_TRY(fsdp_metrics_get_number(row, name, &value));
        fsdp_str_append(line, text, fsdp_f64_repr(value, text));
    }
    return FSDP_OK;
}

fsdp_status fsdp_log_csv_write(fsdp_log_csv *csv, fsdp_json_node row)
{
    const char *kind;
    fsdp_str line = {0};
    FSDP_TRY(fsdp_json_get_str(row, "kind", &kind));
    if (strcmp(kind, "log") != 0)
        return FSDP_OK;
    FSDP_TRY(add_columns(csv, row));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < csv->n && status == FSDP_OK; i++) {
        if (i)
            fsdp_str_append(&line, ",", 1);
        status = append_cell(&line, row, csv->names[i]);
    }
    fsdp_str_append(&line, "\n", 1);
    const size_t n = line.len;
    char *text = fsdp_str_take(&line);
    if (status == FSDP_OK)
        status = text ? fsdp_append_bytes(csv->fd, csv->path, text, n) : FSDP_ERR_NOMEM;
    fsdp_free(text);
    return status;
}

/* ---- opening ---- */

fsdp_status fsdp_log_csv_open(const char *path, fsdp_log_csv **out)
{
    fsdp_log_csv *csv = fsdp_calloc(1, sizeof *csv);
    if (!csv)
        return FSDP_ERR_NOMEM;
    csv->fd = -1;
    csv->path = fsdp_strdup(path);
    const fsdp_status status = csv->path ? read_existing(csv) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *out = csv;
    else
        fsdp_log_csv_close(csv);
    return status;
}

void fsdp_log_csv_close(fsdp_log_csv *csv)
{
    if (!csv)
        return;
    if (csv->fd >= 0)
        close(csv->fd);
    forget_names(csv, 0);
    fsdp_free(csv->names);
    fsdp_free(csv->path);
    fsdp_free(csv);
}
