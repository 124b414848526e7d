/* See Note [Tracing] in trace.h. */
#include "src/trace/trace.h"

#include <string.h>
#include <time.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"

enum {
    MAX_DEPTH = 64,
    EVENTS_PER_SAMPLE = 4,
    /* The largest number of marks of a step: Note [Device time] in src/trace/trace.h. Later pieces
     * of the step have no mark; their device time is added to the last piece of the step. */
    MAX_MARKS = 1 << 15
};

typedef struct open_span {
    char label[FSDP_TRACE_LABEL];
    fsdp_trace_category category;
    /* the sum by name to which the span's time is added; NULL: the time is added only to the sum of
     * the span's category */
    fsdp_trace_entry *entry;
    int64_t begin_ns;
    size_t begin_mark;
} open_span;

/* Where to add the device time of a piece: to the sum of `category` and, unless `entry` is NULL, to
 * the sum of `entry`. */
typedef struct piece {
    fsdp_trace_category category;
    fsdp_trace_entry *entry;
} piece;

struct fsdp_trace {
    fsdp_trace_event *events; /* [max_events], a ring: event i is at i % max_events */
    fsdp_trace_sample *samples;
    size_t max_events, max_samples;
    uint64_t n_events, n_samples; /* numbers of events and samples recorded so far, including those
                                     that were overwritten */
    open_span stack[MAX_DEPTH];
    /* number of open spans; may exceed MAX_DEPTH, but only the outer MAX_DEPTH spans are
     * recorded */
    int depth;
    /* wall-clock and CPU time at the end of the last piece (Note [Tracing] in trace.h) */
    int64_t mark_ns, mark_cpu;
    fsdp_trace_sum sums[FSDP_TRACE_CATEGORIES];
    fsdp_trace_entry entries[FSDP_TRACE_NAMES];
    size_t n_entries;
    int64_t steps;
    /* See Note [Device time] in src/trace/trace.h. During a step, the fields device_begin_ns and
     * device_ns of its events have no times yet: they contain the numbers of the marks at which the
     * event begins and ends. */
    fsdp_trace_clock clock;
    piece *pieces;     /* [MAX_MARKS] pieces[i] ends at mark i; NULL without a clock */
    int64_t *mark_at;  /* [MAX_MARKS] */
    size_t n_marks;    /* number of marks of the step; 0: the step has no device time */
    uint64_t n_before; /* number of events before the step */
};

_Thread_local fsdp_trace *fsdp_trace_current;

fsdp_status fsdp_trace_create(size_t max_events, fsdp_trace **trace)
{
    FSDP_ASSERT(max_events > 0);
    fsdp_trace *t = fsdp_calloc(1, sizeof *t);
    if (!t)
        return FSDP_ERR_NOMEM;
    t->max_events = max_events;
    t->max_samples = max_events / EVENTS_PER_SAMPLE + 1;
    t->events = fsdp_calloc(t->max_events, sizeof *t->events);
    t->samples = fsdp_calloc(t->max_samples, sizeof *t->samples);
    if (!t->events || !t->samples) {
        fsdp_trace_destroy(t);
        return FSDP_ERR_NOMEM;
    }
    *trace = t;
    return FSDP_OK;
}

void fsdp_trace_destroy(fsdp_trace *trace)
{
    if (!trace)
        return;
    if (fsdp_trace_current == trace)
        fsdp_trace_current = NULL;
    fsdp_free(trace->events);
    fsdp_free(trace->samples);
    fsdp_free(trace->pieces);
    fsdp_free(trace->mark_at);
    fsdp_free(trace);
}

fsdp_status fsdp_trace_set_clock(fsdp_trace *trace, const fsdp_trace_clock *clock)
{
    FSDP_ASSERT(!trace->pieces && clock->self);
    trace->pieces = fsdp_calloc(MAX_MARKS, sizeof *trace->pieces);
    trace->mark_at = fsdp_calloc(MAX_MARKS, sizeof *trace->mark_at);
    if (!trace->pieces || !trace->mark_at)
        return FSDP_ERR_NOMEM;
    trace->clock = *clock;
    return FSDP_OK;
}

bool fsdp_trace_has_clock(const fsdp_trace *trace)
{
    return trace->clock.self != NULL;
}

/* --- device time --- */

/* Add the mark that ends a piece. */
static void mark_piece(fsdp_trace *t, fsdp_trace_category category, fsdp_trace_entry *entry,
                       bool is_last)
{
    if (!t->n_marks || t->n_marks + (is_last ? 0 : 1) >= MAX_MARKS || !t->clock.mark(t->clock.self))
        return;
    t->pieces[t->n_marks++] = (piece){category, entry};
}

static size_t last_mark(const fsdp_trace *t)
{
    return t->n_marks ? t->n_marks - 1 : 0;
}

static void begin_marks(fsdp_trace *t)
{
    t->n_before = t->n_events;
    t->n_marks = t->clock.self && t->clock.start(t->clock.self) ? 1 : 0;
}

/* The step has ended, and its first mark was at begin_ns of the host's clock. Add the device time
 * of each piece to its sums, and set the device time of the step's events. */
static void read_marks(fsdp_trace *t, int64_t begin_ns)
{
    if (!t->clock.self)
        return;
    const bool known = t->n_marks && t->clock.read(t->clock.self, t->mark_at, t->n_marks);
    for (size_t i = 1; known && i < t->n_marks; i++) {
        const int64_t ns = t->mark_at[i] - t->mark_at[i - 1];
        t->sums[t->pieces[i].category].device_ns += ns;
        if (t->pieces[i].entry)
            t->pieces[i].entry->sum.device_ns += ns;
    }
    const uint64_t kept = t->n_events < t->max_events ? t->n_events : t->max_events;
    const uint64_t oldest = t->n_events - kept;
    for (uint64_t i = t->n_before > oldest ? t->n_before : oldest; i < t->n_events; i++) {
        fsdp_trace_event *e = &t->events[i % t->max_events];
        const int64_t begin = known ? t->mark_at[e->device_begin_ns] : 0;
        e->device_ns = known ? t->mark_at[e->device_ns] - begin : 0;
        e->device_begin_ns = known ? begin_ns + begin : 0;
    }
    t->n_marks = 0;
}

/* --- pieces of time --- */

static int64_t cpu_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Copy `text` to `at`, but not beyond `end`. Characters that are not allowed in a JSON string
 * become '_'. Return the end of the copy. */
static char *copy_text(char *at, const char *end, const char *text)
{
    for (; *text && at < end; text++)
        *at++ = *text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '_' : *text;
    return at;
}

static void set_label(char label[FSDP_TRACE_LABEL], const char *name, const char *detail)
{
    const char *end = label + FSDP_TRACE_LABEL - 1;
    char *at = copy_text(label, end, name);
    if (detail && *detail) {
        at = copy_text(at, end, " ");
        at = copy_text(at, end, detail);
    }
    *at = 0;
}

static bool is_operation(fsdp_trace_category category)
{
    return category == FSDP_TRACE_MATMUL || category == FSDP_TRACE_ATTENTION ||
           category == FSDP_TRACE_OPERATION;
}

/* Find or create the entry for a category, a name and a detail. Names and details are static
 * strings, so this function compares pointers, not characters. If a name occurs in two source
 * files, it may have two addresses. It then has two entries, which fsdp_profile_make_names() merges
 * later. Return NULL if the table is full, or if the category is FSDP_TRACE_REST, whose names are
 * not static. */
static fsdp_trace_entry *entry_of(fsdp_trace *t, fsdp_trace_category category, const char *name,
                                  const char *detail)
{
    if (category == FSDP_TRACE_REST)
        return NULL;
    if (!is_operation(category))
        detail = NULL;
    for (size_t i = 0; i < t->n_entries; i++) {
        fsdp_trace_entry *e = &t->entries[i];
        if (e->name == name && e->detail == detail && e->category == category)
            return e;
    }
    if (t->n_entries == FSDP_TRACE_NAMES)
        return NULL;
    fsdp_trace_entry *e = &t->entries[t->n_entries++];
    *e = (fsdp_trace_entry){.name = name, .detail = detail, .category = category};
    return e;
}

static void add_time(fsdp_trace_sum *sum, int64_t wall_ns, int64_t cpu_ns)
{
    sum->wall_ns += wall_ns;
    sum->cpu_ns += cpu_ns;
}

/* End the piece of time that began at t->mark_ns (Note [Tracing] in trace.h). Add its duration to
 * the sum of the category and, if `entry` is not NULL, to the sum of the entry. Return the current
 * time. */
static int64_t end_piece(fsdp_trace *t, fsdp_trace_category category, fsdp_trace_entry *entry)
{
    int64_t now = fsdp_clock_ns(), cpu = cpu_clock_ns();
    add_time(&t->sums[category], now - t->mark_ns, cpu - t->mark_cpu);
    if (entry)
        add_time(&entry->sum, now - t->mark_ns, cpu - t->mark_cpu);
    t->mark_ns = now;
    t->mark_cpu = cpu;
    mark_piece(t, category, entry, false);
    return now;
}

static open_span *innermost(fsdp_trace *t)
{
    return &t->stack[(t->depth < MAX_DEPTH ? t->depth : MAX_DEPTH) - 1];
}

static int64_t end_piece_of_span(fsdp_trace *t)
{
    const open_span *span = innermost(t);
    return end_piece(t, span->category, span->entry);
}

static fsdp_trace_event *next_event(fsdp_trace *t, fsdp_trace_category category,
                                    fsdp_trace_entry *entry)
{
    t->sums[category].calls++;
    if (entry)
        entry->sum.calls++;
    return &t->events[t->n_events++ % t->max_events];
}

/* --- spans --- */

static void push_span(fsdp_trace *t, fsdp_trace_category category, const char *name,
                      const char *detail)
{
    if (t->depth++ >= MAX_DEPTH)
        return;
    open_span *span = innermost(t);
    span->category = category;
    span->entry = entry_of(t, category, name, detail);
    span->begin_ns = t->mark_ns;
    span->begin_mark = last_mark(t);
    set_label(span->label, name, detail);
}

void fsdp_trace_open(fsdp_trace *t, fsdp_trace_category category, const char *name,
                     const char *detail)
{
    end_piece_of_span(t);
    push_span(t, category, name, detail);
}

void fsdp_trace_close(fsdp_trace *t)
{
    FSDP_ASSERT(t->depth > 0);
    int64_t now = end_piece_of_span(t);
    if (t->depth-- > MAX_DEPTH)
        return;
    const open_span *span = &t->stack[t->depth];
    fsdp_trace_event *e = next_event(t, span->category, span->entry);
    memcpy(e->label, span->label, sizeof e->label);
    e->begin_ns = span->begin_ns;
    e->duration_ns = now - span->begin_ns;
    e->device_begin_ns = (int64_t)span->begin_mark;
    e->device_ns = (int64_t)last_mark(t);
    e->category = span->category;
}

void fsdp_trace_add_lap(fsdp_trace *t, fsdp_trace_category category, const char *name,
                        const char *detail)
{
    fsdp_trace_entry *entry = entry_of(t, category, name, detail);
    const size_t begin_mark = last_mark(t);
    int64_t begin = t->mark_ns, now = end_piece(t, category, entry);
    fsdp_trace_event *e = next_event(t, category, entry);
    set_label(e->label, name, detail);
    e->begin_ns = begin;
    e->duration_ns = now - begin;
    e->device_begin_ns = (int64_t)begin_mark;
    e->device_ns = (int64_t)last_mark(t);
    e->category = category;
}

void fsdp_trace_add_sample(fsdp_trace *t, const int64_t *values, size_t n)
{
    FSDP_ASSERT(n <= FSDP_TRACE_COUNTERS);
    fsdp_trace_sample *sample = &t->samples[t->n_samples++ % t->max_samples];
    *sample = (fsdp_trace_sample){.at_ns = fsdp_clock_ns()};
    memcpy(sample->values, values, n * sizeof *values);
}

void fsdp_trace_step_begin(fsdp_trace *trace, const char *name)
{
    FSDP_ASSERT(!fsdp_trace_current);
    fsdp_trace_current = trace;
    begin_marks(trace);
    trace->mark_ns = fsdp_clock_ns();
    trace->mark_cpu = cpu_clock_ns();
    trace->depth = 0;
    push_span(trace, FSDP_TRACE_REST, name, NULL);
}

void fsdp_trace_step_end(fsdp_trace *trace)
{
    FSDP_ASSERT(fsdp_trace_current == trace);
    const int64_t begin_ns = trace->stack[0].begin_ns;
    while (trace->depth)
        fsdp_trace_close(trace);
    mark_piece(trace, FSDP_TRACE_REST, NULL, true);
    read_marks(trace, begin_ns);
    trace->steps++;
    fsdp_trace_current = NULL;
}

/* --- reading a trace --- */

/* Return the position of element i in a ring of `max` elements to which `n` elements have been
 * written. Element 0 is the oldest one that has not been overwritten. Return SIZE_MAX if the ring
 * has no element i. */
static size_t place_of(uint64_t n, size_t max, size_t i)
{
    uint64_t kept = n < max ? n : max;
    return i < kept ? (size_t)((n - kept + i) % max) : SIZE_MAX;
}

const fsdp_trace_event *fsdp_trace_get_event(const fsdp_trace *trace, size_t i)
{
    size_t at = place_of(trace->n_events, trace->max_events, i);
    return at == SIZE_MAX ? NULL : &trace->events[at];
}

const fsdp_trace_sample *fsdp_trace_get_sample(const fsdp_trace *trace, size_t i)
{
    size_t at = place_of(trace->n_samples, trace->max_samples, i);
    return at == SIZE_MAX ? NULL : &trace->samples[at];
}

uint64_t fsdp_trace_overwritten(const fsdp_trace *trace)
{
    return trace->n_events > trace->max_events ? trace->n_events - trace->max_events : 0;
}

const fsdp_trace_sum *fsdp_trace_sums(const fsdp_trace *trace)
{
    return trace->sums;
}

const fsdp_trace_entry *fsdp_trace_entries(const fsdp_trace *trace, size_t *n)
{
    *n = trace->n_entries;
    return trace->entries;
}

int64_t fsdp_trace_steps(const fsdp_trace *trace)
{
    return trace->steps;
}

const char *fsdp_trace_category_name(fsdp_trace_category category)
{
    static const char *const names[FSDP_TRACE_CATEGORIES] = {
        [FSDP_TRACE_REST] = "module",         [FSDP_TRACE_MATMUL] = "matmul",
        [FSDP_TRACE_ATTENTION] = "attention", [FSDP_TRACE_OPERATION] = "operation",
        [FSDP_TRACE_OPTIMIZER] = "optimizer", [FSDP_TRACE_SHARDING] = "sharding",
        [FSDP_TRACE_WAITING] = "waiting",     [FSDP_TRACE_DATA] = "data",
    };
    return names[category];
}
