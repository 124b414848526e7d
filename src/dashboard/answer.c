/* See answer.h. */
#include "src/dashboard/answer.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/dashboard/beneath.h"
#include "src/dashboard/json_text.h"
#include "src/train/checkpoint_folders.h"

enum {
    LOG_BYTES = 32768 /* number of bytes at the end of a log that are shown */
};
/* A run or a rank counts as silent if its file has got no new line for a certain time: silent_s
 * seconds, plus the usual duration of silent_steps of its steps. */
static const double silent_s = 20;
static const double silent_steps = 3;
/* If the file of metrics was changed more than copy_s seconds after the time in the newest line of
 * the ranks, the folder is assumed to be a copy, because copying a file gives it a new time of
 * modification. */
static const double copy_s = 60;

static void put_number(fsdp_str *to, const char *key, double value)
{
    fsdp_json_text_key(to, key);
    fsdp_json_text_number(to, value);
}

static void put_string(fsdp_str *to, const char *key, const char *value)
{
    fsdp_json_text_key(to, key);
    fsdp_json_text_string(to, value);
}

static void put_bool(fsdp_str *to, const char *key, bool value)
{
    fsdp_json_text_key(to, key);
    fsdp_str_append(to, value ? "true" : "false", value ? 4 : 5);
}

static void open_in(fsdp_str *to, const char *key, const char *bracket)
{
    if (key)
        fsdp_json_text_key(to, key);
    else
        fsdp_json_text_next(to);
    fsdp_str_append(to, bracket, 1);
}

static void shut(fsdp_str *to, const char *bracket)
{
    fsdp_str_append(to, bracket, 1);
}

static void put_item(fsdp_str *to, double value)
{
    fsdp_json_text_next(to);
    fsdp_json_text_number(to, value);
}

static double time_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- curves --- */

typedef double bucket_value(const fsdp_bucket *bucket);

static double step_of(const fsdp_bucket *b)
{
    return b->step;
}

static double at_of(const fsdp_bucket *b)
{
    return b->at;
}

static double min_of(const fsdp_bucket *b)
{
    return b->n ? b->min : (double)NAN;
}

static double max_of(const fsdp_bucket *b)
{
    return b->n ? b->max : (double)NAN;
}

static void put_values(fsdp_str *to, const char *key, const fsdp_curve *curve, bucket_value *value)
{
    open_in(to, key, "[");
    for (size_t i = 0; i < curve->len; i++)
        put_item(to, value(&curve->buckets[i]));
    shut(to, "]");
}

/* Return true if the buckets of two curves end at the same steps. */
static bool has_same_steps(const fsdp_curve *a, const fsdp_curve *b)
{
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++)
        if (a->buckets[i].step < b->buckets[i].step || a->buckets[i].step > b->buckets[i].step)
            return false;
    return true;
}

/* Append a curve. If it has the same steps as `first`, which is already in the answer, append the
 * name of `first` instead of the steps. Most curves of a run have the same steps. */
static void put_curve(fsdp_str *to, const fsdp_run_curve *first, const fsdp_run_curve *named)
{
    const fsdp_curve *curve = &named->curve;
    int64_t gaps = 0;
    for (size_t i = 0; i < curve->len; i++)
        gaps += curve->buckets[i].not_finite;
    open_in(to, named->name, "{");
    if (first != named && has_same_steps(&first->curve, curve)) {
        put_string(to, "like", first->name);
    } else {
        put_values(to, "step", curve, step_of);
        put_values(to, "at", curve, at_of);
    }
    put_values(to, "mean", curve, fsdp_bucket_mean);
    if (curve->per_bucket > 1) {
        put_values(to, "min", curve, min_of);
        put_values(to, "max", curve, max_of);
    }
    put_number(to, "not_finite", (double)gaps);
    shut(to, "}");
}

/* --- runs --- */

static double newest_time(const fsdp_dashboard_run *run)
{
    double newest = run->changed_at;
    for (size_t i = 0; i < run->n_ranks; i++)
        if (run->ranks[i]->time > newest)
            newest = run->ranks[i]->time;
    return newest;
}

/* Return true if the rank ran on a host that has the same name as this host. */
static bool ran_here(const fsdp_rank *rank)
{
    char host[sizeof rank->host];
    if (gethostname(host, sizeof host) != 0)
        return false;
    host[sizeof host - 1] = 0;
    return strcmp(host, rank->host) == 0;
}

/* Return true if the rank ran on this host, and its process no longer exists. */
static bool is_gone(const fsdp_rank *rank)
{
    return rank->pid > 1 && ran_here(rank) && kill((pid_t)rank->pid, 0) != 0 && errno == ESRCH;
}

static bool is_silent(double since, double steps, double seconds)
{
    return since >= silent_s + (steps > 0 ? silent_steps * seconds / steps : 0);
}

/* Return the last state that the rank has written, or `otherwise` if its file has none. */
static const char *written_state(const fsdp_rank *rank, const char *otherwise)
{
    return *rank->state ? rank->state : otherwise;
}

/* Return the state of a rank. This is usually the state that the rank wrote last. If the rank has
 * not ended, but has written nothing for a long time, the state is "silent", or "gone" if its
 * process does not exist any more. */
static const char *state_of_rank(const fsdp_rank *rank, double now)
{
    if (rank->ended)
        return written_state(rank, "ended");
    if (!is_silent(now - rank->time, rank->steps, rank->seconds))
        return written_state(rank, "starting");
    return is_gone(rank) ? "gone" : "silent";
}

static const char *state_of_run(const fsdp_dashboard_run *run, double now, const char **message)
{
    size_t ended = 0;
    const char *worst = NULL;
    *message = NULL;
    for (size_t i = 0; i < run->n_ranks; i++) {
        const fsdp_rank *rank = run->ranks[i];
        ended += rank->ended;
        if (rank->ended && strcmp(rank->state, "failed") == 0) {
            *message = rank->message;
            return "failed";
        }
        if (!rank->ended && is_silent(now - rank->time, rank->steps, rank->seconds) &&
            is_gone(rank))
            worst = "gone";
    }
    if (run->has_summary || (run->n_ranks && ended == run->n_ranks))
        return "ended";
    if (is_silent(now - newest_time(run), run->steps, run->seconds))
        return worst ? worst : "silent";
    return run->n_ranks ? written_state(run->ranks[0], "starting") : "running";
}

static bool goes_on(const char *state)
{
    static const char *const last[] = {"ended", "failed", "gone", "silent"};
    for (size_t i = 0; i < FSDP_LENGTH(last); i++)
        if (strcmp(state, last[i]) == 0)
            return false;
    return true;
}

/* Return how many seconds the run has taken until now or, if it has ended, until its end. This
 * includes the time outside of steps. Return NaN if the time is not known. */
static double seconds_of_run(const fsdp_dashboard_run *run, const char *state, double now)
{
    const double parts = run->seconds + run->validation_s + run->call_s + run->held_s;
    double whole = run->total_s > parts ? run->total_s : parts, until = 0;
    if (run->n_ranks && run->ranks[0]->started > 0) {
        const fsdp_rank *first = run->ranks[0];
        for (size_t i = 0; i < run->n_ranks; i++)
            until = run->ranks[i]->time > until ? run->ranks[i]->time : until;
        if (goes_on(state) && now > until)
            until = now;
        const double known = first->earlier_s + until - first->started;
        whole = known > whole ? known : whole;
    }
    return whole > 0 ? whole : (double)NAN;
}

/* Return true if `stopped_s` of the rank is the time in which the rank was stopped, or waited for
 * its disk or for memory. If a rank has several threads or a GPU, its first thread also waits for
 * the other threads or for the GPU, and stopped_s includes this time. */
static bool can_know_stopped(const fsdp_rank *rank)
{
    return rank->knows_cpu && rank->threads == 1 && strncmp(rank->device, "cpu", 3) == 0;
}

/* Append an array for each rank: [number, steps, seconds, wait_s, data_s, no_core_s, stopped_s]. */
static void put_split(fsdp_str *to, const fsdp_dashboard_run *run)
{
    open_in(to, "ranks", "[");
    for (size_t i = 0; i < run->n_ranks; i++) {
        const fsdp_rank *rank = run->ranks[i];
        open_in(to, NULL, "[");
        put_item(to, rank->number);
        put_item(to, rank->steps);
        put_item(to, rank->seconds);
        put_item(to, rank->wait_s);
        put_item(to, rank->data_s);
        put_item(to, rank->no_core_s);
        put_item(to, can_know_stopped(rank) ? rank->stopped_s : (double)NAN);
        shut(to, "]");
    }
    shut(to, "]");
}

/* Append where the run takes place: the host of the first rank that has not ended (or of rank 0 if
 * all have ended), whether this host has the same name, and whether the folder seems to be a copy,
 * as described at copy_s. */
static void put_place(fsdp_str *to, const fsdp_dashboard_run *run)
{
    const fsdp_rank *rank = run->n_ranks ? run->ranks[0] : NULL;
    double newest = 0;
    for (size_t i = 0; i < run->n_ranks; i++)
        newest = run->ranks[i]->time > newest ? run->ranks[i]->time : newest;
    for (size_t i = run->n_ranks; i > 0; i--)
        if (!run->ranks[i - 1]->ended)
            rank = run->ranks[i - 1];
    put_string(to, "host", rank && *rank->host ? rank->host : NULL);
    put_bool(to, "here", rank && ran_here(rank));
    put_bool(to, "copied", newest > 0 && run->changed_at > newest + copy_s);
}

static void put_numbers(fsdp_str *to, const fsdp_dashboard_run *run)
{
    const double steps = run->steps > 1 ? run->steps - 1 : run->steps;
    const double seconds = run->steps > 1 ? run->seconds - run->first_seconds : run->seconds;
    put_number(to, "step", run->step);
    put_number(to, "epoch", run->epoch);
    put_number(to, "steps", run->steps);
    put_number(to, "seconds", run->seconds);
    put_number(to, "step_s", steps > 0 && seconds > 0 ? seconds / steps : (double)NAN);
    put_number(to, "tokens_per_s", run->seconds > 0 ? run->tokens / run->seconds : (double)NAN);
    put_number(to, "tokens_per_step", run->tokens > 0 ? run->tokens / run->steps : (double)NAN);
    put_number(to, "validations", run->validations);
    put_number(to, "validation_s", run->validation_s);
    put_number(to, "saves", run->saves);
    put_number(to, "save_s", run->call_s + run->held_s);
    put_number(to, "best_loss", run->best_loss);
    put_number(to, "best_step", run->best_step);
    put_number(to, "peak_host_mib", run->peak_host_mib > 0 ? run->peak_host_mib : (double)NAN);
    put_number(to, "bad_lines", (double)run->tail.bad);
    put_number(to, "read",
               run->tail.size > 0 ? (double)run->tail.offset / (double)run->tail.size : 1);
}

/* Append the strings and numbers of `object`. If `outermost` is true, also append an object
 * "config" with the strings and numbers of the member "config" of `object`. */
static void put_values_of(fsdp_str *to, fsdp_json_node object, bool outermost)
{
    for (fsdp_json_node v = fsdp_json_first(object); v.value; v = fsdp_json_next(v)) {
        const fsdp_json_kind kind = fsdp_json_kind_of(v);
        const char *text;
        double number;
        if (kind == FSDP_JSON_STRING && fsdp_json_get_str(v, NULL, &text) == FSDP_OK) {
            put_string(to, v.key, text);
        } else if ((kind == FSDP_JSON_INT || kind == FSDP_JSON_REAL) &&
                   fsdp_json_get_f64(v, NULL, &number) == FSDP_OK) {
            put_number(to, v.key, number);
        } else if (kind == FSDP_JSON_OBJECT && outermost && strcmp(v.key, "config") == 0) {
            open_in(to, v.key, "{");
            put_values_of(to, v, false);
            shut(to, "}");
        }
    }
}

static void put_description(fsdp_str *to, const fsdp_dashboard_run *run)
{
    if (!run->description ||
        fsdp_json_kind_of(fsdp_json_root(run->description)) != FSDP_JSON_OBJECT) {
        put_string(to, "description", NULL);
        return;
    }
    open_in(to, "description", "{");
    put_values_of(to, fsdp_json_root(run->description), true);
    shut(to, "}");
}

static void put_saves(fsdp_str *to, const fsdp_dashboard_run *run)
{
    open_in(to, "saved", "[");
    for (size_t i = 0; i < run->n_saved; i++) {
        open_in(to, NULL, "[");
        put_item(to, run->saved[i].step);
        put_item(to, run->saved[i].seconds);
        put_item(to, run->saved[i].call_s);
        shut(to, "]");
    }
    shut(to, "]");
}

static void put_run(fsdp_str *to, const struct fsdp_board_content *c, const fsdp_board_run *b,
                    int64_t since, double now)
{
    const fsdp_dashboard_run *run = b->run;
    const char *message, *state = state_of_run(run, now, &message);
    open_in(to, NULL, "{");
    put_number(to, "id", (double)run->id);
    put_string(to, "name", run->name);
    put_string(to, "folder", c->dirs[run->dir].path);
    put_string(to, "file", run->tail.path);
    put_string(to, "state", state);
    put_string(to, "message", message);
    put_number(to, "total_s", seconds_of_run(run, state, now));
    put_place(to, run);
    put_number(to, "time", newest_time(run));
    put_number(to, "started", run->n_ranks ? run->ranks[0]->started : (double)NAN);
    put_number(to, "world_size", run->n_ranks ? (double)run->ranks[0]->world_size : (double)NAN);
    put_numbers(to, run);
    put_split(to, run);
    if (b->stamp > since) {
        put_description(to, run);
        put_saves(to, run);
        open_in(to, "curves", "{");
        for (size_t i = 0; i < run->n_curves; i++)
            put_curve(to, &run->curves[0], &run->curves[i]);
        shut(to, "}");
    }
    shut(to, "}");
}

/* --- checkpoints and logs --- */

static const char *name_of_verdict(fsdp_checkpoint_verdict verdict)
{
    static const char *const names[] = {[FSDP_CHECKPOINT_UNCHECKED] = "unchecked",
                                        [FSDP_CHECKPOINT_GOOD] = "good",
                                        [FSDP_CHECKPOINT_DAMAGED] = "damaged",
                                        [FSDP_CHECKPOINT_INCOMPLETE] = "incomplete",
                                        [FSDP_CHECKPOINT_LINKED] = "linked"};
    return names[verdict];
}

/* Return how many components, counted from the end, two paths have in common. */
static int common_components(const char *a, const char *b)
{
    size_t n = fsdp_path_length(a), m = fsdp_path_length(b);
    int count = 0;
    while (n && m) {
        size_t i = n, k = m;
        while (i && a[i - 1] != '/')
            i--;
        while (k && b[k - 1] != '/')
            k--;
        if (n - i != m - k || memcmp(a + i, b + k, n - i) != 0)
            break;
        count++;
        for (n = i; n && a[n - 1] == '/';)
            n--;
        for (m = k; m && b[m - 1] == '/';)
            m--;
    }
    return count;
}

/* Return the folder of checkpoints that the run's run.json names; "" if it names none. The path may
 * belong to another host, or be relative to an unknown folder. */
static const char *checkpoints_of_run(const fsdp_dashboard_run *run)
{
    const char *folder = "";
    if (!run->description)
        return folder;
    const fsdp_json_node root = fsdp_json_root(run->description);
    if (fsdp_json_kind_of(fsdp_json_find(root, "checkpoints")) == FSDP_JSON_STRING &&
        fsdp_json_get_str(root, "checkpoints", &folder) != FSDP_OK)
        folder = "";
    return folder;
}

/* Return how many components, counted from the beginning, two paths have in common. */
static int common_folders(const char *a, const char *b)
{
    int count = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        count += a[i] == '/';
    return count;
}

/* Return the run to which a checkpoint probably belongs. Each run has a folder of checkpoints.
 * Choose the run whose folder has the most components, counted from the end, in common with the
 * folder of the checkpoint. If several runs have the same number, choose the one whose file of
 * metrics is nearest to the checkpoint in the tree. If several are still equal, or nothing is in
 * common, return NULL; but if there is only one run, return this run. */
static const fsdp_dashboard_run *run_of_checkpoint(const struct fsdp_board_content *c,
                                                   const fsdp_board_checkpoint *p)
{
    const fsdp_dashboard_run *found = NULL;
    char *path = fsdp_path_join(c->dirs[p->dir].path, p->path);
    char *folder = path ? fsdp_path_parent(path) : NULL;
    int most = 0;
    for (size_t i = 0; folder && i < c->n_runs; i++) {
        const fsdp_dashboard_run *run = c->runs[i].run;
        const int near = run->dir == p->dir ? common_folders(run->tail.path, p->path) : 0;
        const int score = 100 * common_components(folder, checkpoints_of_run(run)) + near;
        if (score >= most && score > 0)
            found = score > most ? run : NULL;
        most = score > most ? score : most;
    }
    fsdp_free(folder);
    fsdp_free(path);
    return found ? found : c->n_runs == 1 ? c->runs[0].run : NULL;
}

static double number_of_checkpoint(const char *path)
{
    const char *rest, *name = fsdp_path_name(path);
    const int64_t step = fsdp_checkpoint_step_of_name(name, &rest);
    return step >= 0 ? (double)step : (double)NAN;
}

static void put_checkpoint(fsdp_str *to, const struct fsdp_board_content *c,
                           const fsdp_board_checkpoint *p)
{
    const fsdp_dashboard_run *run = run_of_checkpoint(c, p);
    open_in(to, NULL, "{");
    put_number(to, "run", run ? (double)run->id : (double)NAN);
    put_string(to, "folder", c->dirs[p->dir].path);
    put_string(to, "path", p->path);
    put_number(to, "step", number_of_checkpoint(p->path));
    put_number(to, "time", p->time);
    put_string(to, "verdict", name_of_verdict(p->look.verdict));
    put_string(to, "message", p->look.message);
    put_number(to, "bytes", (double)p->look.bytes);
    put_number(to, "files", (double)p->look.files);
    shut(to, "}");
}

static void put_log(fsdp_str *to, const struct fsdp_board_content *c, const fsdp_board_log *log)
{
    open_in(to, NULL, "{");
    put_number(to, "id", (double)log->id);
    put_string(to, "folder", c->dirs[log->dir].path);
    put_string(to, "path", log->path);
    put_number(to, "bytes", (double)log->bytes);
    put_number(to, "time", log->time);
    shut(to, "}");
}

void fsdp_answer_runs(fsdp_board *board, int64_t since, fsdp_str *to)
{
    const struct fsdp_board_content *c = fsdp_board_lock(board);
    const double now = time_now();
    bool cut = false;
    shut(to, "{");
    put_number(to, "now", now);
    put_number(to, "revision", (double)c->revision);
    open_in(to, "folders", "[");
    for (size_t i = 0; i < c->n_dirs; i++) {
        fsdp_json_text_next(to);
        fsdp_json_text_string(to, c->dirs[i].path);
        cut |= c->dirs[i].cut;
    }
    shut(to, "]");
    put_bool(to, "cut", cut);
    open_in(to, "runs", "[");
    for (size_t i = 0; i < c->n_runs; i++)
        put_run(to, c, &c->runs[i], since, now);
    shut(to, "]");
    open_in(to, "checkpoints", "[");
    for (size_t i = 0; i < c->n_checkpoints; i++)
        put_checkpoint(to, c, &c->checkpoints[i]);
    shut(to, "]");
    open_in(to, "logs", "[");
    for (size_t i = 0; i < c->n_logs; i++)
        put_log(to, c, &c->logs[i]);
    shut(to, "]");
    shut(to, "}");
    fsdp_board_unlock(board);
}

/* --- one run --- */

static void put_sample(fsdp_str *to, const fsdp_rank *rank, const fsdp_rank_sample *s)
{
    open_in(to, NULL, "[");
    put_item(to, s->time);
    put_item(to, s->step);
    put_item(to, s->steps);
    put_item(to, s->seconds);
    put_item(to, s->wait_s);
    put_item(to, s->data_s);
    put_item(to, s->no_core_s);
    put_item(to, can_know_stopped(rank) ? s->stopped_s : 0);
    put_item(to, s->allocated);
    put_item(to, s->reserved);
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++)
        put_item(to, s->tags[tag]);
    shut(to, "]");
}

static void put_rank(fsdp_str *to, const fsdp_rank *rank, double now)
{
    open_in(to, NULL, "{");
    put_number(to, "rank", rank->number);
    put_string(to, "host", rank->host);
    put_string(to, "device", rank->device);
    put_number(to, "pid", (double)rank->pid);
    put_number(to, "threads", (double)rank->threads);
    put_string(to, "state", state_of_rank(rank, now));
    put_string(to, "message", rank->message);
    put_number(to, "time", rank->time);
    put_number(to, "step", rank->step);
    put_number(to, "steps", rank->steps);
    put_number(to, "seconds", rank->seconds);
    put_number(to, "wait_s", rank->wait_s);
    put_number(to, "data_s", rank->data_s);
    put_number(to, "no_core_s", rank->no_core_s);
    open_in(to, "samples", "[");
    for (size_t i = 0; i < rank->n_samples; i++)
        put_sample(to, rank, &rank->samples[i]);
    shut(to, "]");
    shut(to, "}");
}

/* Append the collectives of a unit. The counts are those of the first rank. The waiting times are
 * the mean and the maximum over the ranks. */
static void put_unit(fsdp_str *to, const fsdp_dashboard_run *run, size_t index)
{
    const fsdp_rank_unit *u = &run->ranks[0]->units[index];
    double sum = 0, most = 0;
    size_t n = 0;
    for (size_t i = 0; i < run->n_ranks; i++) {
        const fsdp_rank *rank = run->ranks[i];
        if (index >= rank->n_units)
            continue;
        sum += rank->units[index].wait_s;
        most = rank->units[index].wait_s > most ? rank->units[index].wait_s : most;
        n++;
    }
    open_in(to, NULL, "{");
    put_string(to, "name", u->name);
    put_number(to, "gathers", u->gathers);
    put_number(to, "gather_bytes", u->gather_bytes);
    put_number(to, "reduces", u->reduces);
    put_number(to, "reduce_bytes", u->reduce_bytes);
    put_number(to, "all_reduces", u->all_reduces);
    put_number(to, "all_reduce_bytes", u->all_reduce_bytes);
    put_number(to, "wait_s", n ? sum / (double)n : 0);
    put_number(to, "most_wait_s", most);
    shut(to, "}");
}

static void put_ranks(fsdp_str *to, const fsdp_dashboard_run *run)
{
    const double now = time_now();
    shut(to, "{");
    put_number(to, "id", (double)run->id);
    put_number(to, "now", now);
    open_in(to, "purposes", "[");
    for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
        fsdp_json_text_next(to);
        fsdp_json_text_string(to, fsdp_tag_name((fsdp_tag)tag));
    }
    shut(to, "]");
    open_in(to, "ranks", "[");
    for (size_t i = 0; i < run->n_ranks; i++)
        put_rank(to, run->ranks[i], now);
    shut(to, "]");
    open_in(to, "units", "[");
    for (size_t i = 0; run->n_ranks && i < run->ranks[0]->n_units; i++)
        put_unit(to, run, i);
    shut(to, "]");
    shut(to, "}");
}

bool fsdp_answer_run(fsdp_board *board, int64_t id, fsdp_str *to)
{
    const struct fsdp_board_content *c = fsdp_board_lock(board);
    bool found = false;
    for (size_t i = 0; i < c->n_runs && !found; i++) {
        found = c->runs[i].run->id == id;
        if (found)
            put_ranks(to, c->runs[i].run);
    }
    fsdp_board_unlock(board);
    return found;
}

/* --- logs --- */

/* Append the size of the file, and the text at its end, beginning with a whole line. */
static void put_end_of_file(fsdp_str *to, int fd, int64_t size)
{
    char text[LOG_BYTES];
    const int64_t begin = size > LOG_BYTES ? size - LOG_BYTES : 0;
    ssize_t n = pread(fd, text, sizeof text, (off_t)begin);
    const char *from = text;
    if (n < 0)
        n = 0;
    const char *newline = begin ? memchr(text, '\n', (size_t)n) : NULL;
    if (newline) {
        n -= newline + 1 - text;
        from = newline + 1;
    }
    put_number(to, "bytes", (double)size);
    fsdp_json_text_key(to, "text");
    fsdp_json_text_stringn(to, from, (size_t)n);
}

bool fsdp_answer_log(fsdp_board *board, int64_t id, fsdp_str *to)
{
    const struct fsdp_board_content *c = fsdp_board_lock(board);
    struct stat st;
    int fd = -1;
    bool found = false;
    for (size_t i = 0; i < c->n_logs && !found; i++) {
        const fsdp_board_log *log = &c->logs[i];
        const int root = c->dirs[log->dir].fd;
        found = log->id == id && root >= 0 && fsdp_beneath_open_file(root, log->path, &fd, &st);
    }
    fsdp_board_unlock(board);
    if (!found)
        return false;
    shut(to, "{");
    put_number(to, "id", (double)id);
    put_end_of_file(to, fd, st.st_size);
    shut(to, "}");
    close(fd);
    return true;
}
