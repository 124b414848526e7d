/* See metrics_csv.h. */
#include "src/report/metrics_csv.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/repr.h"
#include "src/base/str.h"
#include "src/report/append_file.h"

enum {
    BLOCK_BYTES = 1 << 20 /* least size of a block of lines that a resumed run writes */
};

struct fsdp_metrics_csv {
    char *path;
    int fd;
};

/* The column "memory_peak" has the value "allocated" of the row's object "memory_peak". */
static const char *const columns[] = {
    "kind",        "step",         "epoch",      "loss",      "grad_norm",
    "lr",          "perplexity",   "accuracy",   "f1",        "tokens",
    "seconds",     "tokens_per_s", "loss_scale", "skipped",   "label_tokens",
    "memory_peak", "f1_macro",     "mse",        "pearson",   "spearmanr",
    "rouge1",      "rouge2",       "rougeL",     "rougeLsum", "gen_len"};

static void add_header(fsdp_str *line)
{
    for (size_t i = 0; i < FSDP_LENGTH(columns); i++)
        fsdp_str_printf(line, "%s%s", i ? "," : "", columns[i]);
    fsdp_str_append(line, "\n", 1);
}

static fsdp_status add_number(fsdp_str *line, fsdp_json_node row, const char *key)
{
    double value;
    char text[FSDP_REPR_BYTES];
    FSDP_TRY(fsdp_metrics_get_number(row, key, &value));
    fsdp_str_append(line, text, fsdp_f64_repr(value, text));
    return FSDP_OK;
}

static fsdp_status add_integer(fsdp_str *line, fsdp_json_node row, const char *key)
{
    int64_t value;
    FSDP_TRY(fsdp_json_get_i64(row, key, INT64_MIN, INT64_MAX, &value));
    fsdp_str_printf(line, "%lld", (long long)value);
    return FSDP_OK;
}

static fsdp_status add_value(fsdp_str *line, fsdp_json_node row, const char *key)
{
    const fsdp_json_node value = fsdp_json_find(row, key);
    const char *kind;
    bool yes;
    switch (fsdp_json_kind_of(value)) {
    case FSDP_JSON_INT:
        return add_integer(line, row, key);
    case FSDP_JSON_BOOL:
        FSDP_TRY(fsdp_json_get_bool(row, key, &yes));
        fsdp_str_printf(line, "%s", yes ? "true" : "false");
        return FSDP_OK;
    case FSDP_JSON_OBJECT:
        return fsdp_json_has(value, "allocated") ? add_integer(line, value, "allocated") : FSDP_OK;
    case FSDP_JSON_STRING:
        if (strcmp(key, "kind") != 0)
            return add_number(line, row, key);
        FSDP_TRY(fsdp_json_get_str(row, key, &kind));
        fsdp_str_printf(line, "%s", kind);
        return FSDP_OK;
    case FSDP_JSON_REAL:
        return add_number(line, row, key);
    default:
        return FSDP_OK;
    }
}

static fsdp_status append(const fsdp_metrics_csv *csv, fsdp_str *line)
{
    const size_t n = line->len;
    char *text = fsdp_str_take(line);
    fsdp_status status = text ? fsdp_append_bytes(csv->fd, csv->path, text, n) : FSDP_ERR_NOMEM;
    fsdp_free(text);
    return status;
}

fsdp_status fsdp_metrics_csv_write(fsdp_metrics_csv *csv, fsdp_json_node row)
{
    const char *kind;
    fsdp_str line = {0};
    FSDP_TRY(fsdp_json_get_str(row, "kind", &kind));
    if (strcmp(kind, "step") != 0 && strcmp(kind, "validation") != 0)
        return FSDP_OK;
    for (size_t i = 0; i < FSDP_LENGTH(columns); i++) {
        if (i)
            fsdp_str_append(&line, ",", 1);
        fsdp_status status = add_value(&line, row, columns[i]);
        if (status != FSDP_OK) {
            fsdp_str_fini(&line);
            return status;
        }
    }
    fsdp_str_append(&line, "\n", 1);
    return append(csv, &line);
}

/* ---- the lines of an earlier run ---- */

/* Return true if line [n], which may end without a newline, is complete and belongs to a step up to
 * `step`. The step is in the second column. */
static bool is_kept(const char *line, size_t n, int64_t step)
{
    const char *comma = strchr(line, ',');
    char *end;
    if (line[n - 1] != '\n' || strlen(line) != n || !comma)
        return false;
    const long long value = strtoll(comma + 1, &end, 10);
    return end > comma + 1 && *end == ',' && value <= step;
}

/* Check the first line, line [n], of the file `path`. `header` is what a file of metrics begins
 * with. */
static fsdp_status check_header(const char *path, const char *line, size_t n,
                                const fsdp_str *header)
{
    if (n == header->len && memcmp(line, header->data, n) == 0)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s: its first line is not that of a CSV file of metrics, '%.60s...': "
                      "name another --logging-dir, or remove the file",
                      path, header->data);
}

static fsdp_status write_block(fsdp_str *block, fsdp_atomic_file *to)
{
    if (block->failed)
        return fsdp_error_nomem();
    FSDP_TRY(fsdp_atomic_file_append(to, block->data, block->len));
    block->len = 0;
    return FSDP_OK;
}

/* Write to `to` the header and those lines of `from` that belong to steps up to `step`. *line is
 * memory of getline(). `block` collects lines, so that few calls write them. */
static fsdp_status copy_lines(const char *path, FILE *from, int64_t step, char **line,
                              fsdp_str *block, fsdp_atomic_file *to)
{
    size_t cap = 0;
    add_header(block);
    if (block->failed)
        return fsdp_error_nomem();
    ssize_t n = getline(line, &cap, from);
    if (n > 0) /* n <= 0: the earlier run was killed before it wrote anything */
        FSDP_TRY(check_header(path, *line, (size_t)n, block));
    while (n > 0 && (n = getline(line, &cap, from)) > 0) {
        if (is_kept(*line, (size_t)n, step))
            fsdp_str_append(block, *line, (size_t)n);
        if (block->len >= BLOCK_BYTES || block->failed)
            FSDP_TRY(write_block(block, to));
    }
    if (ferror(from))
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    return write_block(block, to);
}

/* Replace the file `path` by one with its header and its lines up to `step`. The file of a long run
 * may be larger than memory, so its lines are copied in blocks. */
static fsdp_status keep_until(const char *path, int64_t step)
{
    fsdp_atomic_file *to = NULL;
    fsdp_str block = {0};
    char *line = NULL; /* allocated by getline */
    FILE *from = fopen(path, "re");
    if (!from)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno));
    fsdp_status status = fsdp_atomic_file_begin(path, 0, &to);
    if (status == FSDP_OK)
        status = copy_lines(path, from, step, &line, &block, to);
    fclose(from);
    free(line);
    fsdp_str_fini(&block);
    if (status == FSDP_OK)
        return fsdp_atomic_file_commit(to);
    fsdp_atomic_file_discard(to);
    return status;
}

static fsdp_status open_file(fsdp_metrics_csv *csv, bool append_lines)
{
    fsdp_str header = {0};
    csv->fd = open(csv->path,
                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append_lines ? 0 : O_TRUNC), 0666);
    if (csv->fd < 0)
        return fsdp_error(FSDP_ERR_IO, "%s: %s", csv->path, strerror(errno));
    if (append_lines)
        return FSDP_OK;
    add_header(&header);
    return append(csv, &header);
}

fsdp_status fsdp_metrics_csv_open(const char *path, int64_t keep_step, fsdp_metrics_csv **out)
{
    const bool resumes = keep_step >= 0 && fsdp_path_is_file(path);
    if (resumes)
        FSDP_TRY(keep_until(path, keep_step));
    fsdp_metrics_csv *csv = fsdp_calloc(1, sizeof *csv);
    if (!csv)
        return FSDP_ERR_NOMEM;
    csv->fd = -1;
    csv->path = fsdp_strdup(path);
    fsdp_status status = csv->path ? open_file(csv, resumes) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        *out = csv;
    else
        fsdp_metrics_csv_close(csv);
    return status;
}

void fsdp_metrics_csv_close(fsdp_metrics_csv *csv)
{
    if (!csv)
        return;
    if (csv->fd >= 0)
        close(csv->fd);
    fsdp_free(csv->path);
    fsdp_free(csv);
}

/* ---- reading ---- */

enum {
    KIND,
    STEP,
    LOSS,
    RATE,
    SECONDS,
    READ_COLUMNS, /* number of columns that the reader uses: the enumerators above */
    MAX_COLUMNS = 256
};

/* Where the columns that the reader uses are in a line. */
typedef struct csv_layout {
    int column[READ_COLUMNS]; /* index of each column in a line; -1: the file does not have the
                                 column */
    int columns;
} csv_layout;

static fsdp_status wrong_line(const char *path, int64_t line, const char *what)
{
    return fsdp_error(FSDP_ERR_FORMAT, "%s:%lld: %s", path, (long long)line, what);
}

/* Split a line in place at its commas. No value of these files has quotes. Return the number of
 * cells, or -1 if there are more than MAX_COLUMNS. */
static int split(char *line, char *cells[MAX_COLUMNS])
{
    int n = 0;
    line[strcspn(line, "\r\n")] = 0;
    for (char *at = line; at; n++) {
        if (n == MAX_COLUMNS)
            return -1;
        cells[n] = strsep(&at, ",");
    }
    return n;
}

static fsdp_status read_header(const char *path, char *line, csv_layout *layout)
{
    static const char *const names[] = {"kind", "step", "loss", "lr", "seconds"};
    char *cells[MAX_COLUMNS];
    layout->columns = split(line, cells);
    for (int i = 0; i < READ_COLUMNS; i++) {
        layout->column[i] = -1;
        for (int k = 0; k < layout->columns; k++)
            if (strcmp(cells[k], names[i]) == 0)
                layout->column[i] = k;
    }
    if (layout->column[KIND] >= 0 && layout->column[STEP] >= 0 && layout->column[LOSS] >= 0)
        return FSDP_OK;
    return wrong_line(path, 1,
                      "not a CSV file of metrics: its columns must include kind, step and loss, as "
                      "--report-to csv writes them");
}

/* Set *value to the number in a cell; NaN for an empty one. */
static bool get_cell(const char *cell, double *value)
{
    char *end;
    if (!*cell) {
        *value = (double)NAN;
        return true;
    }
    *value = strtod(cell, &end);
    return !*end && !isspace((unsigned char)*cell);
}

static fsdp_status add_row(const char *path, int64_t number, char *line, const csv_layout *layout,
                           fsdp_metrics_curves *curves)
{
    char *cells[MAX_COLUMNS];
    double values[READ_COLUMNS];
    if (split(line, cells) != layout->columns)
        return wrong_line(path, number, "the line has another number of columns than the first");
    const char *kind = cells[layout->column[KIND]];
    const bool is_step = strcmp(kind, "step") == 0;
    if (!is_step && strcmp(kind, "validation") != 0)
        return FSDP_OK;
    for (int i = STEP; i < READ_COLUMNS; i++)
        if (!get_cell(layout->column[i] < 0 ? "" : cells[layout->column[i]], &values[i]))
            return wrong_line(path, number, "a value is not a number");
    if (isnan(values[STEP]))
        return wrong_line(path, number, "the row has no step");
    if (!(values[STEP] >= 0 && values[STEP] <= 0x1p53))
        return wrong_line(path, number, "the step is not a number from 0 to 2^53");
    FSDP_TRY(fsdp_metrics_curve_add(is_step ? &curves->loss : &curves->validation, values[STEP],
                                    values[LOSS]));
    if (is_step && !isnan(values[RATE]))
        FSDP_TRY(fsdp_metrics_curve_add(&curves->lr, values[STEP], values[RATE]));
    if (is_step && !isnan(values[SECONDS]))
        FSDP_TRY(fsdp_metrics_curve_add(&curves->seconds, values[STEP], values[SECONDS]));
    return FSDP_OK;
}

static fsdp_status read_rows(FILE *file, const char *path, char **line, fsdp_metrics_curves *curves)
{
    csv_layout layout;
    size_t cap = 0;
    ssize_t n = getline(line, &cap, file);
    if (n < 0)
        return wrong_line(path, 1, "the file is empty");
    if (strlen(*line) != (size_t)n)
        return wrong_line(path, 1, "not a CSV file of metrics: the line has a NUL byte");
    FSDP_TRY(read_header(path, *line, &layout));
    for (int64_t number = 2; (n = getline(line, &cap, file)) > 0; number++) {
        if ((*line)[n - 1] != '\n')
            return FSDP_OK;
        if (strlen(*line) != (size_t)n)
            return wrong_line(path, number, "the line has a NUL byte");
        if (n > 1)
            FSDP_TRY(add_row(path, number, *line, &layout, curves));
    }
    return ferror(file) ? fsdp_error(FSDP_ERR_IO, "%s: %s", path, strerror(errno)) : FSDP_OK;
}

fsdp_status fsdp_metrics_csv_read(const char *path, fsdp_metrics_curves *out)
{
    fsdp_metrics_curves curves = {0};
    char *line = NULL; /* allocated by getline */
    FILE *file = fopen(path, "re");
    if (!file)
        return fsdp_error(errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "%s: %s", path,
                          strerror(errno));
    const fsdp_status status = read_rows(file, path, &line, &curves);
    fclose(file);
    free(line);
    if (status == FSDP_OK)
        *out = curves;
    else
        fsdp_metrics_curves_fini(&curves);
    return status;
}
