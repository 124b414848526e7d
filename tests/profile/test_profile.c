/* A profiled step: rows that add up, and one file with all ranks in a form that a viewer accepts.
 */
#include "src/profile/profile.h"

#include <stdlib.h>

#include <fsdp/tensor.h>
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/bench/bench.h"
#include "src/models/model_type.h"
#include "src/trace/trace.h"
#include "tests/test.h"
#include "tests/train/odd_models.h"

static void print_stage(void *arg, fsdp_bench_stage stage)
{
    (void)arg, (void)stage;
}

/* Number of events in a file, by kind. */
typedef struct counts {
    int matmul, sharding, waiting, optimizer, data, backward, counters, names, steps;
} counts;

static void count_event(fsdp_test *t, fsdp_json_node event, counts *c)
{
    const char *ph, *name, *cat;
    double ts, dur;
    ASSERT_OK(fsdp_json_get_str(event, "ph", &ph));
    ASSERT_OK(fsdp_json_get_str(event, "name", &name));
    if (strcmp(ph, "M") == 0) {
        c->names++;
        return;
    }
    ASSERT_OK(fsdp_json_get_f64(event, "ts", &ts));
    ASSERT(ts >= 0.0);
    if (strcmp(ph, "C") == 0) {
        fsdp_json_node args;
        ASSERT_OK(fsdp_json_get_object(event, "args", &args));
        ASSERT_INT(fsdp_json_len(args), FSDP_TAG_COUNT);
        c->counters++;
        return;
    }
    ASSERT_STR(ph, "X");
    ASSERT_OK(fsdp_json_get_f64(event, "dur", &dur));
    ASSERT_OK(fsdp_json_get_str(event, "cat", &cat));
    ASSERT(dur >= 0.0);
    c->matmul += strcmp(cat, "matmul") == 0;
    c->sharding += strcmp(cat, "sharding") == 0;
    c->waiting += strcmp(cat, "waiting") == 0;
    c->optimizer += strcmp(cat, "optimizer") == 0;
    c->data += strcmp(cat, "data") == 0;
    c->backward += strcmp(name, "linear backward") == 0;
    c->steps += strcmp(name, "step") == 0;
}

/* The file has one process for each rank, with all kinds of events. */
static void check_file(fsdp_test *t, const char *path, int64_t ranks, int steps)
{
    fsdp_json *doc;
    fsdp_json_node events;
    counts of[2] = {0};
    ASSERT_OK(fsdp_json_read(path, &doc));
    ASSERT_OK(fsdp_json_get_array(fsdp_json_root(doc), "traceEvents", &events));
    for (size_t i = 0; i < fsdp_json_len(events); i++) {
        int64_t pid;
        ASSERT_OK(fsdp_json_get_i64(fsdp_json_at(events, i), "pid", 0, ranks - 1, &pid));
        count_event(t, fsdp_json_at(events, i), &of[pid]);
        CHECK_HERE();
    }
    for (int64_t r = 0; r < ranks; r++) {
        const counts *c = &of[r];
        ASSERT(c->matmul && c->sharding && c->optimizer && c->data && c->counters && c->backward);
        ASSERT_INT(c->steps, steps);
        ASSERT(c->names >= 5);
    }
    fsdp_json_destroy(doc);
}

static fsdp_status profile_run(fsdp_test *t, const char *path, const char *steps, FILE *out,
                               fsdp_bench_result *result)
{
    fsdp_bench_config c = {.shape = odd_t5,
                           .shape_name = "odd",
                           .dtype = FSDP_DTYPE_BF16,
                           .threads = 1,
                           .batch = 2,
                           .source = 10,
                           .target = 6,
                           .steps = 5,
                           .profile = path,
                           .profile_steps = steps,
                           .profile_out = out};
    return fsdp_bench_train(&c, t->group, print_stage, NULL, result);
}

/* Sends the path of the directory that rank 0 made. */
static void share_path(fsdp_test *t, char path[256])
{
    if (t->rank == 0)
        snprintf(path, 256, "%s/trace.json", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, path, 256, 0));
}

static void check_profile(fsdp_test *t)
{
    char path[256] = "", *text = NULL;
    size_t bytes = 0;
    fsdp_bench_result r;
    FILE *out = open_memstream(&text, &bytes);
    ASSERT(out);
    share_path(t, path);
    CHECK_HERE();
    ASSERT_OK(profile_run(t, path, "2:3", out, &r));
    fclose(out);
    ASSERT_INT(r.n_where, FSDP_PROFILE_ROWS);
    for (size_t i = 0; i < r.n_where; i++)
        if (strcmp(r.where[i].name, "sharding itself") == 0)
            ASSERT(r.where[i].cpu_share > 0.0 && r.where[i].cpu_share < 1.0);
    if (t->rank == 0) {
        ASSERT(strstr(text, "sharding itself") && strstr(text, "linear backward"));
        check_file(t, path, t->world_size, 2);
    } else {
        ASSERT_INT(bytes, 0);
    }
    free(text);
}

TEST_RANKS(one_rank_writes_a_trace, 1)
{
    check_profile(t);
}
TEST_RANKS(two_ranks_write_one_trace, 2)
{
    check_profile(t);
}

TEST_RANKS(a_trace_that_cannot_be_written_is_an_error_on_all_ranks, 2)
{
    fsdp_bench_result r;
    ASSERT_ERROR(profile_run(t, "/proc/none/trace.json", NULL, NULL, &r), FSDP_ERR_NOT_FOUND,
                 "/proc/none/trace.json");
    ASSERT_ERROR(profile_run(t, "trace.json", "4:6", NULL, &r), FSDP_ERR_INVALID,
                 "the run has 5 steps");
    ASSERT(!fsdp_path_is_file("trace.json"));
}

/* Profiles one step of a window of one. */
static fsdp_status profile_one_step(fsdp_group *group, const char *path)
{
    fsdp_profile *p;
    FSDP_TRY(fsdp_profile_create(group, &(fsdp_profile_options){.path = path, .n_steps = 1}, &p));
    fsdp_status status = fsdp_profile_step_begin(p);
    if (status == FSDP_OK)
        status = fsdp_barrier(group);
    if (status == FSDP_OK)
        status = fsdp_profile_step_end(p);
    fsdp_profile_destroy(p);
    return status;
}

TEST_RANKS(the_file_is_rank_0s_to_choose, 2)
{
    char path[256] = "";
    share_path(t, path);
    CHECK_HERE();
    ASSERT_OK(profile_one_step(t->group, t->rank == 0 ? NULL : path));
    ASSERT(!fsdp_path_is_file(path));
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(profile_one_step(t->group, t->rank == 0 ? path : NULL));
    ASSERT(fsdp_path_is_file(path));
    ASSERT_OK(fsdp_barrier(t->group));
}

/* Rows without a file; steps outside the window do not count. */
TEST_RANKS(rows_add_up_to_the_step, 2)
{
    fsdp_profile *p, *other;
    const fsdp_profile_options options = {.first_step = 1, .n_steps = 2};
    double ms = 0.0, share = 0.0, cpu_share = 0.0;
    size_t n;
    ASSERT_OK(fsdp_profile_create(t->group, &options, &p));
    ASSERT_OK(fsdp_profile_create(t->group, NULL, &other));
    for (int step = 0; step < 5; step++) {
        (void)fsdp_profile_rows(p, &n);
        ASSERT_INT(n, step < 3 ? 0 : 9);
        ASSERT_OK(fsdp_profile_step_begin(p));
        if (step == 1)
            ASSERT_ERROR(fsdp_profile_step_begin(other), FSDP_ERR_STATE, "already");
        ASSERT_OK(fsdp_barrier(t->group));
        ASSERT_OK(fsdp_profile_step_end(p));
    }
    const fsdp_profile_row *rows = fsdp_profile_rows(p, &n);
    for (size_t i = 0; i + 1 < n; i++) {
        ms += rows[i].ms;
        share += rows[i].share;
        cpu_share += rows[i].cpu_share;
    }
    ASSERT_STR(rows[n - 1].name, "step");
    ASSERT_NEAR(ms, rows[n - 1].ms, 1e-9 * ms);
    ASSERT_NEAR(share, 1.0, 1e-9);
    ASSERT_NEAR(cpu_share, 1.0, 1e-9);
    fsdp_profile_destroy(other);
    fsdp_profile_destroy(p);
}

/* Nothing of a failed step is counted, and the window still has two whole steps. */
TEST(a_step_that_fails_restarts_the_window)
{
    static const char *const laps[] = {"whole", "failed", "kept", "kept"};
    fsdp_profile *p;
    fsdp_profile_name names[FSDP_PROFILE_NAMES];
    size_t n;
    ASSERT_OK(fsdp_profile_create(NULL, &(fsdp_profile_options){.n_steps = 2}, &p));
    for (int step = 0; step < 4; step++) {
        ASSERT_OK(fsdp_profile_step_begin(p));
        fsdp_trace_lap(FSDP_TRACE_OPERATION, laps[step], NULL);
        (void)fsdp_profile_rows(p, &n);
        ASSERT_INT(n, 0);
        if (step != 1)
            ASSERT_OK(fsdp_profile_step_end(p));
    }
    (void)fsdp_profile_rows(p, &n);
    ASSERT_INT(n, FSDP_PROFILE_ROWS);
    int kept = 0;
    ASSERT_OK(fsdp_profile_names(p, names, &n));
    for (size_t i = 0; i < n; i++) {
        ASSERT(strcmp(names[i].name, "failed") != 0 && strcmp(names[i].name, "whole") != 0);
        kept += strcmp(names[i].name, "kept") == 0 && names[i].calls == 1.0;
    }
    ASSERT_INT(kept, 1);
    fsdp_profile_destroy(p);
}

TEST(windows_are_steps_from_1_on)
{
    fsdp_profile_options o;
    int64_t first, last;
    ASSERT_OK(fsdp_profile_parse_steps("--profile-steps", "4:6", &first, &last));
    ASSERT(first == 4 && last == 6);
    ASSERT_OK(fsdp_profile_parse_steps("--profile-steps", "7", &first, &last));
    ASSERT(first == 7 && last == 7);
    static const char *const bad[] = {
        "",   ":",     "0:3",  "3:2",  "a",
        "1:", "1:2:3", "-1:2", "1:2 ", "99999999999999999999:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ASSERT_ERROR(fsdp_profile_parse_steps("--profile-steps", bad[i], &first, &last),
                     FSDP_ERR_INVALID, "--profile-steps");
    ASSERT_OK(fsdp_profile_choose_steps("--profile-steps", NULL, 0, 100, &o));
    ASSERT(o.first_step == 3 && o.n_steps == 3);
    ASSERT_OK(fsdp_profile_choose_steps("--profile-steps", NULL, 0, 5, &o));
    ASSERT(o.first_step == 2 && o.n_steps == 3);
    ASSERT_OK(fsdp_profile_choose_steps("--profile-steps", NULL, 0, 2, &o));
    ASSERT(o.first_step == 0 && o.n_steps == 2);
    /* a resumed run: steps count from the run's start, but the profile counts those of this process
     */
    ASSERT_OK(fsdp_profile_choose_steps("--profile-steps", NULL, 10, 12, &o));
    ASSERT(o.first_step == 0 && o.n_steps == 2);
    ASSERT_OK(fsdp_profile_choose_steps("--profile-steps", "11:12", 4, 12, &o));
    ASSERT(o.first_step == 6 && o.n_steps == 2);
    ASSERT_ERROR(fsdp_profile_choose_steps("--profile-steps", "4:6", 4, 12, &o), FSDP_ERR_INVALID,
                 "--profile-steps 4:6: the run continues after step 4");
}
