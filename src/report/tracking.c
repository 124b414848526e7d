/* See tracking.h. */
#include "src/report/tracking.h"

#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/str.h"
#include "src/report/event_file.h"
#include "src/report/log_csv.h"
#include "src/report/metrics.h"
#include "src/report/metrics_csv.h"

enum {
    MAX_SCALARS = FSDP_TRACKING_MAX_KEYS, /* maximum number of scalars of a row */
    TAG_BYTES = FSDP_TRACKING_KEY_BYTES
};

struct fsdp_tracking {
    fsdp_metrics *metrics;
    fsdp_metrics_csv *csv;
    fsdp_log_csv *log_csv;
    fsdp_event_file *events;
    fsdp_tracker_command *command;
    fsdp_json *row; /* the row that was begun but is not written yet, or NULL */
};

/* ---- opening ---- */

static fsdp_status open_sinks(fsdp_tracking *t, const fsdp_tracking_options *o)
{
    if (o->metrics) {
        if (o->resumed)
            FSDP_TRY(fsdp_metrics_truncate(o->metrics, o->step));
        FSDP_TRY(fsdp_metrics_open(o->metrics, o->resumed || o->append, &t->metrics));
    }
    if (o->csv)
        FSDP_TRY(fsdp_metrics_csv_open(o->csv, o->resumed ? o->step : -1, &t->csv));
    if (o->log_csv)
        FSDP_TRY(fsdp_log_csv_open(o->log_csv, &t->log_csv));
    if (o->events)
        FSDP_TRY(fsdp_event_file_create(o->events, o->resumed ? o->step + 1 : FSDP_EVENT_NO_PURGE,
                                        &t->events));
    if (o->command)
        FSDP_TRY(fsdp_tracker_command_start(o->command, o->say, o->context, &t->command));
    return FSDP_OK;
}

fsdp_status fsdp_tracking_open(const fsdp_tracking_options *options, fsdp_tracking **out)
{
    fsdp_tracking *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    fsdp_status status = open_sinks(t, options);
    if (status == FSDP_OK)
        *out = t;
    else
        fsdp_tracking_close(t, 0);
    return status;
}

void fsdp_tracking_close(fsdp_tracking *t, double seconds)
{
    if (!t)
        return;
    fsdp_metrics_close(t->metrics);
    fsdp_metrics_csv_close(t->csv);
    fsdp_log_csv_close(t->log_csv);
    fsdp_event_file_close(t->events);
    fsdp_tracker_command_close(t->command, seconds);
    fsdp_json_destroy(t->row);
    fsdp_free(t);
}

/* ---- TensorBoard ---- */

typedef struct scalar_list {
    fsdp_event_scalar items[MAX_SCALARS];
    char tags[MAX_SCALARS][TAG_BYTES];
    size_t n;
} scalar_list;

/* Add a scalar whose tag is "SECTION/KEY", or only "KEY" if `section` is NULL. */
static void add_scalar(scalar_list *list, const char *section, const char *key, double value)
{
    if (list->n == MAX_SCALARS)
        return;
    char *tag = list->tags[list->n];
    if (section && strcmp(key, "lr") == 0)
        key = "learning_rate";
    snprintf(tag, TAG_BYTES, "%s%s%s", section ? section : "", section ? "/" : "", key);
    list->items[list->n++] = (fsdp_event_scalar){tag, value};
}

static bool is_number(fsdp_json_node value)
{
    const fsdp_json_kind kind = fsdp_json_kind_of(value);
    return kind == FSDP_JSON_INT || kind == FSDP_JSON_REAL || kind == FSDP_JSON_STRING ||
           kind == FSDP_JSON_BOOL;
}

/* Add the numbers in `object`, except for "kind" and "step". */
static fsdp_status add_numbers(scalar_list *list, const char *section, fsdp_json_node object)
{
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v)) {
        double number = 0;
        bool yes = false;
        if (strcmp(v.key, "kind") == 0 || strcmp(v.key, "step") == 0 || !is_number(v))
            continue;
        if (fsdp_json_kind_of(v) == FSDP_JSON_BOOL) {
            FSDP_TRY(fsdp_json_get_bool(v, NULL, &yes));
            number = yes;
        } else {
            FSDP_TRY(fsdp_metrics_get_number(object, v.key, &number));
        }
        add_scalar(list, section, v.key, number);
    }
    return FSDP_OK;
}

/* Return the word before the slash in the tags of a row, as in transformers' Trainer: "train" in
 * train/loss, "eval" in eval/loss. Return NULL for the kind "log", whose names the user chooses. */
static const char *section_of(const char *kind)
{
    if (strcmp(kind, "log") == 0)
        return NULL;
    return strcmp(kind, "step") == 0 ? "train" : strcmp(kind, "validation") == 0 ? "eval" : kind;
}

static fsdp_status write_scalars(fsdp_tracking *t, fsdp_json_node row, const char *kind)
{
    int64_t step;
    scalar_list *list = fsdp_calloc(1, sizeof *list);
    if (!list)
        return FSDP_ERR_NOMEM;
    fsdp_status status = fsdp_json_opt_i64(row, "step", 0, INT64_MAX, 0, &step);
    if (status == FSDP_OK)
        status = add_numbers(list, section_of(kind), row);
    if (status == FSDP_OK && strcmp(kind, "step") == 0)
        status = add_numbers(list, "memory", fsdp_json_find(row, "memory_peak"));
    if (status == FSDP_OK)
        status = fsdp_event_file_scalars(t->events, step, list->items, list->n);
    fsdp_free(list);
    return status;
}

/* Write the options as a code block of Markdown, which keeps line ends. TensorBoard's SummaryWriter
 * adds "/text_summary" to the names of texts. */
static fsdp_status write_config(fsdp_tracking *t, fsdp_json_node row)
{
    fsdp_str text = {0};
    fsdp_json_node config = fsdp_json_find(row, "config");
    for (fsdp_json_node v = fsdp_json_first(config); v.value; v = fsdp_json_next(v)) {
        const char *value = "";
        if (fsdp_json_get_str(v, NULL, &value) == FSDP_OK)
            fsdp_str_printf(&text, "    %s: %s\n", v.key, value);
    }
    char *taken = fsdp_str_take(&text);
    fsdp_status status =
        taken ? fsdp_event_file_text(t->events, 0, "args/text_summary", taken) : FSDP_ERR_NOMEM;
    fsdp_free(taken);
    return status;
}

/* ---- rows ---- */

fsdp_status fsdp_tracking_begin(fsdp_tracking *t, const char *kind, fsdp_json_node *row)
{
    fsdp_json_destroy(t->row);
    t->row = NULL;
    FSDP_TRY(fsdp_json_create("a row of the run", &t->row));
    *row = fsdp_json_root(t->row);
    fsdp_json_set_str(*row, "kind", kind);
    return FSDP_OK;
}

static fsdp_status write_line(fsdp_tracking *t, bool is_config)
{
    char *text;
    size_t bytes;
    if (!(t->metrics && !is_config) && !t->command)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_print(t->row, FSDP_JSON_LINE, &text, &bytes));
    text[bytes] = '\n'; /* the newline takes the place of the NUL */
    fsdp_status status = FSDP_OK;
    if (t->metrics && !is_config)
        status = fsdp_metrics_append(t->metrics, text, bytes + 1);
    if (status == FSDP_OK && t->command)
        status = fsdp_tracker_command_send(t->command, text, bytes + 1);
    fsdp_free(text);
    return status;
}

static fsdp_status write_row(fsdp_tracking *t)
{
    const fsdp_json_node row = fsdp_json_root(t->row);
    const char *kind;
    FSDP_TRY(fsdp_json_check_built(t->row));
    FSDP_TRY(fsdp_json_get_str(row, "kind", &kind));
    const bool is_config = strcmp(kind, "config") == 0;
    FSDP_TRY(write_line(t, is_config));
    if (t->csv)
        FSDP_TRY(fsdp_metrics_csv_write(t->csv, row));
    if (t->log_csv)
        FSDP_TRY(fsdp_log_csv_write(t->log_csv, row));
    if (t->events)
        FSDP_TRY(is_config ? write_config(t, row) : write_scalars(t, row, kind));
    return FSDP_OK;
}

fsdp_status fsdp_tracking_write(fsdp_tracking *t)
{
    if (!t->row)
        return fsdp_error(FSDP_ERR_STATE, "no row was begun");
    fsdp_status status = write_row(t);
    fsdp_json_destroy(t->row);
    t->row = NULL;
    return status;
}

fsdp_status fsdp_tracking_histogram(fsdp_tracking *t, int64_t step, const char *tag,
                                    const fsdp_histogram *histogram)
{
    return t->events ? fsdp_event_file_histogram(t->events, step, tag, histogram) : FSDP_OK;
}
