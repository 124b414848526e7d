/* Prints a plan as tables and as JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/plan/plan.h"
#include "src/report/human.h"
#include "src/report/table.h"

/* --- memory --- */

typedef struct moment_row {
    const char *what, *key; /* what: text for people; key: key in JSON */
    const fsdp_plan_memory *memory;
} moment_row;

enum {
    MOMENTS = 5
};

static void list_moments(const fsdp_plan *p, moment_row rows[MOMENTS])
{
    const moment_row all[MOMENTS] = {{"after init", "init", &p->init},
                                     {"after forward", "forward", &p->forward},
                                     {"after backward", "backward", &p->backward},
                                     {"after the step", "step", &p->step},
                                     {"at the peak", "peak", &p->peak}};
    memcpy(rows, all, sizeof all);
}

static fsdp_status print_memory(const fsdp_plan *p, FILE *out)
{
    moment_row rows[MOMENTS];
    fsdp_table *table;
    list_moments(p, rows);
    FSDP_TRY(fsdp_table_create(FSDP_TAG_COUNT + 2, &table));
    fsdp_table_column(table, 0, "one rank", FSDP_TABLE_LEFT);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_table_column(table, (size_t)tag + 1, fsdp_tag_name((fsdp_tag)tag), FSDP_TABLE_RIGHT);
    fsdp_table_column(table, FSDP_TAG_COUNT + 1, "allocated", FSDP_TABLE_RIGHT);
    for (int i = 0; i < MOMENTS; i++) {
        fsdp_table_row(table);
        fsdp_table_cell(table, "%s", rows[i].what);
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
            fsdp_table_cell(table, "%s", fsdp_human_bytes(rows[i].memory->tag[tag]).text);
        fsdp_table_cell(table, "%s", fsdp_human_bytes(rows[i].memory->total).text);
    }
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static void print_peak(const fsdp_plan *p, FILE *out)
{
    const char *unit = fsdp_plan_unit_name(p, p->peak_at.unit);
    const char *ranks = p->local_world_size == 1 ? "" : "s";
    fprintf(out, "peak: %s%s%s, %s\n", fsdp_plan_phase_name(p->peak_at.phase), *unit ? " of " : "",
            unit, fsdp_human_bytes(p->peak.total).text);
    fprintf(out, "held by the allocator: %s\n", fsdp_human_bytes(p->reserved).text);
    if (p->staging)
        fprintf(out, "copies for an asynchronous save: %s at most\n",
                fsdp_human_bytes(p->staging).text);
    if (p->ranks_per_card)
        fprintf(out, "card: %d rank%s, %s, and what CUDA and the kernels need beside it\n",
                p->ranks_per_card, p->ranks_per_card == 1 ? "" : "s",
                fsdp_human_bytes(fsdp_plan_limited_bytes(p)).text);
    fprintf(out, "host: %d rank%s with all that is not a tensor, %s\n", p->local_world_size, ranks,
            fsdp_human_bytes(fsdp_plan_host_bytes(p)).text);
}

/* --- units --- */

static bool same_figures(const fsdp_plan_unit *a, const fsdp_plan_unit *b)
{
    return strcmp(a->class_name, b->class_name) == 0 && a->numel == b->numel &&
           a->local_numel == b->local_numel && a->all_gathers == b->all_gathers &&
           a->all_gather_bytes == b->all_gather_bytes && a->reduce_scatters == b->reduce_scatters &&
           a->reduce_scatter_bytes == b->reduce_scatter_bytes && a->all_reduces == b->all_reduces &&
           a->all_reduce_bytes == b->all_reduce_bytes;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Return true if `b` is the name `a` with one of its numbers increased by one. *number is set to
 * the offset of that number in `a`. */
static bool is_next_name(const char *a, const char *b, size_t *number)
{
    size_t i = 0;
    char *rest_a, *rest_b;
    while (a[i] && a[i] == b[i])
        i++;
    while (i > 0 && is_digit(a[i - 1]))
        i--;
    *number = i;
    if (!is_digit(a[i]) || !is_digit(b[i]))
        return false;
    return strtol(a + i, &rest_a, 10) + 1 == strtol(b + i, &rest_b, 10) &&
           strcmp(rest_a, rest_b) == 0;
}

/* Find the units that share a row of the table. They have the same figures, and their names differ
 * only in one number, which increases by one: "block.0", "block.1", "block.2". Unit `i` is the
 * first unit of the row. Return the index after the last unit of the row. If the row has several
 * units, *number is set to the offset of the number in their names. Otherwise *number is set to
 * 0. */
static size_t end_of_run(const fsdp_plan *p, size_t i, size_t *number)
{
    size_t end = i + 1, at;
    *number = 0;
    while (end < p->n_units && same_figures(&p->units[end - 1], &p->units[end]) &&
           is_next_name(p->units[end - 1].name, p->units[end].name, &at) &&
           (end == i + 1 || at == *number)) {
        *number = at;
        end++;
    }
    return end;
}

/* Add a cell with the name of the units [i, end): "encoder.block.0", or "encoder.block.0-11" for
 * several units. */
static void name_cell(fsdp_table *table, const fsdp_plan *p, size_t i, size_t end, size_t number)
{
    const char *first = p->units[i].name, *last = p->units[end - 1].name;
    if (end == i + 1)
        fsdp_table_cell(table, "%s", fsdp_plan_unit_name(p, (int)i));
    else
        fsdp_table_cell(table, "%.*s%ld-%s", (int)number, first, strtol(first + number, NULL, 10),
                        last + number);
}

static void figure_cells(fsdp_table *table, const fsdp_plan_unit *u, size_t times, bool all_reduces)
{
    fsdp_table_cell(table, "%llu", (unsigned long long)(u->all_gathers * times));
    fsdp_table_cell(table, "%s", fsdp_human_bytes((int64_t)(u->all_gather_bytes * times)).text);
    fsdp_table_cell(table, "%llu", (unsigned long long)(u->reduce_scatters * times));
    fsdp_table_cell(table, "%s", fsdp_human_bytes((int64_t)(u->reduce_scatter_bytes * times)).text);
    if (!all_reduces)
        return;
    fsdp_table_cell(table, "%llu", (unsigned long long)(u->all_reduces * times));
    fsdp_table_cell(table, "%s", fsdp_human_bytes((int64_t)(u->all_reduce_bytes * times)).text);
}

static fsdp_plan_unit sum_of_units(const fsdp_plan *p)
{
    fsdp_plan_unit sum = {0};
    for (size_t i = 0; i < p->n_units; i++) {
        sum.numel += p->units[i].numel;
        sum.local_numel += p->units[i].local_numel;
        sum.all_gathers += p->units[i].all_gathers;
        sum.all_gather_bytes += p->units[i].all_gather_bytes;
        sum.reduce_scatters += p->units[i].reduce_scatters;
        sum.reduce_scatter_bytes += p->units[i].reduce_scatter_bytes;
        sum.all_reduces += p->units[i].all_reduces;
        sum.all_reduce_bytes += p->units[i].all_reduce_bytes;
    }
    return sum;
}

static void class_cell(fsdp_table *table, const fsdp_plan_unit *u)
{
    if (u->modules > 1)
        fsdp_table_cell(table, "%d x %s", u->modules, u->class_name);
    else
        fsdp_table_cell(table, "%s", u->class_name ? u->class_name : "");
}

static void unit_row(fsdp_table *table, const fsdp_plan_unit *u, size_t times, bool all_reduces)
{
    class_cell(table, u);
    fsdp_table_cell(table, "%s", fsdp_human_count((double)u->numel).text);
    fsdp_table_cell(table, "%s", fsdp_human_count((double)u->local_numel).text);
    figure_cells(table, u, times, all_reduces);
}

static fsdp_status unit_table(const fsdp_plan *p, FILE *out)
{
    static const char *const headings[] = {"unit",        "class", "parameters",      "one rank",
                                           "all-gathers", "bytes", "reduce-scatters", "bytes",
                                           "all-reduces", "bytes"};
    const fsdp_plan_unit sum = sum_of_units(p);
    const bool replicas = sum.all_reduces > 0;
    const size_t columns = FSDP_LENGTH(headings) - (replicas ? 0 : 2);
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(columns, &table));
    for (size_t i = 0; i < columns; i++)
        fsdp_table_column(table, i, headings[i], i < 2 ? FSDP_TABLE_LEFT : FSDP_TABLE_RIGHT);
    for (size_t i = 0, end, number; i < p->n_units; i = end) {
        end = end_of_run(p, i, &number);
        fsdp_table_row(table);
        name_cell(table, p, i, end, number);
        unit_row(table, &p->units[i], end - i, replicas);
    }
    fsdp_table_rule(table);
    fsdp_table_row(table);
    fsdp_table_cell(table, "a step");
    unit_row(table, &sum, 1, replicas);
    fsdp_status status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

static fsdp_status print_units(const fsdp_plan *p, FILE *out)
{
    FSDP_TRY(unit_table(p, out));
    if (p->world_size > 1)
        fprintf(out,
                "and %llu small collectives of %s: counts and losses of tokens, sums of squares "
                "for the norm%s\n",
                (unsigned long long)p->small_collectives,
                fsdp_human_bytes((int64_t)p->small_bytes).text,
                p->has_float8_scales ? ", scales of float8 weights" : "");
    return FSDP_OK;
}

/* --- schedule --- */

typedef struct unit_flight {
    bool gathering;
    int reducing; /* number of posted gradient buffers and sections that are not summed yet */
    int64_t gathered_at; /* value of replay.begun when the unit's all-gather began */
} unit_flight;

/* The collectives that are in progress while events are replayed. */
typedef struct replay {
    const fsdp_plan *plan;
    unit_flight *units; /* [n_units] */
    int64_t begun;      /* number of FSDP_PLAN_BEGIN events that were replayed */
    /* Names of the units for which the program waited since the last row. The program waits for a
     * unit if the unit's all-gather both began and ended after the last row. */
    fsdp_str waited;
} replay;

static void add_name(fsdp_str *list, const char *name)
{
    fsdp_str_printf(list, "%s%s", list->len ? ", " : "", name);
}

/* Replay one event. Return true if the event is the beginning of a unit's forward or backward. Only
 * such events have a row in the schedule. */
static bool replay_event(replay *r, const fsdp_plan_event *e)
{
    unit_flight *u = &r->units[e->unit];
    switch (e->kind) {
    case FSDP_PLAN_GATHER:
        u->gathering = true;
        u->gathered_at = r->begun;
        break;
    case FSDP_PLAN_UNSHARD:
        if (u->gathering && u->gathered_at == r->begun)
            add_name(&r->waited, fsdp_plan_unit_name(r->plan, e->unit));
        u->gathering = false;
        break;
    case FSDP_PLAN_RESHARD: /* also ends the gather of a unit that was prefetched but not used */
        u->gathering = false;
        break;
    case FSDP_PLAN_POST:
        u->reducing++;
        break;
    case FSDP_PLAN_REDUCE:
        u->reducing--;
        break;
    case FSDP_PLAN_BEGIN:
        r->begun++;
        return true;
    case FSDP_PLAN_POST_LANES:
        u->reducing++;
        break;
    case FSDP_PLAN_ALL_REDUCE:
        u->reducing--;
        break;
    case FSDP_PLAN_SUM_LANES:
    case FSDP_PLAN_END:
        break;
    }
    return false;
}

static void list_flights(const replay *r, fsdp_str *gathers, fsdp_str *reduces)
{
    for (size_t i = 0; i < r->plan->n_units; i++) {
        const char *name = fsdp_plan_unit_name(r->plan, (int)i);
        if (r->units[i].gathering)
            add_name(gathers, name);
        if (r->units[i].reducing)
            add_name(reduces, name);
    }
}

/* A row of the schedule. It describes the moment when a unit begins its forward or backward. */
typedef struct schedule_row {
    const char *phase, *unit;
    /* Names of units, separated by commas; NULL: none. gathers: units whose all-gather is in
     * progress. reduces: units whose gradients are being reduced. waited: units for which the
     * program has waited, because their all-gather began only when they were needed. */
    const char *gathers, *reduces, *waited;
    int64_t allocated;
} schedule_row;

typedef struct schedule_sink {
    void (*row)(void *to, const schedule_row *row);
    void *to;
} schedule_sink;

static fsdp_status give_row(replay *r, const fsdp_plan_event *e, const schedule_sink *sink)
{
    fsdp_str gathers = {0}, reduces = {0};
    list_flights(r, &gathers, &reduces);
    const bool failed = gathers.failed || reduces.failed || r->waited.failed;
    if (!failed)
        sink->row(sink->to, &(schedule_row){.phase = fsdp_plan_phase_name(e->phase),
                                            .unit = fsdp_plan_unit_name(r->plan, e->unit),
                                            .gathers = gathers.data,
                                            .reduces = reduces.data,
                                            .waited = r->waited.data,
                                            .allocated = e->allocated});
    fsdp_str_fini(&gathers);
    fsdp_str_fini(&reduces);
    fsdp_str_fini(&r->waited);
    return failed ? fsdp_error_nomem() : FSDP_OK;
}

static fsdp_status walk_schedule(const fsdp_plan *p, const schedule_sink *sink)
{
    replay r = {.plan = p, .units = fsdp_calloc(p->n_units, sizeof *r.units)};
    if (!r.units)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < p->n_events && status == FSDP_OK; i++)
        if (replay_event(&r, &p->events[i]))
            status = give_row(&r, &p->events[i], sink);
    fsdp_str_fini(&r.waited);
    fsdp_free(r.units);
    return status;
}

static void table_row(void *to, const schedule_row *row)
{
    fsdp_table *table = to;
    fsdp_table_row(table);
    fsdp_table_cell(table, "%s", row->phase);
    fsdp_table_cell(table, "%s", row->unit);
    fsdp_table_cell(table, "%s", row->waited ? row->waited : "");
    fsdp_table_cell(table, "%s", row->gathers ? row->gathers : "");
    fsdp_table_cell(table, "%s", row->reduces ? row->reduces : "");
    fsdp_table_cell(table, "%s", fsdp_human_bytes(row->allocated).text);
}

static fsdp_status print_schedule(const fsdp_plan *p, FILE *out)
{
    static const char *const headings[] = {
        "phase",   "computes",  "waits for the all-gather of", "all-gathers meanwhile",
        "reduces", "allocated",
    };
    fsdp_table *table;
    FSDP_TRY(fsdp_table_create(FSDP_LENGTH(headings), &table));
    for (size_t i = 0; i < FSDP_LENGTH(headings); i++)
        fsdp_table_column(table, i, headings[i], i < 5 ? FSDP_TABLE_LEFT : FSDP_TABLE_RIGHT);
    fsdp_status status = walk_schedule(p, &(schedule_sink){.row = table_row, .to = table});
    if (status == FSDP_OK)
        status = fsdp_table_print(table, out, FSDP_TABLE_AUTO);
    fsdp_table_destroy(table);
    return status;
}

/* --- printing a plan --- */

void fsdp_plan_print_head(const fsdp_plan *p, FILE *out)
{
    fprintf(out, "%s: %s parameters in %zu units over %d rank%s", p->class_name,
            fsdp_human_count((double)p->numel).text, p->n_units, p->world_size,
            p->world_size == 1 ? "" : "s");
    if (p->local_world_size < p->world_size)
        fprintf(out, ", %d on each of %d hosts", p->local_world_size,
                p->world_size / p->local_world_size);
    fprintf(out, "\nbatch of a rank: %lld x %lld", (long long)p->rows, (long long)p->source_length);
    if (p->target_length)
        fprintf(out, " + %lld", (long long)p->target_length);
    fprintf(out, " tokens%s, %d micro-step%s\n",
            p->length_is_assumed ? " (assumed: --max-seq-length is not given)"
            : p->takes_ids_whole ? " (assumed: rows of ids are cut only to a --max-source-length "
                                   "and --max-target-length that are given)"
                                 : "",
            p->micro_steps, p->micro_steps == 1 ? "" : "s");
}

fsdp_status fsdp_plan_print(const fsdp_plan *p, FILE *out, bool schedule)
{
    fsdp_plan_print_head(p, out);
    if (p->tree)
        fputs(p->tree, out);
    FSDP_TRY(print_memory(p, out));
    print_peak(p, out);
    FSDP_TRY(print_units(p, out));
    if (schedule)
        FSDP_TRY(print_schedule(p, out));
    return ferror(out) ? fsdp_error(FSDP_ERR_IO, "printing the plan: %s", strerror(errno))
                       : FSDP_OK;
}

/* --- JSON --- */

static void set_memory(fsdp_json_node object, const fsdp_plan_memory *m)
{
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_json_set_i64(object, fsdp_tag_name((fsdp_tag)tag), m->tag[tag]);
    fsdp_json_set_i64(object, "allocated", m->total);
}

static void set_unit(fsdp_json_node object, const fsdp_plan_unit *u, const char *name)
{
    fsdp_json_set_str(object, "name", name);
    fsdp_json_set_str(object, "class", u->class_name);
    fsdp_json_set_i64(object, "modules", u->modules);
    fsdp_json_set_i64(object, "numel", u->numel);
    fsdp_json_set_i64(object, "local_numel", u->local_numel);
    fsdp_json_set_i64(object, "all_gathers", (int64_t)u->all_gathers);
    fsdp_json_set_i64(object, "all_gather_bytes", (int64_t)u->all_gather_bytes);
    fsdp_json_set_i64(object, "reduce_scatters", (int64_t)u->reduce_scatters);
    fsdp_json_set_i64(object, "reduce_scatter_bytes", (int64_t)u->reduce_scatter_bytes);
    fsdp_json_set_i64(object, "all_reduces", (int64_t)u->all_reduces);
    fsdp_json_set_i64(object, "all_reduce_bytes", (int64_t)u->all_reduce_bytes);
}

static void json_row(void *to, const schedule_row *row)
{
    fsdp_json_node o = fsdp_json_append_object(*(const fsdp_json_node *)to);
    fsdp_json_set_str(o, "phase", row->phase);
    fsdp_json_set_str(o, "computes", row->unit);
    fsdp_json_set_str(o, "waits_for", row->waited);
    fsdp_json_set_str(o, "all_gathers", row->gathers);
    fsdp_json_set_str(o, "reduces", row->reduces);
    fsdp_json_set_i64(o, "allocated", row->allocated);
}

static fsdp_status fill_json(const fsdp_plan *p, fsdp_json_node root, bool schedule)
{
    moment_row rows[MOMENTS];
    list_moments(p, rows);
    fsdp_json_set_str(root, "model", p->class_name);
    if (p->tree)
        fsdp_json_set_str(root, "tree", p->tree);
    fsdp_json_set_i64(root, "numel", p->numel);
    fsdp_json_set_i64(root, "world_size", p->world_size);
    fsdp_json_set_i64(root, "local_world_size", p->local_world_size);
    fsdp_json_set_i64(root, "batch_size", p->rows);
    fsdp_json_set_i64(root, "source_length", p->source_length);
    fsdp_json_set_i64(root, "target_length", p->target_length);
    fsdp_json_set_i64(root, "gradient_accumulation_steps", p->micro_steps);
    fsdp_json_node memory = fsdp_json_set_object(root, "memory");
    for (int i = 0; i < MOMENTS; i++)
        set_memory(fsdp_json_set_object(memory, rows[i].key), rows[i].memory);
    set_memory(fsdp_json_set_object(memory, "peak_by_tag"), &p->most);
    fsdp_json_set_str(root, "peak_phase", fsdp_plan_phase_name(p->peak_at.phase));
    fsdp_json_set_str(root, "peak_unit", fsdp_plan_unit_name(p, p->peak_at.unit));
    fsdp_json_set_i64(root, "reserved", p->reserved);
    fsdp_json_set_i64(root, "staging", p->staging);
    fsdp_json_set_i64(root, "host_bytes", fsdp_plan_host_bytes(p));
    fsdp_json_set_str(root, "device", p->ranks_per_card ? "cuda" : "cpu");
    if (p->ranks_per_card) {
        fsdp_json_set_i64(root, "ranks_per_card", p->ranks_per_card);
        fsdp_json_set_i64(root, "card_bytes", fsdp_plan_limited_bytes(p));
    }
    fsdp_json_set_i64(root, "small_collectives", (int64_t)p->small_collectives);
    fsdp_json_set_i64(root, "small_bytes", (int64_t)p->small_bytes);
    fsdp_json_node units = fsdp_json_set_array(root, "units");
    for (size_t i = 0; i < p->n_units; i++)
        set_unit(fsdp_json_append_object(units), &p->units[i], fsdp_plan_unit_name(p, (int)i));
    const fsdp_plan_unit sum = sum_of_units(p);
    set_unit(fsdp_json_set_object(root, "step"), &sum, "a step");
    if (!schedule)
        return FSDP_OK;
    fsdp_json_node list = fsdp_json_set_array(root, "schedule");
    return walk_schedule(p, &(schedule_sink){.row = json_row, .to = &list});
}

fsdp_status fsdp_plan_print_json(const fsdp_plan *p, FILE *out, bool schedule)
{
    fsdp_json *doc;
    char *text = NULL;
    FSDP_TRY(fsdp_json_create("plan", &doc));
    fsdp_status status = fill_json(p, fsdp_json_root(doc), schedule);
    if (status == FSDP_OK)
        status = fsdp_json_print(doc, FSDP_JSON_LINE, &text, NULL);
    if (status == FSDP_OK && fprintf(out, "%s\n", text) < 0)
        status = fsdp_error(FSDP_ERR_IO, "printing the plan: %s", strerror(errno));
    fsdp_free(text);
    fsdp_json_destroy(doc);
    return status;
}
