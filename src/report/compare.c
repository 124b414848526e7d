/* Compares training runs by what they reported: files of metrics, CSV files, event files. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/report/compare.h"
#include "src/report/human.h"
#include "src/report/run_curves.h"
#include "src/report/table.h"

/* What a run reports at its end. A value is NaN if the run's files do not have it. */
typedef struct summary {
    bool found;
    int64_t steps;
    double train_loss, validation_loss, step_s, total_s, host_mib;
} summary;

/* The peak memory of one rank, in bytes: by purpose and in total. */
typedef struct rank_memory {
    int64_t tags[FSDP_TAG_COUNT], allocated;
} rank_memory;

typedef struct run {
    char *name; /* name of the file without its ending, or of the folder */
    summary end;
    rank_memory *ranks; /* [n_ranks] */
    size_t n_ranks, cap_ranks;
    fsdp_metrics_curve losses; /* the training loss of each step */
    bool is_float32;           /* the file has the losses as float32 (event files) */
    char *notes;               /* fsdp_metrics_curves.notes; owned */
} run;

/* --- reading --- */

static fsdp_status get_memory(fsdp_json_node node, rank_memory *memory)
{
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        FSDP_TRY(fsdp_json_get_i64(node, fsdp_tag_name((fsdp_tag)tag), 0, INT64_MAX,
                                   &memory->tags[tag]));
    return fsdp_json_get_i64(node, "allocated", 0, INT64_MAX, &memory->allocated);
}

static fsdp_status get_summary(fsdp_json_node line, run *r)
{
    fsdp_json_node by_rank;
    r->end.found = true;
    FSDP_TRY(fsdp_json_get_i64(line, "step", 0, INT64_MAX, &r->end.steps));
    FSDP_TRY(fsdp_metrics_get_number(line, "train_loss", &r->end.train_loss));
    FSDP_TRY(fsdp_metrics_get_number(line, "validation_loss", &r->end.validation_loss));
    FSDP_TRY(fsdp_metrics_get_number(line, "step_s", &r->end.step_s));
    FSDP_TRY(fsdp_metrics_get_number(line, "total_s", &r->end.total_s));
    FSDP_TRY(fsdp_metrics_get_number(line, "peak_host_mib", &r->end.host_mib));
    FSDP_TRY(fsdp_json_get_array(line, "memory_peak_by_rank", &by_rank));
    r->n_ranks = 0;
    for (size_t i = 0; i < fsdp_json_len(by_rank); i++) {
        if (!FSDP_GROW(r->ranks, r->cap_ranks, i + 1))
            return FSDP_ERR_NOMEM;
        FSDP_TRY(get_memory(fsdp_json_at(by_rank, i), &r->ranks[i]));
        r->n_ranks++;
    }
    return FSDP_OK;
}

static fsdp_status take_line(fsdp_json_node line, void *arg)
{
    const char *kind;
    FSDP_TRY(fsdp_json_get_str(line, "kind", &kind));
    return strcmp(kind, "summary") == 0 ? get_summary(line, arg) : FSDP_OK;
}

static int compare_values(const void *a, const void *b)
{
    const double x = ((const fsdp_metrics_point *)a)->value,
                 y = ((const fsdp_metrics_point *)b)->value;
    return (x > y) - (x < y);
}

/* Sort the points of a curve by value, and return the median; NaN if the curve is empty. */
static double sort_for_median(fsdp_metrics_curve *curve)
{
    if (!curve->len)
        return (double)NAN;
    qsort(curve->points, curve->len, sizeof *curve->points, compare_values);
    return curve->points[curve->len / 2].value;
}

static double last_of(const fsdp_metrics_curve *curve, bool step)
{
    if (!curve->len)
        return (double)NAN;
    const fsdp_metrics_point *last = &curve->points[curve->len - 1];
    return step ? last->step : last->value;
}

/* Set *end to the summary of a run with CSV or event files. An event file may have values that the
 * run reported at its end. If the validation loss or the time per step is missing there, take it
 * from the curves. */
static void summarize(fsdp_metrics_curves *curves, summary *end)
{
    const double none = (double)NAN, step = last_of(&curves->loss, true);
    const fsdp_metrics_end *said = &curves->end;
    const bool is_number = step >= -0x1p62 && step <= 0x1p62;
    *end = (summary){true, is_number ? (int64_t)step : 0, none, none, none, none, none};
    if (said->found) {
        end->train_loss = said->train_loss;
        end->validation_loss = said->validation_loss;
        end->step_s = said->step_s;
        end->total_s = said->total_s;
        end->host_mib = said->host_mib;
    }
    if (isnan(end->validation_loss))
        end->validation_loss = last_of(&curves->validation, false);
    if (isnan(end->step_s))
        end->step_s = sort_for_median(&curves->seconds);
}

static fsdp_status read_found(fsdp_run_kind kind, const char *path, run *r)
{
    fsdp_metrics_curves curves;
    if (kind == FSDP_RUN_METRICS)
        FSDP_TRY(fsdp_metrics_for_each(path, take_line, r));
    if (kind == FSDP_RUN_METRICS && !r->end.found)
        return fsdp_error(FSDP_ERR_STATE, "%s: no summary line: the run has not ended", path);
    FSDP_TRY(fsdp_run_curves_read_found(kind, path, &curves));
    if (kind != FSDP_RUN_METRICS)
        summarize(&curves, &r->end);
    r->is_float32 = curves.is_float32;
    r->losses = curves.loss;
    r->notes = curves.notes;
    curves.loss = (fsdp_metrics_curve){0};
    curves.notes = NULL;
    fsdp_metrics_curves_fini(&curves);
    return FSDP_OK;
}

/* Set r->name to the last component of the path `given`. Leave out the ending of a file's name. */
static fsdp_status name_run(const char *given, fsdp_run_kind kind, run *r)
{
    char *stripped = fsdp_path_stripped(given);
    if (!stripped)
        return FSDP_ERR_NOMEM;
    const char *name = fsdp_path_name(stripped), *dot = strrchr(name, '.');
    const bool whole = kind == FSDP_RUN_EVENTS || fsdp_path_is_directory(given);
    r->name =
        fsdp_strndup(name, !whole && dot && dot != name ? (size_t)(dot - name) : strlen(name));
    fsdp_free(stripped);
    return r->name ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status read_run(const char *given, run *r)
{
    fsdp_run_kind kind;
    char *path;
    FSDP_TRY(fsdp_run_find(given, &kind, &path));
    const fsdp_status status = read_found(kind, path, r);
    fsdp_free(path);
    FSDP_TRY(status);
    return name_run(given, kind, r);
}

static void free_runs(run *runs, size_t n)
{
    for (size_t i = 0; runs && i < n; i++) {
        fsdp_free(runs[i].name);
        fsdp_free(runs[i].ranks);
        fsdp_free(runs[i].losses.points);
        fsdp_free(runs[i].notes);
    }
    fsdp_free(runs);
}

/* --- tables --- */

/* Add a cell with a loss. The cell is "-" if the loss is not finite, for example because the run
 * did not measure it. */
static void loss_cell(fsdp_table *table, double loss)
{
    if (isfinite(loss))
        fsdp_table_cell(table, "%.4f", loss);
    else
        fsdp_table_cell(table, "-");
}

static bool host_is_known(const summary *end)
{
    return end->host_mib >= 0 && end->host_mib < 0x1p40;
}

static void duration_cell(fsdp_table *table, double seconds)
{
    fsdp_table_cell(table, "%s", isnan(seconds) ? "-" : fsdp_human_duration(seconds).text);
}

static fsdp_status print_runs(const run *runs, size_t n, FILE *out)
{
    static const char *const headings[] = {"run",         "steps",  "train loss", "validation loss",
                                           "median step", "in all", "host memory"};
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(7, &table));
    for (size_t i = 0; i < 7; i++)
        fsdp_table_column(table, i, headings[i], i ? FSDP_TABLE_RIGHT : FSDP_TABLE_LEFT);
    for (size_t i = 0; i < n; i++) {
        const summary *end = &runs[i].end;
        fsdp_table_row(table);
        fsdp_table_cell(table, "%s", runs[i].name);
        fsdp_table_cell(table, "%lld", (long long)end->steps);
        loss_cell(table, end->train_loss);
        loss_cell(table, end->validation_loss);
        duration_cell(table, end->step_s);
        duration_cell(table, end->total_s);
        fsdp_table_cell(
            table, "%s",
            host_is_known(end) ? fsdp_human_bytes((int64_t)(end->host_mib * 1048576.0)).text : "-");
    }
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static void memory_rows(fsdp_table *table, const run *r)
{
    for (size_t rank = 0; rank < r->n_ranks; rank++) {
        const rank_memory *memory = &r->ranks[rank];
        fsdp_table_row(table);
        fsdp_table_cell(table, "%s", r->name);
        fsdp_table_cell(table, "%zu", rank);
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
            fsdp_table_cell(table, "%s", fsdp_human_bytes(memory->tags[tag]).text);
        fsdp_table_cell(table, "%s", fsdp_human_bytes(memory->allocated).text);
    }
}

/* Print the peak memory of each rank. Only files of metrics have it. */
static fsdp_status print_memory(const run *runs, size_t n, FILE *out)
{
    fsdp_table *table;
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= runs[i].n_ranks > 0;
    if (!any)
        return FSDP_OK;
    FSDP_TRY(fsdp_table_create(FSDP_TAG_COUNT + 3, &table));
    fsdp_table_column(table, 0, "peak memory", FSDP_TABLE_LEFT);
    fsdp_table_column(table, 1, "rank", FSDP_TABLE_RIGHT);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_table_column(table, (size_t)tag + 2, fsdp_tag_name((fsdp_tag)tag), FSDP_TABLE_RIGHT);
    fsdp_table_column(table, FSDP_TAG_COUNT + 2, "all", FSDP_TABLE_RIGHT);
    for (size_t i = 0, printed = 0; i < n; i++) {
        if (runs[i].n_ranks && printed++)
            fsdp_table_rule(table);
        memory_rows(table, &runs[i]);
    }
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

/* --- losses --- */

/* Return the point of run `r` at step `step`, or NULL if the run has no point there. The points are
 * in ascending order of steps, but need not start at step 1. The search starts at index *from.
 * *from is set to the index of the first point whose step is not less than `step`. A caller that
 * looks up several steps passes the same `from` each time, and must ask for the steps in ascending
 * order. */
static const fsdp_metrics_point *at_step(const run *r, double step, size_t *from)
{
    while (*from < r->losses.len && r->losses.points[*from].step < step)
        (*from)++;
    bool found = *from < r->losses.len && r->losses.points[*from].step <= step;
    return found ? &r->losses.points[*from] : NULL;
}

/* Return true if two losses have the same bits, or if both are NaN, because files do not have the
 * bits of a NaN. */
static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Return `loss`. If `float32` is true, round it to float32, because the loss with which it will be
 * compared is stored only as float32. */
static double rounded(double loss, bool float32)
{
    return float32 ? (double)(float)loss : loss;
}

static fsdp_compare_losses compare_pair(const run *a, const run *b, FILE *out)
{
    int64_t compared = 0, different = 0;
    double largest = 0, first = 0;
    size_t from = 0;
    const bool float32 = a->is_float32 || b->is_float32;
    const char *as = a->is_float32 == b->is_float32 ? "" : ", as float32";
    for (size_t i = 0; i < a->losses.len; i++) {
        const fsdp_metrics_point *p = &a->losses.points[i], *q = at_step(b, p->step, &from);
        if (!q)
            continue;
        compared++;
        const double x = rounded(p->value, float32), y = rounded(q->value, float32);
        if (same_bits(x, y))
            continue;
        if (different++ == 0)
            first = p->step;
        const double apart = fabs(x - y);
        largest = isnan(apart) ? (double)INFINITY : fmax(largest, apart);
    }
    if (compared == 0) {
        fprintf(out, "%s and %s have no step in common\n", a->name, b->name);
        return FSDP_LOSSES_APART;
    }
    if (different == 0) {
        fprintf(out, "%s and %s: the losses of all %lld common steps are the same in every bit%s\n",
                a->name, b->name, (long long)compared, as);
        return FSDP_LOSSES_SAME;
    }
    fprintf(out,
            "%s and %s: the losses of %lld of %lld common steps differ, from step %.0f on, by "
            "%.3g at most%s\n",
            a->name, b->name, (long long)different, (long long)compared, first, largest, as);
    return FSDP_LOSSES_DIFFER;
}

static fsdp_status print_all(const run *runs, size_t n, FILE *out, fsdp_compare_losses *losses)
{
    *losses = FSDP_LOSSES_SAME;
    FSDP_TRY(print_runs(runs, n, out));
    FSDP_TRY(print_memory(runs, n, out));
    for (size_t i = 0; i < n; i++)
        if (runs[i].notes)
            fprintf(out, "note: %s", runs[i].notes);
    for (size_t i = 1; i < n; i++) {
        fsdp_compare_losses pair = compare_pair(&runs[0], &runs[i], out);
        if (*losses == FSDP_LOSSES_SAME || pair == FSDP_LOSSES_DIFFER)
            *losses = pair;
    }
    if (fflush(out) != 0)
        return fsdp_error(FSDP_ERR_IO, "printing a comparison: %s", strerror(errno));
    return FSDP_OK;
}

fsdp_status fsdp_compare_runs(const char *const *paths, size_t n, FILE *out,
                              fsdp_compare_losses *losses)
{
    run *runs = fsdp_calloc(n, sizeof *runs);
    if (!runs)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++)
        status = read_run(paths[i], &runs[i]);
    if (status == FSDP_OK)
        status = print_all(runs, n, out, losses);
    free_runs(runs, n);
    return status;
}
