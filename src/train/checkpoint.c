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
#include "src/train_config/config_paths.h"
#include "src/report/human.h"

/* --- folders --- */

static const char PREFIX[] = "checkpoint-";
/* Accelerate numbers its saves, so the number after this prefix is not a step */
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

/* Return the number after `prefix` in `name`, or -1 if `name` has another form. *rest becomes the
 * text after the number. */
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

/* Return <step> if `name` begins with "checkpoint-<step>", else -1. *rest becomes the text after
 * <step>. */
static int64_t step_of(const char *name, const char **rest)
{
    return number_after(PREFIX, name, rest);
}

static bool is_complete(const char *dir)
{
    return fsdp_checkpoint_files_exist(dir) &&
           (fsdp_directory_has_file(dir, FSDP_TRAINER_STATE) || !fsdp_checkpoint_needs_state(dir));
}

/* Set *yes if `dir` is something other than a checkpoint of this program. An empty folder and a
 * damaged checkpoint count as this program's. */
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
        /* transformers' file has no "format" */
        *yes = !fsdp_json_has(fsdp_json_root(doc), "format");
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

/* Set *yes if `dir` is a complete checkpoint. If `ours`, it must also be a checkpoint of this
 * program. */
static fsdp_status is_usable(const char *dir, bool ours, bool *yes)
{
    bool foreign = false;
    *yes = is_complete(dir);
    if (*yes && ours)
        FSDP_TRY(is_foreign(dir, &foreign));
    *yes &= !foreign;
    return FSDP_OK;
}

/* List the steps of the complete checkpoints in `folder` in ascending order; if `ours`, only of
 * those that this program wrote. *steps is owned by the caller. *n is 0 if the folder does not
 * exist. */
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

/* Refuse a folder with checkpoints of an earlier run. This run would overwrite some of them, and
 * --resume would mistake checkpoints of later steps for this run's. */
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

/* Remove the files of the checkpoint from its folder `path`, but keep the folder and the user's
 * files in it. */
static fsdp_status empty_checkpoint(const char *path)
{
    fsdp_atomic_directory *others;
    FSDP_TRY(fsdp_atomic_directory_begin(path, FSDP_EXISTING_UPDATE, &others));
    fsdp_atomic_directory_drop(others, fsdp_is_stale_checkpoint_file, NULL);
    return fsdp_atomic_directory_commit(others);
}

/* Remove a checkpoint. If its folder also has files of the user, remove only the checkpoint's
 * files. Else first rename the folder to a temporary name, so that a half-removed checkpoint never
 * has the name of a checkpoint. If this process is killed, no later run restores the temporary
 * folder. */
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

/* Keep the newest r->limit checkpoints up to step r->step, and remove older ones. Checkpoints of
 * later steps were left by another run. They are removed if this run replaces that run
 * (r->remove_later), because --resume would find them. */
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

/* Save a checkpoint, after the previous save has ended. The last save of an interrupted run is
 * synchronous, since no training would continue during it. */
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

/* Set *interrupted if any rank received a signal. End the checkpoint in progress if it has failed
 * on any rank or is finished on all ranks. Collective. */
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

/* Sweep again: threads of a rank that was killed just before this run may still have been writing
 * when this run swept for the first time. */
fsdp_status fsdp_checkpoint_finish(fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(fsdp_async_checkpoint_end(t));
    return fsdp_agree(t->group,
                      fsdp_trainer_is_first(t) ? remove_unfinished(t->checkpoint_dir) : FSDP_OK);
}

/* --- resuming --- */

/* The checkpoint that rank 0 has chosen; plain data that is sent to all ranks. */
typedef struct choice {
    char path[PATH_MAX]; /* "": start from the beginning */
    /* another complete checkpoint that an error message can suggest, or "". If --resume names
     * `path`, it is the newest other checkpoint in the same folder, else the one before `path` */
    char previous[PATH_MAX];
} choice;

/* Choose the newest of Accelerate's checkpoints, checkpoint_<i>. Called if there is no
 * checkpoint-<step>. */
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

/* Return why `dir`, a folder with the name of a checkpoint, cannot be resumed. */
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

/* Called if no checkpoint in `folder` can be resumed. Return an error if there is a checkpoint,
 * because otherwise the run would silently start from the beginning. Empty checkpoints are ignored.
 */
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

/* Return the error for a --resume path that does not exist. The message names the newest checkpoint
 * in the parent folder, if there is one. */
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

/* Set out->previous to the newest other checkpoint in the folder that contains the checkpoint
 * `given`. The user can resume from it if `given` is damaged. */
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

/* Choose the checkpoint for --resume `given`, which is a checkpoint (a folder or a file of
 * torch.save) or a folder of checkpoints. */
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

/* Return an error that names the newest checkpoint in `folder`/`within`, or in `folder` if `within`
 * is NULL. Return FSDP_OK if there is no checkpoint. */
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

/* Return an error if there is a checkpoint where another program saves its checkpoints:
 * transformers' Trainer in its output folder, Accelerate in the folder "checkpoints" of its output
 * folder or its project folder. */
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

/* Before the run begins: refuse a folder in which a later step of this run would replace another
 * program's checkpoint. */
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

/* Sources for the number of steps that the saved run had taken. */
typedef struct origin {
    fsdp_trainer_state_owner state;
    /* steps that the optimizer had counted, according to this program's trainer_state.json; -1:
     * unknown */
    int64_t counted;
} origin;

/* Return an error if the number of steps taken is unknown: without trainer_state.json, the
 * optimizer's state or --resume-step must supply it. */
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

/* Check that trainer_state.json and the optimizer's state are from the same save. The optimizer's
 * count may be less than the step, since skipped steps are not counted. It may be less than the
 * saved count if a parameter is frozen now, since that parameter no longer has a count. */
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

/* Print a warning if the epochs of the saved run had another length. The rows of a step depend on
 * this length, so this run reads other rows than the saved run would have read. */
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
    (void)damage, (void)context; /* the last error describes the damage */
}

/* If `path` has no model and optimizer, return an error that names a missing file that the saved
 * run had written. */
static fsdp_status check_there(const char *path)
{
    size_t damages = 0;
    if (fsdp_checkpoint_files_exist(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_folder_verify(path, ignore_damage, NULL, &damages));
    return damages ? FSDP_ERR_NOT_FOUND : FSDP_OK;
}

/* Check that a checkpoint folder of this program has its files, and that they are from the same
 * save as its trainer_state.json. Called by rank 0. */
static fsdp_status check_folder_is_whole(const char *path)
{
    fsdp_json *state;
    FSDP_TRY(check_there(path));
    FSDP_TRY(fsdp_trainer_state_open(path, &state));
    fsdp_status status = fsdp_checkpoint_tie_check(fsdp_json_root(state), path);
    fsdp_json_destroy(state);
    return status;
}

/* Set *yes if the files at `path` must be read as another program's. Called if trainer_state.json
 * is not this program's. Then all forms count as another program's except LOCAL_STATE_DICT, which
 * only this program writes. Rank 0 decides. Collective. */
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

/* Whether an error may be due to damage, so that an older checkpoint may be intact. A damaged
 * pickle is reported as FSDP_ERR_UNSUPPORTED. */
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

/* Print a line if there is a checkpoint of a later step than the resumed one. As with transformers'
 * Trainer, that checkpoint is kept until this run saves the same step. */
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
