/* See rank.h. */
#include "src/dashboard/rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/dashboard/line.h"

/* --- samples --- */

static void add_sample(fsdp_rank_sample *to, const fsdp_rank_sample *from)
{
    to->time = from->time;
    to->step = from->step;
    to->seconds += from->seconds;
    to->wait_s += from->wait_s;
    to->data_s += from->data_s;
    to->no_core_s += from->no_core_s;
    to->stopped_s += from->stopped_s;
    to->steps += from->steps;
    if (from->allocated <= to->allocated)
        return;
    to->allocated = from->allocated;
    to->reserved = from->reserved;
    memcpy(to->tags, from->tags, sizeof to->tags);
}

static void keep_sample(fsdp_rank *r, const fsdp_rank_sample *sample)
{
    const double full = r->sample_lines > 0 ? r->sample_lines : 1;
    if (r->n_samples && r->last_lines < full) {
        add_sample(&r->samples[r->n_samples - 1], sample);
        r->last_lines++;
        return;
    }
    if (r->n_samples == FSDP_RANK_SAMPLES) {
        for (size_t i = 0; i < FSDP_RANK_SAMPLES / 2; i++) {
            r->samples[i] = r->samples[2 * i];
            add_sample(&r->samples[i], &r->samples[2 * i + 1]);
        }
        r->n_samples /= 2;
        r->sample_lines = 2 * full;
    }
    r->samples[r->n_samples++] = *sample;
    r->last_lines = 1;
}

/* --- lines --- */

static void clear_sums(fsdp_rank *r)
{
    r->steps = r->seconds = r->wait_s = r->data_s = r->no_core_s = r->stopped_s = 0;
    r->knows_cpu = false;
}

static double at_least_zero(double value)
{
    return value > 0 ? value : 0;
}

/* Return how long the rank had no core during the steps of a sample. `queued_s` is the time in
 * which the first thread was ready to run but did not run. A part of it may be at the end of a wait
 * for other ranks, and that part belongs to wait_s. So the result is limited in two ways: to the
 * time in which the rank neither waited nor read data, and to the time in which it neither waited
 * nor ran. The time between steps need not be considered: a change of the state has a line of its
 * own, so a line with steps is only about these steps. */
static double no_core_of(const fsdp_rank_sample *s, double cpu_s, double queued_s)
{
    const double own_s = at_least_zero(s->seconds - s->wait_s - s->data_s);
    const double idle_s = at_least_zero(s->seconds - s->wait_s - cpu_s);
    const double most_s = own_s < idle_s ? own_s : idle_s;
    if (!(s->steps > 0))
        return 0;
    return at_least_zero(queued_s < most_s ? queued_s : most_s);
}

/* Add the steps of a line to the sums of the rank. */
static void add_to_sums(fsdp_rank *r, const fsdp_rank_sample *s, double cpu_s)
{
    /* The first step has a line of its own. Its time includes the warm-up. So when a line with
     * other steps arrives, remove the first step from the sums. */
    if (s->steps > 0 && r->only_first)
        clear_sums(r);
    r->only_first = !r->saw_step ? s->steps > 0 : r->only_first && !(s->steps > 0);
    r->steps += s->steps;
    r->seconds += s->seconds;
    r->wait_s += s->wait_s;
    r->data_s += s->data_s;
    r->no_core_s += s->no_core_s;
    r->stopped_s += s->stopped_s;
    r->knows_cpu |= s->steps > 0 && cpu_s > 0;
    r->saw_step |= s->steps > 0;
}

/* Return a count from a line, or 0 if it is not a number that fits in int64_t. The file of a rank
 * may contain anything, and converting such a number would be undefined. */
static int64_t count_from(fsdp_json_node line, const char *key)
{
    const double value = fsdp_line_number(line, key, 0);
    return value >= 0 && value < 0x1p53 ? (int64_t)value : 0;
}

/* Take the first line of a run. `before` is the time of the previous line, which is the last line
 * of an earlier run that this run continues. */
static void take_start(fsdp_rank *r, fsdp_json_node line, double before)
{
    if (r->started > 0)
        r->earlier_s += at_least_zero(before - r->started);
    r->started = fsdp_line_number(line, "time", 0);
    r->world_size = count_from(line, "world_size");
    r->pid = count_from(line, "pid");
    r->threads = count_from(line, "threads");
    fsdp_line_text(line, "host", r->host, sizeof r->host);
    fsdp_line_text(line, "device", r->device, sizeof r->device);
    snprintf(r->state, sizeof r->state, "starting");
    r->message[0] = 0;
    r->ended = r->saw_step = r->only_first = false;
    clear_sums(r);
}

static void take_rank(fsdp_rank *r, fsdp_json_node line)
{
    fsdp_rank_sample s = {.time = fsdp_line_number(line, "time", 0),
                          .step = fsdp_line_number(line, "step", 0),
                          .steps = fsdp_line_number(line, "steps", 0),
                          .seconds = fsdp_line_number(line, "seconds", 0),
                          .wait_s = fsdp_line_number(line, "wait_s", 0),
                          .data_s = fsdp_line_number(line, "data_s", 0)};
    const fsdp_json_node memory = fsdp_json_find(line, "memory");
    s.allocated = fsdp_line_number(memory, "allocated", 0);
    s.reserved = fsdp_line_number(memory, "reserved", 0);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        s.tags[tag] = fsdp_line_number(memory, fsdp_tag_name((fsdp_tag)tag), 0);
    const double cpu_s = fsdp_line_number(line, "cpu_s", 0);
    s.no_core_s = no_core_of(&s, cpu_s, fsdp_line_number(line, "queued_s", 0));
    if (s.steps > 0 && cpu_s > 0)
        s.stopped_s = at_least_zero(s.seconds - s.wait_s - s.data_s - s.no_core_s - cpu_s);
    fsdp_line_text(line, "state", r->state, sizeof r->state);
    keep_sample(r, &s);
    add_to_sums(r, &s, cpu_s);
}

static void free_units(fsdp_rank *r)
{
    for (size_t i = 0; i < r->n_units; i++)
        fsdp_free(r->units[i].name);
    fsdp_free(r->units);
    r->units = NULL;
    r->n_units = 0;
}

static fsdp_status take_unit(fsdp_rank_unit *u, fsdp_json_node from)
{
    char name[256];
    fsdp_line_text(from, "name", name, sizeof name);
    *u = (fsdp_rank_unit){.gathers = fsdp_line_number(from, "gathers", 0),
                          .gather_bytes = fsdp_line_number(from, "gather_bytes", 0),
                          .reduces = fsdp_line_number(from, "reduces", 0),
                          .reduce_bytes = fsdp_line_number(from, "reduce_bytes", 0),
                          .all_reduces = fsdp_line_number(from, "all_reduces", 0),
                          .all_reduce_bytes = fsdp_line_number(from, "all_reduce_bytes", 0),
                          .wait_s = fsdp_line_number(from, "wait_s", 0)};
    u->name = fsdp_strdup(name);
    return u->name ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status take_units(fsdp_rank *r, fsdp_json_node line)
{
    const fsdp_json_node units = fsdp_json_find(line, "units");
    size_t n = fsdp_json_kind_of(units) == FSDP_JSON_ARRAY ? fsdp_json_len(units) : 0;
    if (n > FSDP_RANK_UNITS)
        n = FSDP_RANK_UNITS;
    free_units(r);
    if (!n)
        return FSDP_OK;
    r->units = fsdp_calloc(n, sizeof *r->units);
    if (!r->units)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        FSDP_TRY(take_unit(&r->units[i], fsdp_json_at(units, i)));
        r->n_units = i + 1;
    }
    return FSDP_OK;
}

typedef struct reading {
    fsdp_rank *rank;
    bool changed;
} reading;

static fsdp_status take_line(void *context, fsdp_json_node line)
{
    reading *reads = context;
    fsdp_rank *r = reads->rank;
    char kind[32];
    fsdp_line_text(line, "kind", kind, sizeof kind);
    const double before = r->time;
    reads->changed = true;
    r->time = fsdp_line_number(line, "time", r->time);
    r->step = fsdp_line_number(line, "step", r->step);
    if (strcmp(kind, "start") == 0) {
        take_start(r, line, before);
    } else if (strcmp(kind, "rank") == 0) {
        take_rank(r, line);
    } else if (strcmp(kind, "units") == 0) {
        return take_units(r, line);
    } else if (strcmp(kind, "end") == 0) {
        fsdp_line_text(line, "state", r->state, sizeof r->state);
        fsdp_line_text(line, "message", r->message, sizeof r->message);
        r->ended = true;
    }
    return FSDP_OK;
}

static void restart(void *context)
{
    reading *reads = context;
    fsdp_rank *r = reads->rank;
    free_units(r);
    r->n_samples = 0;
    r->sample_lines = r->last_lines = 0;
    r->step = r->time = r->started = r->earlier_s = 0;
    r->state[0] = r->message[0] = 0;
    r->ended = r->saw_step = r->only_first = false;
    clear_sums(r);
    reads->changed = true;
}

/* --- the rank --- */

fsdp_status fsdp_rank_create(const char *path, int number, fsdp_rank **rank)
{
    fsdp_rank *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return FSDP_ERR_NOMEM;
    r->number = number;
    const fsdp_status status = fsdp_tail_init(&r->tail, path);
    if (status == FSDP_OK)
        *rank = r;
    else
        fsdp_free(r);
    return status;
}

void fsdp_rank_destroy(fsdp_rank *r)
{
    if (!r)
        return;
    free_units(r);
    fsdp_tail_fini(&r->tail);
    fsdp_free(r);
}

fsdp_status fsdp_rank_read(fsdp_rank *r, int root, int64_t deadline_ns, bool *changed, bool *more)
{
    reading reads = {.rank = r};
    const fsdp_tail_reader reader = {.line = take_line, .restart = restart, .context = &reads};
    const fsdp_status status = fsdp_tail_read(&r->tail, root, deadline_ns, &reader, more);
    *changed = reads.changed;
    return status;
}
