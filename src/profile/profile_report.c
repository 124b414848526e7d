/* Tables of the time in a profile; see profile_report.h. */
#include "src/profile/profile_report.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/report/table.h"

/* The categories and their names, in the order of the rows of the table. */
static const struct {
    fsdp_trace_category category;
    const char *name;
} kinds[FSDP_TRACE_CATEGORIES] = {{FSDP_TRACE_MATMUL, "matmul"},
                                  {FSDP_TRACE_ATTENTION, "attention"},
                                  {FSDP_TRACE_OPERATION, "other operations"},
                                  {FSDP_TRACE_OPTIMIZER, "optimizer"},
                                  {FSDP_TRACE_SHARDING, "sharding itself"},
                                  {FSDP_TRACE_WAITING, "waiting for peers"},
                                  {FSDP_TRACE_DATA, "data"},
                                  {FSDP_TRACE_REST, "unexplained rest"}};

static double part(double value, double whole)
{
    return whole > 0.0 ? value / whole : 0.0;
}

fsdp_status fsdp_profile_make_rows(const fsdp_trace *trace, fsdp_group *group,
                                   fsdp_profile_row rows[FSDP_PROFILE_ROWS])
{
    /* ns; [0] is wall-clock time, [1] is processor time, [2] is the device's time */
    double times[FSDP_TRACE_CATEGORIES][3];
    const fsdp_trace_sum *sums = fsdp_trace_sums(trace);
    fsdp_profile_row step = {.name = "step"};
    for (int i = 0; i < FSDP_TRACE_CATEGORIES; i++) {
        times[i][0] = (double)sums[i].wall_ns;
        times[i][1] = (double)sums[i].cpu_ns;
        times[i][2] = (double)sums[i].device_ns;
    }
    if (group)
        FSDP_TRY(
            fsdp_all_reduce(group, times, FSDP_LENGTH(times) * 3, FSDP_DTYPE_F64, FSDP_REDUCE_AVG));
    double per_step_ms = 1e-6 / (double)fsdp_trace_steps(trace);
    for (int i = 0; i < FSDP_TRACE_CATEGORIES; i++) {
        const double *t = times[kinds[i].category];
        rows[i] = (fsdp_profile_row){.name = kinds[i].name,
                                     .ms = t[0] * per_step_ms,
                                     .cpu_ms = t[1] * per_step_ms,
                                     .device_ms = t[2] * per_step_ms};
        step.ms += rows[i].ms;
        step.cpu_ms += rows[i].cpu_ms;
        step.device_ms += rows[i].device_ms;
    }
    rows[FSDP_TRACE_CATEGORIES] = step;
    for (int i = 0; i < FSDP_PROFILE_ROWS; i++) {
        rows[i].share = part(rows[i].ms, step.ms);
        rows[i].cpu_share = part(rows[i].cpu_ms, step.cpu_ms);
        rows[i].device_share = part(rows[i].device_ms, step.device_ms);
    }
    return FSDP_OK;
}

fsdp_status fsdp_profile_print_rows(const fsdp_profile_row rows[FSDP_PROFILE_ROWS], FILE *out)
{
    static const char *const headings[] = {"time of a step", "ms",        "share", "processor ms",
                                           "share",          "device ms", "share"};
    const bool has_device = rows[FSDP_TRACE_CATEGORIES].device_ms > 0.0;
    const size_t columns = FSDP_LENGTH(headings) - (has_device ? 0 : 2);
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(columns, &table));
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, i, headings[i], i ? FSDP_TABLE_RIGHT : FSDP_TABLE_LEFT);
    for (int i = 0; i < FSDP_PROFILE_ROWS; i++) {
        if (i == FSDP_TRACE_CATEGORIES)
            fsdp_table_rule(table);
        fsdp_table_row(table);
        fsdp_table_cell(table, "%s", rows[i].name);
        fsdp_table_cell(table, "%.2f", rows[i].ms);
        fsdp_table_cell(table, "%.1f %%", 100.0 * rows[i].share);
        fsdp_table_cell(table, "%.2f", rows[i].cpu_ms);
        fsdp_table_cell(table, "%.1f %%", 100.0 * rows[i].cpu_share);
        if (has_device) {
            fsdp_table_cell(table, "%.2f", rows[i].device_ms);
            fsdp_table_cell(table, "%.1f %%", 100.0 * rows[i].device_share);
        }
    }
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

/* --- time by name of operation --- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_name(const fsdp_trace_entry *a, const fsdp_trace_entry *b)
{
    return a->category == b->category && same_text(a->name, b->name) &&
           same_text(a->detail, b->detail);
}

/* Compare two entries for qsort(), so that the most expensive entry comes first. */
static int by_time(const void *a, const void *b)
{
    const fsdp_trace_entry *x = a, *y = b;
    if (x->sum.device_ns != y->sum.device_ns)
        return x->sum.device_ns < y->sum.device_ns ? 1 : -1;
    return (x->sum.wall_ns < y->sum.wall_ns) - (x->sum.wall_ns > y->sum.wall_ns);
}

/* Merge entries that have the same category, name and detail. Return the number of entries that are
 * left. */
static size_t merge(fsdp_trace_entry *entries, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < kept && !same_name(&entries[k], &entries[i]))
            k++;
        if (k == kept) {
            entries[kept++] = entries[i];
            continue;
        }
        entries[k].sum.wall_ns += entries[i].sum.wall_ns;
        entries[k].sum.cpu_ns += entries[i].sum.cpu_ns;
        entries[k].sum.device_ns += entries[i].sum.device_ns;
        entries[k].sum.calls += entries[i].sum.calls;
    }
    return kept;
}

fsdp_status fsdp_profile_make_names(const fsdp_trace *trace,
                                    fsdp_profile_name names[FSDP_PROFILE_NAMES], size_t *n)
{
    size_t all;
    const double steps = (double)fsdp_trace_steps(trace);
    const fsdp_trace_entry *from = fsdp_trace_entries(trace, &all);
    fsdp_trace_entry *entries = fsdp_calloc(all, sizeof *entries);
    if (!entries)
        return fsdp_error_nomem();
    memcpy(entries, from, all * sizeof *entries);
    all = merge(entries, all);
    qsort(entries, all, sizeof *entries, by_time);
    *n = all < FSDP_PROFILE_NAMES ? all : FSDP_PROFILE_NAMES;
    for (size_t i = 0; i < *n; i++) {
        const fsdp_trace_entry *e = &entries[i];
        names[i] = (fsdp_profile_name){.name = e->name,
                                       .detail = e->detail,
                                       .category = fsdp_trace_category_name(e->category),
                                       .calls = (double)e->sum.calls / steps,
                                       .ms = (double)e->sum.wall_ns * 1e-6 / steps,
                                       .cpu_ms = (double)e->sum.cpu_ns * 1e-6 / steps,
                                       .device_ms = (double)e->sum.device_ns * 1e-6 / steps};
    }
    fsdp_free(entries);
    return FSDP_OK;
}

static void name_row(fsdp_table *table, const fsdp_profile_name *e, bool has_device)
{
    fsdp_table_row(table);
    fsdp_table_cell(table, "%s%s%s", e->name, e->detail ? " " : "", e->detail ? e->detail : "");
    fsdp_table_cell(table, "%s", e->category);
    fsdp_table_cell(table, "%.4g", e->calls);
    fsdp_table_cell(table, "%.2f", e->ms);
    fsdp_table_cell(table, "%.2f", e->cpu_ms);
    if (has_device)
        fsdp_table_cell(table, "%.2f", e->device_ms);
}

fsdp_status fsdp_profile_print_names(const fsdp_trace *trace, FILE *out)
{
    static const char *const headings[] = {"most expensive", "category", "calls", "ms",
                                           "processor ms",   "device ms"};
    const bool has_device = fsdp_trace_has_clock(trace);
    const size_t columns = FSDP_LENGTH(headings) - (has_device ? 0 : 1);
    fsdp_profile_name names[FSDP_PROFILE_NAMES];
    size_t n;
    fsdp_table *table;
    FSDP_TRY(fsdp_profile_make_names(trace, names, &n));
    FSDP_TRY(fsdp_table_create(columns, &table));
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, i, headings[i], i < 2 ? FSDP_TABLE_LEFT : FSDP_TABLE_RIGHT);
    for (size_t i = 0; i < n; i++)
        name_row(table, &names[i], has_device);
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}
