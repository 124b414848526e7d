/* Writes and reads metrics files. Each line is appended as one record (append_file.h), so lines of
 * two writers do not mix. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/file_kind.h"
#include "src/base/io.h"
#include "src/report/append_file.h"
#include "src/report/metrics.h"

enum {
    MAX_TAIL_BYTES = 1 << 20 /* maximum length of a last line that is checked and repaired */
};

struct fsdp_metrics {
    char *path;
    int fd;
    fsdp_json *line; /* the line that was begun but is not written yet, or NULL */
};

/* --- writing --- */

static bool is_json(const char *text, size_t bytes)
{
    fsdp_json *doc;
    if (fsdp_json_parse("", 1, text, bytes, &doc) != FSDP_OK)
        return false;
    fsdp_json_destroy(doc);
    return true;
}

/* Repair the end of a file of `size` bytes. Its last line, `tail` [bytes], has no newline. If the
 * line is complete JSON, append a newline. If it is the beginning of a JSON object, remove the
 * line. Otherwise return FSDP_ERR_FORMAT. */
static fsdp_status mend_tail(const fsdp_metrics *m, off_t size, const char *tail, size_t bytes)
{
    if (is_json(tail, bytes))
        return fsdp_append_bytes(m->fd, m->path, "\n", 1);
    if (tail[0] != '{')
        return fsdp_error(FSDP_ERR_FORMAT, "%s: ends in something that is not a JSON line: %.20s",
                          m->path, tail);
    if (ftruncate(m->fd, size - (off_t)bytes) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", m->path, strerror(errno));
    return FSDP_OK;
}

static fsdp_status end_last_line(const fsdp_metrics *m)
{
    struct stat st;
    if (fstat(m->fd, &st) != 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", m->path, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return FSDP_OK;
    size_t bytes = st.st_size < MAX_TAIL_BYTES ? (size_t)st.st_size : MAX_TAIL_BYTES;
    char *text = fsdp_calloc(bytes + 1, 1);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (pread(m->fd, text, bytes, st.st_size - (off_t)bytes) != (ssize_t)bytes) {
        status = fsdp_error(FSDP_ERR_IO, "%s: %s", m->path, strerror(errno));
    } else if (text[bytes - 1] != '\n') {
        const char *newline = memrchr(text, '\n', bytes);
        const char *tail = newline ? newline + 1 : text;
        status = newline || (off_t)bytes == st.st_size
                     ? mend_tail(m, st.st_size, tail, (size_t)(text + bytes - tail))
                     : fsdp_error(FSDP_ERR_FORMAT,
                                  "%s: its last line is longer than any line of metrics", m->path);
    }
    fsdp_free(text);
    return status;
}

static fsdp_status open_file(fsdp_metrics *m, bool append)
{
    /* If lines are appended to a regular file, also open it for reading, because its last line is
     * then checked. Open any other file only for writing: a pipe or a terminal may not be
     * readable. */
    struct stat st;
    bool read_tail = append && stat(m->path, &st) == 0 && S_ISREG(st.st_mode);
    m->fd = open(m->path,
                 (read_tail ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND | O_CLOEXEC |
                     (append ? 0 : O_TRUNC),
                 0666);
    if (m->fd < 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", m->path, strerror(errno));
    return read_tail ? end_last_line(m) : FSDP_OK;
}

fsdp_status fsdp_metrics_open(const char *path, bool append, fsdp_metrics **out)
{
    fsdp_metrics *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    m->fd = -1;
    m->path = fsdp_strdup(path);
    fsdp_status status = m->path ? open_file(m, append) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *out = m;
    else
        fsdp_metrics_close(m);
    return status;
}

void fsdp_metrics_close(fsdp_metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close(m->fd);
    fsdp_json_destroy(m->line);
    fsdp_free(m->path);
    fsdp_free(m);
}

fsdp_status fsdp_metrics_begin(fsdp_metrics *m, const char *kind, fsdp_json_node *line)
{
    fsdp_json_destroy(m->line);
    m->line = NULL;
    FSDP_TRY(fsdp_json_create(m->path, &m->line));
    *line = fsdp_json_root(m->line);
    fsdp_json_set_str(*line, "kind", kind);
    return FSDP_OK;
}

void fsdp_metrics_set_number(fsdp_json_node line, const char *key, double value)
{
    if (isfinite(value))
        fsdp_json_set_f64(line, key, value);
    else
        fsdp_json_set_str(line, key, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
}

fsdp_status fsdp_metrics_append(fsdp_metrics *m, const char *line, size_t bytes)
{
    return fsdp_append_bytes(m->fd, m->path, line, bytes);
}

fsdp_status fsdp_metrics_write(fsdp_metrics *m)
{
    char *text;
    size_t bytes;
    if (!m->line)
        return fsdp_error(FSDP_ERR_STATE, "%s: no line was begun", m->path);
    fsdp_status status = fsdp_json_print(m->line, FSDP_JSON_LINE, &text, &bytes);
    fsdp_json_destroy(m->line);
    m->line = NULL;
    if (status != FSDP_OK)
        return status;
    text[bytes] = '\n'; /* the newline takes the place of the NUL */
    status = fsdp_metrics_append(m, text, bytes + 1);
    fsdp_free(text);
    return status;
}

/* --- reading --- */

fsdp_status fsdp_metrics_curve_add(fsdp_metrics_curve *curve, double step, double value)
{
    while (curve->len && curve->points[curve->len - 1].step >= step)
        curve->len--;
    if (!FSDP_GROW(curve->points, curve->cap, curve->len + 1))
        return FSDP_ERR_NOMEM;
    curve->points[curve->len++] = (fsdp_metrics_point){step, value};
    return FSDP_OK;
}

fsdp_status fsdp_metrics_get_number(fsdp_json_node object, const char *key, double *value)
{
    const char *text;
    if (fsdp_json_kind_of(fsdp_json_find(object, key)) != FSDP_JSON_STRING)
        return fsdp_json_get_f64(object, key, value);
    FSDP_TRY(fsdp_json_get_str(object, key, &text));
    if (strcmp(text, "NaN") == 0)
        *value = (double)NAN;
    else if (strcmp(text, "Infinity") == 0)
        *value = (double)INFINITY;
    else if (strcmp(text, "-Infinity") == 0)
        *value = -(double)INFINITY;
    else
        return fsdp_json_mismatch(object, key, "a number");
    return FSDP_OK;
}

static fsdp_status add_line(fsdp_json_node line, void *arg)
{
    fsdp_metrics_curves *curves = arg;
    const char *kind;
    double step, value;
    FSDP_TRY(fsdp_json_get_str(line, "kind", &kind));
    bool is_step = strcmp(kind, "step") == 0;
    if (!is_step && strcmp(kind, "validation") != 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(line, "step", &step));
    FSDP_TRY(fsdp_metrics_get_number(line, "loss", &value));
    FSDP_TRY(fsdp_metrics_curve_add(is_step ? &curves->loss : &curves->validation, step, value));
    if (is_step && fsdp_json_has(line, "lr")) {
        FSDP_TRY(fsdp_metrics_get_number(line, "lr", &value));
        FSDP_TRY(fsdp_metrics_curve_add(&curves->lr, step, value));
    }
    return FSDP_OK;
}

static fsdp_status read_lines(FILE *file, const char *path, char **text, fsdp_metrics_line_fn *each,
                              void *arg)
{
    size_t cap = 0;
    ssize_t n;
    for (int64_t number = 1; (n = getline(text, &cap, file)) > 0; number++) {
        bool ended = (*text)[n - 1] == '\n';
        size_t bytes = (size_t)n - ended;
        if (strspn(*text, " \t\r\n") >= bytes)
            continue;
        fsdp_json *doc;
        fsdp_status status = fsdp_json_parse(path, number, *text, bytes, &doc);
        if (status == FSDP_ERR_FORMAT && number == 1)
            FSDP_TRY(fsdp_file_explain(path, "a file of metrics", FSDP_WANTED_TEXT, *text, bytes));
        if (status == FSDP_ERR_FORMAT && !ended)
            return FSDP_OK;
        FSDP_TRY(status);
        status = each(fsdp_json_root(doc), arg);
        fsdp_json_destroy(doc);
        if (status != FSDP_OK) {
            fsdp_error_context(status, "line %lld", (long long)number);
            /* From each(), FSDP_ERR_NOT_FOUND means a missing key, not a missing file. */
            return status == FSDP_ERR_NOT_FOUND ? FSDP_ERR_FORMAT : status;
        }
    }
    if (ferror(file))
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    return FSDP_OK;
}

fsdp_status fsdp_metrics_for_each(const char *path, fsdp_metrics_line_fn *each, void *arg)
{
    char *text = NULL; /* allocated by getline */
    FILE *file = fopen(path, "re");
    if (!file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    fsdp_status status = read_lines(file, path, &text, each, arg);
    fclose(file);
    free(text);
    return status;
}

fsdp_status fsdp_metrics_read(const char *path, fsdp_metrics_curves *out)
{
    fsdp_metrics_curves curves = {0};
    fsdp_status status = fsdp_metrics_for_each(path, add_line, &curves);
    if (status == FSDP_OK)
        *out = curves;
    else
        fsdp_metrics_curves_fini(&curves);
    return status;
}

void fsdp_metrics_curves_fini(fsdp_metrics_curves *curves)
{
    fsdp_free(curves->loss.points);
    fsdp_free(curves->lr.points);
    fsdp_free(curves->validation.points);
    fsdp_free(curves->seconds.points);
    fsdp_free(curves->notes);
    *curves = (fsdp_metrics_curves){0};
}

/* --- cutting --- */

typedef struct cut {
    fsdp_atomic_file *to;
    double step;
} cut;

static fsdp_status keep_line(fsdp_json_node line, void *arg)
{
    const cut *c = arg;
    const char *kind;
    double step;
    FSDP_TRY(fsdp_json_get_str(line, "kind", &kind));
    FSDP_TRY(fsdp_json_opt_f64(line, "step", 0.0, &step));
    if (strcmp(kind, "summary") == 0 || step > c->step)
        return FSDP_OK;
    char *text;
    size_t bytes;
    FSDP_TRY(fsdp_json_print(line.doc, FSDP_JSON_LINE, &text, &bytes));
    text[bytes] = '\n'; /* the newline takes the place of the NUL */
    fsdp_status status = fsdp_atomic_file_append(c->to, text, bytes + 1);
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_metrics_truncate(const char *path, int64_t step)
{
    cut c = {.step = (double)step};
    if (!fsdp_path_is_file(path))
        return FSDP_OK;
    /* If `path` is a symbolic link, rewrite the file to which it points. */
    char *file = realpath(path, NULL);
    if (!file && errno == ENOMEM)
        return fsdp_error_nomem();
    if (!file)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    fsdp_status status = fsdp_atomic_file_begin(file, 0, &c.to);
    free(file);
    FSDP_TRY(status);
    status = fsdp_metrics_for_each(path, keep_line, &c);
    if (status == FSDP_OK)
        return fsdp_atomic_file_commit(c.to);
    fsdp_atomic_file_discard(c.to);
    return status;
}
