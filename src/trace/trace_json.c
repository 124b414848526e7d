/* See trace_json.h. */
#include "src/trace/trace_json.h"

#include <stdio.h>

#include "src/base/assert.h"

/* Names of the tracks into which the events of a rank are divided. The number of a track is the
 * index of its name. */
static const char *const tracks[] = {"compute", "collectives", "optimizer", "data", "device"};
enum {
    DEVICE_TRACK = FSDP_LENGTH(tracks) - 1 /* only in traces with a device's clock */
};
static const int track_of[FSDP_TRACE_CATEGORIES] = {[FSDP_TRACE_OPTIMIZER] = 2,
                                                    [FSDP_TRACE_SHARDING] = 1,
                                                    [FSDP_TRACE_WAITING] = 1,
                                                    [FSDP_TRACE_DATA] = 3};

const char fsdp_trace_json_head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                                    "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{"
                                    "\"labels\":\"fsdp.c " FSDP_VERSION "\"}}";
const char fsdp_trace_json_tail[] = "\n]}\n";

static double us(int64_t ns)
{
    return (double)ns * 1e-3;
}

/* Print an entry that contains a name: the name of the rank's process if i is 0, otherwise the name
 * of track i - 1. Return the length of the text, or 0 if there is no track i - 1. */
static int print_name(size_t i, bool has_clock, int rank, char *text, size_t size)
{
    if (i == 0)
        return snprintf(text, size,
                        ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
                        "\"args\":{\"name\":\"rank %d\"}}",
                        rank, rank);
    if (i > (has_clock ? FSDP_LENGTH(tracks) : DEVICE_TRACK))
        return 0;
    return snprintf(text, size,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%zu,"
                    "\"args\":{\"name\":\"%s\"}}",
                    rank, i - 1, tracks[i - 1]);
}

static int print_span(const fsdp_trace_event *e, int track, int rank, int64_t begin_ns,
                      int64_t duration_ns, char *text, size_t size)
{
    return snprintf(text, size,
                    ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
                    "\"pid\":%d,\"tid\":%d}",
                    e->label, fsdp_trace_category_name(e->category), us(begin_ns), us(duration_ns),
                    rank, track);
}

static int print_event(const fsdp_trace_event *e, int rank, int64_t base_ns, char *text,
                       size_t size)
{
    if (!e)
        return 0;
    const int used = print_span(e, track_of[e->category], rank, e->begin_ns - base_ns,
                                e->duration_ns, text, size);
    return e->device_ns ? used + print_span(e, DEVICE_TRACK, rank, e->device_begin_ns - base_ns,
                                            e->device_ns, text + used, size - (size_t)used)
                        : used;
}

static int print_sample(const fsdp_trace_sample *sample, int rank, int64_t base_ns,
                        const char *const *counters, size_t n, char *text, size_t size)
{
    if (!sample)
        return 0;
    int used = snprintf(text, size,
                        ",\n{\"name\":\"memory (bytes)\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":%d,"
                        "\"tid\":0,\"args\":{",
                        us(sample->at_ns - base_ns), rank);
    for (size_t i = 0; i < n; i++)
        used += snprintf(text + used, size - (size_t)used, "%s\"%s\":%lld", i ? "," : "",
                         counters[i], (long long)sample->values[i]);
    return used + snprintf(text + used, size - (size_t)used, "}}");
}

size_t fsdp_trace_json(const fsdp_trace *trace, int rank, int64_t base_ns,
                       const char *const *counters, size_t n_counters, fsdp_trace_cursor *cursor,
                       char *text, size_t size)
{
    size_t used = 0;
    int n;
    for (; size - used >= FSDP_TRACE_JSON_MIN; used += (size_t)n) {
        char *at = text + used;
        size_t room = size - used;
        if ((n = print_name(cursor->names, fsdp_trace_has_clock(trace), rank, at, room)) > 0)
            cursor->names++;
        else if ((n = print_event(fsdp_trace_get_event(trace, cursor->events), rank, base_ns, at,
                                  room)) > 0)
            cursor->events++;
        else if ((n = print_sample(fsdp_trace_get_sample(trace, cursor->samples), rank, base_ns,
                                   counters, n_counters, at, room)) > 0)
            cursor->samples++;
        else
            break;
    }
    return used;
}

int64_t fsdp_trace_begin_ns(const fsdp_trace *trace)
{
    int64_t first = INT64_MAX;
    const fsdp_trace_event *e;
    const fsdp_trace_sample *sample = fsdp_trace_get_sample(trace, 0);
    for (size_t i = 0; (e = fsdp_trace_get_event(trace, i)); i++)
        first = e->begin_ns < first ? e->begin_ns : first;
    return sample && sample->at_ns < first ? sample->at_ns : first;
}
