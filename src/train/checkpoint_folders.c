/* See checkpoint_folders.h. */
#include "src/train/checkpoint_folders.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/comm/agree.h"
#include "src/dcp/group_directory.h"
#include "src/hf/stale_files.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint_files.h"
#include "src/train/checkpoint_foreign.h"
#include "src/train/checkpoint_state.h"
#include "src/train_config/config_paths.h"

static const char PREFIX[] = "checkpoint-";
/* The number after this prefix counts Accelerate's saves, not steps. */
static const char ACCELERATE_PREFIX[] = "checkpoint_";

fsdp_status fsdp_checkpoint_folder_of_run(const fsdp_trainer *t, char **dir)
{
    const fsdp_train_config *c = t->config;
    const char *output = c->output ? c->output : "";
    *dir = c->checkpoint_dir
               ? fsdp_strdup(c->checkpoint_dir)
               : fsdp_strdup_printf("%.*s-checkpoints", (int)fsdp_path_length(output), output);
    return *dir ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Return true if --resume is "auto", this run's own folder of checkpoints, or a checkpoint in that
 * folder. Also return true if the path does not exist. */
static bool resumes_own(const fsdp_trainer *t)
{
    const char *given = t->config->resume;
    char *folder = NULL, *parent = NULL;
    if (!given || strcmp(given, "auto") == 0)
        return given != NULL;
    if (!fsdp_path_is_directory(given) && !fsdp_path_is_file(given))
        return true; /* choose_given() will report that the path does not exist */
    parent = fsdp_path_parent(given);
    bool own = parent && fsdp_checkpoint_folder_of_run(t, &folder) == FSDP_OK &&
               (fsdp_train_is_same_file(given, folder) || fsdp_train_is_same_file(parent, folder));
    fsdp_free(folder);
    fsdp_free(parent);
    return own;
}

bool fsdp_trainer_may_replace(const fsdp_trainer *t)
{
    return t->config->overwrite_output || t->config->restarted || resumes_own(t);
}

char *fsdp_checkpoint_path_of_step(const char *folder, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "%s%lld", PREFIX, (long long)step);
    return fsdp_path_join(folder, name);
}

/* Return the number after `prefix` in `name`, and set *rest to the text after this number. If the
 * number is too large, return -1. If `name` does not begin with `prefix` and a number, return -1,
 * and do not change *rest. A number with leading zeros is not accepted, because this program writes
 * none: checkpoint-00008 is not the folder of step 8. */
static int64_t number_after(const char *prefix, const char *name, const char **rest)
{
    const size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9' ||
        (name[n] == '0' && name[n + 1] >= '0' && name[n + 1] <= '9'))
        return -1;
    long long number = strtoll(name + n, &end, 10);
    *rest = end;
    return number < LLONG_MAX ? (int64_t)number : -1;
}

int64_t fsdp_checkpoint_step_of_name(const char *name, const char **rest)
{
    return number_after(PREFIX, name, rest);
}

int64_t fsdp_checkpoint_accelerate_number(const char *name, const char **rest)
{
    return number_after(ACCELERATE_PREFIX, name, rest);
}

bool fsdp_checkpoint_is_complete(const char *dir)
{
    return fsdp_checkpoint_files_exist(dir) &&
           (fsdp_directory_has_file(dir, FSDP_TRAINER_STATE) || !fsdp_checkpoint_needs_state(dir));
}

fsdp_status fsdp_checkpoint_is_foreign(const char *dir, bool *yes)
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
        /* The trainer_state.json that transformers' Trainer writes has no field "format". */
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

/* Set *yes to true if `dir` is a complete checkpoint, else to false. If `ours` is true, also set it
 * to false for a checkpoint of another program. */
static fsdp_status is_usable(const char *dir, bool ours, bool *yes)
{
    bool foreign = false;
    *yes = fsdp_checkpoint_is_complete(dir);
    if (*yes && ours)
        FSDP_TRY(fsdp_checkpoint_is_foreign(dir, &foreign));
    *yes &= !foreign;
    return FSDP_OK;
}

fsdp_status fsdp_checkpoint_list_steps(const char *folder, bool ours, int64_t **steps, size_t *n)
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
        int64_t step = fsdp_checkpoint_step_of_name(names[i], &rest);
        if (step < 0 || *rest)
            continue;
        char *path = fsdp_path_join(folder, names[i]);
        bool yes = false;
        status = path ? is_usable(path, ours, &yes) : FSDP_ERR_NOMEM;
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

/* Print a note if `name` is the name of an unfinished checkpoint that another host wrote in
 * `folder`. */
static void note_of_other_host(const char *folder, const char *name, FILE *notes)
{
    bool is_local = false;
    if (fsdp_atomic_directory_is_unfinished(name, &is_local) && !is_local)
        fprintf(notes,
                "note: %s/%s is an unfinished checkpoint that another host has begun; remove it if "
                "that run has ended\n",
                folder, name);
}

fsdp_status fsdp_checkpoint_remove_unfinished(const char *folder, FILE *notes)
{
    char **names;
    size_t count;
    if (!fsdp_path_is_directory(folder))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(folder, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *rest = "";
        int64_t step = fsdp_checkpoint_step_of_name(names[i], &rest);
        char *path = step >= 0 && *rest == '.' ? fsdp_checkpoint_path_of_step(folder, step) : NULL;
        if (path)
            fsdp_atomic_directory_sweep(path, 0);
        if (path && notes)
            note_of_other_host(folder, names[i], notes);
        fsdp_free(path);
    }
    fsdp_free(names);
    return FSDP_OK;
}

/* Return an error if `folder` has checkpoints of an earlier run. Otherwise this run would overwrite
 * the checkpoints of the steps that it reaches. The checkpoints of later steps would remain, and
 * --resume would take them for checkpoints of this run. */
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
        if (fsdp_checkpoint_step_of_name(names[i], &rest) >= 0 && !*rest)
            status = fsdp_error(FSDP_ERR_INVALID,
                                "%s holds %s of an earlier run: --resume continues from there, "
                                "--overwrite-output starts over",
                                folder, names[i]);
    }
    fsdp_free(names);
    return status;
}

static fsdp_status check_folder(const fsdp_trainer *t, const char *folder)
{
    char *path = fsdp_checkpoint_path_of_step(folder, 0);
    fsdp_status status =
        path ? fsdp_atomic_directory_check(path, FSDP_EXISTING_UPDATE) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    if (status == FSDP_OK && !fsdp_trainer_may_replace(t))
        status = refuse_earlier_run(folder);
    fsdp_error_context(status, t->config->checkpoint_dir
                                   ? "--checkpoint-dir"
                                   : "the folder of checkpoints beside --output (--checkpoint-dir "
                                     "names another one)");
    return status;
}

fsdp_status fsdp_checkpoint_check(const fsdp_trainer *t)
{
    char *folder;
    if (t->config->save_strategy == FSDP_SAVE_NO)
        return FSDP_OK;
    FSDP_TRY(fsdp_checkpoint_folder_of_run(t, &folder));
    fsdp_status status = check_folder(t, folder);
    fsdp_free(folder);
    return status;
}

/* Remove the checkpoint's files from its folder `path`, but keep the folder and the user's files in
 * it. */
static fsdp_status empty_checkpoint(const char *path)
{
    fsdp_atomic_directory *others;
    FSDP_TRY(fsdp_atomic_directory_begin(path, FSDP_EXISTING_UPDATE, &others));
    fsdp_atomic_directory_drop(others, fsdp_is_stale_checkpoint_file, NULL);
    return fsdp_atomic_directory_commit(others);
}

/* Remove a checkpoint. If its folder also has files of the user, remove only the checkpoint's
 * files. Otherwise, rename the folder to a temporary name and then remove it, so that a
 * half-removed checkpoint never has the name of a checkpoint. If this process is killed, a later
 * run removes the temporary folder. */
static fsdp_status remove_checkpoint(const char *folder, int64_t step)
{
    char *path = fsdp_checkpoint_path_of_step(folder, step);
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

/* Called after the checkpoint of step r->step has appeared. Keep the newest r->limit of the
 * checkpoints whose step is at most r->step, and remove the older ones. Checkpoints of later steps
 * are from another run. If r->remove_later is true, this run replaces that other run. In this case,
 * also remove the checkpoints of later steps, since --resume would otherwise find them. */
fsdp_status fsdp_checkpoint_remove_old(const fsdp_checkpoint_rotation *r)
{
    int64_t *steps;
    size_t n;
    if (r->limit == 0 && !r->remove_later)
        return FSDP_OK;
    fsdp_status status = fsdp_checkpoint_list_steps(r->folder, true, &steps, &n);
    for (; n && steps[n - 1] > r->step && status == FSDP_OK; n--)
        if (r->remove_later)
            status = remove_checkpoint(r->folder, steps[n - 1]);
    for (size_t i = 0; r->limit && i + (size_t)r->limit < n && status == FSDP_OK; i++)
        status = remove_checkpoint(r->folder, steps[i]);
    fsdp_free(steps);
    return status;
}

/* --- hosts that have disks of their own --- */

static bool contains_step(const int64_t *steps, size_t n, int64_t step)
{
    for (size_t i = 0; i < n; i++)
        if (steps[i] == step)
            return true;
    return false;
}

/* Return the step of the oldest checkpoint that is kept. Return 0 if all are kept, because there
 * are no more than r->limit. `all` has a row [most] for each rank. If the rank leads a disk, its
 * row has the steps of the checkpoints on this disk. Unused elements are -1. */
static int64_t oldest_kept(const fsdp_checkpoint_rotation *r, const fsdp_disks *disks,
                           const int64_t *all, size_t most)
{
    int64_t kept = 0, oldest = r->step;
    for (size_t i = most; i-- > 0 && kept < r->limit;) {
        const int64_t step = all[i];
        bool everywhere = step >= 0 && step <= r->step;
        for (int d = 1; d < disks->n && everywhere; d++)
            everywhere = contains_step(all + (size_t)disks->leaders[d] * most, most, step);
        if (everywhere) {
            oldest = step;
            kept++;
        }
    }
    return kept < r->limit ? 0 : oldest;
}

/* Remove, on this leader's disk, the checkpoints of steps before `oldest`. If r->remove_later is
 * true, also remove the checkpoints of steps after r->step. */
static fsdp_status remove_listed(const fsdp_checkpoint_rotation *r, const int64_t *steps, size_t n,
                                 int64_t oldest)
{
    for (size_t i = 0; i < n; i++)
        if ((r->limit && steps[i] < oldest) || (r->remove_later && steps[i] > r->step))
            FSDP_TRY(remove_checkpoint(r->folder, steps[i]));
    return FSDP_OK;
}

/* Remove old checkpoints on each disk. `steps` [n] are the steps of the checkpoints on this rank's
 * disk if this rank leads the disk; otherwise n is 0. `mine` is this rank's status so far.
 * Collective. */
static fsdp_status remove_on_disks(fsdp_status mine, const fsdp_checkpoint_rotation *r,
                                   const fsdp_disks *disks, fsdp_group *group, const int64_t *steps,
                                   size_t n)
{
    int64_t most = (int64_t)n;
    FSDP_TRY(fsdp_agree(group, mine));
    FSDP_TRY(fsdp_all_reduce(group, &most, 1, FSDP_DTYPE_I64, FSDP_REDUCE_MAX));
    const size_t row = (size_t)most + 1;
    int64_t *own = fsdp_calloc(row, sizeof *own);
    int64_t *all = fsdp_calloc(row * (size_t)fsdp_group_world_size(group), sizeof *all);
    for (size_t i = 0; own && i < row; i++)
        own[i] = i < n ? steps[i] : -1;
    fsdp_status status = fsdp_agree_gather(group, own && all ? FSDP_OK : FSDP_ERR_NOMEM, own,
                                           row * sizeof *own, all);
    if (status == FSDP_OK)
        status = fsdp_agree(group, remove_listed(r, steps, n, oldest_kept(r, disks, all, row)));
    fsdp_free(all);
    fsdp_free(own);
    return status;
}

fsdp_status fsdp_checkpoint_remove_old_on_disks(const fsdp_checkpoint_rotation *r,
                                                const fsdp_disks *disks, fsdp_group *group)
{
    int64_t *steps = NULL;
    size_t n = 0;
    if (r->limit == 0 && !r->remove_later)
        return FSDP_OK;
    fsdp_status status = FSDP_OK;
    if (fsdp_disks_leads(disks, fsdp_group_rank(group)))
        status = fsdp_checkpoint_list_steps(r->folder, true, &steps, &n);
    status = remove_on_disks(status, r, disks, group, steps, n);
    fsdp_free(steps);
    return status;
}

void fsdp_checkpoint_print_disks(fsdp_trainer *t, const char *path, const fsdp_disks *disks)
{
    if (!t->knows_disks && fsdp_trainer_is_first(t))
        fsdp_trainer_print(
            t,
            "checkpoints are on %d disks, each with the files of the ranks of its "
            "hosts; 'fsdp checkpoint gather %s -o DIR', started by mpirun or srun on "
            "these hosts, puts one together",
            disks->n, path);
    t->knows_disks = true;
}

fsdp_checkpoint_rotation fsdp_checkpoint_rotation_of(const fsdp_trainer *t)
{
    return (fsdp_checkpoint_rotation){.folder = t->checkpoint_dir,
                                      .step = t->step,
                                      .limit = t->config->save_total_limit,
                                      .remove_later = t->config->overwrite_output &&
                                                      !(t->resumed_from && resumes_own(t))};
}
