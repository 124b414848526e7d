/* What the thread of a rank does, while somebody wants to know: named spans of time in a ring, and
 * time by category.
 *
 * Note [Tracing]. A rank computes on one thread, so its time is one line that is cut into pieces:
 * each call below ends a piece and begins the next, and a piece belongs to the innermost open span,
 * or to the operation that a lap names. Nothing is counted twice, and the pieces add up to the
 * steps. The trace is attached to the thread, as the message of the last error is: layers that know
 * neither each other nor a common object (kernels' callers, process groups, the loader) all find
 * it, and while none is attached a call is one branch on a pointer. Nothing is allocated within a
 * step: the ring overwrites its oldest events, sums by category and name are kept apart from it.
 * Beside the clock each piece has the thread's processor time: where other processes take the
 * cores away, that one still tells what the work costs. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef enum fsdp_trace_category {
    FSDP_TRACE_REST, /* steps and modules: time that nothing inside of them claims */
    FSDP_TRACE_MATMUL,
    FSDP_TRACE_ATTENTION,
    FSDP_TRACE_OPERATION, /* all others */
    FSDP_TRACE_OPTIMIZER,
    FSDP_TRACE_SHARDING, /* hooks, casts of own rows, phases, sums over ranks */
    FSDP_TRACE_WAITING,  /* for peers */
    FSDP_TRACE_DATA,
    FSDP_TRACE_CATEGORIES
} fsdp_trace_category;

enum {
    FSDP_TRACE_LABEL = 64,   /* bytes of an event's label, NUL included */
    FSDP_TRACE_COUNTERS = 8, /* memory by purpose, at most */
    FSDP_TRACE_NAMES = 256   /* sums by name; further names go to their category alone */
};

/* A span or an operation. */
typedef struct fsdp_trace_event {
    char label[FSDP_TRACE_LABEL]; /* ASCII without quotes, cut where it is too long */
    int64_t begin_ns, duration_ns;
    fsdp_trace_category category;
} fsdp_trace_event;

typedef struct fsdp_trace_sample {
    int64_t at_ns, values[FSDP_TRACE_COUNTERS];
} fsdp_trace_sample;

typedef struct fsdp_trace_sum {
    int64_t wall_ns, cpu_ns, calls;
} fsdp_trace_sum;

/* The sum of all pieces with one name; of operations also one `detail`. */
typedef struct fsdp_trace_entry {
    const char *name, *detail; /* static; detail NULL: none, or any */
    fsdp_trace_category category;
    fsdp_trace_sum sum;
} fsdp_trace_entry;

typedef struct fsdp_trace fsdp_trace;

/* `max_events` are kept, and a quarter as many samples of counters. */
FSDP_MUST_CHECK fsdp_status fsdp_trace_create(size_t max_events, fsdp_trace **trace);
/* Accepts NULL. On the thread to which it is attached, if it still is. */
void fsdp_trace_destroy(fsdp_trace *trace);

/* Attach to the calling thread: a step begins, whose span is `name`. */
void fsdp_trace_step_begin(fsdp_trace *trace, const char *name);
/* The step's end; detaches. Spans that a failure left open end here. */
void fsdp_trace_step_end(fsdp_trace *trace);

/* The calling thread's; NULL: nothing is traced. */
extern _Thread_local fsdp_trace *fsdp_trace_current;

/* The calls below without the branch. */
void fsdp_trace_open(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                     const char *detail);
void fsdp_trace_close(fsdp_trace *trace);
void fsdp_trace_add_lap(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                        const char *detail);
void fsdp_trace_add_sample(fsdp_trace *trace, const int64_t *values, size_t n);

/* A span, to be ended on the same thread; they nest. `name` is static, `detail` (may be NULL) is
 * copied: the label is "name detail". REST takes any name. */
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
/* The piece that ends now was this operation; name and detail are static. */
static inline void fsdp_trace_lap(fsdp_trace_category category, const char *name,
                                  const char *detail)
{
    if (fsdp_trace_current)
        fsdp_trace_add_lap(fsdp_trace_current, category, name, detail);
}

/* --- afterwards --- */

/* Oldest first; NULL from `i` = their number on. */
const fsdp_trace_event *fsdp_trace_get_event(const fsdp_trace *trace, size_t i);
const fsdp_trace_sample *fsdp_trace_get_sample(const fsdp_trace *trace, size_t i);
/* Events that the ring had no room for. */
uint64_t fsdp_trace_overwritten(const fsdp_trace *trace);
/* Sums over all steps by category: `calls` are events. */
const fsdp_trace_sum *fsdp_trace_sums(const fsdp_trace *trace); /* [FSDP_TRACE_CATEGORIES] */
/* Sums by name, [*n], in no order. */
const fsdp_trace_entry *fsdp_trace_entries(const fsdp_trace *trace, size_t *n);
int64_t fsdp_trace_steps(const fsdp_trace *trace);
/* "matmul", "sharding", ...: in the file; static. */
const char *fsdp_trace_category_name(fsdp_trace_category category);
