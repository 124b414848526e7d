/* Writes a trace in the Trace Event Format, which chrome://tracing and Perfetto read: complete
 * events (ph X), counters (ph C) and names of tracks (ph M), with times in microseconds. Each rank
 * is a process. An event with device time is written twice, the second time on the device's
 * track. */
#pragma once
#include "src/trace/trace.h"

/* How much of a trace has been written. Initialize it with {0}. */
typedef struct fsdp_trace_cursor {
    size_t names, events, samples; /* numbers of entries written so far */
} fsdp_trace_cursor;

enum {
    FSDP_TRACE_JSON_MIN = 1024 /* minimum size of `text` in bytes; no entry needs more */
};

/* The beginning and the end of a trace file, between which the entries are written. The beginning
 * already contains one entry, so the text of each further entry starts with a comma. */
extern const char fsdp_trace_json_head[];
extern const char fsdp_trace_json_tail[];

/* Write entries of `trace` to text [size] until the next entry does not fit. The first one is the
 * entry at *cursor. Set *cursor to the first entry that was not written. `size` must be at least
 * FSDP_TRACE_JSON_MIN. Return the number of bytes, or 0 if no entry is left. Times are relative to
 * base_ns. There are n_counters counters; counter i has the name counters[i]. */
size_t fsdp_trace_json(const fsdp_trace *trace, int rank, int64_t base_ns,
                       const char *const *counters, size_t n_counters, fsdp_trace_cursor *cursor,
                       char *text, size_t size);
/* Return the earliest time of an event or sample, or INT64_MAX if the trace is empty. */
int64_t fsdp_trace_begin_ns(const fsdp_trace *trace);
