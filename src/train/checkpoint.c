/* See checkpoint.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/clock.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/dcp/group_directory.h"
#include "src/hf/stale_files.h"
#include "src/comm/agree.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint.h"
#include "src/train/checkpoint_async.h"
#include "src/train/checkpoint_files.h"
#include "src/train/checkpoint_foreign.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"
#include "src/train/checkpoint_verify.h"
#include "src/train/config_paths.h"
#include "src/report/human.h"

/* --- folders --- */

static const char PREFIX[] = "checkpoint-";
/* followed by the number of a save, not a step */
static const char ACCELERATE_PREFIX[] = "checkpoint_";

static fsdp_status folder_of(const fsdp_trainer *t, char **dir)
{
    const fsdp_train_config *c = t->config;
    const char *output = c->output ? c->output : "";
    *dir = c->checkpoint_dir
               ? fsdp_strdup(c->checkpoint_dir)
               : fsdp_strdup_printf("%.*s-checkpoints", (int)fsdp_path_length(output), output);
    return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Does --resume name this run's own folder of checkpoints, or a checkpoint in it? */
static bool resumes_own(const fsdp_trainer *t)
{
    const char *given = t->config->resume;
    char *folder = NULL, *parent = NULL;
    if (!given || strcmp(given, "auto") == 0)
        return given != NULL;
    if (!fsdp_path_is_directory(given) && !fsdp_path_is_file(given))
        return true; /* choose_given() reports the missing path */
    parent = fsdp_path_parent(given);
    bool own = parent && folder_of(t, &folder) == FSDP_OK &&
               (fsdp_train_is_same_file(given, folder) || fsdp_train_is_same_file(parent, folder));
    fsdp_free(folder);
    fsdp_free(parent);
    return own;
}

bool fsdp_trainer_may_replace(const fsdp_trainer *t)
{
    return t->config->overwrite_output || t->config->restarted || resumes_own(t);
}

static char *path_of_step(const char *folder, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "%s%lld", PREFIX, (long long)step);
    return fsdp_path_join(folder, name);
}

/* The number after `prefix`, or -1 for another name. *rest is the text after the number. */
static int64_t number_after(const char *prefix, const char *name, const char **rest)
{
    const size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    long long number = strtoll(name + n, &end, 10);
    *rest = end;
    return number < LLONG_MAX ? (int64_t)number : -1;
}

/* The step of "checkpoint-<step>", or -1 for another name. *rest is the text after the step. */
static int64_t step_of(const char *name, const char **rest)
{
    return number_after(PREFIX, name, rest);
}

static bool is_complete(const char *dir)
{
    return fsdp_checkpoint_files_exist(dir) &&
           (fsdp_directory_has_file(dir, FSDP_TRAINER_STATE) || !fsdp_checkpoint_needs_state(dir));
}

/* Is it something other than a checkpoint of this program? A damaged checkpoint counts as ours. */
static fsdp_status is_foreign(const char *dir, bool *yes)
{
    char **names;
    size_t count;
    fsdp_json *doc;
    *yes = true;
    if (!fsdp_path_is_directory(dir))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(dir, &names, &count));
    fsdp_free(names);
    if (count > 0 && !fsdp_directory_has_file(dir, FSDP_TRAINER_STATE))
        return FSDP_OK;
    *yes = false;
    char *path = fsdp_path_join(dir, FSDP_TRAINER_STATE);
    if (!path)
        return FSDP_ERR_NOMEM;
    if (count > 0 && fsdp_json_read(path, &doc) == FSDP_OK) {
        *yes = !fsdp_json_has(fsdp_json_root(doc), "format"); /* transformers' file has none */
        fsdp_json_destroy(doc);
    }
    fsdp_free(path);
    return FSDP_OK;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Is it a complete checkpoint and, if `ours`, one of this program? */
static fsdp_status is_usable(const char *dir, bool ours, bool *yes)
{
    bool foreign = false;
    *yes = is_complete(dir);
    if (*yes && ours)
        FSDP_TRY(is_foreign(dir, &foreign));
    *yes &= !foreign;
    return FSDP_OK;
}

/* Steps of the complete checkpoints of a folder in ascending order; if `ours`, of this program's
 * only. *steps is owned by the caller. Empty if there is no such folder. */
static fsdp_status list_steps(const char *folder, bool ours, int64_t **steps, size_t *n)
{
    char **names;
    size_t count;
    *steps = NULL;
    *n = 0;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    int64_t *found = fsdp_calloc(count, sizeof *found);
    fsdp_status status = found ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *rest = "";
        int64_t step = step_of(names[i], &rest);
        char *path = step >= 0 && !*rest ? fsdp_path_join(folder, names[i]) : NULL;
        bool yes = false;
        if (path)
            status = is_usable(path, ours, &yes);
        if (yes)
            found[(*n)++] = step;
        fsdp_free(path);
    }
    fsdp_free(names);
    if (status != FSDP_OK) {
        fsdp_free(found);
        *n = 0;
        return status;
    }
    if (*n)
        qsort(found, *n, sizeof *found, by_step);
    *steps = found;
    return FSDP_OK;
}

/* Remove what killed runs left half written or half removed. */
static fsdp_status remove_unfinished(const char *folder)
{
    char **names;
    size_t count;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *rest = "";
        int64_t step = step_of(names[i], &rest);
        char *path = step >= 0 && *rest == '.' ? path_of_step(folder, step) : NULL;
        if (path)
            fsdp_atomic_directory_sweep(path, 0);
        fsdp_free(path);
    }
    fsdp_free(names);
    return FSDP_OK;
}

/* An earlier run's checkpoints would be overwritten, and its later ones mistaken for this run's. */
static fsdp_status refuse_earlier_run(const char *folder)
{
    char **names;
    size_t count;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *rest = "";
        if (step_of(names[i], &rest) >= 0 && !*rest)
            status = fsdp_error(FSDP_ERR_INVALID,
                                "--checkpoint-dir %s holds %s of an earlier run: --resume "
                                "continues from there, --overwrite-output starts over",
                                folder, names[i]);
    }
    fsdp_free(names);
    return status;
}

static fsdp_status check_folder(const fsdp_trainer *t, const char *folder)
{
    char *path = path_of_step(folder, 0);
    fsdp_status status =
        path ? fsdp_atomic_directory_check(path, FSDP_EXISTING_UPDATE) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    fsdp_error_context(status, "--checkpoint-dir");
    FSDP_TRY(status);
    return fsdp_trainer_may_replace(t) ? FSDP_OK : refuse_earlier_run(folder);
}

fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t)
{
    char *folder;
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(folder_of(t, &folder));
    fsdp_status status = check_folder(t, folder);
    fsdp_free(folder);
    return status;
}

/* --- writing --- */

/* Keeps the user's own files in the folder, and then the folder too. */
static fsdp_status empty_checkpoint(const char *path)
{
    fsdp_atomic_directory *others;
    FSDP_TRY(fsdp_atomic_directory_begin(path, FSDP_EXISTING_UPDATE, &others));
    fsdp_atomic_directory_drop(others, fsdp_is_stale_checkpoint_file, NULL);
    return fsdp_atomic_directory_commit(others);
}

/* Hide the folder first, so that a half-removed checkpoint never exists under its name. It is
 * renamed to a temporary folder, which no later run restores if this process is killed. */
static fsdp_status remove_checkpoint(const char *folder, int64_t step)
{
    char *path = path_of_step(folder, step);
    if (path && fsdp_checkpoint_holds_others(path)) {
        fsdp_status emptied = empty_checkpoint(path);
        fsdp_free(path);
        return emptied;
    }
    char *aside = path ? fsdp_atomic_directory_temporary(path) : NULL;
    fsdp_status status = aside ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && rename(path, aside) != 0)
        status = fsdp_error(FSDP_ERR_IO, "%s: cannot be removed", path);
    if (status == FSDP_OK)
        status = fsdp_tree_remove(aside);
    fsdp_free(aside);
    fsdp_free(path);
    return status;
}

/* Keeps the newest checkpoints up to this step. Later ones were left by another run. They are
 * removed if this run starts over in its place, because --resume would find them. */
fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *r)
{
    int64_t *steps;
    size_t n;
    if (r->limit == 0 && !r->remove_later)
        return FSDP_OK;
    fsdp_status status = list_steps(r->folder, true, &steps, &n);
    for (; n && steps[n - 1] > r->step && status == FSDP_OK; n--)
        if (r->remove_later)
            status = remove_checkpoint(r->folder, steps[n - 1]);
    for (size_t i = 0; r->limit && i + (size_t)r->limit < n && status == FSDP_OK; i++)
        status = remove_checkpoint(r->folder, steps[i]);
    fsdp_free(steps);
    return status;
}

fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t)
{
    return (fsdp_checkpoint_rotation){.folder = t->checkpoint_dir,
                                      .step = t->step,
                                      .limit = t->config->save_total_limit,
                                      .remove_later = t->config->overwrite_output &&
                                                      !(t->resumed_from && resumes_own(t))};
}

typedef struct saving {
    fsdp_trainer *t;
    const char *path;
    double begin_s;
} saving;

static fsdp_status write_files(void *arg, const char *dir)
{
    const saving *s = arg;
    return fsdp_checkpoint_files_write(s->t, dir);
}

static fsdp_status write_trainer_state(void *arg, const char *dir)
{
    const saving *s = arg;
    fsdp_json *state;
    FSDP_TRY(fsdp_trainer_state_json(s->t, &state));
    fsdp_status status = fsdp_trainer_state_write(state, dir);
    fsdp_json_destroy(state);
    return status;
}

static fsdp_status note_appeared(void *arg)
{
    const saving *s = arg;
    const fsdp_checkpoint_rotation old = fsdp_checkpoint_rotation_of(s->t);
    fsdp_trainer_say(s->t, "--> saved %s in %s", s->path,
                     fsdp_human_duration(fsdp_clock_s() - s->begin_s).text);
    return fsdp_checkpoint_remove_old(&old);
}

double fsdp_checkpoint_step_seconds(const fsdp_trainer *t, double call_s)
{
    return t->step_seconds[t->step - t->first_step - 1] + call_s;
}

static fsdp_status report_save(const saving *s)
{
    const double call_s = fsdp_clock_s() - s->begin_s;
    const fsdp_checkpoint_report r = {.step = s->t->step,
                                      .seconds = call_s,
                                      .call_s = call_s,
                                      .step_s = fsdp_checkpoint_step_seconds(s->t, call_s)};
    return fsdp_trainer_is_first(s->t) ? fsdp_report_checkpoint(s->t, &r) : FSDP_OK;
}

static fsdp_status save_to(fsdp_trainer *t, const char *path)
{
    saving s = {.t = t, .path = path, .begin_s = fsdp_clock_s()};
    const fsdp_group_place place = {.path = path,
                                    .existing = FSDP_EXISTING_UPDATE,
                                    .is_stale = fsdp_is_stale_checkpoint_file,
                                    .write = write_trainer_state,
                                    .appeared = note_appeared,
                                    .arg = &s};
    if (!fsdp_checkpoint_files_are_sharded(t)) {
        FSDP_TRY(fsdp_group_directory(FSDP_OK, &place, t->group, write_files, &s));
        return report_save(&s);
    }
    fsdp_state_dict *all = NULL;
    fsdp_status status = fsdp_checkpoint_files_state(t, &all);
    status = fsdp_state_dict_save(status, all, &place, t->group);
    fsdp_state_dict_destroy(all);
    return status == FSDP_OK ? report_save(&s) : status;
}

/* One save at a time. The last save of an interrupted run is synchronous, since no training would
 * continue during it. */
static fsdp_status save_checkpoint(fsdp_trainer *t, bool interrupted)
{
    FSDP_TRY(fsdp_async_checkpoint_end(t));
    fsdp_trainer_at(t, "saving a checkpoint");
    char *path = path_of_step(t->checkpoint_dir, t->step);
    if (!path)
        return FSDP_ERR_NOMEM;
    fsdp_status status = t->config->async_save && !interrupted
                             ? fsdp_async_checkpoint_begin(t, path)
                             : save_to(t, path);
    fsdp_free(path);
    return status;
}

/* --- when --- */

/* Did any rank receive a signal? Ends the checkpoint in progress if it has failed on any rank or is
 * done on all. */
static fsdp_status end_save_if_over(fsdp_trainer *t, bool *interrupted)
{
    bool failed, runs;
    fsdp_async_checkpoint_look(t, &failed, &runs);
    int64_t any[] = {t->config->interrupted && atomic_load(t->config->interrupted), failed, runs};
    FSDP_TRY(fsdp_all_reduce(t->group, any, FSDP_LENGTH(any), FSDP_DTYPE_I64, FSDP_REDUCE_MAX));
    *interrupted = any[0];
    return any[1] || !any[2] ? fsdp_async_checkpoint_end(t) : FSDP_OK;
}

static bool is_time(const fsdp_trainer *t, bool end_of_epoch)
{
    const fsdp_train_config *c = t->config;
    if (c->save_strategy == FSDP_SAVE_EPOCH)
        return end_of_epoch;
    return t->step % (int64_t)c->save_steps == 0 || t->step == t->total_steps;
}

fsdp_status fsdp_checkpoint_at_step(fsdp_trainer *t, bool end_of_epoch)
{
    bool interrupted;
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(end_save_if_over(t, &interrupted));
    if (interrupted || is_time(t, end_of_epoch))
        FSDP_TRY(save_checkpoint(t, interrupted));
    if (!interrupted)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "interrupted after step %lld; --resume continues from there",
                      (long long)t->step);
}

/* Threads of a rank that was killed just before this run may still have been running when it began,
 * so sweep again. */
fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(fsdp_async_checkpoint_end(t));
    return fsdp_agree(t->group,
                      fsdp_trainer_is_first(t) ? remove_unfinished(t->checkpoint_dir) : FSDP_OK);
}

/* --- resuming --- */

/* The choice of rank 0; plain data that is sent to all ranks. */
typedef struct choice {
    char path[PATH_MAX]; /* "": start from the beginning */
    /* the complete checkpoint before it, or the newest one in the folder of a given one; "": none
     */
    char previous[PATH_MAX];
} choice;

/* Choose the newest of Accelerate's checkpoint_<i>, if there is no checkpoint-<step>. */
static fsdp_status choose_of_accelerate(const char *folder, choice *out)
{
    char **names;
    size_t count;
    int64_t newest = -1, previous = -1;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *rest = "";
        const int64_t number = number_after(ACCELERATE_PREFIX, names[i], &rest);
        if (number <= previous || *rest)
            continue;
        char *path = fsdp_path_join(folder, names[i]);
        const bool complete = path && is_complete(path);
        status = path ? FSDP_OK : FSDP_ERR_NOMEM;
        if (complete && number > newest) {
            snprintf(out->previous, PATH_MAX, "%s", out->path);
            snprintf(out->path, PATH_MAX, "%s", path);
            previous = newest;
            newest = number;
        } else if (complete) {
            snprintf(out->previous, PATH_MAX, "%s", path);
            previous = number;
        }
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

static fsdp_status choose_newest(const char *folder, choice *out)
{
    int64_t *steps;
    size_t n;
    fsdp_status status = list_steps(folder, false, &steps, &n);
    for (size_t i = 0; i < 2 && i < n && status == FSDP_OK; i++) {
        char *path = path_of_step(folder, steps[n - 1 - i]);
        if (!path)
            status = FSDP_ERR_NOMEM;
        else
            snprintf(i ? out->previous : out->path, PATH_MAX, "%s", path);
        fsdp_free(path);
    }
    fsdp_free(steps);
    return status == FSDP_OK && !*out->path ? choose_of_accelerate(folder, out) : status;
}

/* Why `dir`, a folder with the name of a checkpoint, cannot be resumed. */
static const char *why_unusable(const char *dir)
{
    fsdp_checkpoint_parts parts;
    const char *lacks;
    if (fsdp_checkpoint_files_exist(dir))
        return "no " FSDP_TRAINER_STATE ", which fsdp train writes with these files";
    return fsdp_checkpoint_foreign_find(dir, &parts, &lacks) || !lacks
               ? "no model and optimizer of fsdp train, torch.distributed.checkpoint, Accelerate "
                 "or Trainer"
               : lacks;
}

/* Checkpoints that exist but cannot be resumed are an error, because the run would silently start
 * from the beginning. Empty folders are ignored. */
static fsdp_status refuse_unusable(const char *folder)
{
    char **names;
    size_t count, n = 0;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *rest = "";
        char **within = NULL;
        if ((step_of(names[i], &rest) < 0 &&
             number_after(ACCELERATE_PREFIX, names[i], &rest) < 0) ||
            *rest)
            continue;
        char *path = fsdp_path_join(folder, names[i]);
        status = path ? FSDP_OK : FSDP_ERR_NOMEM;
        n = 0;
        if (path && fsdp_path_is_directory(path))
            status = fsdp_directory_list(path, &within, &n);
        if (status == FSDP_OK && n)
            status = fsdp_error(FSDP_ERR_NOT_FOUND,
                                "--resume: no checkpoint in %s can be resumed; %s: there is %s. "
                                "Without --resume the run starts from the beginning",
                                folder, names[i], why_unusable(path));
        fsdp_free(within);
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

/* The message names the newest checkpoint in the same folder, if there is one. */
static fsdp_status refuse_missing(const char *given)
{
    choice newest = {0};
    char *parent = fsdp_path_parent(given);
    fsdp_status status = parent ? FSDP_OK : FSDP_ERR_NOMEM;
    if (parent && fsdp_path_is_directory(parent))
        status = choose_newest(parent, &newest);
    fsdp_free(parent);
    FSDP_TRY(status);
    return fsdp_error(FSDP_ERR_NOT_FOUND, "--resume %s: there is no such file or folder%s%s", given,
                      *newest.path ? "; the newest checkpoint in the same folder is " : "",
                      newest.path);
}

/* The newest checkpoint in the folder of a given one, as an alternative if that is damaged. */
static fsdp_status choose_newest_next_to(const char *given, choice *out)
{
    int64_t *steps;
    size_t n;
    const char *rest = "";
    char *parent = fsdp_path_parent(given), *name = fsdp_path_stripped(given);
    fsdp_status status = parent && name ? list_steps(parent, false, &steps, &n) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        if (n && steps[n - 1] == step_of(fsdp_path_name(name), &rest))
            n--;
        char *path = n ? path_of_step(parent, steps[n - 1]) : NULL;
        if (n && path)
            snprintf(out->previous, PATH_MAX, "%s", path);
        status = n && !path ? FSDP_ERR_NOMEM : FSDP_OK;
        fsdp_free(path);
        fsdp_free(steps);
    }
    fsdp_free(name);
    fsdp_free(parent);
    return status;
}

/* `given` is a checkpoint, possibly a file of torch.save, or a folder of checkpoints. */
static fsdp_status choose_given(const char *given, choice *out)
{
    if (fsdp_path_is_file(given)) {
        FSDP_TRY(fsdp_checkpoint_foreign_check_file(given));
        snprintf(out->path, PATH_MAX, "%s", given);
        return FSDP_OK;
    }
    if (!fsdp_path_is_directory(given))
        return refuse_missing(given);
    if (!fsdp_checkpoint_files_exist(given))
        FSDP_TRY(choose_newest(given, out));
    if (*out->path)
        return FSDP_OK;
    if (!fsdp_directory_has_file(given, FSDP_TRAINER_STATE) && !fsdp_checkpoint_files_exist(given))
        FSDP_TRY(refuse_unusable(given));
    snprintf(out->path, PATH_MAX, "%s", given);
    return choose_newest_next_to(given, out);
}

/* An error that names the newest checkpoint in `folder`/`within`, if there is one. */
static fsdp_status refuse_elsewhere(const fsdp_trainer *t, const char *folder, const char *within)
{
    choice found = {0};
    char *path = within ? fsdp_path_join(folder, within) : fsdp_strdup(folder);
    fsdp_status status = path ? choose_newest(path, &found) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    if (status == FSDP_OK && *found.path)
        status = fsdp_error(FSDP_ERR_INVALID,
                            "--resume: there is no checkpoint in %s, but %s: --resume %s continues "
                            "from there",
                            t->checkpoint_dir, found.path, found.path);
    return status;
}

/* transformers' Trainer has its checkpoints in its output folder, Accelerate in "checkpoints"
 * there, or in that of its project. */
static fsdp_status refuse_other_places(const fsdp_trainer *t)
{
    if (t->config->output) {
        FSDP_TRY(refuse_elsewhere(t, t->config->output, NULL));
        FSDP_TRY(refuse_elsewhere(t, t->config->output, "checkpoints"));
    }
    return refuse_elsewhere(t, t->checkpoint_dir, "checkpoints");
}

static fsdp_status choose_checkpoint(const fsdp_trainer *t, choice *out)
{
    if (t->config->save_strategy != FSDP_SAVE_NO)
        FSDP_TRY(remove_unfinished(t->checkpoint_dir));
    if (!t->config->resume)
        return FSDP_OK;
    if (strcmp(t->config->resume, "auto") != 0)
        return choose_given(t->config->resume, out);
    FSDP_TRY(choose_newest(t->checkpoint_dir, out));
    if (!*out->path)
        FSDP_TRY(refuse_unusable(t->checkpoint_dir));
    if (!*out->path)
        FSDP_TRY(refuse_other_places(t));
    if (!*out->path && t->out)
        fprintf(t->out, "no checkpoint in %s: starting from the beginning\n", t->checkpoint_dir);
    return FSDP_OK;
}

/* Before the run begins: refuse to write in the place of another program's checkpoint. */
static fsdp_status refuse_foreign(const fsdp_trainer *t)
{
    char **names;
    size_t count;
    if (!fsdp_path_is_directory(t->checkpoint_dir))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(t->checkpoint_dir, &names, &count));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < count && status == FSDP_OK; i++) {
        const char *rest = "";
        bool foreign = false;
        if (step_of(names[i], &rest) <= t->step || *rest)
            continue;
        char *path = fsdp_path_join(t->checkpoint_dir, names[i]);
        status = path ? is_foreign(path, &foreign) : FSDP_ERR_NOMEM;
        if (status == FSDP_OK && foreign)
            status = fsdp_error(FSDP_ERR_INVALID,
                                "%s is not a checkpoint of 'fsdp train' and would be replaced: use "
                                "another --checkpoint-dir",
                                path);
        fsdp_free(path);
    }
    fsdp_free(names);
    return status;
}

/* Sources for the number of steps that a checkpoint's run had taken. */
typedef struct origin {
    fsdp_trainer_state_owner state;
    /* by the optimizer, according to trainer_state.json of this program; -1: unknown */
    int64_t counted;
} origin;

/* Without trainer_state.json, the optimizer's state or the user must supply the step. */
static fsdp_status check_step_is_known(const fsdp_trainer *t, const char *path, const origin *from)
{
    if (from->state.kind != FSDP_TRAINER_STATE_NONE || t->config->resume_step >= 0 ||
        fsdp_state_counts_steps(t->loop.optimizer))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s: the number of steps taken is unknown, since %s does not count them: "
                      "give --resume-step N, where data and schedule continue",
                      path, fsdp_optimizer_name(t->loop.optimizer));
}

/* trainer_state.json and the optimizer's state must be from the same save. The optimizer does not
 * count skipped steps, and parameters that are frozen now no longer have a count. */
static fsdp_status check_counted(const fsdp_trainer *t, const char *path, const origin *from)
{
    const int64_t now = fsdp_trainer_counted_steps(t);
    bool frozen = false;
    for (size_t i = 0; i < t->loop.parameters.n; i++)
        frozen |= !fsdp_parameter_requires_grad(t->loop.parameters.items[i].parameter);
    const int64_t then = from->counted >= 0 ? from->counted : t->step;
    const bool less = from->counted >= 0 && !frozen && now < then;
    if (!fsdp_state_counts_steps(t->loop.optimizer) || (now <= then && !less))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_FORMAT,
                      "%s/" FSDP_TRAINER_STATE
                      " belongs to another save: it is of step %lld, where the optimizer had "
                      "counted %s%lld, but the optimizer's state in this folder has counted %lld. "
                      "To resume from the other files, remove " FSDP_TRAINER_STATE,
                      path, (long long)t->step, from->counted >= 0 ? "" : "at most ",
                      (long long)then, (long long)now);
}

static fsdp_status take_step(fsdp_trainer *t, const char *path, const origin *from)
{
    const int64_t given = t->config->resume_step;
    if (from->state.kind == FSDP_TRAINER_STATE_TRANSFORMERS)
        t->step = from->state.step;
    else if (from->state.kind == FSDP_TRAINER_STATE_NONE)
        t->step =
            fsdp_state_counts_steps(t->loop.optimizer) ? fsdp_trainer_counted_steps(t) : given;
    if (from->state.kind != FSDP_TRAINER_STATE_NONE)
        FSDP_TRY(check_counted(t, path, from));
    if (given >= 0 && given != t->step)
        return fsdp_error(FSDP_ERR_INVALID, "%s is of step %lld, not of --resume-step %lld", path,
                          (long long)t->step, (long long)given);
    return FSDP_OK;
}

/* Rows are chosen by step: if epochs had another length, the rows were others. Prints a warning. */
static void warn_of_other_epoch_length(const fsdp_trainer *t, const fsdp_trainer_state_owner *state)
{
    const double steps = state->epoch > 0.0 ? (double)state->step / state->epoch : 0.0;
    const double ours = (double)t->steps_per_epoch;
    if (t->out && steps > 0.0 && (steps > ours + 1.0 || steps < ours - 1.0))
        fprintf(t->out,
                "resuming with %lld steps in an epoch; the saved run had %.6g (--batch-size, "
                "--gradient-accumulation-steps, ranks, rows)\n",
                (long long)t->steps_per_epoch, steps);
}

static void ignore_damage(const char *damage, void *context)
{
    (void)damage, (void)context; /* the damage is in the last error */
}

/* If there is no model, name the file that the run wrote and that is missing now. */
static fsdp_status check_there(const char *path)
{
    size_t damages = 0;
    if (fsdp_checkpoint_files_exist(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_folder_verify(path, ignore_damage, NULL, &damages));
    return damages ? FSDP_ERR_NOT_FOUND : FSDP_OK;
}

/* For a folder of this program. Rank 0. */
static fsdp_status check_folder_is_whole(const char *path)
{
    fsdp_json *state;
    FSDP_TRY(check_there(path));
    FSDP_TRY(fsdp_trainer_state_open(path, &state));
    fsdp_status status = fsdp_checkpoint_tie_check(fsdp_json_root(state), path);
    fsdp_json_destroy(state);
    return status;
}

/* Parts of ranks (LOCAL_STATE_DICT) are always this program's. Rank 0 looks for all other forms. */
static fsdp_status is_of_another_program(const fsdp_trainer *t, const char *path, bool *yes)
{
    fsdp_checkpoint_parts parts;
    const char *lacks = NULL;
    int32_t found =
        fsdp_trainer_is_first(t) && (fsdp_checkpoint_foreign_find(path, &parts, &lacks) || lacks);
    FSDP_TRY(fsdp_broadcast(t->group, &found, sizeof found, 0));
    *yes = found != 0;
    return FSDP_OK;
}

static fsdp_status read_files(fsdp_trainer *t, const char *path, const origin *from)
{
    bool foreign = false;
    if (from->state.kind != FSDP_TRAINER_STATE_OWN)
        FSDP_TRY(is_of_another_program(t, path, &foreign));
    return foreign ? fsdp_checkpoint_foreign_read(t, path) : fsdp_checkpoint_files_read(t, path);
}

static fsdp_status load_checkpoint(fsdp_trainer *t, const char *path)
{
    origin from = {.counted = -1};
    FSDP_TRY(fsdp_agree(t->group, fsdp_trainer_state_find(path, &from.state)));
    if (from.state.kind == FSDP_TRAINER_STATE_OWN) {
        FSDP_TRY(fsdp_agree(t->group, fsdp_trainer_state_read(t, path, &from.counted)));
        FSDP_TRY(
            fsdp_agree(t->group, fsdp_trainer_is_first(t) ? check_folder_is_whole(path) : FSDP_OK));
    }
    FSDP_TRY(check_step_is_known(t, path, &from));
    FSDP_TRY(read_files(t, path, &from));
    FSDP_TRY(take_step(t, path, &from));
    warn_of_other_epoch_length(t, &from.state);
    t->first_step = t->step;
    t->result->steps = t->step;
    t->resumed_from = fsdp_strdup(path);
    if (t->out)
        fprintf(t->out, "resuming from %s: step %lld of %lld%s\n", path, (long long)t->step,
                (long long)t->total_steps, t->step < t->total_steps ? "" : ", nothing left to do");
    return t->resumed_from ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Kinds of damage that an older checkpoint may not have. A damaged pickle is reported as
 * unsupported. */
static bool is_damage(fsdp_status status)
{
    return status == FSDP_ERR_FORMAT || status == FSDP_ERR_IO || status == FSDP_ERR_NOT_FOUND ||
           status == FSDP_ERR_UNSUPPORTED;
}

static fsdp_status load_chosen(fsdp_trainer *t)
{
    choice chosen = {0};
    fsdp_status status = folder_of(t, &t->checkpoint_dir);
    if (status == FSDP_OK && fsdp_trainer_is_first(t))
        status = choose_checkpoint(t, &chosen);
    FSDP_TRY(fsdp_agree(t->group, status));
    FSDP_TRY(fsdp_broadcast(t->group, &chosen, sizeof chosen, 0));
    if (!*chosen.path)
        return FSDP_OK;
    fsdp_trainer_at(t, "resuming");
    status = load_checkpoint(t, chosen.path);
    if (status == FSDP_ERR_NOT_FOUND && t->was_frozen)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: %s was frozen when this was saved and is trained now; "
                          "--frozen-prefixes must still name it",
                          fsdp_last_error(), t->was_frozen);
    if (is_damage(status) && *chosen.previous)
        return fsdp_error(status, "%s; --resume %s uses another checkpoint", fsdp_last_error(),
                          chosen.previous);
    return status;
}

/* A checkpoint of a later step than the resumed one is kept, as by transformers' Trainer, until
 * this run reaches its step, if it does. */
static fsdp_status print_later_checkpoint(const fsdp_trainer *t)
{
    int64_t *steps;
    size_t n;
    if (!t->resumed_from || fsdp_checkpoint_rotation_of(t).remove_later)
        return FSDP_OK;
    FSDP_TRY(list_steps(t->checkpoint_dir, true, &steps, &n));
    if (n && steps[n - 1] > t->step)
        fsdp_trainer_say(t,
                         "%s holds checkpoint-%lld of a later step: it is kept until this run "
                         "saves that step, and --resume without a folder uses it",
                         t->checkpoint_dir, (long long)steps[n - 1]);
    fsdp_free(steps);
    return FSDP_OK;
}

static fsdp_status check_other_checkpoints(const fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(refuse_foreign(t));
    return print_later_checkpoint(t);
}

fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO && !t->config->resume)
        return FSDP_OK;
    FSDP_TRY(load_chosen(t));
    return fsdp_agree(t->group, fsdp_trainer_is_first(t) ? check_other_checkpoints(t) : FSDP_OK);
}
