/* See log_csv.h. */
#include "src/report/log_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/csv_field.h"
#include "src/base/io.h"
#include "src/base/repr.h"
#include "src/base/scratch_file.h"
#include "src/base/str.h"
#include "src/report/append_file.h"
#include "src/report/metrics.h"

enum {
    COPY_BYTES = 1 << 16,
    HEADER_BYTES_MAX = 16 << 20
};

struct fsdp_log_csv {
    char *path;
    /* -1 while the file is not open: its columns are not known yet, or it was just replaced. */
    int fd;
    char **names; /* [n] names of the columns; names[0] is "step"; owned */
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

static void append_header(const fsdp_log_csv *csv, fsdp_str *text)
{
    for (size_t i = 0; i < csv->n; i++)
        fsdp_str_add_csv_field(text, csv->names[i], i == 0);
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
 * line at `end`. The buffer `name` must be at least as long as the rest of the line. Return false
 * if the name is malformed. */
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

/* Read the first line, without its line end, and set *end to the offset of the second line. A file
 * may end without a line end after its first line; *end is then the size of the file. */
static fsdp_status read_header(const fsdp_log_csv *csv, int fd, fsdp_str *line, uint64_t *end)
{
    char bytes[COPY_BYTES];
    size_t n = sizeof bytes;
    while (n == sizeof bytes && line->len < HEADER_BYTES_MAX) {
        FSDP_TRY(fsdp_fd_read_at(fd, csv->path, line->len, bytes, sizeof bytes, &n));
        const char *line_end = memchr(bytes, '\n', n);
        const size_t taken = line_end ? (size_t)(line_end - bytes) : n;
        if (memchr(bytes, 0, taken))
            break;
        fsdp_str_append(line, bytes, taken);
        if (line->failed)
            return fsdp_error_nomem();
        *end = line->len + (line_end ? 1 : 0);
        if (line_end || n < sizeof bytes)
            return FSDP_OK;
    }
    return no_log(csv);
}

/* Set *end to the offset of the byte after the last line end of the file, which has `bytes` bytes.
 */
static fsdp_status find_last_line_end(const fsdp_log_csv *csv, int fd, uint64_t bytes,
                                      uint64_t *end)
{
    char part[COPY_BYTES];
    const char *found = NULL;
    while (bytes && !found) {
        size_t n = bytes < sizeof part ? (size_t)bytes : sizeof part;
        bytes -= n;
        FSDP_TRY(fsdp_fd_read_at(fd, csv->path, bytes, part, n, &n));
        found = memrchr(part, '\n', n);
    }
    *end = found ? bytes + (uint64_t)(found + 1 - part) : 0;
    return FSDP_OK;
}

/* Truncate the file to `end` bytes or, if `end` is 0, complete its only line, which has no line
 * end. */
static fsdp_status complete_last_line(fsdp_log_csv *csv, uint64_t end)
{
    FSDP_TRY(open_file(csv));
    if (end == 0)
        return fsdp_append_bytes(csv->fd, csv->path, "\n", 1);
    if (ftruncate(csv->fd, (off_t)end) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
    return FSDP_OK;
}

/* Read the names of the columns, and truncate the file after its last complete line. */
static fsdp_status take_file(fsdp_log_csv *csv, int fd)
{
    struct stat st;
    fsdp_str line = {0};
    uint64_t end = 0;
    if (fstat(fd, &st) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
    if (st.st_size == 0)
        return FSDP_OK;
    fsdp_status status = read_header(csv, fd, &line, &end);
    if (status == FSDP_OK && line.len == 0)
        status = no_log(csv);
    if (status == FSDP_OK)
        status =
            read_names(csv, line.data, line.data + line.len - (line.data[line.len - 1] == '\r'));
    fsdp_str_fini(&line);
    if (status == FSDP_OK)
        status = find_last_line_end(csv, fd, (uint64_t)st.st_size, &end);
    return status == FSDP_OK ? complete_last_line(csv, end) : status;
}

static fsdp_status open_to_read(const fsdp_log_csv *csv, int *fd)
{
    *fd = open(csv->path, O_RDONLY | O_CLOEXEC);
    return *fd >= 0 ? FSDP_OK : fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
}

static fsdp_status read_existing(fsdp_log_csv *csv)
{
    int fd;
    if (!fsdp_path_exists(csv->path))
        return FSDP_OK;
    FSDP_TRY(open_to_read(csv, &fd));
    const fsdp_status status = take_file(csv, fd);
    close(fd);
    return status;
}

/* ---- writing ---- */

/* Append `line` without a carriage return at its end, an empty cell for each of the `more` new
 * columns, and a newline. */
static void append_widened(fsdp_str *text, const fsdp_str *line, size_t more)
{
    if (line->len)
        fsdp_str_append(text, line->data, line->len - (line->data[line->len - 1] == '\r'));
    for (size_t i = 0; i < more; i++)
        fsdp_str_append(text, ",", 1);
    fsdp_str_append(text, "\n", 1);
}

/* Append to `text` the lines that end in bytes [n], and add `more` empty cells to each. `line` has
 * the beginning of the first of these lines, from an earlier call. Set `line` to the bytes after
 * the last newline, which are the beginning of the next line. */
static void widen_lines(const char *bytes, size_t n, size_t more, fsdp_str *line, fsdp_str *text)
{
    const char *at = bytes, *end;
    for (; (end = memchr(at, '\n', n - (size_t)(at - bytes))); at = end + 1) {
        fsdp_str_append(line, at, (size_t)(end - at));
        append_widened(text, line, more);
        line->len = 0;
    }
    fsdp_str_append(line, at, n - (size_t)(at - bytes));
}

/* Copy to `to` all lines after the header. Each line has `had` cells and gets an empty cell for
 * every further column. */
static fsdp_status copy_lines(const fsdp_log_csv *csv, size_t had, int fd, fsdp_atomic_file *to)
{
    char bytes[COPY_BYTES];
    size_t n = sizeof bytes;
    uint64_t at = 0;
    fsdp_str line = {0}, header = {0};
    fsdp_status status = read_header(csv, fd, &header, &at);
    fsdp_str_fini(&header);
    while (status == FSDP_OK && n == sizeof bytes) {
        fsdp_str text = {0};
        status = fsdp_fd_read_at(fd, csv->path, at, bytes, sizeof bytes, &n);
        if (status != FSDP_OK)
            break;
        at += n;
        widen_lines(bytes, n, csv->n - had, &line, &text);
        if (line.failed || text.failed)
            status = fsdp_error_nomem();
        else if (text.len)
            status = fsdp_atomic_file_append(to, text.data, text.len);
        fsdp_str_fini(&text);
    }
    fsdp_str_fini(&line);
    return status;
}

static fsdp_status copy_old(const fsdp_log_csv *csv, size_t had, fsdp_atomic_file *to)
{
    int fd;
    FSDP_TRY(open_to_read(csv, &fd));
    const fsdp_status status = copy_lines(csv, had, fd, to);
    close(fd);
    return status;
}

/* Write the whole file again with all columns of `csv`. The lines in the file have only the first
 * `had` columns. */
static fsdp_status widen(fsdp_log_csv *csv, size_t had)
{
    fsdp_str text = {0};
    fsdp_atomic_file *file;
    append_header(csv, &text);
    const size_t n = text.len;
    char *header = fsdp_str_take(&text);
    if (!header)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_atomic_file_begin(csv->path, 0, &file);
    if (status == FSDP_OK) {
        status = fsdp_atomic_file_append(file, header, n);
        if (status == FSDP_OK && had)
            status = copy_old(csv, had, file);
        if (status == FSDP_OK)
            status = fsdp_atomic_file_commit(file);
        else
            fsdp_atomic_file_discard(file);
    }
    fsdp_free(header);
    if (status == FSDP_OK && csv->fd >= 0) {
        close(csv->fd); /* this descriptor is of the old file, which was replaced */
        csv->fd = -1;
    }
    return status;
}

/* Add columns for the new names of a row, and write the file again with these columns. If that
 * fails, the file and the columns are unchanged. */
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
