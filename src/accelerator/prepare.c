/* Implements prepare: shards models, and checks that the objects of a loop belong together. */
#include <inttypes.h>

#include <fsdp/models.h>

#include "src/accelerator/accelerator.h"
#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/agree.h"
#include "src/fsdp/default_policy.h"

/* ---- models ---- */

static fsdp_status check_model(fsdp_accelerator *a, const fsdp_module *model)
{
    if (fsdp_accelerator_find_model(a, model) >= 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: this model was prepared before; each is prepared once "
                          "(fsdp_accelerator_free_memory() forgets all)");
    if (fsdp_module_parent(model))
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: module '%s' is inside another one; prepare the root",
                          fsdp_module_name(model));
    return FSDP_GROW(a->models, a->cap_models, a->n_models + 1) ? FSDP_OK : FSDP_ERR_NOMEM;
}

static fsdp_status has_values(fsdp_module *model, bool *yes)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    *yes = list.n > 0;
    for (size_t i = 0; i < list.n; i++) {
        const fsdp_tensor *data = fsdp_parameter_data(list.items[i].parameter);
        *yes = *yes && data && fsdp_tensor_has_data(data);
    }
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

/* Set *sync to true if rank 0 must broadcast the model's values to all ranks. If the caller gave
 * fully_shard options, their sync_module_states decides. Otherwise the values are broadcast if rank
 * 0 has values, unless FSDP_SYNC_MODULE_STATES is false. */
static fsdp_status choose_sync(fsdp_accelerator *a, fsdp_module *model, bool *sync)
{
    bool mine = false;
    const fsdp_status status = a->settings.sync_module_states && !a->settings.code_shards
                                   ? has_values(model, &mine)
                                   : FSDP_OK;
    FSDP_TRY(fsdp_agree(a->group, status));
    FSDP_TRY(fsdp_broadcast(a->group, &mine, sizeof mine, 0));
    *sync = mine || (a->settings.code_shards && a->settings.fully_shard.sync_module_states);
    return FSDP_OK;
}

/* Return the classes of the model's blocks, or NULL if it is not a model of this library. */
static const char *const *block_classes_of(const fsdp_module *model)
{
    fsdp_model_config config;
    if (fsdp_model_get_config(model, &config) != FSDP_OK)
        return NULL;
    return fsdp_model_config_info(&config).block_classes;
}

static fsdp_status shard(fsdp_accelerator *a, fsdp_module *model,
                         const fsdp_fully_shard_options *options)
{
    const fsdp_accelerator_settings *s = &a->settings;
    const char *const *blocks = block_classes_of(model);
    if (s->auto_wrap_policy)
        return fsdp_auto_wrap(model, s->auto_wrap_policy, a->group, a->device, options);
    if (s->wraps && !s->default_units)
        return fsdp_auto_wrap(model, &s->policy, a->group, a->device, options);
    if (blocks)
        return fsdp_model_shard(model, blocks, a->group, a->device, options);
    if (s->wraps)
        return fsdp_error(FSDP_ERR_INVALID,
                          "FSDP_AUTO_WRAP_POLICY is TRANSFORMER_BASED_WRAP, but this %s is not a "
                          "model of this library, whose blocks are known: set "
                          "FSDP_TRANSFORMER_CLS_TO_WRAP (fsdp_transformer_layer_cls_to_wrap in "
                          "the YAML) to the classes of its blocks, or use NO_WRAP",
                          fsdp_module_class(model));
    return fsdp_auto_wrap(model, NULL, a->group, a->device, options);
}

typedef struct checkpointing {
    const char *const *blocks; /* classes to checkpoint; NULL: all units below the root */
} checkpointing;

static bool is_checkpointed(const char *path, const fsdp_module *module, void *arg)
{
    const checkpointing *c = arg;
    for (size_t i = 0; c->blocks && c->blocks[i]; i++)
        if (fsdp_check_class(path, module, (void *)(uintptr_t)c->blocks[i]))
            return true;
    return !c->blocks && *path && fsdp_module_is_unit(module);
}

static fsdp_status checkpoint_activations(const fsdp_accelerator *a, fsdp_module *model)
{
    const fsdp_accelerator_settings *s = &a->settings;
    const bool chosen = s->auto_wrap_policy || (s->wraps && !s->default_units);
    checkpointing c = {.blocks = chosen ? NULL : block_classes_of(model)};
    const fsdp_activation_checkpointing_options options = {.offload = a->offload};
    if (!s->activation_checkpointing)
        return FSDP_OK;
    return fsdp_apply_activation_checkpointing(model, is_checkpointed, &c, &options);
}

fsdp_status fsdp_accelerator_prepare_model(fsdp_accelerator *a, fsdp_module *model)
{
    FSDP_TRY(fsdp_agree(a->group, check_model(a, model)));
    if (!fsdp_module_is_unit(model)) {
        fsdp_fully_shard_options options = a->settings.fully_shard;
        FSDP_TRY(choose_sync(a, model, &options.sync_module_states));
        FSDP_TRY(shard(a, model, &options));
    }
    FSDP_TRY(checkpoint_activations(a, model));
    a->models[a->n_models++] = model;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_unwrap_model(const fsdp_accelerator *a, fsdp_module *model,
                                          fsdp_module **unwrapped)
{
    FSDP_TRY(fsdp_accelerator_know_model(a, model));
    *unwrapped = model;
    return FSDP_OK;
}

/* ---- optimizers ---- */

static fsdp_status contains(fsdp_module *model, const fsdp_parameter *parameter, bool *yes)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(model, false, &list));
    *yes = false;
    for (size_t i = 0; i < list.n && !*yes; i++)
        *yes = list.items[i].parameter == parameter;
    fsdp_parameter_list_free(&list);
    return FSDP_OK;
}

/* Set *model to the index of the model that has the optimizer's first parameter. */
static fsdp_status first_model(const fsdp_accelerator *a, const fsdp_parameter_list *list,
                               size_t *model)
{
    bool found = false;
    if (list->n == 0)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: the optimizer has no parameters");
    for (size_t i = 0; i < a->n_models && !found; i++) {
        FSDP_TRY(contains(a->models[i], list->items[0].parameter, &found));
        *model = i;
    }
    if (!found)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: parameter '%s' of the optimizer belongs to no prepared "
                          "model; prepare its model before the optimizer",
                          list->items[0].name);
    return FSDP_OK;
}

/* Set *model to the index of the model that has all parameters of the optimizer. Return an error if
 * there is no such model. */
static fsdp_status find_model_of(const fsdp_accelerator *a, const fsdp_optimizer *optimizer,
                                 size_t *model)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(optimizer);
    fsdp_parameter_list of_model;
    FSDP_TRY(first_model(a, list, model));
    FSDP_TRY(fsdp_module_parameters(a->models[*model], false, &of_model));
    const fsdp_named_parameter *stranger = NULL;
    for (size_t i = 0; i < list->n && !stranger; i++) {
        size_t k = 0;
        while (k < of_model.n && of_model.items[k].parameter != list->items[i].parameter)
            k++;
        stranger = k < of_model.n ? NULL : &list->items[i];
    }
    fsdp_parameter_list_free(&of_model);
    for (size_t i = 0; stranger && i < a->n_models; i++) {
        bool elsewhere;
        FSDP_TRY(contains(a->models[i], stranger->parameter, &elsewhere));
        if (elsewhere)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "accelerator: the optimizer updates models %zu and %zu (parameter "
                              "'%s'), but its state is saved with one model; use an optimizer for "
                              "each model",
                              *model, i, stranger->name);
    }
    if (stranger)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: parameter '%s' of the optimizer belongs to no prepared "
                          "model; prepare its model before the optimizer",
                          stranger->name);
    return FSDP_OK;
}

static fsdp_status add_optimizer(fsdp_accelerator *a, fsdp_optimizer *optimizer)
{
    size_t model = 0;
    if (fsdp_accelerator_find_optimizer(a, optimizer) >= 0)
        return fsdp_error(FSDP_ERR_INVALID, "accelerator: this optimizer was prepared before; each "
                                            "is prepared once");
    FSDP_TRY(find_model_of(a, optimizer, &model));
    if (!FSDP_GROW(a->optimizers, a->cap_optimizers, a->n_optimizers + 1))
        return FSDP_ERR_NOMEM;
    a->optimizers[a->n_optimizers] =
        (fsdp_prepared_optimizer){.optimizer = optimizer, .model = model};
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_prepare_optimizer(fsdp_accelerator *a, fsdp_optimizer *optimizer)
{
    FSDP_TRY(fsdp_agree(a->group, add_optimizer(a, optimizer)));
    a->n_optimizers++;
    return FSDP_OK;
}

/* ---- schedulers ---- */

static fsdp_status check_rates(const fsdp_optimizer *optimizer, const fsdp_lr_schedule *schedule)
{
    const double lr = fsdp_optimizer_lr(optimizer, 0);
    for (int i = 1; i < fsdp_optimizer_n_groups(optimizer); i++)
        if (fsdp_optimizer_lr(optimizer, i) != lr)
            return fsdp_error(FSDP_ERR_UNSUPPORTED,
                              "accelerator: a schedule sets one learning rate, but groups 0 and %d "
                              "of the optimizer have %g and %g; set them with "
                              "fsdp_optimizer_set_group_lr() instead of a scheduler",
                              i, lr, fsdp_optimizer_lr(optimizer, i));
    if (schedule->lr != lr)
        return fsdp_error(FSDP_ERR_INVALID,
                          "accelerator: the learning rate is %g in the schedule and %g in the "
                          "optimizer; leave it 0 in the schedule to use the optimizer's",
                          schedule->lr, lr);
    return fsdp_lr_schedule_check(schedule);
}

static fsdp_status create_scheduler(fsdp_accelerator *a, fsdp_optimizer *optimizer,
                                    const fsdp_lr_schedule *given, fsdp_accelerated_scheduler **out)
{
    fsdp_lr_schedule schedule = *given;
    FSDP_TRY(fsdp_accelerator_know_optimizer(a, optimizer));
    for (size_t i = 0; i < a->n_schedulers; i++)
        if (a->schedulers[i]->optimizer == optimizer)
            return fsdp_error(FSDP_ERR_INVALID,
                              "accelerator: this optimizer has a scheduler already");
    if (schedule.lr == 0)
        schedule.lr = fsdp_optimizer_lr(optimizer, 0);
    FSDP_TRY(check_rates(optimizer, &schedule));
    if (!FSDP_GROW(a->schedulers, a->cap_schedulers, a->n_schedulers + 1))
        return FSDP_ERR_NOMEM;
    fsdp_accelerated_scheduler *s = fsdp_calloc(1, sizeof *s);
    if (!s)
        return FSDP_ERR_NOMEM;
    *s = (fsdp_accelerated_scheduler){
        .optimizer = optimizer, .schedule = schedule, .one_a_step = a->settings.split_batches};
    *out = s;
    return FSDP_OK;
}

fsdp_status fsdp_accelerator_prepare_scheduler(fsdp_accelerator *a, fsdp_optimizer *optimizer,
                                               const fsdp_lr_schedule *schedule,
                                               fsdp_accelerated_scheduler **scheduler)
{
    fsdp_accelerated_scheduler *s = NULL;
    const fsdp_status status = fsdp_agree(a->group, create_scheduler(a, optimizer, schedule, &s));
    if (status != FSDP_OK) {
        fsdp_free(s);
        return status;
    }
    a->schedulers[a->n_schedulers++] = s;
    fsdp_accelerated_scheduler_apply(s);
    *scheduler = s;
    return FSDP_OK;
}
