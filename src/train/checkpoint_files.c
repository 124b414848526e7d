/* See checkpoint_files.h. */
#include "src/train/checkpoint_files.h"

#include <sys/stat.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/pretrained/weights_fit.h"
#include "src/source/source.h"
#include "src/state_dict/accelerate.h"
#include "src/state_dict/state_dict.h"
#include "src/train/checkpoint_foreign.h"
#include "src/train/checkpoint_state.h"

static const char MODEL[] = "model_state_dict.pt", OPTIM[] = "optim_state_dict.pt";
static const char LOCAL[] = "local_state_dict";

/* For each value of --state-dict-type, a file that only checkpoints of this type contain. */
static const struct {
    const char *file;
    fsdp_state_dict_type type;
} forms[] = {{".metadata", FSDP_STATE_DICT_SHARDED},
             {"model_state_dict.pt", FSDP_STATE_DICT_FULL},
             {"local_state_dict_rank0.pt", FSDP_STATE_DICT_LOCAL}};

enum {
    ACCELERATE = -1 /* returned instead of an index in `forms` if no file of `forms` exists */
};

/* Return the index in `forms` of the first file that is in `dir`, or ACCELERATE if `dir` has none
 * of the files in `forms`. */
static int form_of(const char *dir)
{
    for (size_t i = 0; i < FSDP_LENGTH(forms); i++)
        if (fsdp_directory_has_file(dir, forms[i].file))
            return (int)i;
    return ACCELERATE;
}

bool fsdp_checkpoint_files_exist(const char *dir)
{
    fsdp_checkpoint_parts parts;
    const char *lacks;
    return form_of(dir) != ACCELERATE || fsdp_accelerate_is_folder(dir) ||
           fsdp_checkpoint_foreign_find(dir, &parts, &lacks);
}

/* --- the state dicts of the model and the optimizer --- */

typedef struct state {
    fsdp_state_dict *model, *optim;
} state;

static void state_fini(state *s)
{
    fsdp_state_dict_destroy(s->optim);
    fsdp_state_dict_destroy(s->model);
}

/* Remove all entries from *optim except "state" and the options in param_groups that steps change,
 * so that loading keeps this run's other options. */
static fsdp_status drop_options(const fsdp_optimizer *optimizer, fsdp_state_dict **optim)
{
    fsdp_state_dict *part = NULL, *kept = NULL;
    fsdp_status status = fsdp_state_dict_part(*optim, "state", &part);
    if (status == FSDP_OK)
        status = fsdp_state_dict_create(&kept);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(kept, "state", part);
    if (status == FSDP_OK)
        status = fsdp_state_add_changing_options(kept, *optim, optimizer);
    fsdp_state_dict_destroy(part);
    fsdp_state_dict_destroy(*optim);
    *optim = kept;
    return status;
}

static fsdp_status gather_state(fsdp_trainer *t, bool to_load, state *s)
{
    /* The base model of an adapter does not change, and --model has its weights. */
    const fsdp_state_dict_options options = {.ignore_frozen_params = t->model->lora != NULL};
    FSDP_TRY(fsdp_optimizer_init_state(t->loop.optimizer));
    FSDP_TRY(
        fsdp_get_state_dict(t->loop.module, t->loop.optimizer, &options, &s->model, &s->optim));
    return to_load ? drop_options(t->loop.optimizer, &s->optim)
                   : fsdp_state_put_initial_lr(s->optim, fsdp_optimizer_n_groups(t->loop.optimizer),
                                               t->schedule.lr);
}

/* Create *all, a dict with the entries "model" and "optim". The caller owns *all. */
static fsdp_status join_state(const state *s, fsdp_state_dict **all)
{
    fsdp_state_dict *dict;
    FSDP_TRY(fsdp_state_dict_create(&dict));
    /* Name trainer_state.json as a companion, a further file of the checkpoint. The name is written
     * to .metadata, so that a checkpoint without the file counts as incomplete. The caller of the
     * save writes the file itself. */
    dict->companion = FSDP_TRAINER_STATE;
    fsdp_status status = fsdp_state_dict_add(dict, "model", s->model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(dict, "optim", s->optim);
    if (status != FSDP_OK) {
        fsdp_state_dict_destroy(dict);
        return status;
    }
    *all = dict;
    return FSDP_OK;
}

/* Called after loading into `all`. Replace the state dicts of *s by those in `all`. Loading has
 * written the tensors into memory that *s and `all` share. For values that are not tensors, *s
 * still has the old values: loading has stored the new ones only in `all`. */
static fsdp_status split_state(const fsdp_state_dict *all, state *s)
{
    state_fini(s);
    *s = (state){0};
    FSDP_TRY(fsdp_state_dict_part(all, "model", &s->model));
    return fsdp_state_dict_part(all, "optim", &s->optim);
}

/* --- FULL_STATE_DICT: one file for the model and one for the optimizer --- */

/* If `reads` is true, read the model's file and the optimizer's file into *s, else write both files
 * from *s. */
static fsdp_status with_files(const state *s, const char *dir, fsdp_group *group, bool reads)
{
    char *model = fsdp_path_join(dir, MODEL), *optim = fsdp_path_join(dir, OPTIM);
    fsdp_status status = fsdp_agree(group, model && optim ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = reads ? fsdp_torch_load_into(s->model, model, group)
                       : fsdp_torch_save(s->model, model, group);
    if (status == FSDP_OK)
        status = reads ? fsdp_torch_load_into(s->optim, optim, group)
                       : fsdp_torch_save(s->optim, optim, group);
    fsdp_free(optim);
    fsdp_free(model);
    return status;
}

/* --- LOCAL_STATE_DICT: a file for each rank --- */

static fsdp_status with_parts(fsdp_state_dict *all, const char *dir, fsdp_group *group, bool reads)
{
    char *stem = fsdp_path_join(dir, LOCAL);
    fsdp_status status = fsdp_agree(group, stem ? FSDP_OK : FSDP_ERR_NOMEM);
    if (status == FSDP_OK)
        status = reads ? fsdp_local_load(all, stem, group) : fsdp_local_save(all, stem, group);
    fsdp_free(stem);
    return status;
}

/* --- all values of --state-dict-type --- */

static fsdp_status write_state(const state *s, fsdp_state_dict_type type, const char *dir,
                               fsdp_group *group)
{
    fsdp_state_dict *all = NULL;
    if (type == FSDP_STATE_DICT_FULL)
        return with_files(s, dir, group, false);
    FSDP_ASSERT(type == FSDP_STATE_DICT_LOCAL);
    FSDP_TRY(fsdp_agree(group, join_state(s, &all)));
    fsdp_status status = with_parts(all, dir, group, false);
    fsdp_state_dict_destroy(all);
    return status;
}

static fsdp_status read_state(state *s, fsdp_state_dict_type type, const char *dir,
                              fsdp_group *group)
{
    fsdp_state_dict *all = NULL;
    if (type == FSDP_STATE_DICT_FULL)
        return with_files(s, dir, group, true);
    FSDP_TRY(fsdp_agree(group, join_state(s, &all)));
    fsdp_status status = type == FSDP_STATE_DICT_SHARDED ? fsdp_dcp_load(all, dir, group, NULL)
                                                         : with_parts(all, dir, group, true);
    if (status == FSDP_OK)
        status = fsdp_agree(group, split_state(all, s));
    fsdp_state_dict_destroy(all);
    return status;
}

/* --- Accelerate's files --- */

static fsdp_status write_accelerate(const fsdp_trainer *t, const char *dir)
{
    const fsdp_train_config *c = t->config;
    const fsdp_accelerate_options options = {.type = (fsdp_state_dict_type)c->state_dict_type,
                                             .old_names = c->checkpoint_format ==
                                                          FSDP_CHECKPOINT_ACCELERATE_024};
    fsdp_accelerate_scheduler scheduler = {.base_lr = t->schedule.lr,
                                           .last_lr = fsdp_lr_at(&t->schedule, t->step),
                                           .last_epoch = t->step * fsdp_group_world_size(t->group)};
    const fsdp_accelerate_state parts = {.models = &t->loop.module,
                                         .n_models = 1,
                                         .optimizers = &t->loop.optimizer,
                                         .n_optimizers = 1,
                                         .schedulers = &scheduler,
                                         .n_schedulers = 1,
                                         .scaler = t->loop.scaler,
                                         .seed = (uint64_t)c->seed};
    return fsdp_accelerate_write(&parts, dir, t->group, &options);
}

static fsdp_status read_accelerate(const fsdp_trainer *t, const char *dir)
{
    const fsdp_accelerate_options options = {.keep_optimizer_options = true};
    const fsdp_accelerate_state parts = {.models = &t->loop.module,
                                         .n_models = 1,
                                         .optimizers = &t->loop.optimizer,
                                         .n_optimizers = 1,
                                         .scaler = t->loop.scaler};
    return fsdp_accelerate_load_state(&parts, dir, t->group, &options);
}

/* --- the functions of checkpoint_files.h --- */

fsdp_status fsdp_checkpoint_files_state(fsdp_trainer *t, fsdp_state_dict **all)
{
    state s = {0};
    fsdp_status status = gather_state(t, false, &s);
    if (status == FSDP_OK)
        status = join_state(&s, all);
    state_fini(&s);
    return status;
}

bool fsdp_checkpoint_files_are_sharded(const fsdp_trainer *t)
{
    return t->config->checkpoint_format == FSDP_CHECKPOINT_FSDP &&
           (fsdp_state_dict_type)t->config->state_dict_type == FSDP_STATE_DICT_SHARDED;
}

fsdp_status fsdp_checkpoint_files_write(fsdp_trainer *t, const char *dir)
{
    state s = {0};
    if (t->config->checkpoint_format != FSDP_CHECKPOINT_FSDP)
        return write_accelerate(t, dir);
    fsdp_status status = fsdp_agree(t->group, gather_state(t, false, &s));
    if (status == FSDP_OK)
        status = write_state(&s, (fsdp_state_dict_type)t->config->state_dict_type, dir, t->group);
    state_fini(&s);
    return status;
}

/* Call form_of(dir) on rank 0, and set *form to its result on all ranks, so that all ranks read the
 * same files. If rank 0 recognizes no files in `dir`, *form is set to 0. The caller then tries to
 * read forms[0].file, and the error says that this file is missing. Collective. */
static fsdp_status find_form(const fsdp_trainer *t, const char *dir, int32_t *form)
{
    *form = form_of(dir);
    if (*form == ACCELERATE && !fsdp_accelerate_is_folder(dir))
        *form = 0;
    return fsdp_broadcast(t->group, form, sizeof *form, 0);
}

/* Set *path to the path of the model in the checkpoint `dir`. `form` is an index in `forms`, or
 * ACCELERATE. *path is set to NULL if a folder with Accelerate's files has no model. The caller
 * owns *path. */
static fsdp_status model_place(const char *dir, int form, char **path)
{
    static const char *const files[] = {"", "model_state_dict.pt", "local_state_dict_rank0.pt"};
    static const char *const of_accelerate[] = {"pytorch_model_fsdp_0", "pytorch_model_fsdp.bin",
                                                "pytorch_model_0", "pytorch_model.bin"};
    struct stat st;
    *path = form == ACCELERATE ? NULL : fsdp_path_join(dir, files[form]);
    if (form != ACCELERATE)
        return *path ? FSDP_OK : FSDP_ERR_NOMEM;
    for (size_t i = 0; i < FSDP_LENGTH(of_accelerate); i++) {
        *path = fsdp_path_join(dir, of_accelerate[i]);
        if (!*path || stat(*path, &st) == 0)
            return *path ? FSDP_OK : FSDP_ERR_NOMEM;
        fsdp_free(*path);
        *path = NULL;
    }
    return FSDP_OK;
}

/* Return an error if the checkpoint has weights that this run's model does not have. Loading
 * ignores such weights, as PyTorch does, so a run with fewer layers would silently continue without
 * the other layers. If the checkpoint cannot be opened or has no model, return FSDP_OK: the reader
 * will report the error. */
static fsdp_status check_expected(const fsdp_trainer *t, const char *dir, int form)
{
    fsdp_source *source = NULL;
    fsdp_parameter_list names = {0};
    char *path;
    FSDP_TRY(model_place(dir, form, &path));
    /* The data files of a SHARDED_STATE_DICT may be on other hosts. Their names are in .metadata.
     */
    const bool is_sharded = form != ACCELERATE && forms[form].type == FSDP_STATE_DICT_SHARDED;
    if (path && (is_sharded ? fsdp_source_open_names(path, &source)
                            : fsdp_source_open(path, &source)) != FSDP_OK)
        source = NULL;
    fsdp_status status = FSDP_OK;
    if (source)
        status = fsdp_module_parameters(t->loop.module, true, &names);
    if (source && status == FSDP_OK)
        status = fsdp_weights_check_expected(source, &names, "the model of this run");
    fsdp_parameter_list_free(&names);
    fsdp_source_close(source);
    fsdp_free(path);
    return status == FSDP_ERR_INVALID || status == FSDP_ERR_NOMEM ? status : FSDP_OK;
}

fsdp_status fsdp_checkpoint_files_read(fsdp_trainer *t, const char *dir)
{
    const fsdp_state_dict_options options = {.group = t->group,
                                             .ignore_frozen_params = t->model->lora != NULL};
    int32_t form;
    state s = {0};
    FSDP_TRY(find_form(t, dir, &form));
    FSDP_TRY(
        fsdp_agree(t->group, fsdp_trainer_is_first(t) ? check_expected(t, dir, form) : FSDP_OK));
    if (form == ACCELERATE)
        return read_accelerate(t, dir);
    fsdp_status status = fsdp_agree(t->group, gather_state(t, true, &s));
    if (status == FSDP_OK)
        status = read_state(&s, forms[form].type, dir, t->group);
    if (status == FSDP_OK)
        status = fsdp_set_state_dict(t->loop.module, t->loop.optimizer, s.model, s.optim, &options,
                                     NULL);
    state_fini(&s);
    return status;
}
