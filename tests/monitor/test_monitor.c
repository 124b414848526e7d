/* The files of ranks: what their lines are, that states appear at once, that units count what they
 * communicate, and that a full disk does not end a run. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/alloc_testing.h"
#include "src/base/json.h"
#include "src/monitor/monitor.h"
#include "src/report/metrics.h"
#include "tests/fsdp/chain.h"
#include "tests/test.h"

/* What the lines of a file say. */
typedef struct lines {
    char kinds[1024], states[1024];                         /* joined with spaces */
    double steps, seconds, data_s, last_step, memory, tags; /* the last memory; sums of steps */
    double cpu_s;                                           /* sum of all lines */
    bool negative;                                          /* a time is below 0 */
    int64_t units, gathers, reduces;                        /* from the last line of units */
    double wait_s;                                          /* sum of the units in that line */
    char message[256];
} lines;

static fsdp_status take_units(fsdp_json_node units, lines *all)
{
    all->units = (int64_t)fsdp_json_len(units);
    all->gathers = all->reduces = 0;
    all->wait_s = 0;
    for (size_t i = 0; i < (size_t)all->units; i++) {
        int64_t n, bytes;
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(units, i), "gathers", 0, 1000, &n));
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(units, i), "gather_bytes", n, 1 << 20, &bytes));
        all->gathers += n;
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(units, i), "reduces", 0, 1000, &n));
        FSDP_TRY(fsdp_json_get_i64(fsdp_json_at(units, i), "reduce_bytes", n, 1 << 20, &bytes));
        all->reduces += n;
        double wait_s;
        FSDP_TRY(fsdp_json_get_f64(fsdp_json_at(units, i), "wait_s", &wait_s));
        all->wait_s += wait_s;
    }
    return FSDP_OK;
}

static fsdp_status take_line(fsdp_json_node line, void *arg)
{
    lines *all = arg;
    const char *kind, *state;
    double value;
    FSDP_TRY(fsdp_json_get_str(line, "kind", &kind));
    FSDP_TRY(fsdp_json_opt_str(line, "state", "", &state));
    FSDP_TRY(fsdp_json_get_f64(line, "step", &all->last_step));
    FSDP_TRY(fsdp_json_get_f64(line, "time", &value));
    strcat(strcat(all->kinds, kind), " ");
    if (*state)
        strcat(strcat(all->states, state), " ");
    if (fsdp_json_has(line, "message")) {
        FSDP_TRY(fsdp_json_get_str(line, "message", &state));
        snprintf(all->message, sizeof all->message, "%s", state);
    }
    if (strcmp(kind, "units") == 0)
        return take_units(fsdp_json_find(line, "units"), all);
    if (strcmp(kind, "rank") != 0)
        return FSDP_OK;
    FSDP_TRY(fsdp_json_get_f64(line, "steps", &value));
    all->steps += value;
    FSDP_TRY(fsdp_json_get_f64(line, "seconds", &value));
    all->seconds += value;
    FSDP_TRY(fsdp_json_get_f64(line, "data_s", &value));
    all->data_s += value;
    FSDP_TRY(fsdp_json_get_f64(line, "cpu_s", &value));
    all->cpu_s += value;
    FSDP_TRY(fsdp_json_get_f64(line, "queued_s", &value));
    all->negative |= value < 0 || all->cpu_s < 0;
    const fsdp_json_node memory = fsdp_json_find(line, "memory");
    FSDP_TRY(fsdp_json_get_f64(memory, "allocated", &all->memory));
    all->tags = 0;
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
        FSDP_TRY(fsdp_json_get_f64(memory, fsdp_tag_name((fsdp_tag)tag), &value));
        all->tags += value;
    }
    return FSDP_OK;
}

static const char *file_of(fsdp_test *t, int rank)
{
    static _Thread_local char path[256];
    snprintf(path, sizeof path, "%s/%d.jsonl", fsdp_test_dir(t), rank);
    return path;
}

static fsdp_monitor_options options_of(fsdp_test *t, const chain *c)
{
    return (fsdp_monitor_options){.folder = fsdp_test_dir(t),
                                  .threads = 1,
                                  .groups = {t->group, t->group, NULL},
                                  .device = c->m.device,
                                  .module = c->units[CHAIN_UNITS - 1]};
}

TEST_RANKS(a_rank_reports_its_states_steps_memory_and_units, 2)
{
    const fsdp_fully_shard_options shard = {.mp_policy = {.param_dtype = FSDP_DTYPE_F32}};
    chain c;
    fsdp_monitor *m;
    lines all = {0};
    ASSERT_OK(chain_open(t->group, &shard, &c));
    const fsdp_monitor_options options = options_of(t, &c);
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    for (int step = 0; step < 3; step++) {
        fsdp_monitor_step_begin(m);
        ASSERT_OK(chain_run(&c, step));
        fsdp_monitor_step_end(m, step + 1, 0.25, 0.0625);
    }
    fsdp_monitor_at(m, "validation");
    fsdp_monitor_at(m, "validation"); /* no change, no line */
    ASSERT(fsdp_monitor_failure(m) == NULL);
    fsdp_monitor_close(m, NULL);
    ASSERT_OK(fsdp_metrics_for_each(file_of(t, t->rank), take_line, &all));
    ASSERT_STR(all.states, "training training validation validation ended ");
    ASSERT_STR(all.kinds, "start rank rank units rank rank units end ");
    ASSERT_INT((int64_t)all.steps, 3);
    ASSERT_INT((int64_t)(all.seconds * 100), 75);
    ASSERT_INT((int64_t)(all.data_s * 10000), 1875);
    ASSERT(!all.negative);
    ASSERT_INT((int64_t)all.last_step, 3);
    ASSERT_INT((int64_t)all.memory, (int64_t)all.tags);
    ASSERT(all.memory > 0);
    ASSERT_INT(all.units, CHAIN_UNITS);
    ASSERT(all.gathers >= 3 * CHAIN_UNITS);
    ASSERT_INT(all.reduces, 3 * CHAIN_UNITS);
    /* After the monitor was closed, units do not report. */
    ASSERT_OK(chain_run(&c, 3));
    ASSERT_OK(chain_close(&c));
}

/* A barrier and an all-reduce of which rank 1 is late, before a step and between two micro-steps.
 * The units' sum is compared with the counters of the group, not with a clock. */
TEST_RANKS(waits_in_collectives_of_no_unit_are_added_to_no_unit, 2)
{
    const fsdp_fully_shard_options shard = {.mp_policy = {.param_dtype = FSDP_DTYPE_F32}};
    chain c;
    fsdp_monitor *m;
    lines all = {0};
    float norm = 1;
    ASSERT_OK(chain_open(t->group, &shard, &c));
    const fsdp_monitor_options options = options_of(t, &c);
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    const fsdp_comm_counters before = fsdp_group_get_counters(t->group);
    for (int step = 0; step < 2; step++) {
        usleep(t->rank == 1 ? 200000 : 0);
        ASSERT_OK(fsdp_barrier(t->group)); /* as a save does */
        fsdp_monitor_step_begin(m);
        ASSERT_OK(chain_micro_step(&c, step, 0, 2));
        usleep(t->rank == 1 ? 200000 : 0);
        ASSERT_OK(fsdp_all_reduce(t->group, &norm, 1, FSDP_DTYPE_F32, FSDP_REDUCE_SUM));
        ASSERT_OK(fsdp_barrier(t->group));
        ASSERT_OK(chain_micro_step(&c, step, 1, 2));
        fsdp_monitor_step_end(m, step + 1, 0.25, 0.0625);
    }
    const fsdp_comm_counters after = fsdp_group_get_counters(t->group);
    fsdp_monitor_close(m, NULL);
    ASSERT_OK(fsdp_metrics_for_each(file_of(t, t->rank), take_line, &all));
    double waits_s[FSDP_KIND_COUNT];
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        waits_s[kind] = (double)(after.wait_ns[kind] - before.wait_ns[kind]) * 1e-9;
    const double all_s =
        (double)(fsdp_comm_counters_wait_ns(&after) - fsdp_comm_counters_wait_ns(&before)) * 1e-9;
    const double other_s = waits_s[FSDP_KIND_BARRIER] + waits_s[FSDP_KIND_ALL_REDUCE];
    if (t->rank == 0)
        ASSERT(other_s > 0);
    ASSERT(all.wait_s <= all_s - other_s + 1e-6);
    ASSERT(all.wait_s >= waits_s[FSDP_KIND_ALL_GATHER] - 1e-6);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(a_failed_run_says_why_and_a_resumed_one_appends, 1)
{
    const fsdp_fully_shard_options shard = {0};
    chain c;
    fsdp_monitor *m;
    lines all = {0};
    ASSERT_OK(chain_open(t->group, &shard, &c));
    fsdp_monitor_options options = options_of(t, &c);
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    fsdp_monitor_close(m, "rows.csv: line 3: \"quoted\" \xff");
    options.append = true;
    options.step = 5;
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    fsdp_monitor_close(m, NULL);
    ASSERT_OK(fsdp_metrics_for_each(file_of(t, 0), take_line, &all));
    ASSERT_STR(all.kinds, "start rank units end start rank units end ");
    ASSERT_STR(all.states, "starting failed starting ended ");
    ASSERT_STR(all.message, "rows.csv: line 3: \"quoted\" "); /* up to what is no UTF-8 */
    ASSERT_INT((int64_t)all.last_step, 5);
    options.append = false; /* a new run begins the file again */
    all = (lines){0};
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    fsdp_monitor_close(m, NULL);
    ASSERT_OK(fsdp_metrics_for_each(file_of(t, 0), take_line, &all));
    ASSERT_STR(all.kinds, "start rank units end ");
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(a_full_disk_stops_the_reports_but_not_the_run, 1)
{
    const fsdp_fully_shard_options shard = {0};
    chain c;
    fsdp_monitor *m;
    struct rlimit before, limit;
    ASSERT_OK(chain_open(t->group, &shard, &c));
    const fsdp_monitor_options options = options_of(t, &c);
    ASSERT_OK(fsdp_monitor_open(&options, &m));
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){64, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    fsdp_monitor_at(m, "validation");
    setrlimit(RLIMIT_FSIZE, &before);
    const char *failure = fsdp_monitor_failure(m);
    ASSERT(failure && strstr(failure, "0.jsonl: "));
    ASSERT(fsdp_monitor_failure(m) == NULL); /* it is said once */
    fsdp_monitor_step_begin(m);
    ASSERT_OK(chain_run(&c, 0));
    fsdp_monitor_step_end(m, 1, 0.5, 0);
    fsdp_monitor_close(m, NULL);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(opening_fails_cleanly_without_memory_or_folder, 1)
{
    const fsdp_fully_shard_options shard = {0};
    chain c;
    fsdp_monitor *m = NULL;
    ASSERT_OK(chain_open(t->group, &shard, &c));
    fsdp_monitor_options options = options_of(t, &c);
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; n < 100 && status != FSDP_OK; n++) {
        fsdp_alloc_fail_at(n);
        status = fsdp_monitor_open(&options, &m);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
    }
    ASSERT_INT(status, FSDP_OK);
    fsdp_monitor_close(m, NULL);
    options.folder = "/nonexistent-folder";
    ASSERT_ERROR(fsdp_monitor_open(&options, &m), FSDP_ERR_IO, "/nonexistent-folder/0.jsonl");
    ASSERT_OK(chain_close(&c));
}
