/* A trace as text of the Trace Event Format, which chrome://tracing and Perfetto read: complete
 * events (ph X), counters (ph C) and names of tracks (ph M), times in microseconds. One process
 * stands for a rank. */
#pragma once
#include "src/trace/trace.h"

/* Where the text of one trace has come to; zero at the beginning. */
typedef struct fsdp_trace_cursor {
    size_t names, events, samples; /* written so far */
} fsdp_trace_cursor;

enum {
    FSDP_TRACE_JSON_MIN = 1024 /* bytes that one entry may need */
};

/* How a file begins and ends; entries come between, each with a comma before it. */
extern const char fsdp_trace_json_head[];
extern const char fsdp_trace_json_tail[];

/* As many whole entries of `trace` as fit into text [size >= FSDP_TRACE_JSON_MIN]; the number of
 * bytes, 0 when none are left. Times count from base_ns. Counter i is called counters[i],
 * [n_counters]. */
size_t fsdp_trace_json(const fsdp_trace *trace, int rank, int64_t base_ns,
                       const char *const *counters, size_t n_counters, fsdp_trace_cursor *cursor,
                       char *text, size_t size);
/* The earliest time in the trace; INT64_MAX if it is empty. */
int64_t fsdp_trace_begin_ns(const fsdp_trace *trace);
