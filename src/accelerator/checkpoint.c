/* Implements save_state(), load_state(), and the calls that save models. A checkpoint folder has
 * the files that <fsdp/accelerate.h> describes, a file for each registered object, and
 * accelerator_state.json, which only this library writes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/accelerate.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/base/json.h"
#include "src/comm/agree.h"
#include "src/dcp/group_directory.h"
#include "src/hf/stale_files.h"
#include "src/pretrained/model.h"
#include "src/state_dict/accelerate.h"

enum {
    MAX_SHARD_GB = 10 /* Accelerate's default of save_model(max_shard_size="10GB") */
};

static const char STATE_FILE[] = "accelerator_state.json";

/* ---- registered objects ---- */

static fsdp_status add_object(fsdp_accelerator *a, const fsdp_checkpointed_object *object)
{
    const char *name = object->name ? object->name : "object";
    if (!object->state_dict || !object->load_state_dict)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: '%s' needs both functions, state_dict and load_state_dict, "
                          "to be saved and loaded",
                          name);
    for (size_t i = 0; i < a->n_objects; i++)
        if (a->objects[i].is.object == object->object &&
            a->objects[i].is.state_dict == object->state_dict)
            return fsdp_error(FSDP_ERR_INVALID, "accelerator: '%s' was registered before", name);
    if (!FSDP_GROW(a->objects, a->cap_objects, a->n_objects + 1))
        return FSDP_ERR_NOMEM;
    char *copy = fsdp_strdup(name);
    if (!copy)
        return FSDP_ERR_NOMEM;
    a->objects[a->n_objects] = (fsdp_registered_object){.is = *object, .name = copy};
    a->objects[a->n_objects++].is.name = copy;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_register_for_checkpointing(fsdp_accelerator *a,
                                                        const fsdp_checkpointed_object *object)
{
    return add_object(a, object);
}

/* Return the path of the file of registered object `i`; NULL when out of memory. The caller owns
 * the path. */
static char *object_path(const char *dir, size_t i)
{
    return fsdp_strdup_printf("%s/custom_checkpoint_%zu.pkl", dir, i);
}

static fsdp_status write_object(fsdp_accelerator *a, size_t i, const char *dir)
{
    const fsdp_checkpointed_object *object = &a->objects[i].is;
    char *path = object_path(dir, i);
    fsdp_state_dict *dict = NULL;
    fsdp_status status = path ? fsdp_state_dict_create(&dict) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = object->state_dict(object->object, dict);
    status = fsdp_agree(a->group, status);
    fsdp_error_context(status, "%s", object->name);
    if (status == FSDP_OK)
        status = fsdp_torch_save(dict, path, a->group);
    fsdp_state_dict_destroy(dict);
    fsdp_free(path);
    return status;
}

static fsdp_status read_object(fsdp_accelerator *a, size_t i, const char *dir)
{
    const fsdp_checkpointed_object *object = &a->objects[i].is;
    char *path = object_path(dir, i);
    fsdp_state_dict *dict = NULL;
    fsdp_status status = path ? fsdp_torch_load(path, a->device, &dict) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK)
        status = object->load_state_dict(object->object, dict);
    fsdp_error_context(status, "%s", object->name);
    fsdp_state_dict_destroy(dict);
    fsdp_free(path);
    return fsdp_agree(a->group, status);
}

/* ---- accelerator_state.json ---- */

/* Add the names of the registered objects to accelerator_state.json, in the order of their
 * files. */
static void add_object_names(const fsdp_accelerator *a, fsdp_json_node root)
{
    if (a->n_objects == 0)
        return;
    const fsdp_json_node names = fsdp_json_set_array(root, "objects");
    for (size_t i = 0; i < a->n_objects; i++)
        fsdp_json_set_any_str(fsdp_json_append_object(names), "name", a->objects[i].name);
}

static fsdp_status write_small(const fsdp_accelerator *a, const char *dir)
{
    fsdp_json *doc = NULL;
    if (!fsdp_accelerator_is_main_process(a))
        return FSDP_OK;
    char *path = fsdp_path_join(dir, STATE_FILE);
    fsdp_status status = path ? fsdp_json_create(path, &doc) : FSDP_ERR_NOMEM;
    if (status == FSDP_OK) {
        fsdp_json_set_i64(fsdp_json_root(doc), "forwards", a->forwards);
        add_object_names(a, fsdp_json_root(doc));
        status = fsdp_json_write(doc, FSDP_JSON_PRETTY, path);
    }
    fsdp_json_destroy(doc);
    fsdp_free(path);
    return status;
}

/* Set *doc to accelerator_state.json, which the caller owns, or to NULL if the folder does not have
 * this file. A folder that Accelerate wrote does not have it. */
static fsdp_status open_small(const char *dir, fsdp_json **doc)
{
    *doc = NULL;
    if (!fsdp_directory_has_file(dir, STATE_FILE))
        return FSDP_OK;
    char *path = fsdp_path_join(dir, STATE_FILE);
    const fsdp_status status = path ? fsdp_json_read(path, doc) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

static fsdp_status read_small(fsdp_accelerator *a, const char *dir)
{
    fsdp_json *doc;
    int64_t forwards = 0;
    fsdp_status status = open_small(dir, &doc);
    if (status != FSDP_OK || !doc)
        return status;
    status = fsdp_json_get_i64(fsdp_json_root(doc), "forwards", 0, UINT32_MAX, &forwards);
    if (status == FSDP_OK)
        a->forwards = (uint32_t)forwards;
    fsdp_json_destroy(doc);
    return status;
}

/* ---- which objects a folder has ---- */

/* Return FSDP_ERR_INVALID if the number of objects in the folder is not the number of registered
 * objects. */
static fsdp_status count_objects(const fsdp_accelerator *a, const char *dir)
{
    char **names;
    size_t count, saved = 0;
    FSDP_TRY(fsdp_directory_list(dir, &names, &count));
    for (size_t i = 0; i < count; i++)
        saved += fsdp_is_numbered_name(names[i], "custom_checkpoint_", ".pkl");
    fsdp_free(names);
    if (saved != a->n_objects)
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s: has %zu custom_checkpoint_<i>.pkl, but %zu objects are registered "
                          "(fsdp_accelerator_register_for_checkpointing()); register those of the "
                          "program that saved it, in the same order",
                          dir, saved, a->n_objects);
    return FSDP_OK;
}

/* Set *name to the name of the object whose state is custom_checkpoint_<i>.pkl, or to NULL if
 * `names` does not have it. *name is valid as long as the document. */
static fsdp_status saved_name(fsdp_json_node names, size_t i, const char **name)
{
    *name = NULL;
    if (i >= fsdp_json_len(names))
        return FSDP_OK;
    return fsdp_json_get_str(fsdp_json_at(names, i), "name", name);
}

/* `saved` is the name of object `i` in the folder. Return FSDP_ERR_INVALID if registered object `i`
 * has another name, and `saved` is the name of a different registered object. A name that no
 * registered object has is accepted, because the program may have renamed the object. */
static fsdp_status check_name(const fsdp_accelerator *a, const char *dir, size_t i,
                              const char *saved)
{
    if (strcmp(saved, a->objects[i].name) == 0)
        return FSDP_OK;
    for (size_t k = 0; k < a->n_objects; k++)
        if (strcmp(saved, a->objects[k].name) == 0)
            return fsdp_error(FSDP_ERR_INVALID,
                              "%s: custom_checkpoint_%zu.pkl is the state of '%s', but object %zu "
                              "that is registered is '%s'; register the objects in the order of "
                              "the program that saved them",
                              dir, i, saved, i, a->objects[i].name);
    return FSDP_OK;
}

/* Return FSDP_ERR_INVALID if accelerator_state.json says that the objects in the folder are in
 * another order than the registered objects. */
static fsdp_status check_object_order(const fsdp_accelerator *a, const char *dir)
{
    fsdp_json *doc;
    fsdp_json_node names = {0};
    fsdp_status status = open_small(dir, &doc);
    if (status != FSDP_OK || !doc)
        return status;
    status = fsdp_json_opt_array(fsdp_json_root(doc), "objects", &names);
    for (size_t i = 0; names.value && status == FSDP_OK && i < a->n_objects; i++) {
        const char *saved;
        status = saved_name(names, i, &saved);
        if (status == FSDP_OK && saved)
            status = check_name(a, dir, i, saved);
    }
    fsdp_json_destroy(doc);
    return status;
}

/* Return FSDP_ERR_INVALID if the objects in the folder are not the registered objects. */
static fsdp_status check_objects(const fsdp_accelerator *a, const char *dir)
{
    FSDP_TRY(count_objects(a, dir));
    return check_object_order(a, dir);
}

/* ---- models, optimizers and schedulers ---- */

/* An fsdp_accelerate_state and the arrays to which it points. */
typedef struct prepared {
    fsdp_accelerate_state state;
    fsdp_optimizer **optimizers;
    size_t *model_of, *optimizer_of;
    fsdp_accelerate_scheduler *schedulers;
} prepared;

static void fini_prepared(prepared *p)
{
    fsdp_free(p->optimizers);
    fsdp_free(p->model_of);
    fsdp_free(p->optimizer_of);
    fsdp_free(p->schedulers);
}

static void fill_prepared(const fsdp_accelerator *a, prepared *p)
{
    for (size_t i = 0; i < a->n_optimizers; i++) {
        p->optimizers[i] = a->optimizers[i].optimizer;
        p->model_of[i] = a->optimizers[i].model;
    }
    for (size_t i = 0; i < a->n_schedulers; i++) {
        const fsdp_accelerated_scheduler *s = a->schedulers[i];
        p->optimizer_of[i] = (size_t)fsdp_accelerator_find_optimizer(a, s->optimizer);
        p->schedulers[i] =
            (fsdp_accelerate_scheduler){.base_lr = s->schedule.lr,
                                        .last_lr = fsdp_accelerated_scheduler_last_lr(s),
                                        .last_epoch = s->last_epoch};
    }
    p->state =
        (fsdp_accelerate_state){.models = a->models,
                                .n_models = a->n_models,
                                .optimizers = p->optimizers,
                                .n_optimizers = a->n_optimizers,
                                .model_of = p->model_of,
                                .schedulers = p->schedulers,
                                .n_schedulers = a->n_schedulers,
                                .optimizer_of = p->optimizer_of,
                                .scaler = fsdp_grad_scaler_is_enabled(a->scaler) ? a->scaler : NULL,
                                .seed = a->seed};
}

/* Set *p to the state of the accelerator. The caller must call fini_prepared(), also after a
 * failure. */
static fsdp_status init_prepared(const fsdp_accelerator *a, prepared *p)
{
    *p = (prepared){.optimizers = fsdp_calloc(a->n_optimizers + 1, sizeof *p->optimizers),
                    .model_of = fsdp_calloc(a->n_optimizers + 1, sizeof *p->model_of),
                    .optimizer_of = fsdp_calloc(a->n_schedulers + 1, sizeof *p->optimizer_of),
                    .schedulers = fsdp_calloc(a->n_schedulers + 1, sizeof *p->schedulers)};
    const bool enough = p->optimizers && p->model_of && p->optimizer_of && p->schedulers;
    if (enough)
        fill_prepared(a, p);
    return enough ? FSDP_OK : FSDP_ERR_NOMEM;
}

/* Set the schedulers to the states that were read from the checkpoint. As in PyTorch, the base
 * learning rate in the checkpoint replaces that of the schedule. */
static void place_schedulers(const fsdp_accelerator *a, const prepared *p)
{
    for (size_t i = 0; i < a->n_schedulers; i++) {
        fsdp_accelerated_scheduler *s = a->schedulers[i];
        const fsdp_accelerate_scheduler *read = &p->schedulers[i];
        if (read->base_lr != s->schedule.lr && s->schedule.lr > 0) {
            s->schedule.min_lr *= read->base_lr / s->schedule.lr;
            s->schedule.lr = read->base_lr;
        }
        s->last_epoch = read->last_epoch;
    }
}

/* ---- names ---- */

/* Set *n to the number of folders checkpoint_<i> in `dir`. Set *newest to the largest i. Set
 * *oldest to the smallest i that is not `saved`. Each of them is -1 if there is no such folder. */
static fsdp_status list_checkpoints(const char *dir, int64_t saved, int64_t *oldest,
                                    int64_t *newest, int64_t *n)
{
    char **names;
    size_t count;
    *oldest = *newest = -1;
    *n = 0;
    if (!fsdp_path_is_directory(dir))
        return FSDP_OK;
    FSDP_TRY(fsdp_directory_list(dir, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (!fsdp_is_numbered_name(names[i], "checkpoint_", ""))
            continue;
        const int64_t number = strtoll(names[i] + strlen("checkpoint_"), NULL, 10);
        if (number != saved)
            *oldest = *oldest < 0 || number < *oldest ? number : *oldest;
        *newest = number > *newest ? number : *newest;
        ++*n;
    }
    fsdp_free(names);
    return FSDP_OK;
}

/* Return the path of checkpoint `number` or, if `number` is negative, of the folder that contains
 * all checkpoints. Return NULL when out of memory. The caller owns the path. */
static char *automatic_path(const fsdp_accelerator *a, int64_t number)
{
    if (number < 0)
        return fsdp_strdup_printf("%s/checkpoints", a->settings.project_dir);
    return fsdp_strdup_printf("%s/checkpoints/checkpoint_%" PRId64, a->settings.project_dir,
                              number);
}

static fsdp_status no_folder(const char *call)
{
    return fsdp_error(FSDP_ERR_INVALID,
                      "accelerator: %s: no folder was given, and automatic_checkpoint_naming is "
                      "not set",
                      call);
}

/* Set *path to the folder to which save_state(dir) writes. The caller owns *path, also after an
 * error. */
static fsdp_status name_saved(const fsdp_accelerator *a, const char *dir, char **path)
{
    if (!a->settings.automatic_checkpoint_naming) {
        if (!dir)
            return no_folder("save_state");
        *path = fsdp_strdup(dir);
        return *path ? FSDP_OK : FSDP_ERR_NOMEM;
    }
    if (dir)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: save_state: folder %s was given, but "
                          "automatic_checkpoint_naming names the folders",
                          dir);
    *path = automatic_path(a, a->iteration);
    if (!*path)
        return FSDP_ERR_NOMEM;
    if (fsdp_accelerator_is_main_process(a) && fsdp_path_exists(*path))
        return fsdp_error(FSDP_ERR_INVALID,
                          "%s exists already; set options.iteration to the number of the next "
                          "checkpoint, or load the newest one first",
                          *path);
    return FSDP_OK;
}

static fsdp_status remove_checkpoint(const fsdp_accelerator *a, int64_t number)
{
    char *path = automatic_path(a, number);
    const fsdp_status status = path ? fsdp_tree_remove(path) : FSDP_ERR_NOMEM;
    fsdp_free(path);
    return status;
}

/* Remove the oldest checkpoints until at most total_limit remain. Never remove `saved`, the
 * checkpoint that was just written. Its number may be smaller than those of all other checkpoints
 * in the folder, and a run would then lose each checkpoint that it saves. Accelerate removes
 * checkpoints before it saves. This function removes them after the save instead. The same
 * checkpoints remain, but none is lost if the save fails. */
static fsdp_status remove_oldest(const fsdp_accelerator *a, int64_t saved)
{
    int64_t oldest = -1, newest, n = 0;
    if (!a->settings.total_limit || !fsdp_accelerator_is_main_process(a))
        return FSDP_OK;
    char *dir = automatic_path(a, -1);
    fsdp_status status = dir ? list_checkpoints(dir, saved, &oldest, &newest, &n) : FSDP_ERR_NOMEM;
    while (status == FSDP_OK && n > a->settings.total_limit && oldest >= 0) {
        status = remove_checkpoint(a, oldest);
        if (status == FSDP_OK)
            status = list_checkpoints(dir, saved, &oldest, &newest, &n);
    }
    fsdp_free(dir);
    return status;
}

/* Set *number to the number of the newest checkpoint that has an automatic name. Only the main
 * process lists the folder, so that all ranks load the same checkpoint. */
static fsdp_status find_newest(const fsdp_accelerator *a, int64_t *number)
{
    int64_t oldest, n;
    char *dir = automatic_path(a, -1);
    fsdp_status status = dir ? FSDP_OK : FSDP_ERR_NOMEM;
    if (status == FSDP_OK && fsdp_accelerator_is_main_process(a))
        status = list_checkpoints(dir, -1, &oldest, number, &n);
    status = fsdp_agree(a->group, status);
    if (status == FSDP_OK)
        status = fsdp_broadcast(a->group, number, sizeof *number, 0);
    if (status == FSDP_OK && *number < 0)
        status = fsdp_error(FSDP_ERR_NOT_FOUND, "%s: has no folder checkpoint_<i>", dir);
    fsdp_free(dir);
    return status;
}

/* Set *path to the folder from which load_state(dir) reads. Set *number to the number in its name
 * if `dir` is NULL, otherwise to -1. The caller owns *path, also after an error. */
static fsdp_status name_loaded(const fsdp_accelerator *a, const char *dir, char **path,
                               int64_t *number)
{
    *number = -1;
    if (!dir && !a->settings.automatic_checkpoint_naming)
        return no_folder("load_state");
    if (!dir)
        FSDP_TRY(find_newest(a, number));
    *path = dir ? fsdp_strdup(dir) : automatic_path(a, *number);
    return fsdp_agree(a->group, *path ? FSDP_OK : FSDP_ERR_NOMEM);
}

/* ---- save_state() and load_state() ---- */

typedef struct saving {
    fsdp_accelerator *accelerator;
    const prepared *prepared;
} saving;

static fsdp_status write_state(void *arg, const char *dir)
{
    const saving *s = arg;
    fsdp_accelerator *a = s->accelerator;
    const fsdp_accelerate_options options = {.type = a->settings.state_dict_type};
    FSDP_TRY(fsdp_accelerator_call_hooks(a, false, dir));
    FSDP_TRY(fsdp_accelerate_write(&s->prepared->state, dir, a->group, &options));
    for (size_t i = 0; i < a->n_objects; i++)
        FSDP_TRY(write_object(a, i, dir));
    return fsdp_agree(a->group, write_small(a, dir));
}

static fsdp_status begin_save(fsdp_accelerator *a)
{
    if (a->next_micro_step != 0 || !a->sync_gradients)
        return fsdp_error(FSDP_ERR_STATE,
                          "accelerator: save_state within an accumulation (%d of %d micro-steps): "
                          "gradients are not saved; call it after an optimizer step",
                          a->accumulating ? a->micro_step + 1 : a->next_micro_step, a->planned);
    return fsdp_accelerator_update_scale(a);
}

fsdp_status fsdp_accelerator_save_state(fsdp_accelerator *a, const char *dir)
{
    char *path = NULL;
    prepared p = {0};
    saving s = {a, &p};
    fsdp_status status = begin_save(a);
    if (status == FSDP_OK)
        status = name_saved(a, dir, &path);
    if (status == FSDP_OK)
        status = init_prepared(a, &p);
    const fsdp_group_place place = {.path = path ? path : "",
                                    .is_stale = fsdp_is_stale_checkpoint_file,
                                    .existing = FSDP_EXISTING_UPDATE};
    status = fsdp_group_directory(status, &place, a->group, write_state, &s);
    fini_prepared(&p);
    fsdp_free(path);
    FSDP_TRY(status);
    if (!a->settings.automatic_checkpoint_naming)
        return FSDP_OK;
    const int64_t saved = a->iteration++;
    return fsdp_agree(a->group, remove_oldest(a, saved));
}

static fsdp_status load_into(fsdp_accelerator *a, const char *dir, prepared *p)
{
    fsdp_status status = fsdp_path_is_directory(dir)
                             ? check_objects(a, dir)
                             : fsdp_error(FSDP_ERR_NOT_FOUND, "%s: there is no such folder", dir);
    if (status == FSDP_OK)
        status = init_prepared(a, p);
    FSDP_TRY(fsdp_agree(a->group, status));
    FSDP_TRY(fsdp_accelerator_call_hooks(a, true, dir));
    FSDP_TRY(fsdp_accelerate_load_state(&p->state, dir, a->group, NULL));
    fsdp_accelerator_forget_unscaled(a);
    place_schedulers(a, p);
    for (size_t i = 0; i < a->n_objects; i++)
        FSDP_TRY(read_object(a, i, dir));
    return fsdp_agree(a->group, read_small(a, dir));
}

fsdp_status fsdp_accelerator_load_state(fsdp_accelerator *a, const char *dir)
{
    char *path = NULL;
    int64_t number;
    prepared p = {0};
    FSDP_TRY(fsdp_accelerator_update_scale(a));
    fsdp_status status = name_loaded(a, dir, &path, &number);
    if (status == FSDP_OK)
        status = load_into(a, path, &p);
    fini_prepared(&p);
    fsdp_free(path);
    FSDP_TRY(status);
    if (number >= 0)
        a->iteration = number + 1;
    return FSDP_OK;
}

/* ---- models in files ---- */

fsdp_status fsdp_accelerator_get_state_dict(fsdp_accelerator *a, fsdp_module *model,
                                            fsdp_state_dict **dict)
{
    const fsdp_state_dict_options options = {
        .full_state_dict = true, .cpu_offload = true, .group = a->group};
    FSDP_TRY(fsdp_accelerator_know_model(a, model));
    return fsdp_get_model_state_dict(model, &options, dict);
}

typedef struct saved_weights {
    fsdp_accelerator *accelerator;
    fsdp_module *model;
    fsdp_save_options options;
} saved_weights;

static fsdp_status write_weights(void *arg, const char *dir)
{
    const saved_weights *w = arg;
    return fsdp_module_save(w->model, dir, w->accelerator->group, &w->options);
}

static fsdp_status save_weights(fsdp_accelerator *a, fsdp_module *model, const char *dir,
                                const fsdp_save_options *options)
{
    saved_weights w = {a, model, *options};
    const fsdp_group_place place = {
        .path = dir, .is_stale = fsdp_is_stale_model_file, .existing = FSDP_EXISTING_UPDATE};
    const fsdp_status status =
        fsdp_accelerator_is_main_process(a) ? fsdp_model_check_folder(dir) : FSDP_OK;
    return fsdp_group_directory(status, &place, a->group, write_weights, &w);
}

static fsdp_status save_folder(fsdp_accelerator *a, fsdp_module *model, const char *dir,
                               const fsdp_pretrained *pretrained, const fsdp_save_options *weights)
{
    const fsdp_model_save_options options = {
        .dtype = weights->dtype, .max_shard_bytes = weights->max_shard_bytes, .overwrite = true};
    fsdp_model m = {.dir = pretrained->dir, .module = model, .group = a->group};
    FSDP_TRY(fsdp_model_get_config(model, &m.config));
    m.info = fsdp_model_config_info(&m.config);
    return fsdp_model_save(&m, dir, &options);
}

fsdp_status fsdp_accelerator_save_model(fsdp_accelerator *a, fsdp_module *model, const char *dir,
                                        const fsdp_accelerator_save_model_options *options)
{
    static const fsdp_accelerator_save_model_options defaults = {0};
    const fsdp_accelerator_save_model_options *o = options ? options : &defaults;
    const fsdp_save_options weights = {.dtype = o->dtype,
                                       .max_shard_bytes = o->max_shard_bytes
                                                              ? o->max_shard_bytes
                                                              : INT64_C(1000000000) * MAX_SHARD_GB};
    FSDP_TRY(fsdp_accelerator_know_model(a, model));
    if (o->max_shard_bytes < 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: save_model: max_shard_bytes %" PRId64 " is negative",
                          o->max_shard_bytes);
    return o->pretrained ? save_folder(a, model, dir, o->pretrained, &weights)
                         : save_weights(a, model, dir, &weights);
}
