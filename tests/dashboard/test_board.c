/* What the dashboard finds in folders and answers: runs, checkpoints and logs, hostile names, links
 * that lead elsewhere, and which requests are let in. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/base/str.h"
#include "src/dashboard/answer.h"
#include "src/dashboard/assets.h"
#include "src/dashboard/beneath.h"
#include "src/dashboard/board.h"
#include "src/dashboard/gate.h"
#include "src/dashboard/json_text.h"
#include "src/dashboard/run.h"
#include "src/dashboard/server.h"
#include "src/report/tracking.h"
#include "tests/dashboard/folder.h"
#include "tests/test.h"

#define STEP_1 "{\"kind\": \"step\", \"step\": 1, \"loss\": 3.5, \"seconds\": 2, \"tokens\": 10}\n"
#define STEP_2                                                                                     \
    "{\"kind\": \"step\", \"step\": 2, \"loss\": \"NaN\", \"seconds\": 1, \"tokens\": 10}\n"
#define VALIDATION                                                                                 \
    "{\"kind\": \"validation\", \"step\": 2, \"loss\": 3.25, \"accuracy\": 0.5, \"seconds\": 1}\n"

/* Let the reader take turns until nothing is left to do. */
static fsdp_status settle(fsdp_board *board)
{
    int pause_ms;
    do {
        FSDP_TRY(fsdp_board_turn(board, &pause_ms));
    } while (pause_ms < 100);
    return FSDP_OK;
}

static fsdp_status open_board(const folder *f, fsdp_board **board)
{
    FSDP_TRY(fsdp_board_create(&f->path, 1, false, board));
    return settle(*board);
}

static fsdp_status parse(fsdp_str *answer, fsdp_json **doc)
{
    const size_t bytes = answer->len;
    char *text = fsdp_str_take(answer);
    const fsdp_status status =
        text ? fsdp_json_parse("answer", 1, text, bytes, doc) : FSDP_ERR_NOMEM;
    fsdp_free(text);
    return status;
}

static fsdp_status ask_runs(fsdp_board *board, int64_t since, fsdp_json **doc)
{
    fsdp_str answer = {0};
    fsdp_answer_runs(board, since, &answer);
    return parse(&answer, doc);
}

static fsdp_json_node run_of(fsdp_json *doc, size_t i)
{
    return fsdp_json_at(fsdp_json_find(fsdp_json_root(doc), "runs"), i);
}

static const char *text_of(fsdp_json_node node, const char *key)
{
    const char *text;
    return fsdp_json_get_str(node, key, &text) == FSDP_OK ? text : "?";
}

static double number_of(fsdp_json_node node, const char *key)
{
    double value;
    return fsdp_json_get_f64(node, key, &value) == FSDP_OK ? value : -1;
}

TEST(runs_are_found_and_their_curves_answered)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    folder_open(t, &f);
    folder_make(&f, "out");
    folder_make(&f, "out/runs");
    folder_put(&f, "out/runs/metrics.jsonl", STEP_1 STEP_2 VALIDATION "{\"kind\": \"sum");
    folder_put(&f, "rows.jsonl", "{\"input_ids\": [1], \"labels\": [2]}\n"); /* data, no run */
    folder_put(&f, "second.jsonl", STEP_1);
    folder_make(&f, "third.ranks");
    folder_put(&f, "third.jsonl", ""); /* it has just begun */
    folder_put(&f, "third.ranks/run.json",
               "{\"config\": {\"lr\": \"0.1\", \"a\": NaN}, \"total_steps\": 9, \"b\": [1]}");
    folder_put(&f, "third.ranks/0.jsonl",
               "{\"kind\": \"start\", \"world_size\": 1, \"host\": \"h\"}\n");
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_INT(fsdp_json_len(fsdp_json_find(fsdp_json_root(doc), "runs")), 3);
    fsdp_json_node run = run_of(doc, 0), curves = fsdp_json_find(run, "curves");
    ASSERT_STR(text_of(run, "name"), "out/runs");
    ASSERT_INT((int64_t)number_of(run, "step"), 2);
    ASSERT_INT((int64_t)(100 * number_of(run, "best_loss")), 325);
    ASSERT_INT((int64_t)number_of(run, "tokens_per_step"), 10);
    ASSERT_INT((int64_t)number_of(run, "bad_lines"), 0);
    const fsdp_json_node loss = fsdp_json_find(curves, "train/loss");
    ASSERT_INT(fsdp_json_len(fsdp_json_find(loss, "mean")), 2);
    ASSERT_INT((int64_t)number_of(loss, "not_finite"), 1);
    ASSERT(fsdp_json_kind_of(fsdp_json_at(fsdp_json_find(loss, "mean"), 1)) == FSDP_JSON_NULL);
    ASSERT(fsdp_json_has(curves, "eval/accuracy"));
    ASSERT_STR(text_of(run_of(doc, 1), "name"), "second");
    run = run_of(doc, 2);
    ASSERT_STR(text_of(run, "name"), "third");
    ASSERT_STR(text_of(fsdp_json_find(fsdp_json_find(run, "description"), "config"), "lr"), "0.1");
    ASSERT_INT(fsdp_json_len(fsdp_json_find(run, "description")), 2); /* no NaN, no array */
    const int64_t since = (int64_t)number_of(fsdp_json_root(doc), "revision");
    fsdp_json_destroy(doc);
    /* Only what has changed is sent again. */
    folder_add(&f, "second.jsonl", VALIDATION);
    ASSERT_OK(settle(board));
    ASSERT_OK(ask_runs(board, since, &doc));
    ASSERT(!fsdp_json_has(run_of(doc, 0), "curves"));
    ASSERT(fsdp_json_has(fsdp_json_find(run_of(doc, 1), "curves"), "eval/loss"));
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* The whole time of a run includes what is outside of its steps, and the earlier runs that it
 * continues. */
TEST(the_whole_time_of_a_run_is_answered)
{
    static const char start[] = "{\"kind\": \"start\", \"time\": 1000, \"world_size\": 1}\n",
                      end[] = "{\"kind\": \"end\", \"time\": 1030, \"state\": \"ended\"}\n",
                      later[] = "{\"kind\": \"start\", \"time\": 5000, \"world_size\": 1}\n",
                      failed[] = "{\"kind\": \"end\", \"time\": 5012, \"state\": \"failed\"}\n",
                      summary[] = "{\"kind\": \"summary\", \"step\": 2, \"total_s\": 31}\n";
    char going[128];
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(going, sizeof going, "{\"kind\": \"start\", \"time\": %.0f, \"world_size\": 1}\n",
             (double)now.tv_sec - 100);
    folder_open(t, &f);
    folder_put(&f, "a_ended.jsonl", STEP_1 STEP_2);
    folder_make(&f, "a_ended.ranks");
    folder_put(&f, "a_ended.ranks/0.jsonl", start);
    folder_add(&f, "a_ended.ranks/0.jsonl", end);
    folder_put(&f, "b_summary.jsonl", STEP_1 STEP_2);
    folder_add(&f, "b_summary.jsonl", summary);
    folder_put(&f, "c_continued.jsonl", STEP_1 STEP_2);
    folder_add(&f, "c_continued.jsonl", summary);
    folder_add(&f, "c_continued.jsonl", STEP_2);
    folder_make(&f, "c_continued.ranks");
    folder_put(&f, "c_continued.ranks/0.jsonl", start);
    folder_add(&f, "c_continued.ranks/0.jsonl", end);
    folder_add(&f, "c_continued.ranks/0.jsonl", later);
    folder_add(&f, "c_continued.ranks/0.jsonl", failed);
    folder_put(&f, "d_going.jsonl", STEP_1 STEP_2);
    folder_make(&f, "d_going.ranks");
    folder_put(&f, "d_going.ranks/0.jsonl", going);
    snprintf(going, sizeof going, "{\"kind\": \"rank\", \"time\": %.0f, \"state\": \"training\"}\n",
             (double)now.tv_sec - 3);
    folder_add(&f, "d_going.ranks/0.jsonl", going);
    folder_put(&f, "e_steps.jsonl", STEP_1 STEP_2);
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_STR(text_of(run_of(doc, 0), "name"), "a_ended");
    ASSERT_INT((int64_t)number_of(run_of(doc, 0), "total_s"), 30);
    ASSERT_STR(text_of(run_of(doc, 1), "name"), "b_summary");
    ASSERT_INT((int64_t)number_of(run_of(doc, 1), "total_s"), 31);
    ASSERT_STR(text_of(run_of(doc, 1), "state"), "ended");
    ASSERT_STR(text_of(run_of(doc, 2), "name"), "c_continued");
    ASSERT_INT((int64_t)number_of(run_of(doc, 2), "total_s"), 42);
    ASSERT_STR(text_of(run_of(doc, 2), "state"), "failed");
    ASSERT_STR(text_of(run_of(doc, 3), "name"), "d_going");
    const double since_start = number_of(run_of(doc, 3), "total_s");
    ASSERT(since_start >= 100 && since_start < 110);
    ASSERT_STR(text_of(run_of(doc, 4), "name"), "e_steps");
    const double of_steps = number_of(run_of(doc, 4), "total_s");
    ASSERT(fabs(of_steps - number_of(run_of(doc, 4), "seconds")) < 1e-6 && of_steps > 0);
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

static size_t count_of(fsdp_json *doc, const char *list)
{
    return fsdp_json_len(fsdp_json_find(fsdp_json_root(doc), list));
}

/* Folders may overlap, or be the same under several names. */
TEST(a_run_is_shown_once_whatever_its_names_are)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    char out[512], runs[512], dots[512], whole[512], file[512], linked[512];
    folder_open(t, &f);
    folder_make(&f, "out");
    folder_make(&f, "out/runs");
    folder_make(&f, "out/checkpoint-3");
    folder_put(&f, "out/a.log", "text\n");
    folder_put(&f, "out/runs/metrics.jsonl", STEP_1);
    folder_put(&f, "other.jsonl", STEP_1);
    snprintf(file, sizeof file, "%s/other.jsonl", f.path);
    snprintf(linked, sizeof linked, "%s/linked.jsonl", f.path);
    ASSERT_INT(link(file, linked), 0);
    folder_make(&f, "events");
    folder_put(&f, "events/events.out.tfevents.1", "no event file");
    snprintf(whole, sizeof whole, "%s", f.path);
    snprintf(out, sizeof out, "%s/out/", f.path);
    snprintf(runs, sizeof runs, "%s/out/runs", f.path);
    snprintf(dots, sizeof dots, "%s/out/../out/runs/.", f.path);
    const char *const paths[] = {runs, out, dots, whole, whole, runs};
    ASSERT_OK(fsdp_board_create(paths, FSDP_LENGTH(paths), false, &board));
    ASSERT_OK(settle(board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_INT(count_of(doc, "runs"), 3); /* a run, the other one, and the event files */
    ASSERT_STR(text_of(run_of(doc, 0), "folder"), runs);
    ASSERT_INT((int64_t)number_of(run_of(doc, 0), "id"), 1);
    ASSERT_INT(count_of(doc, "checkpoints"), 1);
    ASSERT_INT(count_of(doc, "logs"), 1);
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* Those that --report-to tensorboard writes; a resumed run has a second file in the same folder. */
TEST(event_files_of_tensorboard_are_a_run)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    char path[512];
    folder_open(t, &f);
    folder_make(&f, "logs");
    snprintf(path, sizeof path, "%s/logs", f.path);
    for (int i = 0; i < 2; i++) {
        const fsdp_tracking_options options = {.events = path, .resumed = i > 0, .step = 1};
        fsdp_tracking *tracking;
        ASSERT_OK(fsdp_tracking_open(&options, &tracking));
        for (int step = 1 + i; step <= 2 + i; step++) {
            fsdp_json_node row;
            ASSERT_OK(fsdp_tracking_begin(tracking, "step", &row));
            fsdp_json_set_i64(row, "step", step);
            fsdp_json_set_f64(row, "loss", 4 + i);
            fsdp_json_set_f64(row, "lr", 0.5);
            ASSERT_OK(fsdp_tracking_write(tracking));
        }
        fsdp_tracking_close(tracking, 0);
    }
    folder_link(&f, "logs", "linked");
    folder_make(&f, "own");
    folder_put(&f, "own/metrics.jsonl", STEP_1);
    folder_put(&f, "own/events.out.tfevents.1", "not looked at");
    folder_make(&f, "damaged");
    folder_put(&f, "damaged/events.out.tfevents.1", "no event file");
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_INT(fsdp_json_len(fsdp_json_find(fsdp_json_root(doc), "runs")), 3);
    ASSERT_STR(text_of(run_of(doc, 0), "name"), "damaged");
    ASSERT_INT(fsdp_json_len(fsdp_json_find(run_of(doc, 0), "curves")), 0);
    const fsdp_json_node run = run_of(doc, 1), curves = fsdp_json_find(run, "curves");
    ASSERT_STR(text_of(run, "name"), "logs");
    ASSERT_INT((int64_t)number_of(run, "step"), 3);
    const fsdp_json_node mean = fsdp_json_find(fsdp_json_find(curves, "train/loss"), "mean");
    ASSERT_INT(fsdp_json_len(mean), 3);
    double value;
    ASSERT_OK(fsdp_json_get_f64(fsdp_json_at(mean, 1), NULL, &value));
    ASSERT_INT((int64_t)value, 5); /* step 2 of the resumed run */
    ASSERT(fsdp_json_has(curves, "train/lr"));
    ASSERT_STR(text_of(run_of(doc, 2), "name"), "own");
    fsdp_json_destroy(doc);
    /* A later scan finds that an event file has changed; the run is not silent then. */
    const struct timespec until_scan = {1, 100000000}, later[] = {{4102444800, 0}, {4102444800, 0}};
    char **names;
    size_t n;
    ASSERT_OK(fsdp_directory_list(path, &names, &n));
    ASSERT_INT(n, 2);
    char *file = fsdp_path_join(path, names[0]);
    ASSERT(utimensat(AT_FDCWD, file, later, 0) == 0);
    fsdp_free(file);
    fsdp_free(names);
    nanosleep(&until_scan, NULL);
    ASSERT_OK(settle(board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_INT((int64_t)number_of(run_of(doc, 1), "time"), 4102444800);
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* Its process was killed while it wrote the first line. */
TEST(a_rank_whose_file_has_no_whole_line_is_starting)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    folder_open(t, &f);
    folder_put(&f, "x.jsonl", "{}\n");
    folder_make(&f, "x.ranks");
    folder_put(&f, "x.ranks/0.jsonl", "{\"kind\": \"sta");
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_STR(text_of(run_of(doc, 0), "state"), "starting");
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

TEST(ranks_are_answered_with_samples_and_units)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    fsdp_str answer = {0};
    folder_open(t, &f);
    folder_put(&f, "m.jsonl", STEP_1);
    folder_make(&f, "m.ranks");
    for (int rank = 0; rank < 2; rank++) {
        char name[32];
        snprintf(name, sizeof name, "m.ranks/%d.jsonl", rank);
        folder_put(
            &f, name,
            "{\"kind\": \"start\", \"time\": 5, \"world_size\": 2, \"host\": \"elsewhere\"}\n"
            "{\"kind\": \"rank\", \"time\": 6, \"step\": 1, \"state\": \"training\", "
            "\"steps\": 1, \"seconds\": 2, \"memory\": {\"allocated\": 7, \"grad\": 7}}\n"
            "{\"kind\": \"units\", \"units\": [{\"name\": \"root\", \"wait_s\": 3}]}\n");
    }
    folder_put(&f, "m.ranks/2.jsonl", "{\"kind\": \"start\"}\n"); /* from an earlier, larger run */
    ASSERT_OK(open_board(&f, &board));
    ASSERT(fsdp_answer_run(board, 1, &answer));
    ASSERT_OK(parse(&answer, &doc));
    const fsdp_json_node root = fsdp_json_root(doc), ranks = fsdp_json_find(root, "ranks");
    ASSERT_STR(text_of(fsdp_json_at(ranks, 1), "state"), "silent"); /* its host is another one */
    ASSERT_INT(fsdp_json_len(fsdp_json_find(fsdp_json_at(ranks, 1), "samples")), 1);
    const fsdp_json_node unit = fsdp_json_at(fsdp_json_find(root, "units"), 0);
    ASSERT_STR(text_of(unit, "name"), "root");
    ASSERT_INT((int64_t)number_of(unit, "wait_s"), 3);
    fsdp_json_destroy(doc);
    ASSERT(!fsdp_answer_run(board, 99, &answer));
    fsdp_board_destroy(board);
    folder_close(&f);
}

static void look_and_read(fsdp_test *t, fsdp_dashboard_run *run, int root)
{
    bool more;
    ASSERT_OK(fsdp_dashboard_run_look(run, root));
    ASSERT_OK(fsdp_dashboard_run_read(run, root, INT64_MAX, &more));
}

/* Numbers that do not fit in an integer count as unknown. When rank 0's file names the number of
 * ranks, files of more ranks are not read again, and no scan changes the run. */
TEST(files_of_ranks_of_a_larger_run_are_left_out)
{
    folder f;
    fsdp_dashboard_run *run;
    folder_open(t, &f);
    folder_put(&f, "m.jsonl", STEP_1);
    folder_make(&f, "m.ranks");
    folder_put(&f, "m.ranks/0.jsonl",
               "{\"kind\": \"start\", \"world_size\": 1e300, \"pid\": \"NaN\", "
               "\"threads\": -1e300}\n");
    folder_put(&f, "m.ranks/1.jsonl", "{\"kind\": \"start\", \"world_size\": 2}\n");
    folder_put(&f, "m.ranks/2.jsonl", "{\"kind\": \"start\", \"world_size\": 3}\n");
    ASSERT_OK(fsdp_dashboard_run_create(0, "m.jsonl", false, "m", &run));
    look_and_read(t, run, f.root);
    CHECK_HERE();
    ASSERT_INT(run->n_ranks, 3);
    ASSERT(run->ranks[0]->world_size == 0 && run->ranks[0]->pid == 0 &&
           run->ranks[0]->threads == 0);
    folder_add(&f, "m.ranks/0.jsonl", "{\"kind\": \"start\", \"world_size\": 2}\n");
    look_and_read(t, run, f.root);
    look_and_read(t, run, f.root);
    CHECK_HERE();
    ASSERT_INT(run->n_ranks, 2);
    const int64_t revision = run->revision;
    look_and_read(t, run, f.root);
    CHECK_HERE();
    ASSERT_INT(run->n_ranks, 2);
    ASSERT_INT(run->revision, revision);
    fsdp_dashboard_run_destroy(run);
    folder_close(&f);
}

/* Process 999999999 does not exist, but it may exist where the folder was copied from. */
TEST(a_run_says_where_it_ran_and_whether_its_folder_is_a_copy)
{
    static const char *const names[] = {"a", "b"};
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    char host[64], path[64], line[512];
    bool here, copied;
    ASSERT_INT(gethostname(host, sizeof host), 0);
    folder_open(t, &f);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.jsonl", names[i]);
        folder_put(&f, path, STEP_1);
        snprintf(path, sizeof path, "%s.ranks", names[i]);
        folder_make(&f, path);
        snprintf(path, sizeof path, "%s.ranks/0.jsonl", names[i]);
        snprintf(line, sizeof line,
                 "{\"kind\": \"start\", \"time\": %s, \"world_size\": 1, \"pid\": 999999999, "
                 "\"host\": \"%s%s\"}\n",
                 i ? "9000000000" : "5", host, i ? "-other" : "");
        folder_put(&f, path, line);
    }
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    ASSERT_STR(text_of(run_of(doc, 0), "host"), host);
    ASSERT_OK(fsdp_json_get_bool(run_of(doc, 0), "here", &here));
    ASSERT_OK(fsdp_json_get_bool(run_of(doc, 0), "copied", &copied));
    ASSERT(here && copied);
    ASSERT(strstr(text_of(run_of(doc, 1), "host"), "-other"));
    ASSERT_OK(fsdp_json_get_bool(run_of(doc, 1), "here", &here));
    ASSERT_OK(fsdp_json_get_bool(run_of(doc, 1), "copied", &copied));
    ASSERT(!here && !copied);
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* A folder may come from somebody else. */
TEST(hostile_names_and_texts_are_only_text)
{
    static const char name[] = "<script>alert(1)</script>&\"'\\\xff.jsonl";
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    fsdp_str answer = {0};
    folder_open(t, &f);
    folder_make(&f, "x");
    char path[128], log[128];
    snprintf(path, sizeof path, "x/%s", "a<b>\"\xff.jsonl");
    folder_put(&f, path, STEP_1);
    snprintf(log, sizeof log, "<img src=x onerror=alert(1)>.log");
    folder_put(&f, log, "</script><script>\xe2\x80\xa8\x01\xff\n");
    ASSERT_OK(open_board(&f, &board));
    fsdp_answer_runs(board, 0, &answer);
    ASSERT(answer.data && !memchr(answer.data, '<', answer.len) &&
           !memchr(answer.data, '>', answer.len) && !strstr(answer.data, "\xff"));
    ASSERT_OK(parse(&answer, &doc));
    ASSERT_STR(text_of(run_of(doc, 0), "name"), "x/a<b>\"\xef\xbf\xbd");
    fsdp_json_destroy(doc);
    ASSERT(fsdp_answer_log(board, 2, &answer));
    ASSERT(!strchr(answer.data, '<') && strstr(answer.data, "\\u2028\\u0001\\ufffd"));
    ASSERT_OK(parse(&answer, &doc));
    fsdp_json_destroy(doc);
    fsdp_json_text_string(&answer, name);
    ASSERT(!strchr(answer.data, '<') && strstr(answer.data, "\\u003cscript\\u003e"));
    fsdp_str_fini(&answer);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* The files of this test are below the folder "inside"; "secret" is next to it. */
TEST(links_that_lead_elsewhere_show_nothing)
{
    folder f, inside;
    fsdp_board *board;
    fsdp_json *doc;
    struct stat st;
    int fd;
    folder_open(t, &f);
    folder_make(&f, "inside");
    folder_make(&f, "secret");
    folder_put(&f, "secret/metrics.jsonl", STEP_1);
    folder_put(&f, "secret/a.log", "secret\n");
    folder_link(&f, "../secret", "inside/folder");
    folder_link(&f, "../secret/metrics.jsonl", "inside/linked.jsonl");
    folder_link(&f, "../secret/a.log", "inside/linked.log");
    folder_put(&f, "inside/own.jsonl", STEP_1);
    folder_link(&f, "../secret", "inside/own.ranks");
    folder_make(&f, "inside/checkpoint-5");
    folder_link(&f, "../../secret/metrics.jsonl", "inside/checkpoint-5/trainer_state.json");
    char path[512];
    snprintf(path, sizeof path, "%s/inside", f.path);
    inside = (folder){.path = path, .root = -1};
    ASSERT_OK(open_board(&inside, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    const fsdp_json_node root = fsdp_json_root(doc);
    ASSERT_INT(fsdp_json_len(fsdp_json_find(root, "runs")), 1);
    ASSERT_STR(text_of(run_of(doc, 0), "name"), "own");
    ASSERT_INT(fsdp_json_len(fsdp_json_find(root, "logs")), 0);
    const fsdp_json_node checkpoint = fsdp_json_at(fsdp_json_find(root, "checkpoints"), 0);
    ASSERT_STR(text_of(checkpoint, "verdict"), "linked");
    ASSERT_STR(text_of(checkpoint, "message"), "");
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    ASSERT(fsdp_beneath_open_file(f.root, "secret/a.log", &fd, &st));
    close(fd);
    ASSERT(!fsdp_beneath_open_file(f.root, "inside/folder/a.log", &fd, &st));
    ASSERT(!fsdp_beneath_open_file(f.root, "inside/../secret/a.log", &fd, &st));
    ASSERT(!fsdp_beneath_open_file(f.root, "secret/./a.log", &fd, &st));
    ASSERT(!fsdp_beneath_open_file(f.root, "/etc/passwd", &fd, &st));
    ASSERT(!fsdp_beneath_open_file(f.root, "secret", &fd, &st)); /* a folder is no file */
    ASSERT(!fsdp_beneath_open_folder(f.root, "inside/folder", &fd));
    folder_close(&f);
}

/* A log that was found may be replaced by a link before it is asked for. */
TEST(a_log_that_becomes_a_link_is_not_shown)
{
    folder f;
    fsdp_board *board;
    fsdp_str answer = {0};
    folder_open(t, &f);
    folder_put(&f, "a.log", "before\n");
    ASSERT_OK(open_board(&f, &board));
    ASSERT(fsdp_answer_log(board, 1, &answer));
    ASSERT(strstr(answer.data, "before"));
    fsdp_str_fini(&answer);
    folder_link(&f, "/etc/passwd", "link");
    folder_rename(&f, "link", "a.log");
    ASSERT(!fsdp_answer_log(board, 1, &answer));
    ASSERT(!fsdp_answer_log(board, 77, &answer));
    fsdp_board_destroy(board);
    folder_close(&f);
}

TEST(the_end_of_a_long_log_begins_with_a_whole_line)
{
    folder f;
    fsdp_board *board;
    fsdp_str answer = {0};
    fsdp_json *doc;
    folder_open(t, &f);
    folder_put(&f, "a.log", "");
    for (int i = 0; i < 5000; i++) {
        char line[32];
        snprintf(line, sizeof line, "line %d of many\n", i);
        folder_add(&f, "a.log", line);
    }
    ASSERT_OK(open_board(&f, &board));
    ASSERT(fsdp_answer_log(board, 1, &answer));
    ASSERT_OK(parse(&answer, &doc));
    const char *text = text_of(fsdp_json_root(doc), "text");
    ASSERT(strncmp(text, "line ", 5) == 0 && strlen(text) > 16000 && strlen(text) <= 32768);
    ASSERT_STR(text + strlen(text) - 18, "line 4999 of many\n");
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

TEST(checkpoints_are_looked_at_without_reading_their_data)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    folder_open(t, &f);
    folder_make(&f, "checkpoint-3");
    folder_put(&f, "checkpoint-3/half", "1234");
    folder_make(&f, "checkpoint-4");
    folder_put(&f, "checkpoint-4/.metadata", "no pickle");
    folder_put(&f, "checkpoint-4/trainer_state.json", "{");
    folder_make(&f, "checkpoint-5");
    ASSERT(mkfifoat(f.root, "checkpoint-5/.metadata", 0600) == 0); /* a reader would wait forever */
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    const fsdp_json_node all = fsdp_json_find(fsdp_json_root(doc), "checkpoints");
    ASSERT_STR(text_of(fsdp_json_at(all, 0), "verdict"), "incomplete");
    ASSERT_INT((int64_t)number_of(fsdp_json_at(all, 0), "bytes"), 4);
    ASSERT_INT((int64_t)number_of(fsdp_json_at(all, 0), "step"), 3);
    ASSERT(strcmp(text_of(fsdp_json_at(all, 1), "verdict"), "good") != 0);
    ASSERT_STR(text_of(fsdp_json_at(all, 2), "verdict"), "linked");
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

/* Two runs may name their folders alike, and the whole may have been copied to another host. */
TEST(a_checkpoint_belongs_to_the_run_whose_folder_it_is_in)
{
    folder f;
    fsdp_board *board;
    fsdp_json *doc;
    folder_open(t, &f);
    static const char *const runs[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        char path[64], text[128];
        folder_make(&f, runs[i]);
        snprintf(path, sizeof path, "%s/m.jsonl", runs[i]);
        folder_put(&f, path, STEP_1);
        snprintf(path, sizeof path, "%s/m.ranks", runs[i]);
        folder_make(&f, path);
        snprintf(path, sizeof path, "%s/m.ranks/run.json", runs[i]);
        snprintf(text, sizeof text, "{\"checkpoints\": \"/elsewhere/%s/out-checkpoints/\"}",
                 i < 2 ? runs[i] : "renamed since");
        folder_put(&f, path, text);
        snprintf(path, sizeof path, "%s/out-checkpoints", runs[i]);
        folder_make(&f, path);
        snprintf(path, sizeof path, "%s/out-checkpoints/checkpoint-1", runs[i]);
        folder_make(&f, path);
    }
    folder_make(&f, "others");
    folder_make(&f, "others/checkpoint-2");
    ASSERT_OK(open_board(&f, &board));
    ASSERT_OK(ask_runs(board, 0, &doc));
    const fsdp_json_node all = fsdp_json_find(fsdp_json_root(doc), "checkpoints");
    for (size_t i = 0; i < 4; i++) {
        ASSERT_STR(text_of(run_of(doc, i), "name") + 2, "m");
        ASSERT_INT((int64_t)number_of(fsdp_json_at(all, i), "run"),
                   (int64_t)number_of(run_of(doc, i), "id"));
    }
    ASSERT(!fsdp_json_has(fsdp_json_at(all, 4), "run"));
    fsdp_json_destroy(doc);
    fsdp_board_destroy(board);
    folder_close(&f);
}

TEST(a_board_needs_folders_that_exist_unless_they_may_come)
{
    folder f;
    fsdp_board *board;
    char missing[512], file[512];
    folder_open(t, &f);
    folder_put(&f, "m.jsonl", STEP_1);
    snprintf(missing, sizeof missing, "%s/later", f.path);
    snprintf(file, sizeof file, "%s/m.jsonl", f.path);
    const char *paths[] = {missing, file};
    ASSERT_ERROR(fsdp_board_create(paths, 1, false, &board), FSDP_ERR_NOT_FOUND, "later: ");
    ASSERT_ERROR(fsdp_board_create(paths + 1, 1, true, &board), FSDP_ERR_INVALID,
                 "m.jsonl: is a file; name the folder");
    ASSERT_OK(fsdp_board_create(paths, 1, true, &board));
    ASSERT_OK(settle(board));
    fsdp_board_destroy(board);
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; n < 500 && status != FSDP_OK; n++) {
        board = NULL;
        fsdp_alloc_fail_at(n);
        status = fsdp_board_create(&f.path, 1, false, &board);
        if (status == FSDP_OK)
            status = settle(board);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK)
            ASSERT_INT(status, FSDP_ERR_NOMEM);
        fsdp_board_destroy(board);
    }
    ASSERT_INT(status, FSDP_OK);
    folder_close(&f);
}

/* --- the gate and the page --- */

TEST(only_the_loopback_interface_and_the_token_are_let_in)
{
    static const char token[] = "0123456789abcdef0123456789abcdef";
    char made[FSDP_SERVER_TOKEN], other[FSDP_SERVER_TOKEN];
    long long number = -1;
    ASSERT(fsdp_gate_host("127.0.0.1:7070") && fsdp_gate_host("localhost:1") &&
           fsdp_gate_host("LOCALHOST") && fsdp_gate_host("[::1]:80"));
    ASSERT(!fsdp_gate_host(NULL) && !fsdp_gate_host("") && !fsdp_gate_host("evil.com") &&
           !fsdp_gate_host("127.0.0.1.evil.com") && !fsdp_gate_host("localhost:x") &&
           !fsdp_gate_host("127.0.0.1:") && !fsdp_gate_host("127.0.0.2:7070"));
    ASSERT_STR(fsdp_gate_path("/0123456789abcdef0123456789abcdef/", token), "");
    ASSERT_STR(fsdp_gate_path("/0123456789abcdef0123456789abcdef/runs", token), "runs");
    ASSERT(!fsdp_gate_path("/", token) && !fsdp_gate_path("", token) &&
           !fsdp_gate_path("/0123456789abcdef0123456789abcdef", token) &&
           !fsdp_gate_path("/0123456789abcdef0123456789abcdeF/", token) &&
           !fsdp_gate_path("/1123456789abcdef0123456789abcdef/", token) &&
           !fsdp_gate_path("/0123456789abcdef0123456789abcdef0/", token) &&
           !fsdp_gate_path("x0123456789abcdef0123456789abcdef/", token));
    ASSERT(fsdp_gate_number("120", &number) && number == 120);
    ASSERT(!fsdp_gate_number(NULL, &number) && !fsdp_gate_number("", &number) &&
           !fsdp_gate_number("-1", &number) && !fsdp_gate_number("1x", &number) &&
           !fsdp_gate_number("1234567890123456", &number));
    ASSERT_OK(fsdp_server_make_token(made));
    ASSERT_OK(fsdp_server_make_token(other));
    ASSERT_INT(strlen(made), 32);
    ASSERT(strcmp(made, other) != 0);
}

TEST(numbers_have_seven_digits)
{
    static const struct {
        double value;
        const char *text;
    } all[] = {{0, "0"},
               {-3, "-3"},
               {0.5, "0.5"},
               {3.14159265358979, "3.141593"},
               {-0.00012345678, "-0.0001234568"},
               {1234567.4, "1234567"},
               {9.9999999, "10"},
               {99.5, "99.5"},
               {1e-5, "1e-05"},
               {0.1 + 0.2, "0.3"},
               {123456.75, "123456.8"},
               {9007199254740992.0, "9007199254740992"},
               {1795780526.153, "1795780526.153"},
               {1e300, "1e+300"},
               {(double)NAN, "null"},
               {-(double)INFINITY, "null"},
               {0.99999999, "1"},
               {1000.0001, "1000"},
               {0.0100001, "0.0100001"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fsdp_str text = {0};
        fsdp_json_text_number(&text, all[i].value);
        fsdp_str_append(&text, "", 1);
        ASSERT_STR(text.data, all[i].text);
        fsdp_str_fini(&text);
    }
}

/* The Content-Security-Policy forbids what is inline, so nothing may be. */
TEST(the_page_loads_nothing_from_elsewhere_and_makes_no_markup)
{
    static const char *const names[] = {"",        "page.css",    "charts.js",
                                        "slow.js", "findings.js", "page.js"};
    static const char *const forbidden[] = {
        "http://",        "https://",   "innerHTML =", "outerHTML =", "insertAdjacent", "eval(",
        "document.write", "onclick=\"", "style=\"",    "<style",      "@import",        "url("};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const fsdp_asset *asset = fsdp_asset_find(names[i]);
        ASSERT(asset && asset->bytes > 100);
        for (size_t k = 0; k < sizeof forbidden / sizeof *forbidden; k++) {
            const char *at = memmem(asset->data, asset->bytes, forbidden[k], strlen(forbidden[k]));
            if (at && strncmp(at, "http://www.w3.org/2000/svg", 26) != 0)
                FAIL("%s has %s", names[i], forbidden[k]);
        }
    }
    ASSERT(!fsdp_asset_find("../page.js") && !fsdp_asset_find("index.html"));
}
