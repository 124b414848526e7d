/* Chooses and loads the checkpoint from which a run resumes, and explains why a checkpoint cannot
 * be used. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/comm/agree.h"
#include "src/comm/comm.h"
#include "src/dcp/disks.h"
#include "src/dcp/group_directory.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint.h"
#include "src/train/checkpoint_files.h"
#include "src/train/checkpoint_folders.h"
#include "src/train/checkpoint_foreign.h"
#include "src/train/checkpoint_hosts.h"
#include "src/train/checkpoint_state.h"
#include "src/train/checkpoint_tie.h"
#include "src/train/checkpoint_verify.h"

/* The checkpoint that rank 0 has chosen; plain data that is sent to all ranks. */
typedef struct choice {
    char path[PATH_MAX]; /* "": start from the beginning */
    /* Another complete checkpoint, which an error message can suggest; "": none. If the user named
     * `path` with --resume, `previous` is the newest of the other checkpoints in the same folder.
     * If this program chose `path` as the newest checkpoint of a folder, `previous` is the second
     * newest. */
    char previous[PATH_MAX];
} choice;

/* Choose the newest of Accelerate's checkpoints, checkpoint_<i>, in `folder`. Called if `folder`
 * has no complete checkpoint-<step>. */
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
        const int64_t number = fsdp_checkpoint_accelerate_number(names[i], &rest);
        if (number <= previous || *rest)
            continue;
        char *path = fsdp_path_join(folder, names[i]);
        const bool complete = path && fsdp_checkpoint_is_complete(path);
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
    fsdp_status status = fsdp_checkpoint_list_steps(folder, false, &steps, &n);
    for (size_t i = 0; i < 2 && i < n && status == FSDP_OK; i++) {
        char *path = fsdp_checkpoint_path_of_step(folder, steps[n - 1 - i]);
        if (!path)
            status = FSDP_ERR_NOMEM;
        else
            snprintf(i ? out->previous : out->path, PATH_MAX, "%s", path);
        fsdp_free(path);
    }
    fsdp_free(steps);
    return status == FSDP_OK && !*out->path ? choose_of_accelerate(folder, out) : status;
}

/* Return the reason why a run cannot resume from the folder `dir`, which has the name of a
 * checkpoint. The text is static. */
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

/* Called if the run cannot resume from any checkpoint in `folder`. Return an error if `folder`
 * contains a checkpoint folder that is not empty. Without this error, the run would silently start
 * from the beginning. */
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
        if ((fsdp_checkpoint_step_of_name(names[i], &rest) < 0 &&
             fsdp_checkpoint_accelerate_number(names[i], &rest) < 0) ||
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

/* `given` is the value of --resume, which must be a path. If it is the number of a step, return an
 * error. The message contains the path of the checkpoint of that step, and says whether it
 * exists. */
static fsdp_status refuse_number(const fsdp_trainer *t, const char *given)
{
    int64_t step = 0;
    const bool whole = *given && strspn(given, "0123456789") == strlen(given) && strlen(given) < 16;
    if (!whole || !t->checkpoint_dir)
        return FSDP_OK;
    for (const char *digit = given; *digit; digit++)
        step = 10 * step + (*digit - '0');
    char *path = fsdp_checkpoint_path_of_step(t->checkpoint_dir, step);
    if (!path)
        return FSDP_ERR_NOMEM;
    const fsdp_status status =
        fsdp_path_is_directory(path)
            ? fsdp_error(FSDP_ERR_NOT_FOUND,
                         "--resume %s: a checkpoint is given by its path: --resume %s", given, path)
            : fsdp_error(FSDP_ERR_NOT_FOUND,
                         "--resume %s: a checkpoint is given by its path, and there is no %s; "
                         "--resume without a value takes the newest one",
                         given, path);
    fsdp_free(path);
    return status;
}

/* Return the error for a --resume path that does not exist. The message names the newest checkpoint
 * in the parent folder, if there is one. */
static fsdp_status refuse_missing(const fsdp_trainer *t, const char *given)
{
    choice newest = {0};
    FSDP_TRY(refuse_number(t, given));
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

/* Set out->previous to the newest of the other checkpoints that are in the same folder as the
 * checkpoint `given`. An error message will suggest out->previous if `given` is damaged. */
static fsdp_status choose_newest_next_to(const char *given, choice *out)
{
    int64_t *steps;
    size_t n;
    const char *rest = "";
    char *parent = fsdp_path_parent(given), *name = fsdp_path_stripped(given);
    fsdp_status status =
        parent && name ? fsdp_checkpoint_list_steps(parent, false, &steps, &n) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        if (n && steps[n - 1] == fsdp_checkpoint_step_of_name(fsdp_path_name(name), &rest))
            n--;
        char *path = n ? fsdp_checkpoint_path_of_step(parent, steps[n - 1]) : NULL;
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

/* Choose the checkpoint for --resume `given`. `given` is a checkpoint (a folder, or a file written
 * by torch.save) or a folder of checkpoints. */
static fsdp_status choose_given(const fsdp_trainer *t, const char *given, choice *out)
{
    if (fsdp_path_is_file(given)) {
        FSDP_TRY(fsdp_checkpoint_foreign_check_file(given));
        snprintf(out->path, PATH_MAX, "%s", given);
        return FSDP_OK;
    }
    if (!fsdp_path_is_directory(given))
        return refuse_missing(t, given);
    if (!fsdp_checkpoint_files_exist(given))
        FSDP_TRY(choose_newest(given, out));
    if (*out->path)
        return FSDP_OK;
    if (!fsdp_directory_has_file(given, FSDP_TRAINER_STATE) && !fsdp_checkpoint_files_exist(given))
        FSDP_TRY(refuse_unusable(given));
    snprintf(out->path, PATH_MAX, "%s", given);
    return choose_newest_next_to(given, out);
}

/* Search `folder`/`within` for checkpoints, or `folder` itself if `within` is NULL. If there are
 * checkpoints, return an error that names the newest one. Otherwise return FSDP_OK. */
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

/* Called if t->checkpoint_dir has no checkpoint. Return an error if there is a checkpoint in a
 * folder where another program saves checkpoints. transformers' Trainer saves them in its output
 * folder. Accelerate saves them in the folder "checkpoints" of its output folder or of its project
 * folder. */
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
        FSDP_TRY(fsdp_checkpoint_remove_unfinished(t->checkpoint_dir, t->out));
    if (!t->config->resume)
        return FSDP_OK;
    if (strcmp(t->config->resume, "auto") != 0)
        return choose_given(t, t->config->resume, out);
    FSDP_TRY(choose_newest(t->checkpoint_dir, out));
    if (!*out->path)
        FSDP_TRY(refuse_unusable(t->checkpoint_dir));
    if (!*out->path)
        FSDP_TRY(refuse_other_places(t));
    if (!*out->path && t->out)
        fprintf(t->out, "no checkpoint in %s: starting from the beginning\n", t->checkpoint_dir);
    return FSDP_OK;
}

/* --- choosing a checkpoint on several hosts --- */

/* What kind of file or folder is at the path that --resume names, as one host sees it. If hosts
 * with disks of their own see different kinds, the kind with the largest number counts. */
typedef enum given_kind {
    GIVEN_NOTHING,
    GIVEN_FOLDER, /* a folder that is not a checkpoint itself, but may contain checkpoints */
    GIVEN_CHECKPOINT,
    GIVEN_FILE
} given_kind;

static int32_t kind_of_given(const char *given)
{
    if (fsdp_path_is_file(given))
        return GIVEN_FILE;
    if (!fsdp_path_is_directory(given))
        return GIVEN_NOTHING;
    return fsdp_checkpoint_files_exist(given) || fsdp_directory_has_file(given, FSDP_TRAINER_STATE)
               ? GIVEN_CHECKPOINT
               : GIVEN_FOLDER;
}

/* Return the error for the checkpoint `given`, which is not whole. The message names the newest
 * whole checkpoint in the same folder. Collective. */
static fsdp_status refuse_not_whole(const fsdp_trainer *t, const char *given, const char *parent,
                                    const char *why)
{
    char newest[PATH_MAX], previous[PATH_MAX], reason[FSDP_HOSTS_REASON];
    size_t n_seen;
    FSDP_TRY(
        fsdp_checkpoint_hosts_newest(t, parent, given, false, newest, previous, &n_seen, reason));
    if (!*newest)
        return fsdp_error(FSDP_ERR_NOT_FOUND,
                          "--resume %s: it is not whole: %s. No checkpoint in %s is whole on all "
                          "hosts; if the lost files exist elsewhere, copy them there, or put the "
                          "checkpoint together with 'fsdp checkpoint gather'",
                          given, why, parent);
    return fsdp_error(
        FSDP_ERR_NOT_FOUND,
        "--resume %s: it is not whole: %s. The newest checkpoint that is whole on all "
        "hosts is %s: --resume %s",
        given, why, newest, newest);
}

static fsdp_status choose_given_on_hosts(const fsdp_trainer *t, const char *given, choice *out)
{
    char reason[FSDP_HOSTS_REASON], previous[PATH_MAX];
    size_t n_seen;
    bool whole;
    char *parent = fsdp_path_parent(given), *name = fsdp_path_stripped(given);
    fsdp_status status = fsdp_agree(t->group, parent && name ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = fsdp_checkpoint_hosts_survey(t, name, &whole, reason);
    if (status == FSDP_OK && !whole)
        status = refuse_not_whole(t, name, parent, reason);
    if (status == FSDP_OK) {
        snprintf(out->path, PATH_MAX, "%s", given);
        status = fsdp_checkpoint_hosts_newest(t, parent, name, false, out->previous, previous,
                                              &n_seen, reason);
    }
    fsdp_free(name);
    fsdp_free(parent);
    return status;
}

/* Choose the newest checkpoint in `folder` that is whole on all hosts. If no host has any
 * checkpoint, leave out->path empty. Collective. */
static fsdp_status choose_newest_on_hosts(const fsdp_trainer *t, const char *folder, choice *out)
{
    char reason[FSDP_HOSTS_REASON];
    size_t n_seen;
    FSDP_TRY(fsdp_checkpoint_hosts_newest(t, folder, NULL, true, out->path, out->previous, &n_seen,
                                          reason));
    if (*out->path || !n_seen)
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_NOT_FOUND,
                      "--resume: no checkpoint in %s is whole on all hosts. The newest one: %s. "
                      "Without --resume the run starts from the beginning",
                      folder, reason);
}

/* Set *out to the choice of rank 0. Collective. */
static fsdp_status choose_on_rank_0(const fsdp_trainer *t, choice *out)
{
    fsdp_status status = fsdp_trainer_is_first(t) ? choose_checkpoint(t, out) : FSDP_OK;
    FSDP_TRY(fsdp_agree(t->group, status));
    return fsdp_broadcast(t->group, out, sizeof *out, 0);
}

/* Choose the checkpoint on a job whose hosts may have disks of their own: all hosts examine the
 * checkpoints. Rank 0 alone chooses, or reports the error, in three cases: --resume names a file,
 * --resume names nothing that exists, or no whole checkpoint is found. Collective. */
static fsdp_status choose_on_hosts(const fsdp_trainer *t, choice *out)
{
    const bool leads = fsdp_group_leads_host(t->group, fsdp_group_rank(t->group));
    const bool is_auto = t->config->resume && strcmp(t->config->resume, "auto") == 0;
    const char *given = is_auto ? t->checkpoint_dir : t->config->resume;
    if (t->config->save_strategy != FSDP_SAVE_NO)
        FSDP_TRY(fsdp_agree(t->group,
                            leads ? fsdp_checkpoint_remove_unfinished(t->checkpoint_dir, t->out)
                                  : FSDP_OK));
    if (!given)
        return FSDP_OK;
    int32_t kind = is_auto ? GIVEN_FOLDER : kind_of_given(given);
    FSDP_TRY(fsdp_all_reduce(t->group, &kind, 1, FSDP_DTYPE_I32, FSDP_REDUCE_MAX));
    if (kind == GIVEN_CHECKPOINT)
        return choose_given_on_hosts(t, given, out);
    if (kind == GIVEN_FOLDER)
        FSDP_TRY(choose_newest_on_hosts(t, given, out));
    return *out->path ? FSDP_OK : choose_on_rank_0(t, out);
}

/* --- the task prefix --- */

/* Set out->path to the folder of the checkpoint that --resume continues, or to "" if there is none.
 * Errors in the choice are not reported here: choose_checkpoint() is called later and reports
 * them. */
static fsdp_status find_saved_state(const fsdp_trainer *t, choice *out)
{
    const char *given = t->config->resume;
    char *folder = NULL;
    if (!given)
        return FSDP_OK;
    if (strcmp(given, "auto") == 0)
        FSDP_TRY(fsdp_checkpoint_folder_of_run(t, &folder));
    const char *from = folder ? folder : given;
    fsdp_status status = FSDP_OK;
    if (fsdp_path_is_directory(from) && (folder || !fsdp_checkpoint_files_exist(from)))
        status = choose_newest(from, out);
    if (status == FSDP_OK && !*out->path && !folder && fsdp_path_is_directory(given))
        snprintf(out->path, PATH_MAX, "%s", given);
    fsdp_free(folder);
    return status;
}

/* Read the task prefix from the trainer_state.json of the checkpoint `path`, if this program wrote
 * this file. *prefix stays NULL if the file has no task prefix, or if the file is damaged;
 * fsdp_checkpoint_resume() will report the damage. */
static fsdp_status read_prefix(const char *path, char **prefix)
{
    fsdp_trainer_state_owner owner;
    fsdp_json *state = NULL;
    fsdp_json_node configuration;
    const char *text = NULL;
    fsdp_status status = fsdp_trainer_state_find(path, &owner);
    if (status == FSDP_OK && owner.kind != FSDP_TRAINER_STATE_OWN)
        return FSDP_OK;
    if (status == FSDP_OK)
        status = fsdp_trainer_state_open(path, &state);
    if (status == FSDP_OK)
        status = fsdp_json_get_object(fsdp_json_root(state), "configuration", &configuration);
    if (status == FSDP_OK)
        status = fsdp_json_opt_str(configuration, "task-prefix", NULL, &text);
    if (status == FSDP_OK && text && !(*prefix = fsdp_strdup(text)))
        status = FSDP_ERR_NOMEM;
    fsdp_json_destroy(state);
    return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

/* Send the prefix that rank 0 has read to all ranks, because other hosts may not have the file.
 * Collective. */
static fsdp_status share_prefix(fsdp_trainer *t)
{
    int64_t bytes = t->resumed_prefix ? (int64_t)strlen(t->resumed_prefix) + 1 : 0;
    FSDP_TRY(fsdp_broadcast(t->group, &bytes, sizeof bytes, 0));
    if (!bytes)
        return FSDP_OK;
    if (!t->resumed_prefix)
        t->resumed_prefix = fsdp_calloc((size_t)bytes, 1);
    FSDP_TRY(fsdp_agree(t->group, t->resumed_prefix ? FSDP_OK : FSDP_ERR_NOMEM));
    return fsdp_broadcast(t->group, t->resumed_prefix, (size_t)bytes, 0);
}

fsdp_status fsdp_checkpoint_find_prefix(fsdp_trainer *t)
{
    choice chosen = {0};
    fsdp_status status = fsdp_trainer_is_first(t) ? find_saved_state(t, &chosen) : FSDP_OK;
    FSDP_TRY(fsdp_agree(t->group, status));
    FSDP_TRY(fsdp_broadcast(t->group, &chosen, sizeof chosen, 0));
    if (!*chosen.path)
        return FSDP_OK;
    status = fsdp_trainer_is_first(t) ? read_prefix(chosen.path, &t->resumed_prefix) : FSDP_OK;
    FSDP_TRY(fsdp_agree(t->group, status));
    return share_prefix(t);
}

/* Called before the first step. Return an error if a later step of this run would overwrite a
 * checkpoint in t->checkpoint_dir that was written by another program. */
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
        if (fsdp_checkpoint_step_of_name(names[i], &rest) <= t->step || *rest)
            continue;
        char *path = fsdp_path_join(t->checkpoint_dir, names[i]);
        status = path ? fsdp_checkpoint_is_foreign(path, &foreign) : FSDP_ERR_NOMEM;
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

/* What trainer_state.json says about the program of the saved run and the number of its steps. */
typedef struct origin {
    fsdp_trainer_state_owner state;
    /* steps that the optimizer had counted; -1: trainer_state.json does not say how many */
    int64_t counted;
} origin;

/* Return an error if the number of steps that the saved run had taken is unknown. Without
 * trainer_state.json, the optimizer's state or --resume-step must give this number. */
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

/* Check that trainer_state.json and the optimizer's state are from the same save.
 * trainer_state.json says how many steps the optimizer had counted. In general, the count in the
 * optimizer's state must be the same number. It may be smaller only if this run has frozen a
 * parameter, because this run's optimizer has no count for a frozen parameter.
 *
 * If trainer_state.json does not say how many steps the optimizer had counted, the count in the
 * optimizer's state must not exceed the number of steps of the run. It may be smaller, since the
 * optimizer does not count skipped steps. */
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

/* Print a warning if the epochs of the saved run had a different length. Which rows a step reads
 * depends on this length, so this run reads other rows than the saved run would have read. */
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

/* If the model or the optimizer is missing in `path`, return an error that names a missing file of
 * the saved run. */
static fsdp_status check_there(const char *path)
{
    size_t damages = 0;
    if (fsdp_checkpoint_files_exist(path))
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_folder_verify(path, ignore_damage, NULL, &damages));
    return damages ? FSDP_ERR_NOT_FOUND : FSDP_OK;
}

/* Called by rank 0 for a checkpoint folder of this program. Check that `path` has a model and an
 * optimizer, and that their files are from the same save as trainer_state.json. */
static fsdp_status check_folder_is_whole(const char *path)
{
    fsdp_json *state;
    FSDP_TRY(check_there(path));
    FSDP_TRY(fsdp_trainer_state_open(path, &state));
    fsdp_status status = fsdp_checkpoint_tie_check(fsdp_json_root(state), path);
    fsdp_json_destroy(state);
    return status;
}

/* Called if `path` has no trainer_state.json of this program. Set *yes to whether rank 0 finds a
 * model or an optimizer that another program may have written. LOCAL_STATE_DICT files are not
 * found, since only this program writes them. Collective. */
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

/* Return true if an error with this status may mean that the checkpoint is damaged. In that case,
 * the caller's error message suggests another checkpoint. FSDP_ERR_UNSUPPORTED is such a status,
 * because it is reported for a damaged pickle. */
static bool is_damage(fsdp_status status)
{
    return status == FSDP_ERR_FORMAT || status == FSDP_ERR_IO || status == FSDP_ERR_NOT_FOUND ||
           status == FSDP_ERR_UNSUPPORTED;
}

static fsdp_status load_chosen(fsdp_trainer *t)
{
    choice chosen = {0};
    FSDP_TRY(fsdp_agree(t->group, fsdp_checkpoint_folder_of_run(t, &t->checkpoint_dir)));
    FSDP_TRY(fsdp_group_is_on_several_hosts(t->group) ? choose_on_hosts(t, &chosen)
                                                      : choose_on_rank_0(t, &chosen));
    if (!*chosen.path)
        return FSDP_OK;
    fsdp_trainer_at(t, "resuming");
    fsdp_status status = load_checkpoint(t, chosen.path);
    if (status == FSDP_ERR_NOT_FOUND && t->was_frozen && strstr(t->was_frozen, ".lora_"))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: the run that was saved trained no adapter with %s: --lora-r and "
                          "--target-modules must be those of that run; an adapter of its model is "
                          "a new run, without --resume",
                          fsdp_last_error(), t->was_frozen);
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

/* Print a line if t->checkpoint_dir has a checkpoint of a later step than the resumed one. The
 * later checkpoint is kept until this run saves its own checkpoint of that step, as transformers'
 * Trainer does. */
static fsdp_status print_later_checkpoint(const fsdp_trainer *t)
{
    int64_t *steps;
    size_t n;
    if (!t->resumed_from || fsdp_checkpoint_rotation_of(t).remove_later)
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_list_steps(t->checkpoint_dir, true, &steps, &n));
    if (n && steps[n - 1] > t->step)
        fsdp_trainer_print(t,
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
    return fsdp_trainer_is_first(t) ? print_later_checkpoint(t) : FSDP_OK;
}

/* Return an error if the run will save files that must be in one folder, and hosts have disks of
 * their own. Collective. */
static fsdp_status check_form_on_disks(const fsdp_trainer *t)
{
    fsdp_disks disks;
    if (t->config->save_strategy == FSDP_SAVE_NO || fsdp_checkpoint_files_are_sharded(t))
        return FSDP_OK;
    char *path = fsdp_checkpoint_path_of_step(t->checkpoint_dir, 0);
    fsdp_status status = fsdp_disks_find(path ? FSDP_OK : FSDP_ERR_NOMEM, path, t->group, &disks);
    fsdp_free(path);
    if (status == FSDP_OK && disks.n > 1)
        status =
            fsdp_error(FSDP_ERR_INVALID,
                       "--checkpoint-dir %s is on the disks of %d hosts, where only "
                       "--state-dict-type SHARDED_STATE_DICT with --checkpoint-format fsdp can "
                       "be saved. Other kinds need a folder that all hosts share",
                       t->checkpoint_dir, disks.n);
    fsdp_disks_fini(&disks);
    return fsdp_agree(t->group, status);
}

fsdp_status fsdp_checkpoint_resume(fsdp_trainer *t)
{
    if (t->config->save_strategy == FSDP_SAVE_NO && !t->config->resume)
        return FSDP_OK;
    FSDP_TRY(load_chosen(t));
    FSDP_TRY(fsdp_agree(t->group, fsdp_group_leads_host(t->group, fsdp_group_rank(t->group))
                                      ? check_other_checkpoints(t)
                                      : FSDP_OK));
    return check_form_on_disks(t);
}
