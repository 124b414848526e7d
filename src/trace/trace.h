/* Traces what the thread of a rank does. A trace records named spans of time in a ring, and adds up
 * time by category.
 *
 * Note [Tracing]. A rank computes on one thread, so the time of a step can be divided into
 * consecutive pieces. Each call that begins or ends a span, and each fsdp_trace_lap(), ends a piece
 * and begins the next one. A piece that fsdp_trace_lap() ends belongs to the operation that the
 * call of fsdp_trace_lap() names. Any other piece belongs to the innermost span that was open
 * during the piece. So no time is counted twice, and the pieces of a step add up to its duration.
 *
 * The trace is attached to the thread, like the message of the last error. So the process groups,
 * the loader and the code that calls kernels all find it, although they share no object. While no
 * trace is attached, each of these calls costs only one branch on a pointer. Nothing is allocated
 * during a step: the ring overwrites its oldest events, and sums by category and name are stored
 * outside the ring. Each piece has wall-clock time and the thread's CPU time. CPU time shows what
 * the work costs even if other processes compete for the cores.
 *
 * Note [Device time]. On a device that runs kernels later, the wall-clock time of a piece is only
 * the time in which the host started its kernels. Such a device has a clock (fsdp_trace_clock): at
 * the end of each piece, the trace adds a mark to the device's stream. The device time of the piece
 * is the time between its mark and the mark before. It includes the time in which the device waited
 * for the host. The times of the marks are read when the step ends. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <fsdp/base.h>

typedef enum fsdp_trace_category {
    FSDP_TRACE_REST, /* time of steps and modules that is not in a span of another category */
    FSDP_TRACE_MATMUL,
    FSDP_TRACE_ATTENTION,
    FSDP_TRACE_OPERATION, /* all other operations */
    FSDP_TRACE_OPTIMIZER,
    /* hooks, casts of this rank's rows of parameters, phases of shared buffers, sums over ranks */
    FSDP_TRACE_SHARDING,
    FSDP_TRACE_WAITING, /* waiting for peers */
    FSDP_TRACE_DATA,
    FSDP_TRACE_CATEGORIES
} fsdp_trace_category;

enum {
    FSDP_TRACE_LABEL = 64,   /* size of an event's label in bytes, including NUL */
    FSDP_TRACE_COUNTERS = 8, /* maximum number of counters in a sample; a counter is the number of
                                bytes that are allocated for one purpose */
    /* maximum number of sums by name; the time of any further name is added only to the sum of its
     * category */
    FSDP_TRACE_NAMES = 256
};

/* A span, or a piece of time that fsdp_trace_lap() ended. */
typedef struct fsdp_trace_event {
    char label[FSDP_TRACE_LABEL]; /* ASCII without quotes, truncated if too long */
    int64_t begin_ns, duration_ns;
    /* the same on the device (Note [Device time]); both are 0 without a device's clock */
    int64_t device_begin_ns, device_ns;
    fsdp_trace_category category;
} fsdp_trace_event;

typedef struct fsdp_trace_sample {
    int64_t at_ns, values[FSDP_TRACE_COUNTERS];
} fsdp_trace_sample;

typedef struct fsdp_trace_sum {
    int64_t wall_ns, cpu_ns, device_ns, calls;
} fsdp_trace_sum;

/* The clock of a device (Note [Device time]). `self` is the first argument of each function. */
typedef struct fsdp_trace_clock {
    /* Wait until all kernels have run, and add mark 0, which is the time of this call. */
    bool (*start)(void *self);
    /* Add the next mark. Return false if it could not be added. */
    bool (*mark)(void *self);
    /* Wait for the last mark, and set at_ns [n] to the time of each mark since mark 0. `n` is the
     * number of marks since the last start, at least 1. Return false if the times are not known. */
    bool (*read)(void *self, int64_t *at_ns, size_t n);
    void (*destroy)(void *self);
    void *self; /* NULL: there is no clock */
} fsdp_trace_clock;

/* The sum of all pieces that have the same category and the same name. If the pieces are operations
 * (FSDP_TRACE_MATMUL, _ATTENTION, _OPERATION), they also have the same `detail`. */
typedef struct fsdp_trace_entry {
    /* Static strings. `detail` is NULL if the pieces have no detail or are not operations. */
    const char *name, *detail;
    fsdp_trace_category category;
    fsdp_trace_sum sum;
} fsdp_trace_entry;

typedef struct fsdp_trace fsdp_trace;

/* Create a trace that keeps the newest `max_events` events and about max_events / 4 samples of
 * counters. */
FSDP_MUST_CHECK fsdp_status fsdp_trace_create(size_t max_events, fsdp_trace **trace);
/* Free the trace. Accepts NULL. If the trace is attached to a thread, only that thread may call
 * this. */
void fsdp_trace_destroy(fsdp_trace *trace);

/* Use the clock of a device in all further steps; the caller owns the clock, and keeps it as long
 * as the trace. Call this before the first step. If memory runs out, return FSDP_ERR_NOMEM. */
FSDP_MUST_CHECK fsdp_status fsdp_trace_set_clock(fsdp_trace *trace, const fsdp_trace_clock *clock);
/* Return true if the trace has a device's clock. */
bool fsdp_trace_has_clock(const fsdp_trace *trace);

/* Begin a step: attach the trace to the calling thread, and open the span of the step, `name`. */
void fsdp_trace_step_begin(fsdp_trace *trace, const char *name);
/* End the step and detach the trace. Spans that are still open after a failure are ended, too. */
void fsdp_trace_step_end(fsdp_trace *trace);

/* The trace that is attached to the calling thread; NULL: nothing is traced. */
extern _Thread_local fsdp_trace *fsdp_trace_current;

/* The next four functions may be called only while a trace is attached. The inline functions
 * fsdp_trace_begin(), fsdp_trace_end() and fsdp_trace_lap() below check whether a trace is attached
 * before they call one of the first three. src/tensor/device.h checks this before it calls
 * fsdp_trace_add_sample(). */
void fsdp_trace_open(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                     const char *detail);
void fsdp_trace_close(fsdp_trace *trace);
void fsdp_trace_add_lap(fsdp_trace *trace, fsdp_trace_category category, const char *name,
                        const char *detail);
void fsdp_trace_add_sample(fsdp_trace *trace, const int64_t *values, size_t n);

/* Begin a span. Spans nest, and a span must end on the thread on which it began. `name` must be a
 * static string, except for FSDP_TRACE_REST. `detail` may be NULL. For an operation
 * (FSDP_TRACE_MATMUL, _ATTENTION, _OPERATION), `detail` must be static, too. The event's label is
 * "name detail". */
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
/* End the current piece of time (Note [Tracing]), and add it to the time of the operation with this
 * category, name and detail. `name` and `detail` must be static strings. */
static inline void fsdp_trace_lap(fsdp_trace_category category, const char *name,
                                  const char *detail)
{
    if (fsdp_trace_current)
        fsdp_trace_add_lap(fsdp_trace_current, category, name, detail);
}

/* --- reading a trace --- */

/* Return event i (fsdp_trace_get_event()) or sample i (fsdp_trace_get_sample()). Event 0 is the
 * oldest event that has not been overwritten, and sample 0 the oldest such sample. Return NULL if
 * the trace has no event i or sample i. */
const fsdp_trace_event *fsdp_trace_get_event(const fsdp_trace *trace, size_t i);
const fsdp_trace_sample *fsdp_trace_get_sample(const fsdp_trace *trace, size_t i);
/* Return the number of events that were overwritten in the ring. */
uint64_t fsdp_trace_overwritten(const fsdp_trace *trace);
/* Return an array with the sum of each category over all steps. In each sum, `calls` is the number
 * of events of the category that have been recorded. */
const fsdp_trace_sum *fsdp_trace_sums(const fsdp_trace *trace); /* [FSDP_TRACE_CATEGORIES] */
/* Return an array of *n sums, one for each category and name, over all steps. They are in no
 * particular order. */
const fsdp_trace_entry *fsdp_trace_entries(const fsdp_trace *trace, size_t *n);
int64_t fsdp_trace_steps(const fsdp_trace *trace);
/* Return the name that a category has in trace files, such as "matmul" or "sharding". The text is
 * static. */
const char *fsdp_trace_category_name(fsdp_trace_category category);
