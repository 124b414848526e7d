/* The profiler of training steps; see <fsdp/profile.h>. This file runs the window of profiled steps
 * and writes the trace file. profile_report.c computes times by category and by name. */
#include "src/profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/tensor.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/profile/profile_report.h"
#include "src/tensor/device.h"
#include "src/trace/trace_json.h"

enum {
    MAX_EVENTS = 65536,
    CHUNK_BYTES = 1 << 16 /* ranks send their traces to rank 0 in pieces of this many bytes */
};

struct fsdp_profile {
    fsdp_group *group; /* NULL: only this rank is profiled */
    fsdp_trace *trace;
    fsdp_trace_clock clock; /* the device's clock; clock.self is NULL if there is none */
    char *path;             /* used on rank 0 only */
    int32_t writes;         /* true if rank 0 has a path; this value is the same on all ranks */
    char *chunk;            /* [CHUNK_BYTES] */
    size_t max_events;      /* number of events that the trace can hold */
    /* The window is steps [first, first + n_steps). `step` is the number of steps that have
     * begun. */
    int64_t first, n_steps, step;
    fsdp_profile_row rows[FSDP_PROFILE_ROWS];
    bool done; /* true: the window has ended, and `rows` has the times by category */
};

/* --- options --- */

static bool parse_number(const char *text, const char **end, int64_t *value)
{
    char *stop;
    errno = 0;
    *value = strtoll(text, &stop, 10);
    *end = stop;
    return stop != text && !errno && *text >= '0' && *text <= '9';
}

fsdp_status fsdp_profile_parse_steps(const char *flag, const char *text, int64_t *first,
                                     int64_t *last)
{
    const char *end;
    bool good = parse_number(text, &end, first);
    *last = *first;
    if (good && *end == ':')
        good = parse_number(end + 1, &end, last);
    if (!good || *end || *first < 1 || *last < *first)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s '%s': must be A:B, the first and the last step, counted from 1", flag,
                          text);
    return FSDP_OK;
}

fsdp_status fsdp_profile_choose_steps(const char *flag, const char *text, int64_t begun,
                                      int64_t total, fsdp_profile_options *options)
{
    const int64_t left = total - begun, n = left < FSDP_PROFILE_STEPS ? left : FSDP_PROFILE_STEPS;
    const int64_t spare = left - n;
    const int64_t warm_up = spare < FSDP_PROFILE_WARM_UP ? spare : FSDP_PROFILE_WARM_UP;
    int64_t first = begun + warm_up + 1, last = begun + warm_up + n;
    if (text)
        FSDP_TRY(fsdp_profile_parse_steps(flag, text, &first, &last));
    if (last > total)
        return fsdp_error(FSDP_ERR_INVALID, "%s %s: the run has %lld steps", flag, text,
                          (long long)total);
    if (first <= begun)
        return fsdp_error(FSDP_ERR_INVALID, "%s %s: the run continues after step %lld", flag, text,
                          (long long)begun);
    options->first_step = first - 1 - begun;
    options->n_steps = last - first + 1;
    return FSDP_OK;
}

/* --- creation and destruction --- */

static bool is_first(const fsdp_profile *p)
{
    return !p->group || fsdp_group_rank(p->group) == 0;
}

/* Return an error if rank 0 cannot write the trace file. Without this check, the run would fail
 * only after the profiled steps, perhaps after hours of training. */
static fsdp_status check_path(const fsdp_profile *p)
{
    fsdp_atomic_file *file;
    if (!p->path || !is_first(p))
        return FSDP_OK;
    FSDP_TRY(fsdp_atomic_file_begin(p->path, 0, &file));
    fsdp_atomic_file_discard(file);
    return FSDP_OK;
}

static fsdp_status create_trace(const fsdp_profile *p, fsdp_trace **trace)
{
    FSDP_TRY(fsdp_trace_create(p->max_events, trace));
    const fsdp_status status = p->clock.self ? fsdp_trace_set_clock(*trace, &p->clock) : FSDP_OK;
    if (status != FSDP_OK) {
        fsdp_trace_destroy(*trace);
        *trace = NULL;
    }
    return status;
}

static fsdp_status init_profile(fsdp_profile *p, const fsdp_profile_options *o)
{
    if (o->first_step < 0 || o->n_steps < 0)
        return fsdp_error(FSDP_ERR_INVALID, "profile: step %lld, %lld steps: one is negative",
                          (long long)o->first_step, (long long)o->n_steps);
    p->first = o->first_step;
    p->n_steps = o->n_steps ? o->n_steps : FSDP_PROFILE_STEPS;
    p->chunk = fsdp_calloc(CHUNK_BYTES, 1);
    p->path = o->path ? fsdp_strdup(o->path) : NULL;
    if (!p->chunk || (o->path && !p->path))
        return FSDP_ERR_NOMEM;
    p->max_events = o->max_events ? o->max_events : MAX_EVENTS;
    if (o->device && o->device->ops->clock_create)
        FSDP_TRY(o->device->ops->clock_create(o->device, &p->clock));
    FSDP_TRY(create_trace(p, &p->trace));
    p->writes = p->path != NULL;
    return check_path(p);
}

/* All ranks call this after they have tried to create their profiles. `mine` is the status of this
 * rank. If it is an error on any rank, return an error on all ranks; `p` is then not used and may
 * be NULL. Otherwise, set p->writes on all ranks to the value on rank 0. Collective. */
static fsdp_status agree_on_file(fsdp_profile *p, fsdp_group *group, fsdp_status mine)
{
    FSDP_TRY(fsdp_agree(group, mine));
    return group ? fsdp_broadcast(group, &p->writes, sizeof p->writes, 0) : FSDP_OK;
}

fsdp_status fsdp_profile_create(fsdp_group *group, const fsdp_profile_options *options,
                                fsdp_profile **profile)
{
    static const fsdp_profile_options defaults = {0};
    fsdp_profile *p = fsdp_calloc(1, sizeof *p);
    fsdp_status status = p ? FSDP_OK : FSDP_ERR_NOMEM;
    if (p) {
        p->group = group;
        status = init_profile(p, options ? options : &defaults);
    }
    status = agree_on_file(p, group, status);
    if (status != FSDP_OK) {
        fsdp_profile_destroy(p);
        return status;
    }
    *profile = p;
    return FSDP_OK;
}

void fsdp_profile_destroy(fsdp_profile *p)
{
    if (!p)
        return;
    fsdp_trace_destroy(p->trace);
    if (p->clock.self)
        p->clock.destroy(p->clock.self);
    fsdp_free(p->path);
    fsdp_free(p->chunk);
    fsdp_free(p);
}

/* --- the trace file --- */

/* Send the trace of rank `from` to rank 0, in pieces. Each piece is broadcast to all ranks,
 * although only rank 0 uses it. On rank 0, *status is the result of writing the file. After a
 * failed write, rank 0 still takes part in the broadcasts, so that the other ranks do not wait
 * forever. */
static fsdp_status pass_trace(fsdp_profile *p, int from, int64_t base_ns, fsdp_atomic_file *file,
                              fsdp_status *status)
{
    const char *counters[FSDP_TAG_COUNT];
    fsdp_trace_cursor cursor = {0};
    bool own = !p->group || fsdp_group_rank(p->group) == from;
    for (int i = 0; i < FSDP_TAG_COUNT; i++)
        counters[i] = fsdp_tag_name((fsdp_tag)i);
    for (;;) {
        uint64_t bytes = 0;
        if (own)
            bytes = fsdp_trace_json(p->trace, from, base_ns, counters, FSDP_TAG_COUNT, &cursor,
                                    p->chunk, CHUNK_BYTES);
        if (p->group)
            FSDP_TRY(fsdp_broadcast(p->group, &bytes, sizeof bytes, from));
        if (!bytes)
            return FSDP_OK;
        if (p->group)
            FSDP_TRY(fsdp_broadcast(p->group, p->chunk, bytes, from));
        if (file && *status == FSDP_OK)
            *status = fsdp_atomic_file_append(file, p->chunk, bytes);
    }
}

static fsdp_status begin_file(const fsdp_profile *p, fsdp_atomic_file **file)
{
    FSDP_TRY(fsdp_atomic_file_begin(p->path, 0, file));
    return fsdp_atomic_file_append(*file, fsdp_trace_json_head, strlen(fsdp_trace_json_head));
}

static fsdp_status end_file(fsdp_atomic_file **file)
{
    FSDP_TRY(fsdp_atomic_file_append(*file, fsdp_trace_json_tail, strlen(fsdp_trace_json_tail)));
    fsdp_atomic_file *whole = *file;
    *file = NULL;
    return fsdp_atomic_file_commit(whole);
}

/* Write the traces of all ranks to the file. Collective. */
static fsdp_status write_file(fsdp_profile *p)
{
    int64_t base_ns = fsdp_trace_begin_ns(p->trace);
    int world_size = fsdp_group_world_size(p->group);
    fsdp_atomic_file *file = NULL;
    fsdp_status status = is_first(p) ? begin_file(p, &file) : FSDP_OK, passed = FSDP_OK;
    if (p->group)
        passed = fsdp_all_reduce(p->group, &base_ns, 1, FSDP_DTYPE_I64, FSDP_REDUCE_MIN);
    for (int r = 0; r < world_size && passed == FSDP_OK; r++)
        passed = pass_trace(p, r, base_ns, file, &status);
    if (passed == FSDP_OK && status == FSDP_OK && file)
        status = end_file(&file);
    fsdp_atomic_file_discard(file);
    FSDP_TRY(passed);
    return fsdp_agree(p->group, status);
}

/* --- steps --- */

/* Let the window of profiled steps begin again at the next step, with an empty trace. This is
 * needed after a step that failed before its end, because the trace has only a part of the failed
 * step. */
static fsdp_status restart_window(fsdp_profile *p)
{
    fsdp_trace *fresh;
    FSDP_TRY(create_trace(p, &fresh));
    fsdp_trace_destroy(p->trace); /* this also detaches it from this thread */
    p->trace = fresh;
    p->first = p->step;
    return FSDP_OK;
}

fsdp_status fsdp_profile_step_begin(fsdp_profile *p)
{
    if (!p)
        return FSDP_OK;
    if (fsdp_trace_current == p->trace)
        FSDP_TRY(restart_window(p));
    if (fsdp_trace_current)
        return fsdp_error(FSDP_ERR_STATE, "profile: this thread is already in a profiled step");
    int64_t i = p->step++;
    if (i >= p->first && i - p->first < p->n_steps)
        fsdp_trace_step_begin(p->trace, "step");
    return FSDP_OK;
}

fsdp_status fsdp_profile_step_end(fsdp_profile *p)
{
    if (!p || fsdp_trace_current != p->trace)
        return FSDP_OK;
    fsdp_trace_step_end(p->trace);
    if (fsdp_trace_steps(p->trace) < p->n_steps)
        return FSDP_OK;
    FSDP_TRY(fsdp_profile_make_rows(p->trace, p->group, p->rows));
    p->done = true;
    return p->writes ? write_file(p) : FSDP_OK;
}

const fsdp_profile_row *fsdp_profile_rows(const fsdp_profile *p, size_t *n)
{
    *n = p->done ? FSDP_PROFILE_ROWS : 0;
    return p->rows;
}

fsdp_status fsdp_profile_names(const fsdp_profile *p, fsdp_profile_name names[FSDP_PROFILE_NAMES],
                               size_t *n)
{
    *n = 0;
    return p->done ? fsdp_profile_make_names(p->trace, names, n) : FSDP_OK;
}

fsdp_status fsdp_profile_print(const fsdp_profile *p, FILE *out)
{
    if (!p->done)
        return FSDP_OK;
    FSDP_TRY(fsdp_profile_print_rows(p->rows, out));
    FSDP_TRY(fsdp_profile_print_names(p->trace, out));
    uint64_t lost = fsdp_trace_overwritten(p->trace);
    if (lost && p->writes)
        fprintf(out, "%llu older events of each rank did not fit into the trace\n",
                (unsigned long long)lost);
    return FSDP_OK;
}
