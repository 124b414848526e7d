/* Traces what the thread of a rank does: records named spans of time in a ring, and adds up time by
 * category.
 *
 * Note [Tracing]. A rank computes on one thread, so its time can be divided into pieces that follow
 * each other. Each call below ends a piece and begins the next. A piece belongs to the innermost
 * open span or, if fsdp_trace_lap() ends it, to the operation that this call names. Nothing is
 * counted twice, and the pieces add up to the steps. The trace is attached to the thread, like the
 * message of the last error, so that layers which share no object (callers of kernels, process
 * groups, the loader) all find it. While no trace is attached, a call is one branch on a pointer.
 * Nothing is allocated during a step: the ring overwrites its oldest events, and sums by category
 * and name are stored outside the ring. In addition to wall-clock time, each piece has the thread's
 * CPU time, which shows what the work costs even if other processes compete for the cores. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef enum fsdp_trace_category {
    FSDP_TRACE_REST, /* steps and modules: time that no inner span accounts for */
    FSDP_TRACE_MATMUL,
    FSDP_TRACE_ATTENTION,
    FSDP_TRACE_OPERATION, /* all other operations */
    FSDP_TRACE_OPTIMIZER,
    FSDP_TRACE_SHARDING, /* hooks, casts of this rank's rows, phases, sums over ranks */
    FSDP_TRACE_WAITING,  /* waiting for peers */
    FSDP_TRACE_DATA,
    FSDP_TRACE_CATEGORIES
} fsdp_trace_category;

enum {
    FSDP_TRACE_LABEL = 64,   /* bytes of an event's label, NUL included */
    FSDP_TRACE_COUNTERS = 8, /* maximum number of counters (memory by purpose) */
    FSDP_TRACE_NAMES = 256   /* maximum number of sums by name; more names count only by category */
};

/* A span or an operation. */
typedef struct fsdp_trace_event {
    char label[FSDP_TRACE_LABEL]; /* ASCII without quotes, truncated if too long */
    int64_t begin_ns, duration_ns;
    fsdp_trace_category category;
} fsdp_trace_event;

typedef struct fsdp_trace_sample {
    int64_t at_ns, values[FSDP_TRACE_COUNTERS];
} fsdp_trace_sample;

typedef struct fsdp_trace_sum {
    int64_t wall_ns, cpu_ns, calls;
} fsdp_trace_sum;

/* The sum of all pieces with the same name or, for operations, with the same name and `detail`. */
typedef struct fsdp_trace_entry {
    /* Static strings. detail is NULL if there is none or if the pieces are not operations. */
    const char *name, *detail;
    fsdp_trace_category category;
    fsdp_trace_sum sum;
} fsdp_trace_entry;

typedef struct fsdp_trace fsdp_trace;

/* Create a trace that keeps the last `max_events` events and about a quarter as many samples of
 * counters. */
FSDP_MUST_CHECK fsdp_status fsdp_trace_create(size_t max_events, fsdp_trace **trace);
/* Accepts NULL. If the trace is attached to a thread, only that thread may call this. */
void fsdp_trace_destroy(fsdp_trace *trace);

/* Begin a step, with a span `name`, and attach the trace to the calling thread. */
void fsdp_trace_step_begin(fsdp_trace *trace, const char *name);
/* End the step and detach the trace. Ends spans that a failure left open. */
void fsdp_trace_step_end(fsdp_trace *trace);

/* The trace of the calling thread; NULL: nothing is traced. */
extern _Thread_local fsdp_trace *fsdp_trace_current;

/* The inline functions below call these if a trace is attached. */
void fsdp_trace_open(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                     const char *detail);
void fsdp_trace_close(fsdp_trace *trace);
void fsdp_trace_add_lap(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                        const char *detail);
void fsdp_trace_add_sample(fsdp_trace *trace, const int64_t *values, size_t n);

/* Begin a span. It must end on the same thread; spans nest. `name` must be a static string unless
 * the category is FSDP_TRACE_REST. `detail` may be NULL; for an operation (MATMUL, ATTENTION,
 * OPERATION) it must be static. The event's label is "name detail". */
static inline void fsdp_trace_begin(fsdp_trace_category category, const char *name,
                                    const char *detail)
{
    if (fsdp_trace_current)
        fsdp_trace_open(fsdp_trace_current, category, name, detail);
}
static inline void fsdp_trace_end(void)
{
    if (fsdp_trace_current)
        fsdp_trace_close(fsdp_trace_current);
}
/* End the current piece and count it as part of an operation. `name` and `detail` must be
 * static. */
static inline void fsdp_trace_lap(fsdp_trace_category category, const char *name,
                                  const char *detail)
{
    if (fsdp_trace_current)
        fsdp_trace_add_lap(fsdp_trace_current, category, name, detail);
}

/* --- reading a trace --- */

/* Return event or sample i, counted from the oldest; NULL if there is no such item. */
const fsdp_trace_event *fsdp_trace_get_event(const fsdp_trace *trace, size_t i);
const fsdp_trace_sample *fsdp_trace_get_sample(const fsdp_trace *trace, size_t i);
/* Return the number of events that were overwritten in the ring. */
uint64_t fsdp_trace_overwritten(const fsdp_trace *trace);
/* Sums over all steps by category; `calls` is the number of events. */
const fsdp_trace_sum *fsdp_trace_sums(const fsdp_trace *trace); /* [FSDP_TRACE_CATEGORIES] */
/* Return the *n sums by name, in no particular order. */
const fsdp_trace_entry *fsdp_trace_entries(const fsdp_trace *trace, size_t *n);
int64_t fsdp_trace_steps(const fsdp_trace *trace);
/* Return the name of a category in the file, such as "matmul" or "sharding". The text is static. */
const char *fsdp_trace_category_name(fsdp_trace_category category);
