/* See monitor.h. To cost little time, the monitor does only a few comparisons in each step. In
 * addition, it reads the memory statistics at each event of a unit. docs/dashboard.md has the
 * measured cost. */
#include "src/monitor/monitor.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/comm/comm.h"
#include "src/report/metrics.h"
#include "src/text/chars/utf8.h"

enum {
    HOST_BYTES = 256,
    MAX_UNITS = 4096
};
static const double line_s = 1.0;   /* minimum time between two lines about steps */
static const double units_s = 60.0; /* minimum time between two lines about units */

/* Times that this rank has waited for other ranks in the collectives of units. */
typedef struct unit_waits {
    int64_t own_ns;        /* in the kinds `own` of waits_now(), which mostly belong to units */
    int64_t all_reduce_ns; /* in all-reduces, which belong to units with replicas or to other
                              callers */
} unit_waits;

typedef struct unit {
    const fsdp_module *module;
    char *name; /* path of the module; "root" for the root */
    uint64_t gathers, gather_bytes, reduces, reduce_bytes, all_reduces, all_reduce_bytes;
    int64_t wait_ns;
} unit;

/* Times of a thread since it was created: when it ran on a core, and when it was ready to run but
 * its core was busy with something else. */
typedef struct cpu_times {
    double running_s, queued_s;
} cpu_times;

struct fsdp_monitor {
    fsdp_metrics *file; /* the file to which lines are written; NULL after a failure */
    char *failure;      /* the error that ended the monitor; NULL: none, or already reported */
    const fsdp_group *groups[FSDP_MONITOR_GROUPS];
    const fsdp_device *device;
    fsdp_module *module;
    fsdp_unit_observer observer;
    unit *units; /* [n_units], in the order of fsdp_module_visit() */
    size_t n_units, cap_units;
    /* index of the unit of the last event; the search for the next event's unit begins there */
    size_t last_unit;
    unit_waits seen; /* waits_now() at the last event of a unit, or when a step or a state began */
    /* Sums over the steps since the last line about steps. */
    int64_t steps;
    double seconds, data_s;
    int64_t step_wait_ns;  /* time that this rank has waited for other ranks in these steps */
    int64_t begin_wait_ns; /* wait_ns() when the current step began */
    /* the memory statistics with the largest `allocated` since the last line */
    fsdp_memory_stats memory;
    const char *state;
    int64_t step;
    bool saw_step;                /* true: at least one step has been reported */
    cpu_times cpu;                /* cpu_times_now() when the last line was written */
    double line_at_s, units_at_s; /* time of the last line about steps, and about units */
};

static double time_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)(now.tv_nsec / 1000000) * 1e-3;
}

static int64_t wait_ns(const fsdp_monitor *m)
{
    int64_t sum = 0;
    for (int i = 0; i < FSDP_MONITOR_GROUPS; i++)
        if (m->groups[i])
            sum += fsdp_comm_counters_wait_ns(fsdp_group_counters(m->groups[i]));
    return sum;
}

static unit_waits waits_now(const fsdp_monitor *m)
{
    static const fsdp_comm_kind own[] = {FSDP_KIND_ALL_GATHER, FSDP_KIND_REDUCE_SCATTER,
                                         FSDP_KIND_WRITE_SHARD, FSDP_KIND_GRADIENT,
                                         FSDP_KIND_BUFFER};
    unit_waits waits = {0};
    for (int i = 0; i < FSDP_MONITOR_GROUPS; i++) {
        const fsdp_comm_counters *counters =
            m->groups[i] ? fsdp_group_counters(m->groups[i]) : NULL;
        for (size_t k = 0; counters && k < FSDP_LENGTH(own); k++)
            waits.own_ns += counters->wait_ns[own[k]];
        waits.all_reduce_ns += counters ? counters->wait_ns[FSDP_KIND_ALL_REDUCE] : 0;
    }
    return waits;
}

/* Return the CPU times of this thread, or zeros if the system does not report them. */
static cpu_times cpu_times_now(void)
{
    char text[96];
    double running_ns = 0, queued_ns = 0;
    const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return (cpu_times){0};
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return (cpu_times){0};
    text[n] = 0;
    if (sscanf(text, "%lf %lf", &running_ns, &queued_ns) != 2)
        return (cpu_times){0};
    return (cpu_times){.running_s = running_ns * 1e-9, .queued_s = queued_ns * 1e-9};
}

/* --- units --- */

static unit *find_unit(fsdp_monitor *m, const fsdp_module *module)
{
    for (size_t i = 0; i < m->n_units; i++) {
        const size_t at = (m->last_unit + i) % m->n_units;
        if (m->units[at].module == module) {
            m->last_unit = at;
            return &m->units[at];
        }
    }
    return NULL;
}

static void note_memory(fsdp_monitor *m)
{
    fsdp_memory_stats now;
    fsdp_device_memory(m->device, &now);
    if (now.allocated > m->memory.allocated)
        m->memory = now;
}

static bool is_of_replicas(fsdp_unit_event event)
{
    return event == FSDP_UNIT_POST_LANES || event == FSDP_UNIT_SUM_LANES ||
           event == FSDP_UNIT_ALL_REDUCE;
}

/* An event function of fsdp_unit_observer. An event of a unit is reported after the wait that it
 * needed. So add the time that this rank has waited since the previous event to the unit's waiting
 * time. Three kinds of waits are not added. The first are waits for barriers, broadcasts and state
 * dicts. The second are waits for all-reduces before an event that needs no all-reduce, such as the
 * all-reduces of the loss and of the norm of the gradients. The third are waits outside of forward
 * and backward, such as those of the optimizer: they end when a step or a state begins, and this
 * resets m->seen. */
static void take_event(void *self, const fsdp_module *module, fsdp_unit_event event, uint64_t bytes)
{
    fsdp_monitor *m = self;
    unit *u = find_unit(m, module);
    note_memory(m);
    if (!u)
        return;
    const unit_waits waits = waits_now(m);
    u->wait_ns += waits.own_ns - m->seen.own_ns;
    if (is_of_replicas(event))
        u->wait_ns += waits.all_reduce_ns - m->seen.all_reduce_ns;
    m->seen = waits;
    if (event == FSDP_UNIT_UNSHARD && bytes) {
        u->gathers++;
        u->gather_bytes += bytes;
    } else if (event == FSDP_UNIT_LOOK_UP) {
        u->gather_bytes += bytes;
    } else if (event == FSDP_UNIT_REDUCE && bytes) {
        u->reduces++;
        u->reduce_bytes += bytes;
    } else if (event == FSDP_UNIT_ALL_REDUCE && bytes) {
        u->all_reduces++;
        u->all_reduce_bytes += bytes;
    }
}

static fsdp_status add_unit(const char *path, fsdp_module *module, void *arg)
{
    fsdp_monitor *m = arg;
    fsdp_unit_info info;
    if (!fsdp_module_is_unit(module) || m->n_units == MAX_UNITS)
        return FSDP_OK;
    FSDP_TRY(fsdp_unit_get_info(module, &info));
    if (info.first_module != module)
        /* several modules can form a unit; it is added once, for its first module */
        return FSDP_OK;
    char *name = fsdp_strdup(*path ? path : "root");
    if (!name || !FSDP_GROW(m->units, m->cap_units, m->n_units + 1)) {
        fsdp_free(name);
        return FSDP_ERR_NOMEM;
    }
    m->units[m->n_units++] = (unit){.module = module, .name = name};
    return FSDP_OK;
}

/* --- lines --- */

static fsdp_status begin_line(fsdp_monitor *m, const char *kind, fsdp_json_node *line)
{
    FSDP_TRY(fsdp_metrics_begin(m->file, kind, line));
    fsdp_json_set_f64(*line, "time", time_now());
    fsdp_json_set_i64(*line, "step", m->step);
    return FSDP_OK;
}

static void set_memory(fsdp_json_node to, const fsdp_memory_stats *memory)
{
    fsdp_json_set_i64(to, "allocated", memory->allocated);
    fsdp_json_set_i64(to, "reserved", memory->reserved);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        fsdp_json_set_i64(to, fsdp_tag_name((fsdp_tag)tag), memory->tag_allocated[tag]);
}

static fsdp_status write_rank(fsdp_monitor *m)
{
    fsdp_json_node line;
    const cpu_times cpu = cpu_times_now();
    FSDP_TRY(begin_line(m, "rank", &line));
    fsdp_json_set_str(line, "state", m->state);
    fsdp_json_set_i64(line, "steps", m->steps);
    fsdp_metrics_set_number(line, "seconds", m->seconds);
    fsdp_metrics_set_number(line, "wait_s", (double)m->step_wait_ns * 1e-9);
    fsdp_metrics_set_number(line, "data_s", m->data_s);
    fsdp_metrics_set_number(line, "cpu_s", cpu.running_s - m->cpu.running_s);
    fsdp_metrics_set_number(line, "queued_s", cpu.queued_s - m->cpu.queued_s);
    note_memory(m);
    set_memory(fsdp_json_set_object(line, "memory"), &m->memory);
    FSDP_TRY(fsdp_metrics_write(m->file));
    m->steps = 0;
    m->seconds = m->data_s = 0;
    m->step_wait_ns = 0;
    m->memory = (fsdp_memory_stats){0};
    m->cpu = cpu;
    m->line_at_s = fsdp_clock_s();
    return FSDP_OK;
}

static fsdp_status write_units(fsdp_monitor *m)
{
    fsdp_json_node line;
    if (!m->n_units)
        return FSDP_OK;
    FSDP_TRY(begin_line(m, "units", &line));
    fsdp_json_node units = fsdp_json_set_array(line, "units");
    for (size_t i = 0; i < m->n_units; i++) {
        const unit *u = &m->units[i];
        fsdp_json_node to = fsdp_json_append_object(units);
        fsdp_json_set_str(to, "name", u->name);
        fsdp_json_set_u64(to, "gathers", u->gathers);
        fsdp_json_set_u64(to, "gather_bytes", u->gather_bytes);
        fsdp_json_set_u64(to, "reduces", u->reduces);
        fsdp_json_set_u64(to, "reduce_bytes", u->reduce_bytes);
        fsdp_json_set_u64(to, "all_reduces", u->all_reduces);
        fsdp_json_set_u64(to, "all_reduce_bytes", u->all_reduce_bytes);
        fsdp_metrics_set_number(to, "wait_s", (double)u->wait_ns * 1e-9);
    }
    m->units_at_s = fsdp_clock_s();
    return fsdp_metrics_write(m->file);
}

static fsdp_status write_start(fsdp_monitor *m, const fsdp_monitor_options *o)
{
    char host[HOST_BYTES];
    fsdp_json_node line;
    if (gethostname(host, sizeof host) != 0)
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = 0;
    FSDP_TRY(begin_line(m, "start", &line));
    fsdp_json_set_i64(line, "rank", fsdp_group_rank(o->groups[0]));
    fsdp_json_set_i64(line, "world_size", fsdp_group_world_size(o->groups[0]));
    fsdp_json_set_i64(line, "pid", getpid());
    fsdp_json_set_str(line, "host", host);
    fsdp_json_set_str(line, "device", fsdp_device_name(o->device));
    fsdp_json_set_i64(line, "threads", o->threads);
    return fsdp_metrics_write(m->file);
}

static fsdp_status write_end(fsdp_monitor *m, const char *message)
{
    fsdp_json_node line;
    FSDP_TRY(write_rank(m));
    FSDP_TRY(write_units(m));
    FSDP_TRY(begin_line(m, "end", &line));
    fsdp_json_set_str(line, "state", message ? "failed" : "ended");
    if (message)
        fsdp_json_set_strn(line, "message", message,
                           fsdp_utf8_valid_length(message, strlen(message)));
    return fsdp_metrics_write(m->file);
}

/* If `status` is an error, keep its message, and write no more lines. No error is returned, because
 * a run must not fail because of its monitor. */
static void stop_after_failure(fsdp_monitor *m, fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    m->failure = fsdp_strdup(fsdp_last_error());
    fsdp_metrics_close(m->file);
    m->file = NULL;
}

/* --- opening and closing --- */

static void free_monitor(fsdp_monitor *m)
{
    fsdp_metrics_close(m->file);
    for (size_t i = 0; i < m->n_units; i++)
        fsdp_free(m->units[i].name);
    fsdp_free(m->units);
    fsdp_free(m->failure);
    fsdp_free(m);
}

static void set_groups(fsdp_monitor *m, const fsdp_monitor_options *o)
{
    for (int i = 0; i < FSDP_MONITOR_GROUPS; i++) {
        bool again = false;
        for (int k = 0; k < i; k++)
            again |= o->groups[k] == o->groups[i];
        m->groups[i] = again ? NULL : o->groups[i];
    }
}

static fsdp_status open_file(fsdp_monitor *m, const fsdp_monitor_options *o)
{
    char name[32];
    snprintf(name, sizeof name, "%d.jsonl", fsdp_group_rank(o->groups[0]));
    char *path = fsdp_path_join(o->folder, name);
    const fsdp_status status = path ? fsdp_metrics_open(path, o->append, &m->file) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_module_visit(o->module, add_unit, m));
    return write_start(m, o);
}

fsdp_status fsdp_monitor_open(const fsdp_monitor_options *options, fsdp_monitor **monitor)
{
    fsdp_monitor *m = fsdp_calloc(1, sizeof *m);
    if (!m)
        return FSDP_ERR_NOMEM;
    set_groups(m, options);
    m->device = options->device;
    m->module = options->module;
    m->step = options->step;
    m->state = "starting";
    const fsdp_status status = open_file(m, options);
    if (status != FSDP_OK) {
        free_monitor(m);
        return status;
    }
    m->begin_wait_ns = wait_ns(m);
    m->seen = waits_now(m);
    m->cpu = cpu_times_now();
    m->observer = (fsdp_unit_observer){.event = take_event, .self = m};
    fsdp_observe_units(m->module, &m->observer);
    *monitor = m;
    return FSDP_OK;
}

void fsdp_monitor_at(fsdp_monitor *m, const char *state)
{
    if (!m || strcmp(m->state, state) == 0)
        return;
    m->state = state;
    m->seen = waits_now(m);
    if (m->file)
        stop_after_failure(m, write_rank(m));
}

void fsdp_monitor_step_begin(fsdp_monitor *m)
{
    if (!m)
        return;
    fsdp_monitor_at(m, "training");
    m->begin_wait_ns = wait_ns(m);
    m->seen = waits_now(m);
}

void fsdp_monitor_step_end(fsdp_monitor *m, int64_t step, double seconds, double data_s)
{
    if (!m || !m->file)
        return;
    m->step = step;
    m->steps++;
    m->seconds += seconds;
    m->data_s += data_s;
    m->step_wait_ns += wait_ns(m) - m->begin_wait_ns;
    /* Write at most one line in line_s seconds. The first step always gets a line of its own,
     * because it includes the warm-up. */
    const double now = fsdp_clock_s();
    if (m->saw_step && now - m->line_at_s < line_s)
        return;
    m->saw_step = true;
    const bool units = now - m->units_at_s >= units_s;
    fsdp_status status = write_rank(m);
    if (status == FSDP_OK && units)
        status = write_units(m);
    stop_after_failure(m, status);
}

const char *fsdp_monitor_failure(fsdp_monitor *m)
{
    static _Thread_local char text[1024];
    if (!m || !m->failure)
        return NULL;
    snprintf(text, sizeof text, "%s", m->failure);
    fsdp_free(m->failure);
    m->failure = NULL;
    return text;
}

void fsdp_monitor_close(fsdp_monitor *m, const char *message)
{
    if (!m)
        return;
    fsdp_observe_units(m->module, NULL);
    if (m->file)
        stop_after_failure(m, write_end(m, message));
    free_monitor(m);
}
