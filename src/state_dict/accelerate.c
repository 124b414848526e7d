/* Saves and loads a training run as Accelerate's save_state() and load_state() do. This file
 * chooses the names of files and folders, as accelerate/utils/fsdp_utils.py and checkpointing.py of
 * Accelerate 1.15 do. Other files of this directory read and write the contents. */
#include "src/state_dict/accelerate.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/dcp/group_directory.h"
#include "src/hf/stale_files.h"
#include "src/state_dict/state_dict.h"

static const char MODEL[] = "pytorch_model_fsdp", OLD_MODEL[] = "pytorch_model";
static const char OPTIMIZER[] = "optimizer", SCHEDULER[] = "scheduler";

static const fsdp_accelerate_options *options_of(const fsdp_accelerate_options *options)
{
    static const fsdp_accelerate_options defaults = {0};
    return options ? options : &defaults;
}

/* --- names --- */

/* Set `path` to "<dir>/<what>_<i>", such as "dir/optimizer_0". */
static void folder_name(char path[PATH_MAX], const char *dir, const char *what, size_t i)
{
    snprintf(path, PATH_MAX, "%s/%s_%zu", dir, what, i);
}

/* Set `path` to "<dir>/<what>.bin" for i = 0, and to "<dir>/<what>_<i>.bin" for i > 0. */
static void file_name(char path[PATH_MAX], const char *dir, const char *what, size_t i)
{
    if (i == 0)
        snprintf(path, PATH_MAX, "%s/%s.bin", dir, what);
    else
        snprintf(path, PATH_MAX, "%s/%s_%zu.bin", dir, what, i);
}

/* Set `path` to the path of the saved model or optimizer `i` in `dir`, and *is_folder to whether it
 * is a folder (sharded) or a file (full). Return false if there is neither. */
static bool find_part(char path[PATH_MAX], const char *dir, const char *what, size_t i,
                      bool *is_folder)
{
    folder_name(path, dir, what, i);
    *is_folder = fsdp_path_is_directory(path);
    if (*is_folder)
        return true;
    file_name(path, dir, what, i);
    return fsdp_path_is_file(path);
}

static bool find_model(char path[PATH_MAX], const char *dir, size_t i, bool *is_folder)
{
    return find_part(path, dir, MODEL, i, is_folder) ||
           find_part(path, dir, OLD_MODEL, i, is_folder);
}

/* Return true if `dir` has model or optimizer `i` as one file for each rank. Only Accelerate itself
 * can read such files. */
static bool has_rank_files(const char *dir, const char *what, size_t i)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s_%zu_rank0.bin", dir, what, i);
    if (fsdp_path_is_file(path))
        return true;
    snprintf(path, sizeof path, "%s/%s_rank0.bin", dir, what);
    return i == 0 && fsdp_path_is_file(path);
}

bool fsdp_accelerate_is_folder(const char *dir)
{
    char path[PATH_MAX];
    bool is_folder;
    return find_model(path, dir, 0, &is_folder) || has_rank_files(dir, MODEL, 0);
}

static fsdp_status not_there(const char *dir, const char *what, size_t i)
{
    char file[PATH_MAX];
    if (has_rank_files(dir, what, i))
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "%s: %s was saved as files of one rank each (LOCAL_STATE_DICT, or "
                          "use_dcp=False); save it as SHARDED_STATE_DICT or FULL_STATE_DICT",
                          dir, what);
    file_name(file, dir, what, i);
    return fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is neither %s_%zu nor %s", dir, what, i,
                      fsdp_path_name(file));
}

/* Return the model that optimizer `i` updates. */
static fsdp_module *model_of(const fsdp_accelerate_state *s, size_t i)
{
    return s->models[s->model_of ? s->model_of[i] : i];
}

static size_t optimizer_of(const fsdp_accelerate_state *s, size_t scheduler)
{
    return s->optimizer_of ? s->optimizer_of[scheduler] : scheduler;
}

static fsdp_status check_indices(const char *what, const size_t *indices, size_t n, size_t limit)
{
    for (size_t i = 0; indices && i < n; i++)
        if (indices[i] >= limit)
            return fsdp_error(FSDP_ERR_INVALID, "%s[%zu] is %zu, but there are only %zu", what, i,
                              indices[i], limit);
    return FSDP_OK;
}

static fsdp_status check_counts(const fsdp_accelerate_state *s)
{
    FSDP_TRY(check_indices("model_of", s->model_of, s->n_optimizers, s->n_models));
    FSDP_TRY(check_indices("optimizer_of", s->optimizer_of, s->n_schedulers, s->n_optimizers));
    if ((!s->model_of && s->n_optimizers > s->n_models) || s->n_schedulers > s->n_optimizers)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%zu models, %zu optimizers, %zu schedulers: each optimizer is that of "
                          "the model of its number, each scheduler that of the optimizer",
                          s->n_models, s->n_optimizers, s->n_schedulers);
    return FSDP_OK;
}

/* --- one model or optimizer: a folder (sharded) or a file (full) --- */

/* Create *out, the nested dict {key: dict}. The caller owns it. */
static fsdp_status wrap(const char *key, const fsdp_state_dict *dict, fsdp_state_dict **out)
{
    fsdp_state_dict *outer;
    FSDP_TRY(fsdp_state_dict_create(&outer));
    fsdp_status status = fsdp_state_dict_add(outer, key, dict);
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(outer);
        return status;
    }
    *out = outer;
    return FSDP_OK;
}

static fsdp_status write_folder(const fsdp_state_dict *dict, const char *key, const char *path,
                                fsdp_group *group)
{
    fsdp_state_dict *outer = NULL;
    fsdp_status status = wrap(key, dict, &outer);
    if (status == FSDP_OK && (!group || fsdp_group_rank(group) == 0))
        status = fsdp_directory_make(path);
    const fsdp_group_place place = {.path = path, .is_there = true};
    status = fsdp_state_dict_save(status, outer, &place, group);
    fsdp_state_dict_destroy(outer);
    return status;
}

/* Write model or optimizer `i` into `dir`. `what` is the beginning of the name of the file or
 * folder. A folder contains {key: dict}; a file contains `dict` itself. */
static fsdp_status write_part(const fsdp_state_dict *dict, const char *dir, const char *what,
                              const char *key, size_t i, fsdp_group *group,
                              const fsdp_accelerate_options *options)
{
    char path[PATH_MAX];
    if (options->type == FSDP_STATE_DICT_FULL) {
        file_name(path, dir, what, i);
        return fsdp_torch_save(dict, path, group);
    }
    folder_name(path, dir, what, i);
    return write_folder(dict, key, path, group);
}

/* Read the folder `path`, a checkpoint of the nested dict {key: saved}. Write the values of the
 * tensors of `saved` into the tensors of *dict. Then replace *dict by a new dict that contains
 * these tensors and the plain values of `saved`. The old dict is destroyed. */
static fsdp_status read_folder(fsdp_state_dict **dict, const char *key, const char *path,
                               bool partial, fsdp_group *group)
{
    const fsdp_dcp_load_options options = {.allow_partial_load = partial};
    fsdp_state_dict *outer = NULL, *read = NULL;
    FSDP_TRY(fsdp_agree(group, wrap(key, *dict, &outer)));
    fsdp_status status = fsdp_dcp_load(outer, path, group, &options);
    if (status == FSDP_OK)
        status = fsdp_agree(group, fsdp_state_dict_part(outer, key, &read));
    fsdp_state_dict_destroy(outer);
    if (status != FSDP_OK)
        return status;
    fsdp_state_dict_destroy(*dict);
    *dict = read;
    return FSDP_OK;
}

static fsdp_status read_part(fsdp_state_dict **dict, const char *key, const char *path,
                             bool is_folder, bool partial, fsdp_group *group)
{
    if (is_folder)
        return read_folder(dict, key, path, partial, group);
    return partial ? fsdp_torch_load_partly(*dict, path, group)
                   : fsdp_torch_load_into(*dict, path, group);
}

/* --- models --- */

static fsdp_status write_model(const fsdp_accelerate_state *s, size_t i, const char *dir,
                               fsdp_group *group, const fsdp_accelerate_options *options)
{
    fsdp_state_dict *dict = NULL;
    FSDP_TRY(fsdp_agree(group, fsdp_get_model_state_dict(s->models[i], NULL, &dict)));
    fsdp_status status =
        write_part(dict, dir, options->old_names ? OLD_MODEL : MODEL, "model", i, group, options);
    fsdp_state_dict_destroy(dict);
    return status;
}

static fsdp_status read_model(const fsdp_accelerate_state *s, size_t i, const char *dir,
                              fsdp_group *group)
{
    const fsdp_state_dict_options set = {.group = group};
    char path[PATH_MAX];
    bool is_folder = false;
    fsdp_state_dict *dict = NULL;
    fsdp_status status = find_model(path, dir, i, &is_folder) ? FSDP_OK : not_there(dir, MODEL, i);
    if (status == FSDP_OK)
        status = fsdp_get_model_state_dict(s->models[i], NULL, &dict);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = read_part(&dict, "model", path, is_folder, false, group);
    if (status == FSDP_OK)
        status = fsdp_set_model_state_dict(s->models[i], dict, &set, NULL);
    fsdp_state_dict_destroy(dict);
    return status;
}

/* --- optimizers --- */

static fsdp_status write_optimizer(const fsdp_accelerate_state *s, size_t i, const char *dir,
                                   fsdp_group *group, const fsdp_accelerate_options *options)
{
    fsdp_state_dict *dict = NULL;
    fsdp_status status =
        fsdp_get_optimizer_state_dict(model_of(s, i), s->optimizers[i], NULL, &dict);
    for (size_t k = 0; status == FSDP_OK && k < s->n_schedulers; k++)
        if (optimizer_of(s, k) == i)
            status = fsdp_state_put_initial_lr(dict, fsdp_optimizer_n_groups(s->optimizers[i]),
                                               s->schedulers[k].base_lr);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = write_part(dict, dir, OPTIMIZER, "optimizer", i, group, options);
    fsdp_state_dict_destroy(dict);
    return status;
}

/* Create *out, the nested dict {key: dict[key]}. The caller owns it. */
static fsdp_status only(const fsdp_state_dict *dict, const char *key, fsdp_state_dict **out)
{
    fsdp_state_dict *part;
    FSDP_TRY(fsdp_state_dict_part(dict, key, &part));
    fsdp_status status = wrap(key, part, out);
    fsdp_state_dict_destroy(part);
    return status;
}

static fsdp_status append(fsdp_state_dict *to, const fsdp_state_dict *from, const char *key)
{
    fsdp_state_dict *part;
    FSDP_TRY(fsdp_state_dict_part(from, key, &part));
    fsdp_status status = fsdp_state_dict_add(to, key, part);
    fsdp_state_dict_destroy(part);
    return status;
}

/* Set *out to a dict of the options that will be read from a checkpoint. If `all` is true, these
 * are all options in `own`. Otherwise, they are only the options that steps of the optimizer
 * change. */
static fsdp_status options_to_read(const fsdp_state_dict *own, const fsdp_optimizer *optimizer,
                                   bool all, fsdp_state_dict **out)
{
    fsdp_state_dict *dict;
    if (all)
        return only(own, "param_groups", out);
    FSDP_TRY(fsdp_state_dict_create(&dict));
    const fsdp_status status = fsdp_state_add_changing_options(dict, own, optimizer);
    if (status != FSDP_OK)
        fsdp_state_dict_destroy(dict);
    else
        *out = dict;
    return status;
}

/* Read the state of an optimizer and the options of its parameter groups. If `all_options` is
 * false, read only the options that steps change. `own` is the optimizer's current state dict. The
 * checkpoint must contain all of the state. If `all_options` is true, it may lack options, because
 * different versions of torch write different options. */
static fsdp_status read_optimizer_parts(const fsdp_state_dict *own, const fsdp_optimizer *optimizer,
                                        const char *path, bool is_folder, bool all_options,
                                        fsdp_group *group, fsdp_state_dict **out)
{
    fsdp_state_dict *state = NULL, *groups = NULL;
    fsdp_status status = only(own, "state", &state);
    if (status == FSDP_OK)
        status = options_to_read(own, optimizer, all_options, &groups);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = read_part(&state, OPTIMIZER, path, is_folder, false, group);
    if (status == FSDP_OK && fsdp_state_dict_count(groups))
        status = read_part(&groups, OPTIMIZER, path, is_folder, all_options, group);
    if (status == FSDP_OK)
        status = fsdp_agree(group, append(state, groups, "param_groups"));
    fsdp_state_dict_destroy(groups);
    if (status == FSDP_OK)
        *out = state;
    else
        fsdp_state_dict_destroy(state);
    return status;
}

static fsdp_status read_optimizer(const fsdp_accelerate_state *s, size_t i, const char *dir,
                                  fsdp_group *group, const fsdp_accelerate_options *options)
{
    const fsdp_state_dict_options set = {.group = group};
    char path[PATH_MAX];
    bool is_folder = false;
    fsdp_state_dict *own = NULL, *read = NULL;
    fsdp_status status =
        find_part(path, dir, OPTIMIZER, i, &is_folder) ? FSDP_OK : not_there(dir, OPTIMIZER, i);
    if (status == FSDP_OK)
        status = fsdp_get_optimizer_state_dict(model_of(s, i), s->optimizers[i], NULL, &own);
    status = fsdp_agree(group, status);
    if (status == FSDP_OK)
        status = read_optimizer_parts(own, s->optimizers[i], path, is_folder,
                                      !options->keep_optimizer_options, group, &read);
    if (status == FSDP_OK)
        status = fsdp_set_optimizer_state_dict(model_of(s, i), s->optimizers[i], read, &set);
    fsdp_state_dict_destroy(read);
    fsdp_state_dict_destroy(own);
    return status;
}

/* --- schedulers and the gradient scaler --- */

/* Return true if the run has a gradient scaler and the scaler is enabled. A disabled scaler has no
 * state. */
static bool has_scaler(const fsdp_accelerate_state *s)
{
    return s->scaler && fsdp_grad_scaler_is_enabled(s->scaler);
}

static void scaler_name(char path[PATH_MAX], const char *dir)
{
    snprintf(path, PATH_MAX, "%s/scaler.pt", dir);
}

/* Write the states of the schedulers and of the gradient scaler. Only rank 0 calls this. */
static fsdp_status write_values(const fsdp_accelerate_state *s, const char *dir)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < s->n_schedulers; i++) {
        file_name(path, dir, SCHEDULER, i);
        FSDP_TRY(fsdp_accelerate_scheduler_write(
            &s->schedulers[i], fsdp_optimizer_n_groups(s->optimizers[optimizer_of(s, i)]), path));
    }
    scaler_name(path, dir);
    return has_scaler(s) ? fsdp_accelerate_scaler_write(s->scaler, path) : FSDP_OK;
}

/* Read the states of the schedulers and of the gradient scaler. Every rank calls this. The scaler's
 * file may be missing, because the run that saved the checkpoint may have had no scaler. */
static fsdp_status read_values(const fsdp_accelerate_state *s, const char *dir)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < s->n_schedulers; i++) {
        file_name(path, dir, SCHEDULER, i);
        FSDP_TRY(fsdp_accelerate_scheduler_read(path, &s->schedulers[i]));
    }
    scaler_name(path, dir);
    return has_scaler(s) && fsdp_path_is_file(path) ? fsdp_accelerate_scaler_read(path, s->scaler)
                                                    : FSDP_OK;
}

/* --- the whole checkpoint --- */

static fsdp_status write_small(const fsdp_accelerate_state *s, const char *dir, int rank)
{
    if (rank == 0)
        FSDP_TRY(write_values(s, dir));
    return fsdp_random_states_write(dir, rank, s->seed);
}

fsdp_status fsdp_accelerate_write(const fsdp_accelerate_state *s, const char *dir,
                                  fsdp_group *group, const fsdp_accelerate_options *options)
{
    options = options_of(options);
    FSDP_TRY(check_counts(s));
    if (options->type == FSDP_STATE_DICT_LOCAL)
        return fsdp_error(FSDP_ERR_UNSUPPORTED,
                          "Accelerate has no LOCAL_STATE_DICT with FSDP2: SHARDED_STATE_DICT or "
                          "FULL_STATE_DICT");
    for (size_t i = 0; i < s->n_models; i++)
        FSDP_TRY(write_model(s, i, dir, group, options));
    for (size_t i = 0; i < s->n_optimizers; i++)
        FSDP_TRY(write_optimizer(s, i, dir, group, options));
    return fsdp_agree(group, write_small(s, dir, group ? fsdp_group_rank(group) : 0));
}

typedef struct saving {
    const fsdp_accelerate_state *state;
    fsdp_group *group;
    const fsdp_accelerate_options *options;
} saving;

static fsdp_status write_into(void *arg, const char *dir)
{
    const saving *s = arg;
    return fsdp_accelerate_write(s->state, dir, s->group, s->options);
}

fsdp_status fsdp_accelerate_save_state(const fsdp_accelerate_state *state, const char *dir,
                                       fsdp_group *group, const fsdp_accelerate_options *options)
{
    saving s = {state, group, options_of(options)};
    const fsdp_group_place place = {.path = dir,
                                    .is_stale = fsdp_is_stale_checkpoint_file,
                                    .existing = s.options->overwrite ? FSDP_EXISTING_UPDATE
                                                                     : FSDP_EXISTING_REFUSE};
    return fsdp_group_directory(FSDP_OK, &place, group, write_into, &s);
}

fsdp_status fsdp_accelerate_load_state(const fsdp_accelerate_state *s, const char *dir,
                                       fsdp_group *group, const fsdp_accelerate_options *options)
{
    options = options_of(options);
    FSDP_TRY(check_counts(s));
    for (size_t i = 0; i < s->n_models; i++)
        FSDP_TRY(read_model(s, i, dir, group));
    for (size_t i = 0; i < s->n_optimizers; i++)
        FSDP_TRY(read_optimizer(s, i, dir, group, options));
    return fsdp_agree(group, read_values(s, dir));
}
