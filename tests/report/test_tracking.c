/* Rows go to each place that was chosen: JSON lines, CSV, event files and a program. The program
 * may end or hang without harm to the run. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/report/log_csv.h"
#include "src/report/metrics_csv.h"
#include "src/report/run_curves.h"
#include "src/report/tracking.h"
#include "tests/test.h"

static char said[1000];

static void say(void *context, const char *message)
{
    (void)context;
    snprintf(said, sizeof said, "%s", message);
}

static const char *in(fsdp_test *t, const char *name)
{
    static char paths[4][300];
    static int turn;
    char *path = paths[turn = (turn + 1) % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fsdp_test_dir(t), name);
    return path;
}

static const char *get(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file)
        fclose(file);
    return text;
}

static fsdp_status row(fsdp_tracking *tracking, const char *kind, int64_t step, double loss)
{
    fsdp_json_node line;
    FSDP_TRY(fsdp_tracking_begin(tracking, kind, &line));
    fsdp_json_set_i64(line, "step", step);
    fsdp_json_set_str(line, "loss", isnan(loss) ? "NaN" : NULL);
    if (!isnan(loss))
        fsdp_json_set_f64(line, "loss", loss);
    fsdp_json_set_f64(line, "lr", 0.1);
    fsdp_json_set_bool(line, "skipped", false);
    fsdp_json_set_i64(fsdp_json_set_object(line, "memory_peak"), "allocated", 77);
    return fsdp_tracking_write(tracking);
}

static fsdp_status config(fsdp_tracking *tracking)
{
    fsdp_json_node line;
    FSDP_TRY(fsdp_tracking_begin(tracking, "config", &line));
    fsdp_json_set_str(fsdp_json_set_object(line, "config"), "lr", "0.1");
    return fsdp_tracking_write(tracking);
}

static fsdp_status report(const fsdp_tracking_options *options, int64_t first, int64_t last)
{
    fsdp_tracking *tracking;
    FSDP_TRY(fsdp_tracking_open(options, &tracking));
    fsdp_status status = config(tracking);
    for (int64_t step = first; step <= last && status == FSDP_OK; step++)
        status = row(tracking, "step", step, 10.0 + (double)step);
    if (status == FSDP_OK)
        status = row(tracking, "validation", last, (double)NAN);
    if (status == FSDP_OK)
        status = row(tracking, "checkpoint", last, 1);
    fsdp_tracking_close(tracking, 5);
    return status;
}

TEST(a_row_goes_to_every_place)
{
    char command[400];
    fsdp_metrics_curves c;
    snprintf(command, sizeof command, "cat > '%s'", in(t, "lines"));
    const fsdp_tracking_options options = {.metrics = in(t, "m.jsonl"),
                                           .csv = in(t, "m.csv"),
                                           .events = in(t, "events"),
                                           .command = command,
                                           .say = say};
    *said = 0;
    ASSERT_OK(report(&options, 1, 2));
    ASSERT_STR(said, "");
    ASSERT_STR(get(in(t, "m.csv")),
               "kind,step,epoch,loss,grad_norm,lr,perplexity,accuracy,f1,tokens,seconds,"
               "tokens_per_s,loss_scale,skipped,label_tokens,memory_peak,f1_macro,mse,pearson,"
               "spearmanr,rouge1,rouge2,rougeL,rougeLsum,gen_len\n"
               "step,1,,11.0,,0.1,,,,,,,,false,,77,,,,,,,,,\n"
               "step,2,,12.0,,0.1,,,,,,,,false,,77,,,,,,,,,\n"
               "validation,2,,nan,,0.1,,,,,,,,false,,77,,,,,,,,,\n");
    static char metrics[4096];
    snprintf(metrics, sizeof metrics, "%s", get(in(t, "m.jsonl")));
    ASSERT(strncmp(metrics, "{\"kind\": \"step\", \"step\": 1, \"loss\": 11.0", 40) == 0);
    const char *lines = get(in(t, "lines"));
    const char *config_line = "{\"kind\": \"config\", \"config\": {\"lr\": \"0.1\"}}\n";
    ASSERT(strncmp(lines, config_line, strlen(config_line)) == 0);
    ASSERT_STR(lines + strlen(config_line), metrics);
    ASSERT_OK(fsdp_run_curves_read(in(t, "events"), &c));
    ASSERT_INT(c.loss.len, 2);
    ASSERT_F32(c.loss.points[1].value, 12);
    ASSERT_INT(c.validation.len, 1);
    ASSERT(isnan(c.validation.points[0].value));
    fsdp_metrics_curves_fini(&c);
}

TEST(a_resumed_run_continues_every_file)
{
    fsdp_tracking_options options = {
        .metrics = in(t, "m.jsonl"), .csv = in(t, "m.csv"), .events = in(t, "events")};
    fsdp_metrics_curves c;
    ASSERT_OK(report(&options, 1, 5));
    options.resumed = true;
    options.step = 3;
    ASSERT_OK(report(&options, 4, 4));
    const char *csv = get(in(t, "m.csv"));
    ASSERT(strstr(csv, "\nstep,3,") && strstr(csv, "\nstep,4,") && !strstr(csv, "\nstep,5,"));
    ASSERT(!strstr(csv, "\nvalidation,5,") && strstr(csv, "\nvalidation,4,"));
    ASSERT_OK(fsdp_run_curves_read(in(t, "events"), &c));
    ASSERT_INT(c.loss.len, 4);
    fsdp_metrics_curves_fini(&c);
    ASSERT_OK(fsdp_run_curves_read(in(t, "m.jsonl"), &c));
    ASSERT_INT(c.loss.len, 4);
    fsdp_metrics_curves_fini(&c);
}

TEST(a_torn_last_line_of_csv_is_removed_and_another_file_is_refused)
{
    fsdp_metrics_csv *csv;
    const char *path = in(t, "m.csv");
    ASSERT_OK(fsdp_metrics_csv_open(path, -1, &csv));
    fsdp_metrics_csv_close(csv);
    FILE *file = fopen(path, "a");
    fputs("step,1,1\nstep,2", file);
    fclose(file);
    ASSERT_OK(fsdp_metrics_csv_open(path, 9, &csv));
    fsdp_metrics_csv_close(csv);
    ASSERT(fsdp_ends_with(get(path), "gen_len\nstep,1,1\n"));
    ASSERT_OK(fsdp_file_write(path, "text,headline\n", 14));
    ASSERT_ERROR(fsdp_metrics_csv_open(path, 9, &csv), FSDP_ERR_FORMAT, "m.csv");
}

/* The file is larger than 100 MB, the limit for files that are read as a whole. */
TEST(a_long_run_resumes_its_csv)
{
    static const char step[] = "step,99,1\n";
    fsdp_metrics_csv *csv;
    const char *path = in(t, "m.csv");
    char *block = fsdp_calloc(100000, sizeof step - 1);
    ASSERT(block);
    for (int i = 0; i < 100000; i++)
        memcpy(block + (size_t)i * (sizeof step - 1), step, sizeof step - 1);
    ASSERT_OK(fsdp_metrics_csv_open(path, -1, &csv));
    fsdp_metrics_csv_close(csv);
    FILE *file = fopen(path, "a");
    fputs("step,1,1\n", file);
    for (int i = 0; i < 101; i++)
        ASSERT(fwrite(block, 100000, sizeof step - 1, file) == sizeof step - 1);
    fputs("step,2,1\n", file);
    ASSERT(fclose(file) == 0);
    fsdp_free(block);
    ASSERT_OK(fsdp_metrics_csv_open(path, 9, &csv));
    fsdp_metrics_csv_close(csv);
    ASSERT(fsdp_ends_with(get(path), "gen_len\nstep,1,1\nstep,2,1\n"));
}

/* No step of the run fails when the program does, and the default action of SIGPIPE stays. */
TEST(a_program_that_dies_does_not_end_the_run)
{
    struct sigaction action;
    fsdp_tracking *tracking;
    const fsdp_tracking_options options = {.command = "read line; exit 7", .say = say};
    signal(SIGPIPE, SIG_DFL);
    *said = 0;
    ASSERT_OK(fsdp_tracking_open(&options, &tracking));
    for (int64_t step = 0; step < 10000 && !*said; step++)
        ASSERT_OK(row(tracking, "step", step, 1));
    ASSERT(strstr(said, "exit code 7 during the run"));
    *said = 0;
    ASSERT_OK(row(tracking, "step", 2, 1));
    fsdp_tracking_close(tracking, 5);
    ASSERT_STR(said, "");
    sigaction(SIGPIPE, NULL, &action);
    ASSERT(action.sa_handler == SIG_DFL);
}

TEST(a_command_that_does_not_exist_is_named)
{
    const fsdp_tracking_options options = {.command = "no-such-program-here 2>/dev/null",
                                           .say = say};
    *said = 0;
    ASSERT_OK(report(&options, 1, 1));
    ASSERT(strstr(said, "127") && strstr(said, "no-such-program-here"));
}

TEST(a_program_that_does_not_read_holds_up_nothing)
{
    fsdp_tracker_command *tracker;
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    *said = 0;
    const double begin = fsdp_clock_s();
    ASSERT_OK(fsdp_tracker_command_start("exec sleep 60", say, NULL, &tracker));
    for (int i = 0; i < 20; i++)
        ASSERT_OK(fsdp_tracker_command_send(tracker, line, sizeof line));
    ASSERT(strstr(said, "does not read"));
    fsdp_tracker_command_close(tracker, 0.1);
    ASSERT(strstr(said, "is stopped"));
    ASSERT(fsdp_clock_s() - begin < 30);
}

/* As in JSON lines: steps that a resumed run repeats count once, and NaN is a value. */
TEST(a_csv_file_is_read_as_curves)
{
    static const char header[] = "step,kind,loss,seconds,mine\n";
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "m.csv:1: the file is empty"},
        {"text,label\na,b\n", "m.csv:1: not a CSV file of metrics: its columns must include kind"},
        {"kind,step,loss\nstep,1\n", "m.csv:2: the line has another number of columns"},
        {"kind,step,loss\nstep,1,2\nstep,x,2\n", "m.csv:3: a value is not a number"},
        {"kind,step,loss\nstep,1, 2\n", "m.csv:2: a value is not a number"},
        {"kind,step,loss\nstep,,2\n", "m.csv:2: the row has no step"}};
    const char *path = in(t, "m.csv");
    char text[300];
    fsdp_metrics_curves c;
    snprintf(text, sizeof text,
             "%s1,step,4.5,2,a\n2,step,3,,b\n2,validation,3.5,,\n2,step,nan,8,\n3,epoch,x,,\n"
             "3,step,1,1,c\n4,step,1,1",
             header);
    ASSERT_OK(fsdp_file_write(path, text, strlen(text)));
    ASSERT_OK(fsdp_run_curves_read(path, &c));
    ASSERT_INT(c.loss.len, 3); /* the fourth is being written */
    ASSERT_F32(c.loss.points[0].value, 4.5);
    ASSERT(isnan(c.loss.points[1].value));
    ASSERT_INT(c.validation.len, 1);
    ASSERT_INT(c.lr.len, 0);
    ASSERT_INT(c.seconds.len, 3);
    ASSERT_F32(c.seconds.points[1].value, 8);
    ASSERT(!c.is_float32);
    fsdp_metrics_curves_fini(&c);
    for (size_t i = 0; i < FSDP_LENGTH(wrong); i++) {
        ASSERT_OK(fsdp_file_write(path, wrong[i].text, strlen(wrong[i].text)));
        ASSERT_ERROR(fsdp_run_curves_read(path, &c), FSDP_ERR_FORMAT, wrong[i].message);
    }
    ASSERT_OK(fsdp_file_write(path, "kind,step,loss\nst\0p,1,2\n", 24));
    ASSERT_ERROR(fsdp_run_curves_read(path, &c), FSDP_ERR_FORMAT, "m.csv:2: the line has a NUL");
    ASSERT_ERROR(fsdp_run_curves_read(in(t, "none.csv"), &c), FSDP_ERR_NOT_FOUND, "none.csv");
}

static fsdp_status log_row(fsdp_log_csv *csv, const char *name, double value)
{
    fsdp_json *doc;
    FSDP_TRY(fsdp_json_create("row", &doc));
    fsdp_json_node line = fsdp_json_root(doc);
    fsdp_json_set_str(line, "kind", "log");
    fsdp_json_set_i64(line, "step", 1);
    fsdp_json_set_f64(line, name, value);
    const fsdp_status status = fsdp_log_csv_write(csv, line);
    fsdp_json_destroy(doc);
    return status;
}

TEST(a_log_continues_a_csv_file_and_refuses_others)
{
    static const char *const others[] = {"kind,step\n", "text\n",       "st",        "step,\"a\n",
                                         "kind,step",   "step,a\"\n",   "step,,a\n", "\n",
                                         "\"\"\n",      "step,\"a\"b\n"};
    static const char cut[] = "step,\"a \"\"b\"\"\",c\r\n1,2,3\r\n2,4,";
    const char *path = in(t, "log.csv");
    fsdp_log_csv *csv;
    ASSERT_OK(fsdp_file_write(path, cut, strlen(cut)));
    ASSERT_OK(fsdp_log_csv_open(path, &csv));
    ASSERT_STR(get(path), "step,\"a \"\"b\"\"\",c\r\n1,2,3\r\n"); /* a crash left the last line */
    ASSERT_OK(log_row(csv, "a \"b\"", 5));
    ASSERT_OK(log_row(csv, "d", 6));
    ASSERT_STR(get(path), "step,\"a \"\"b\"\"\",c,d\n1,2,3,\n1,5.0,,\n1,,,6.0\n");
    fsdp_log_csv_close(csv);
    ASSERT_OK(fsdp_file_write(path, "step,a", 6)); /* written by hand */
    ASSERT_OK(fsdp_log_csv_open(path, &csv));
    ASSERT_OK(log_row(csv, "a", 5));
    ASSERT_STR(get(path), "step,a\n1,5.0\n");
    fsdp_log_csv_close(csv);
    for (size_t i = 0; i < FSDP_LENGTH(others); i++) {
        ASSERT_OK(fsdp_file_write(path, others[i], strlen(others[i])));
        ASSERT_ERROR(fsdp_log_csv_open(path, &csv), FSDP_ERR_FORMAT,
                     "log.csv: not a CSV file that");
        ASSERT_STR(get(path), others[i]);
    }
    fsdp_status status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        ASSERT_OK(fsdp_file_write(path, "step,a\n1,2\n", 11));
        fsdp_alloc_fail_at(n);
        csv = NULL;
        status = fsdp_log_csv_open(path, &csv);
        if (status == FSDP_OK)
            status = log_row(csv, "b", 3);
        fsdp_alloc_fail_at(0);
        fsdp_log_csv_close(csv);
        ASSERT(strncmp(get(path), "step,a", 6) == 0 && strstr(get(path), "\n1,2"));
    }
    ASSERT_STR(get(path), "step,a,b\n1,2,\n1,,3.0\n");
}

/* The file is larger than any part of it that is read at one time. */
TEST(a_log_continues_a_large_csv_file)
{
    enum {
        ROWS = 1 << 18,
        TIMES = 110 /* times 1 MiB */
    };
    static char part[4 * ROWS + 1];
    const char *path = in(t, "large.csv");
    fsdp_log_csv *csv;
    char last[64] = "";
    for (size_t i = 0; i < ROWS; i++)
        memcpy(part + 4 * i, "1,2\n", 4);
    FILE *f = fopen(path, "w");
    ASSERT(f && fputs("step,a\n", f) >= 0);
    for (size_t i = 0; i < TIMES; i++)
        ASSERT_INT(fwrite(part, 1, sizeof part - 1, f), sizeof part - 1);
    ASSERT(fputs("3,4\n5", f) >= 0 && fclose(f) == 0); /* a crash left the last line */
    ASSERT_OK(fsdp_log_csv_open(path, &csv));
    ASSERT_OK(log_row(csv, "b", 6));
    fsdp_log_csv_close(csv);
    f = fopen(path, "r");
    ASSERT(f && fgets(last, sizeof last, f));
    ASSERT_STR(last, "step,a,b\n");
    ASSERT(fseek(f, -12, SEEK_END) == 0);
    ASSERT_INT(ftell(f), 9 + TIMES * (int64_t)ROWS * 5);
    last[fread(last, 1, sizeof last - 1, f)] = 0;
    ASSERT_STR(last, "3,4,\n1,,6.0\n");
    fclose(f);
    ASSERT(remove(path) == 0);
}

/* metrics.jsonl says most, then event files. */
TEST(what_a_folder_means_is_found)
{
    fsdp_run_kind kind;
    char *path;
    ASSERT_ERROR(fsdp_run_find(fsdp_test_dir(t), &kind, &path), FSDP_ERR_NOT_FOUND, "metrics.csv");
    ASSERT_OK(fsdp_file_write(in(t, "metrics.csv"), "x\n", 2));
    ASSERT_OK(fsdp_run_find(fsdp_test_dir(t), &kind, &path));
    ASSERT(kind == FSDP_RUN_CSV);
    ASSERT_STR(path, in(t, "metrics.csv"));
    fsdp_free(path);
    ASSERT_OK(fsdp_file_write(in(t, "events.out.tfevents.1"), "x\n", 2));
    ASSERT_OK(fsdp_run_find(fsdp_test_dir(t), &kind, &path));
    ASSERT(kind == FSDP_RUN_EVENTS);
    ASSERT_STR(path, fsdp_test_dir(t));
    fsdp_free(path);
    ASSERT_OK(fsdp_file_write(in(t, "metrics.jsonl"), "x\n", 2));
    ASSERT_OK(fsdp_run_find(fsdp_test_dir(t), &kind, &path));
    ASSERT(kind == FSDP_RUN_METRICS);
    fsdp_free(path);
}

TEST(failing_allocations_leak_nothing)
{
    const fsdp_tracking_options options = {.metrics = in(t, "m.jsonl"),
                                           .csv = in(t, "m.csv"),
                                           .events = in(t, "events"),
                                           .resumed = true,
                                           .step = 1};
    fsdp_status status = FSDP_ERR_NOMEM;
    for (uint64_t n = 1; status != FSDP_OK; n++) {
        ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_alloc_fail_at(n);
        status = report(&options, 2, 3);
        fsdp_alloc_fail_at(0);
    }
    ASSERT(strstr(get(in(t, "m.csv")), "step,3,"));
}
