/* See run.h. */
#include "src/dashboard/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/base/str.h"
#include "src/dashboard/beneath.h"
#include "src/dashboard/line.h"
#include "src/report/event_reader.h"

enum {
    MAX_DESCRIPTION_BYTES = 1 << 20
};

/* --- curves --- */

/* Return the curve whose name is `prefix` followed by `key`. Create it if it does not exist. Return
 * NULL if there are too many curves, or if the name is too long. All lines have their keys in the
 * same order, so begin the search after the curve that was found last. */
static fsdp_curve *find_curve(fsdp_dashboard_run *run, const char *prefix, const char *key)
{
    char name[64];
    if (snprintf(name, sizeof name, "%s%s", prefix, key) >= (int)sizeof name)
        return NULL;
    for (size_t i = 0; i < run->n_curves; i++) {
        const size_t at = (run->last_curve + 1 + i) % run->n_curves;
        if (strcmp(run->curves[at].name, name) == 0) {
            run->last_curve = at;
            return &run->curves[at].curve;
        }
    }
    if (run->n_curves == FSDP_RUN_CURVES)
        return NULL;
    fsdp_run_curve *added = &run->curves[run->n_curves];
    *added = (fsdp_run_curve){{0}, {0}};
    memcpy(added->name, name, sizeof name);
    run->last_curve = run->n_curves++;
    return &added->curve;
}

/* Return true if no curve is made for the values of `key`, because the key identifies the line, or
 * because its values are only used to compute other values. */
static bool is_no_measure(const char *key)
{
    static const char *const keys[] = {"kind", "step", "epoch", "tokens", "label_tokens"};
    for (size_t i = 0; i < FSDP_LENGTH(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static fsdp_status add_points(fsdp_dashboard_run *run, const char *prefix, fsdp_json_node line,
                              double step)
{
    for (fsdp_json_node v = fsdp_json_first(line); v.value; v = fsdp_json_next(v)) {
        const fsdp_json_kind kind = fsdp_json_kind_of(v);
        if (is_no_measure(v.key) || kind == FSDP_JSON_OBJECT || kind == FSDP_JSON_ARRAY ||
            kind == FSDP_JSON_BOOL || kind == FSDP_JSON_NULL)
            continue;
        /* A string that is not a number counts as -Infinity. The curve then shows a gap. */
        const double value = fsdp_line_number(line, v.key, -(double)INFINITY);
        fsdp_curve *curve = find_curve(run, prefix, v.key);
        if (curve)
            FSDP_TRY(fsdp_curve_add(curve, step, run->seconds, value));
    }
    return FSDP_OK;
}

/* --- lines --- */

static fsdp_status take_step(fsdp_dashboard_run *run, fsdp_json_node line, double step)
{
    const double seconds = fsdp_line_number(line, "seconds", 0);
    if (isfinite(seconds) && seconds > 0)
        run->seconds += seconds;
    if (run->steps == 0)
        run->first_seconds = run->seconds;
    run->steps++;
    run->has_summary = false; /* a summary before this line is that of an earlier run */
    run->tokens += fsdp_line_number(line, "tokens", 0);
    return add_points(run, "train/", line, step);
}

static fsdp_status take_validation(fsdp_dashboard_run *run, fsdp_json_node line, double step)
{
    const double loss = fsdp_line_number(line, "loss", (double)NAN);
    run->validations++;
    run->validation_s += fsdp_line_number(line, "seconds", 0);
    if (loss < run->best_loss || (isnan(run->best_loss) && !isnan(loss))) {
        run->best_loss = loss;
        run->best_step = step;
    }
    return add_points(run, "eval/", line, step);
}

static void take_save(fsdp_dashboard_run *run, fsdp_json_node line, double step)
{
    const fsdp_run_save save = {.step = step,
                                .seconds = fsdp_line_number(line, "seconds", 0),
                                .call_s = fsdp_line_number(line, "call_seconds", 0),
                                .held_s = fsdp_line_number(line, "held_seconds", 0),
                                .copied_bytes = fsdp_line_number(line, "copied_bytes", 0)};
    if (run->n_saved == FSDP_RUN_CHECKPOINTS)
        memmove(run->saved, run->saved + 1, --run->n_saved * sizeof *run->saved);
    run->saved[run->n_saved++] = save;
    run->saves++;
    run->call_s += save.call_s;
    run->held_s += save.held_s;
}

static fsdp_status take_line(void *context, fsdp_json_node line)
{
    fsdp_dashboard_run *run = context;
    char kind[32];
    fsdp_line_text(line, "kind", kind, sizeof kind);
    const double step = fsdp_line_number(line, "step", run->step);
    if (!isfinite(step)) {
        run->tail.bad++;
        return FSDP_OK;
    }
    run->revision++;
    run->step = step;
    run->epoch = fsdp_line_number(line, "epoch", run->epoch);
    if (strcmp(kind, "step") == 0)
        return take_step(run, line, step);
    if (strcmp(kind, "validation") == 0)
        return take_validation(run, line, step);
    if (strcmp(kind, "checkpoint") == 0)
        take_save(run, line, step);
    if (strcmp(kind, "summary") == 0) {
        run->has_summary = true;
        run->total_s += fsdp_line_number(line, "total_s", 0);
        run->peak_host_mib = fsdp_line_number(line, "peak_host_mib", 0);
    }
    return FSDP_OK;
}

static void restart(void *context)
{
    fsdp_dashboard_run *run = context;
    for (size_t i = 0; i < run->n_curves; i++)
        fsdp_curve_fini(&run->curves[i].curve);
    run->n_curves = run->last_curve = 0;
    run->step = run->epoch = run->steps = run->seconds = run->first_seconds = run->tokens = 0;
    run->validations = run->validation_s = run->saves = run->call_s = run->held_s = 0;
    run->best_loss = run->best_step = (double)NAN;
    run->has_summary = false;
    run->total_s = run->peak_host_mib = 0;
    run->n_saved = 0;
    run->revision++;
}

/* --- creating --- */

/* `path` is the path of a metrics file. Return the path of the folder with the rank files of the
 * same run: "a.ranks" for "a.jsonl". The caller owns the result. */
static char *folder_of_ranks(const char *path)
{
    const size_t n = strlen(path) - (fsdp_ends_with(path, ".jsonl") ? strlen(".jsonl") : 0);
    return fsdp_strdup_printf("%.*s.ranks", (int)n, path);
}

fsdp_status fsdp_dashboard_run_create(size_t dir, const char *path, bool has_events,
                                      const char *name, fsdp_dashboard_run **run)
{
    fsdp_dashboard_run *r = fsdp_calloc(1, sizeof *r);
    if (!r)
        return FSDP_ERR_NOMEM;
    r->dir = dir;
    r->has_events = has_events;
    r->name = fsdp_strdup(name);
    r->ranks_folder = folder_of_ranks(path);
    r->curves = fsdp_calloc(FSDP_RUN_CURVES, sizeof *r->curves);
    fsdp_status status = r->name && r->ranks_folder && r->curves ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = fsdp_tail_init(&r->tail, path);
    restart(r);
    if (status == FSDP_OK)
        *run = r;
    else
        fsdp_dashboard_run_destroy(r);
    return status;
}

void fsdp_dashboard_run_destroy(fsdp_dashboard_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->n_curves; i++)
        fsdp_curve_fini(&run->curves[i].curve);
    for (size_t i = 0; i < run->n_ranks; i++)
        fsdp_rank_destroy(run->ranks[i]);
    fsdp_free(run->ranks);
    fsdp_free(run->curves);
    fsdp_json_destroy(run->description);
    fsdp_tail_fini(&run->tail);
    fsdp_free(run->ranks_folder);
    fsdp_free(run->name);
    fsdp_free(run);
}

/* --- ranks and run.json --- */

static fsdp_status add_rank(fsdp_dashboard_run *run, int root, int number, bool *there)
{
    struct stat st;
    int fd;
    char *path = fsdp_strdup_printf("%s/%d.jsonl", run->ranks_folder, number);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    *there = fsdp_beneath_open_file(root, path, &fd, &st);
    if (*there) {
        close(fd);
        status = FSDP_GROW(run->ranks, run->cap_ranks, run->n_ranks + 1) ? FSDP_OK : FSDP_ERR_NOMEM;
        if (status == FSDP_OK)
            status = fsdp_rank_create(path, number, &run->ranks[run->n_ranks]);
        run->n_ranks += status == FSDP_OK;
        run->revision++;
    }
    fsdp_free(path);
    return status;
}

/* Return the largest number of ranks that the run can have. This is the world size in the file of
 * rank 0. If that file has not been read, it is FSDP_RUN_RANKS. */
static size_t most_ranks(const fsdp_dashboard_run *run)
{
    const int64_t world_size = run->n_ranks ? run->ranks[0]->world_size : 0;
    return world_size > 0 && world_size < FSDP_RUN_RANKS ? (size_t)world_size
                                                         : (size_t)FSDP_RUN_RANKS;
}

/* Remove ranks whose files are left over from an earlier run with more ranks. */
static void remove_old_ranks(fsdp_dashboard_run *run)
{
    const size_t most = most_ranks(run), before = run->n_ranks;
    while (run->n_ranks > most)
        fsdp_rank_destroy(run->ranks[--run->n_ranks]);
    run->revision += run->n_ranks < before;
}

static fsdp_status read_description(fsdp_dashboard_run *run, int fd, const struct stat *st)
{
    fsdp_json *doc;
    if (st->st_size > MAX_DESCRIPTION_BYTES)
        return FSDP_OK;
    char *text = fsdp_calloc((size_t)st->st_size + 1, 1);
    if (!text)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    const ssize_t n = pread(fd, text, (size_t)st->st_size, 0);
    if (n > 0)
        status = fsdp_json_parse("run.json", 1, text, (size_t)n, &doc);
    fsdp_free(text);
    if (n <= 0 || (status != FSDP_OK && status != FSDP_ERR_NOMEM))
        return FSDP_OK; /* ignore a damaged file */
    FSDP_TRY(status);
    fsdp_json_destroy(run->description);
    run->description = doc;
    run->revision++;
    return FSDP_OK;
}

static fsdp_status look_for_description(fsdp_dashboard_run *run, int root)
{
    struct stat st;
    int fd;
    char *path = fsdp_strdup_printf("%s/run.json", run->ranks_folder);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = FSDP_OK;
    if (fsdp_beneath_open_file(root, path, &fd, &st)) {
        const int64_t time = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
        if (time != run->description_time)
            status = read_description(run, fd, &st);
        run->description_time = time;
        close(fd);
    }
    fsdp_free(path);
    return status;
}

fsdp_status fsdp_dashboard_run_look(fsdp_dashboard_run *run, int root)
{
    bool there = true;
    if (run->has_events)
        return FSDP_OK;
    remove_old_ranks(run);
    while (there && run->n_ranks < most_ranks(run))
        FSDP_TRY(add_rank(run, root, (int)run->n_ranks, &there));
    return look_for_description(run, root);
}

fsdp_status fsdp_dashboard_run_read(fsdp_dashboard_run *run, int root, int64_t deadline_ns,
                                    bool *more)
{
    const fsdp_tail_reader reader = {.line = take_line, .restart = restart, .context = run};
    const int64_t before = run->revision;
    struct stat st;
    int fd;
    *more = false;
    if (run->has_events)
        return FSDP_OK;
    FSDP_TRY(fsdp_tail_read(&run->tail, root, deadline_ns, &reader, more));
    if (run->revision != before && fsdp_beneath_open_file(root, run->tail.path, &fd, &st)) {
        run->changed_at = (double)st.st_mtim.tv_sec;
        close(fd);
    }
    for (size_t i = 0; i < run->n_ranks; i++) {
        bool changed, rest;
        FSDP_TRY(fsdp_rank_read(run->ranks[i], root, deadline_ns, &changed, &rest));
        run->revision += changed;
        *more |= rest;
    }
    return FSDP_OK;
}

/* --- event files --- */

/* Read one event file. The file is first opened and checked, and then read through a path that
 * contains its descriptor. So the file that is read is the one that was checked, even if a symbolic
 * link has replaced it in the meantime. */
static fsdp_status read_event_file(int root, const char *path, fsdp_metrics_curves *curves)
{
    char opened[64];
    struct stat st;
    int fd;
    if (!fsdp_beneath_open_file(root, path, &fd, &st))
        return FSDP_OK;
    snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    const fsdp_status status = fsdp_event_file_read(opened, curves);
    close(fd);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

/* List the files in the folder of event files, sorted by name. The names of event files contain the
 * time at which they were created. */
static fsdp_status list_events(int root, const char *path, char ***names, size_t *n)
{
    int fd;
    char opened[64];
    *names = NULL;
    *n = 0;
    if (!fsdp_beneath_open_folder(root, path, &fd))
        return FSDP_OK;
    snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    const fsdp_status status = fsdp_directory_list(opened, names, n);
    close(fd);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

fsdp_status fsdp_dashboard_read_events(int root, const char *path, fsdp_metrics_curves *out)
{
    fsdp_metrics_curves curves = {0};
    char **names;
    size_t n;
    FSDP_TRY(list_events(root, path, &names, &n));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < n && status == FSDP_OK; i++) {
        if (!fsdp_event_file_is_named(names[i]))
            continue;
        char *file = fsdp_path_join(path, names[i]);
        status = file ? read_event_file(root, file, &curves) : FSDP_ERR_NOMEM;
        fsdp_free(file);
    }
    fsdp_free(names);
    if (status == FSDP_OK)
        *out = curves;
    else
        fsdp_metrics_curves_fini(&curves);
    return status;
}

static fsdp_status add_curve(fsdp_dashboard_run *run, const char *prefix, const char *key,
                             const fsdp_metrics_curve *points)
{
    fsdp_curve *curve = points->len ? find_curve(run, prefix, key) : NULL;
    for (size_t i = 0; curve && i < points->len; i++)
        FSDP_TRY(
            fsdp_curve_add(curve, points->points[i].step, (double)NAN, points->points[i].value));
    if (points->len && points->points[points->len - 1].step > run->step)
        run->step = points->points[points->len - 1].step;
    return FSDP_OK;
}

fsdp_status fsdp_dashboard_run_set(fsdp_dashboard_run *run, const fsdp_metrics_curves *curves)
{
    restart(run);
    run->steps = (double)curves->loss.len;
    run->validations = (double)curves->validation.len;
    for (size_t i = 0; i < curves->validation.len; i++) {
        const fsdp_metrics_point *point = &curves->validation.points[i];
        if (point->value < run->best_loss || (isnan(run->best_loss) && !isnan(point->value))) {
            run->best_loss = point->value;
            run->best_step = point->step;
        }
    }
    FSDP_TRY(add_curve(run, "train/", "loss", &curves->loss));
    FSDP_TRY(add_curve(run, "train/", "lr", &curves->lr));
    return add_curve(run, "eval/", "loss", &curves->validation);
}
